"""The relay: one thread runs submitted work, and others take over from a slow one."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.lanes.pool import HERE, POOL
from actorflow.runtime.lanes.serial_lane import SERIAL_LANE, SlowCallDetector
from actorflow.runtime.tickets import ThreadTicket
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEVER = 1e9
"""Seconds that no call takes."""


class Run:
    """Something to run: it records its thread and its end."""

    def __init__(self, action: Callable[[], Any] = lambda: None) -> None:
        self.action = action
        self.thread: int | None = None
        self.done = threading.Event()

    def run(self) -> None:
        self.thread = threading.get_ident()
        try:
            self.action()
        finally:
            self.done.set()

    def wait(self) -> int | None:
        assert self.done.wait(PATIENCE)
        return self.thread


class Caller(threading.Thread):
    """Submits from a thread that is neither the main thread nor one of the pool."""

    def __init__(self, *runs: Run) -> None:
        super().__init__(daemon=True)
        self.runs = runs
        self.start()
        self.join(PATIENCE)

    def run(self) -> None:
        for each in self.runs:
            SERIAL_LANE.submit(each)


@contextmanager
def nobody_watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the baton where it is, however long a run takes."""
    with monkeypatch.context() as patch:
        patch.setattr(POOL, "_looks", [])
        yield


def test_what_is_submitted_runs_in_order_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go.wait(PATIENCE)

    order: list[int] = []
    first = Run(block)
    others = [Run(lambda number=number: order.append(number)) for number in range(50)]  # type: ignore[misc]
    with nobody_watches(monkeypatch):
        Caller(first)
        assert begun.wait(PATIENCE)
        Caller(*others)
        go.set()
        assert {each.wait() for each in others} == {first.wait()}
    assert order == list(range(50))


def test_a_chain_stays_in_one_thread_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    end = Run()

    def step(left: int) -> Run:
        def action() -> None:
            threads.append(threading.get_ident())
            SERIAL_LANE.free()
            SERIAL_LANE.submit(step(left - 1) if left else end)

        return Run(action)

    with nobody_watches(monkeypatch):
        Caller(step(2_000))  # deeper than the stack
        end.wait()
    assert {*threads, end.thread} == {threads[0]}


def test_a_thread_of_the_pool_goes_on_with_what_it_submits_when_it_is_free() -> None:
    order: list[str] = []
    second = Run(lambda: order.append("second"))

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)
        order.append("first")

    first = Run(action)
    POOL.submit(first)
    assert second.wait() == first.wait()
    assert order == ["first", "second"]


def test_a_thread_of_the_pool_that_is_not_free_leaves_it_to_others() -> None:
    second = Run()

    def action() -> None:
        SERIAL_LANE.submit(second)
        second.wait()  # while this one goes on

    first = Run(action)
    POOL.submit(first)
    assert first.wait() != second.thread


def test_a_free_thread_that_calls_code_gives_away_what_it_has_kept() -> None:
    second = Run()

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)
        assert not second.done.is_set()
        SlowCallDetector(NEVER).begin()
        second.wait()

    first = Run(action)
    POOL.submit(first)
    assert first.wait() != second.thread


def test_another_thread_takes_over_when_a_run_blocks() -> None:
    second = Run()
    first = Run(second.wait)
    Caller(first, second)
    assert first.wait() != second.thread


def test_another_thread_takes_over_when_a_run_blocks_that_has_submitted_something() -> None:
    second = Run()

    def action() -> None:
        SERIAL_LANE.submit(second)
        second.wait()

    first = Run(action)
    Caller(first)
    assert first.wait() != second.thread


def test_another_thread_takes_over_from_one_that_blocks_for_one_that_is_free() -> None:
    begun = threading.Event()
    second = Run()

    def block() -> None:
        begun.set()
        second.wait()

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)

    first = Run(block)
    Caller(first)
    assert begun.wait(PATIENCE)
    POOL.submit(Run(action))
    assert first.wait() != second.thread


def test_another_thread_takes_over_when_code_blocks_that_was_declared() -> None:
    second = Run()

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)
        SlowCallDetector(NEVER).begin()
        second.wait()

    first = Run(action)
    Caller(first)
    assert first.wait() != second.thread


def test_code_that_was_slow_twice_lets_others_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = SlowCallDetector(-1.0)  # whatever it takes is long
    slow = []
    for _ in range(2):
        pace.end(pace.begin())
        slow.append(pace.slow)
    assert slow == [False, True]
    second = Run()

    def action() -> None:
        SERIAL_LANE.submit(second)
        pace.begin()
        second.wait()

    first = Run(action)
    with nobody_watches(monkeypatch):
        Caller(first)
        assert first.wait() != second.thread


