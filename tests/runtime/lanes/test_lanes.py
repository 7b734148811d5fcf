"""Lanes: the elastic pool, a thread of its own, the loop."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import Any

import pytest

import actorflow as af
from actorflow.runtime.lanes import pool as pools
from actorflow.runtime.lanes.loop import LOOP, LoopLane
from actorflow.runtime.lanes.pool import POOL, ThreadPool
from actorflow.runtime.lanes.thread import ThreadLane
from tests.runtime.worker.probe import PATIENCE, Probe, ended, until


class Run:
    """Something to run: it records its thread and its end."""

    def __init__(self, action: Any = lambda: None) -> None:
        self.action = action
        self.thread: threading.Thread | None = None
        self.done = threading.Event()

    def run(self) -> None:
        self.thread = threading.current_thread()
        try:
            self.action()
        finally:
            self.done.set()


# Elasticity.


def test_two_hundred_workers_that_block_are_all_inside_their_jobs_at_once() -> None:
    together = threading.Barrier(201)

    def job(batch: Any, state: Any) -> None:
        together.wait(PATIENCE)

    workers = [af.spawn(job) for _ in range(200)]
    for worker in workers:
        worker.push("go")
    together.wait(PATIENCE)  # only when all 200 are inside does anyone go on
    for worker in workers:
        worker.stop()
    assert POOL.statistics().threads <= POOL.limit


class FakePoolThread:
    """A thread of the pool as the watcher sees it."""

    def __init__(self, *, still: bool, since: float = 0.0) -> None:
        self.still = still
        self.since = since

    def look(self, now: float) -> bool:
        return self.still


class StillPool(ThreadPool):
    """A pool that counts how much it would grow."""

    def __init__(self, *pool_threads: FakePoolThread, core: int = 2) -> None:
        super().__init__(core=core, limit=1_000)
        self._threads = dict(enumerate(pool_threads))  # type: ignore[arg-type]
        self.grown: list[int] = []

    def _grow(self, count: int) -> None:
        self.grown.append(count)


def test_a_pool_whose_threads_all_block_grows_by_what_waits_at_most_doubling() -> None:
    pool = StillPool(*(FakePoolThread(still=True) for _ in range(4)))
    pool._consider(3, 1.0, computing=False)
    pool._consider(100, 1.0, computing=False)
    assert pool.grown == [3, 4]


def test_a_pool_of_which_one_thread_moves_does_not_grow() -> None:
    moving = FakePoolThread(still=False, since=1.0)
    pool = StillPool(FakePoolThread(still=True), moving, FakePoolThread(still=True))
    pool._consider(100, 1.0, computing=False)
    assert pool.grown == []


@pytest.mark.parametrize("computing", [False, True])
def test_a_pool_whose_threads_all_compute_for_long_gets_one_more(computing: bool) -> None:  # noqa: FBT001
    pool = StillPool(*(FakePoolThread(still=False, since=0.0) for _ in range(2)))
    pool._consider(100, 10.0, computing=computing)
    assert pool.grown == [1]


def test_a_pool_that_computes_does_not_grow() -> None:
    pool_threads = [FakePoolThread(still=True, since=1.0 - pools._STUCK / 2) for _ in range(4)]
    pool = StillPool(*pool_threads)
    pool._consider(100, 1.0, computing=True)
    assert pool.grown == []


def test_a_pool_that_computes_but_is_stuck_for_long_grows_by_one() -> None:
    pool = StillPool(*(FakePoolThread(still=True, since=0.0) for _ in range(4)))
    pool._consider(100, 10.0, computing=True)
    assert pool.grown == [1]


def test_a_pool_with_fewer_threads_than_its_core_grows_in_any_case() -> None:
    for computing in (False, True):
        pool = StillPool(FakePoolThread(still=False), core=2)
        pool._consider(1, 1.0, computing=computing)
        assert pool.grown == [1]


def test_a_seat_stands_still_if_it_neither_begins_runs_nor_uses_the_processor() -> None:
    pool_thread = pools.PoolThread()
    assert not pool_thread.look(1.0)  # the first look only takes the measure
    assert pool_thread.look(2.0)
    pool_thread.runs += 1
    assert not pool_thread.look(3.0)
    assert pool_thread.since == 3.0
    assert pool_thread.look(4.0)
    assert pool_thread.since == 3.0


# The pool.


@pytest.mark.parametrize(("core", "limit"), [(0, 5), (-1, 5), (3, 2)])
def test_impossible_pools_are_refused(core: int, limit: int) -> None:
    with pytest.raises(af.BadOption, match="1 <= core <= limit"):
        ThreadPool(core=core, limit=limit)


def test_a_pool_starts_without_threads_and_grows_to_its_core() -> None:
    pool = ThreadPool(core=2, name="actorflow-small")
    assert pool.statistics().threads == 0
    gate = threading.Event()
    runs = [Run(lambda: gate.wait(PATIENCE)) for _ in range(2)]
    for run in runs:
        pool.submit(run)
    until(lambda: all(run.thread for run in runs), "both run at once")
    assert pool.statistics().threads == 2
    gate.set()
    for run in runs:
        assert run.done.wait(PATIENCE)
    statistics = pool.statistics()
    assert (statistics.runs, statistics.grown, statistics.waiting) == (2, 2, 0)
    pool.close()
    until(lambda: pool.statistics().threads == 0, "the threads end")
    assert pool.statistics().runs == 2


def test_threads_beyond_the_core_retire() -> None:
    pool = ThreadPool(core=1, limit=10, linger=0.01, name="actorflow-retire")
    gate = threading.Event()
    runs = [Run(lambda: gate.wait(PATIENCE)) for _ in range(5)]
    for run in runs:
        pool.submit(run)
    until(lambda: all(run.thread for run in runs), "all five run at once")
    gate.set()
    until(lambda: pool.statistics().threads == 1, "the core stays, the others retire")
    last = Run()
    pool.submit(last)
    assert last.done.wait(PATIENCE)
    pool.close()


def test_a_thread_that_retires_first_runs_what_arrived_meanwhile() -> None:
    """Work arrives when a thread has lost its patience but still counts as idle."""
    pool = ThreadPool(core=1, limit=5, linger=0.01, name="actorflow-late")
    run = Run()

    class LatePut:
        """A queue to which work is added at the very moment at which a thread gives up."""

        def __init__(self) -> None:
            self.items: list[Any] = []
            self.gave_up = False

        def get(self, timeout: float | None = None) -> Any:
            if not self.gave_up:
                self.gave_up = True
                assert pool._idle  # so a submit at this moment sees an idle thread
                self.items = [run]
                raise queue.Empty
            if self.items:
                return self.items.pop()
            raise queue.Empty

        def empty(self) -> bool:
            return not self.items

        def qsize(self) -> int:
            return len(self.items)

    pool._ready = LatePut()  # type: ignore[assignment]
    pool._work(7, pools.PoolThread())
    assert run.done.is_set()
    assert pool._idle == []


def test_what_comes_just_after_the_last_look_of_the_watcher_is_looked_at() -> None:
    """The watcher does not sleep yet, so nobody wakes it."""
    pool = ThreadPool(core=1, name="actorflow-drowsy")
    looks: list[bool] = []
    waiting, seen = threading.Event(), threading.Event()

    def look(now: float, *, computing: bool) -> bool:
        looks.append(waiting.is_set())
        if looks[-1]:
            seen.set()
        elif len(looks) == pools._QUIET_TICKS:
            waiting.set()
            pool.rouse()
            return False
        return looks[-1]

    pool.oversee(look)
    pool.rouse()
    assert seen.wait(PATIENCE)
    waiting.clear()


def test_the_limit_holds() -> None:
    pool = ThreadPool(core=1, limit=3, name="actorflow-limit")
    gate = threading.Event()
    runs = [Run(lambda: gate.wait(PATIENCE)) for _ in range(6)]
    for run in runs:
        pool.submit(run)
    until(lambda: sum(run.thread is not None for run in runs) == 3, "three run")
    pool._grow(5)
    assert pool.statistics().threads == 3
    gate.set()
    for run in runs:
        assert run.done.wait(PATIENCE)
    pool.close()


def test_a_run_that_raises_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise SystemExit(3)

    for lane in (ThreadPool(core=1, limit=1, name="actorflow-solid"), ThreadLane("solid")):
        bad, good = Run(fails), Run()
        lane.submit(bad)
        lane.submit(good)
        assert good.done.wait(PATIENCE)
        assert bad.thread is good.thread
        assert "run raised" in caplog.text
        caplog.clear()
        if isinstance(lane, ThreadPool):
            lane.close()
        else:
            lane.release()


# A thread of its own.


def test_a_thread_lane_has_one_thread_that_ends_with_its_worker(pool_probe: Probe) -> None:
    threads: set[threading.Thread] = set()
    worker = af.spawn(
        lambda batch, state: threads.add(threading.current_thread()),
        executor="thread", name="own",
    )  # fmt: skip
    for message in range(10):
        worker.push_block(message)
    (thread,) = threads
    assert thread.name == "actorflow-own"
    assert thread.daemon
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("how", ["crash", "now", "finish", "idle"])
def test_the_thread_ends_however_the_worker_ends(how: str) -> None:
    threads: list[threading.Thread] = []

    def job(batch: Any, state: Any) -> None:
        threads.append(threading.current_thread())
        if how == "crash":
            raise ValueError

    options: dict[str, Any] = {"idle_timeout": 0.001} if how == "idle" else {}
    worker = af.spawn(job, executor="thread", **options)
    with suppress(af.WorkerStopped):  # one that was idle for so long before the push
        worker.push(1)
    if how == "now":
        until(lambda: bool(threads), "the job has begun")
        worker.stop(now=True)
    elif how == "finish":
        worker.stop(drain=False)
    ended(worker)
    if threads:
        threads[0].join(PATIENCE)
        assert not threads[0].is_alive()


def test_a_thread_lane_that_was_never_used_has_no_thread() -> None:
    lane = ThreadLane("unused")
    lane.release()
    assert "actorflow-unused" not in {thread.name for thread in threading.enumerate()}


# The loop.


def test_the_loop_starts_when_first_needed_and_is_one() -> None:
    lane = LoopLane("actorflow-test-loop")
    assert not lane._running
    first, second = Run(), Run()
    lane.submit(first)
    lane.submit(second)
    assert second.done.wait(PATIENCE)
    assert first.thread is second.thread
    assert first.thread is not None
    assert first.thread.name == "actorflow-test-loop"
    assert lane._loop is not None
    lane.call_soon(lane._loop.stop)
    first.thread.join(PATIENCE)
    lane._loop.close()


def test_lanes_declare_whether_a_caller_may_help() -> None:
    assert POOL.can_help
    assert not LOOP.can_help
    assert not ThreadLane.can_help
