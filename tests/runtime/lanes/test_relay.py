"""The relay: a thread that is about to be free runs what it submits itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.relay import RELAY
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


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


def test_a_free_thread_runs_what_it_submits_after_the_current_run() -> None:
    order: list[str] = []
    second = Run(lambda: order.append("second"))

    def action() -> None:
        RELAY.free()
        RELAY.submit(second)
        order.append("first")

    first = Run(action)
    POOL.submit(first)
    assert second.wait() == first.wait()
    assert order == ["first", "second"]


def test_a_chain_stays_in_one_thread_however_long() -> None:
    threads: list[int] = []
    end = Run()

    def step(left: int) -> Run:
        def action() -> None:
            threads.append(threading.get_ident())
            RELAY.free()
            RELAY.submit(step(left - 1) if left else end)

        return Run(action)

    POOL.submit(step(2_000))  # deeper than the stack
    end.wait()
    assert {*threads, end.thread} == {threads[0]}


def test_a_thread_that_is_not_free_leaves_it_to_others() -> None:
    second = Run()

    def action() -> None:
        RELAY.submit(second)
        second.wait()  # while this one goes on

    first = Run(action)
    POOL.submit(first)
    assert first.wait() != second.thread


def test_a_thread_that_gets_busy_gives_away_what_it_has_kept() -> None:
    second = Run()

    def action() -> None:
        RELAY.free()
        RELAY.submit(second)
        assert not second.done.is_set()
        RELAY.busy()
        second.wait()

    first = Run(action)
    POOL.submit(first)
    assert first.wait() != second.thread


def test_a_thread_keeps_one_runnable_and_leaves_the_others_to_the_pool() -> None:
    kept, other = Run(), Run()

    def action() -> None:
        RELAY.free()
        RELAY.submit(kept)
        RELAY.submit(other)
        other.wait()

    first = Run(action)
    POOL.submit(first)
    assert kept.wait() == first.wait()
    assert other.thread != first.thread


def test_what_waits_for_a_thread_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[Any] = []
    second = Run()

    def action() -> None:
        RELAY.free()
        with monkeypatch.context() as patch:
            patch.setattr(type(POOL), "has_waiting", True)
            patch.setattr(POOL, "submit", submitted.append)
            RELAY.submit(second)

    first = Run(action)
    POOL.submit(first)
    first.wait()
    assert submitted == [second]


def test_the_next_run_of_a_thread_is_not_free_before_it_says_so() -> None:
    second, third = Run(), Run()

    def relay() -> None:
        RELAY.submit(third)
        third.wait()

    second.action = relay

    def action() -> None:
        RELAY.free()
        RELAY.submit(second)

    first = Run(action)
    POOL.submit(first)
    assert second.wait() == first.wait() != third.thread


def test_what_was_kept_runs_even_if_the_current_run_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    second = Run()

    def action() -> None:
        RELAY.free()
        RELAY.submit(second)
        raise ValueError("first")

    first = Run(action)
    POOL.submit(first)
    assert second.wait() == first.wait()
    assert "an actor's run raised" in caplog.text


def test_a_token_is_claimed_once_in_a_free_thread_and_elsewhere() -> None:
    claimed: list[bool] = []
    mine, other = Run(), Run()
    tokens: list[Any] = [mine]

    def action() -> None:
        RELAY.free()
        claimed.extend((RELAY.claim(tokens), RELAY.claim(tokens), RELAY.claim([])))

    first = Run(action)
    POOL.submit(first)
    assert mine.wait() == first.wait()
    assert claimed == [True, False, False]
    assert RELAY.claim([other])
    assert not RELAY.claim([])
    other.wait()


def test_outside_the_pool_it_is_the_pool() -> None:
    RELAY.free()
    RELAY.busy()
    run = Run()
    RELAY.submit(run)
    assert run.wait() != threading.get_ident()
    assert RELAY.can_help