def test_code_that_is_quick_again_is_trusted_again() -> None:
    pace = SlowCallDetector(NEVER)
    pace.slow = True
    pace.end(pace.begin())
    assert not pace.slow


def test_a_run_that_waits_for_a_caller_lets_others_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticket = ThreadTicket()
    second = Run(ticket.resolve)

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)
        assert ticket.wait(PATIENCE)

    first = Run(action)
    with nobody_watches(monkeypatch):
        Caller(first)
        assert first.wait() != second.wait()


def test_a_thread_that_waits_for_a_caller_gives_away_what_it_has_kept() -> None:
    ticket = ThreadTicket()
    second = Run(ticket.resolve)

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)
        assert ticket.wait(PATIENCE)

    first = Run(action)
    POOL.submit(first)
    assert first.wait() != second.wait()


def test_code_of_our_own_does_not_declare_that_a_thread_is_done_soon() -> None:
    free: list[bool] = []
    pace = SlowCallDetector(NEVER)

    def action() -> None:
        pace.note(pace.expect())
        free.append(HERE.thread.free)  # type: ignore[union-attr]
        pace.end(pace.begin())
        free.append(HERE.thread.free)  # type: ignore[union-attr]

    first = Run(action)
    POOL.submit(first)
    first.wait()
    assert free == [False, True]


def test_a_thread_without_the_baton_finishes_its_run_and_may_get_it_again() -> None:
    here: list[bool] = []
    second, third = Run(), Run()

    def action() -> None:
        here.append(SERIAL_LANE.is_here)
        SERIAL_LANE.submit(second)
        SERIAL_LANE.pass_on()
        SERIAL_LANE.pass_on()  # does nothing
        here.append(SERIAL_LANE.is_here)
        second.wait()

    first = Run(action)
    Caller(first)
    assert first.wait() != second.wait()
    assert here == [True, False]
    Caller(third)
    third.wait()
    assert not SERIAL_LANE.is_here


def test_what_waits_for_a_thread_of_the_pool_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[Any] = []
    passed_on = threading.Event()
    second = Run()

    def submit(runnable: Any) -> None:
        submitted.append(runnable)
        passed_on.set()

    def action() -> None:
        SERIAL_LANE.submit(second)
        patch.setattr(type(POOL), "has_waiting", True)
        patch.setattr(POOL, "submit", submit)

    with nobody_watches(monkeypatch), monkeypatch.context() as patch:
        Caller(Run(action))
        assert passed_on.wait(PATIENCE)
    assert submitted == [SERIAL_LANE]
    assert not second.done.is_set()
    POOL.submit(SERIAL_LANE)
    second.wait()


def test_the_others_run_even_if_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    second = Run()

    def action() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(second)
        raise ValueError("first")

    first = Run(action)
    Caller(first)
    second.wait()
    assert "an actor's run raised" in caplog.text


def test_a_token_is_claimed_once() -> None:
    claimed: list[bool] = []
    mine, other = Run(), Run()
    tokens: list[Any] = [mine]

    def action() -> None:
        claimed.extend(
            (SERIAL_LANE.claim(tokens), SERIAL_LANE.claim(tokens), SERIAL_LANE.claim([]))
        )

    first = Run(action)
    Caller(first)
    mine.wait()
    assert claimed == [True, False, False]
    assert SERIAL_LANE.claim([other])
    assert not SERIAL_LANE.claim([])
    other.wait()


def test_for_the_main_thread_it_is_the_pool() -> None:
    SERIAL_LANE.free()
    SERIAL_LANE.pass_on()
    run = Run()
    SERIAL_LANE.submit(run)
    assert run.wait() != threading.get_ident()
    assert SERIAL_LANE.can_help


@pytest.mark.parametrize("count", [2, 8])
def test_nothing_is_lost_when_many_submit_and_runs_block(count: int) -> None:
    each = 200
    left = threading.Semaphore(0)
    slow = SlowCallDetector(-1.0)

    def quick() -> None:
        left.release()

    def passing() -> None:
        slow.end(slow.begin())
        left.release()

    def chained() -> None:
        SERIAL_LANE.free()
        SERIAL_LANE.submit(Run(quick))

    actions = [quick, passing, chained]

    def submit(seed: int) -> None:
        for number in range(each):
            SERIAL_LANE.submit(Run(actions[(seed + number) % len(actions)]))

    threads = [threading.Thread(target=submit, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for _ in range(count * each):
        assert left.acquire(timeout=PATIENCE)
