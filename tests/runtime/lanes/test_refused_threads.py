"""M14: a system that refuses threads for a while delays work; it loses none and raises nothing."""

from __future__ import annotations

import _thread
import asyncio
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.clock import SystemClock
from actorflow.runtime.lanes import thread_start
from actorflow.runtime.lanes import uninterruptible as helper_module
from actorflow.runtime.lanes.loop import LoopLane
from actorflow.runtime.lanes.pool import ThreadPool
from actorflow.runtime.lanes.thread import ThreadLane
from actorflow.runtime.tickets import ThreadTicket
from tests.runtime.lanes.test_lanes import Run
from tests.runtime.worker.probe import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.runtime.lanes.lane import RuntimeLane


class System:
    """An operating system that can be made to refuse threads."""

    def __init__(self) -> None:
        self.refuses = False
        self.refused = 0

    def relent(self) -> None:
        self.refuses = False


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """Return a switch that makes every start of a thread fail as it does at a process limit."""
    made = System()

    def guarded(start: Callable[..., Any]) -> Callable[..., Any]:
        def start_or_refuse(*args: Any) -> Any:
            if made.refuses:
                made.refused += 1
                raise RuntimeError("can't start new thread")
            return start(*args)

        return start_or_refuse

    monkeypatch.setattr(threading, "_start_new_thread", guarded(threading._start_new_thread))  # type: ignore[attr-defined]
    monkeypatch.setattr(helper_module, "start_new_thread", guarded(_thread.start_new_thread))
    yield made
    made.refuses = False
    until(lambda: not thread_start.PENDING or bool(thread_start.retry()), "nothing is pending")  # type: ignore[func-returns-value]


@pytest.fixture(params=["helper", "no helper", "other thread"])
def calling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a way to call a function: in the main thread, or in one that exists already."""
    helper = helper_module.Uninterruptible()
    for module in ("uninterruptible", "pool", "thread", "loop"):
        monkeypatch.setattr(f"actorflow.runtime.lanes.{module}.UNINTERRUPTIBLE", helper)
    if request.param == "helper":
        helper.run(lambda: None)
    if request.param != "other thread":
        yield lambda function: function()
    else:
        helper = helper_module.Uninterruptible()
        helper.run(lambda: None)
        yield helper.run
        helper._inbox.put(None)
    helper.post(lambda: None)
    helper._inbox.put(None)


def close(lane: RuntimeLane) -> None:
    if isinstance(lane, ThreadPool):
        lane.close()
    elif isinstance(lane, LoopLane):
        loop = lane._loop
        assert loop is not None
        lane.call_soon(loop.stop)
        until(lambda: not loop.is_running(), "the loop has stopped")
        loop.close()
    else:
        lane.release()


LANES: dict[str, Callable[[], RuntimeLane]] = {
    "pool": lambda: ThreadPool(core=1, limit=3, name="actorflow-refused"),
    "thread": lambda: ThreadLane("refused"),
    "loop": lambda: LoopLane("actorflow-refused-loop"),
}


@pytest.mark.parametrize("kind", LANES)
def test_m14_what_is_submitted_runs_once_there_are_threads_again(
    system: System, calling: Any, kind: str
) -> None:
    lane = LANES[kind]()
    runs = [Run() for _ in range(3)]
    ticket = ThreadTicket()
    runs[2].action = ticket.resolve
    system.refuses = True
    for run in runs:
        calling(lambda run=run: lane.submit(run))  # it does not raise
    until(lambda: system.refused > 0, "a start was tried")
    assert not any(run.done.is_set() for run in runs)
    system.refuses = False
    assert lane.wait(ticket, PATIENCE)  # without another submit
    for run in runs:
        assert run.done.wait(PATIENCE)
    close(lane)


@pytest.mark.parametrize("kind", LANES)
def test_m14_the_next_submit_tries_again(system: System, calling: Any, kind: str) -> None:
    lane = LANES[kind]()
    system.refuses = True
    first, second = Run(), Run()
    calling(lambda: lane.submit(first))
    until(lambda: system.refused > 0, "a start was tried")
    system.refuses = False
    calling(lambda: lane.submit(second))
    assert first.done.wait(PATIENCE)
    assert second.done.wait(PATIENCE)
    close(lane)


def test_m14_a_thread_is_listed_only_after_it_has_started(system: System) -> None:
    pool = ThreadPool(core=2, name="actorflow-listed")
    system.refuses = True
    run = Run()
    pool.submit(run)
    until(lambda: system.refused > 0, "a start was tried")
    assert pool.statistics().threads == 0
    assert pool.statistics().grown == 0
    system.refuses = False
    thread_start.retry()
    assert run.done.wait(PATIENCE)
    assert pool.statistics().grown == 1
    pool.close()


def test_m14_the_watcher_survives_and_the_pool_grows_later(system: System) -> None:
    pool = ThreadPool(core=1, limit=10, name="actorflow-survives")
    gate = threading.Event()
    runs = [Run(lambda: gate.wait(PATIENCE)) for _ in range(4)]
    pool.submit(runs[0])
    until(lambda: runs[0].thread is not None, "the first one blocks")
    pool.submit(Run())  # the watcher is started for this one
    until(lambda: pool._watched, "the watcher runs")
    until(lambda: pool.statistics().waiting == 0, "there is a second thread")
    system.refuses = True
    for run in runs[1:]:
        pool.submit(run)
    until(lambda: system.refused > 3, "the watcher tries again and again")
    system.refuses = False
    until(lambda: all(run.thread for run in runs), "all block at once")
    gate.set()
    for run in runs:
        assert run.done.wait(PATIENCE)
    pool.close()


def test_m14_a_watcher_that_cannot_start_is_started_later(system: System) -> None:
    pool = ThreadPool(core=1, limit=10, name="actorflow-watcher")
    gate = threading.Event()
    first, second = Run(lambda: gate.wait(PATIENCE)), Run(gate.set)
    pool.submit(first)
    until(lambda: first.thread is not None, "the first one blocks")
    system.refuses = True
    pool.submit(second)
    until(lambda: system.refused > 0, "the watcher was refused")
    assert not pool._watched
    system.refuses = False
    assert first.done.wait(PATIENCE)  # another thread has run the second one
    pool.close()


def test_m14_timers_are_kept_until_the_clock_has_a_thread(system: System, calling: Any) -> None:
    clock, called = SystemClock(), threading.Event()
    system.refuses = True
    calling(lambda: clock.call_at(clock.now(), called.set))
    until(lambda: system.refused > 0, "a start was tried")
    assert not called.is_set()
    system.refuses = False
    calling(lambda: clock.call_at(clock.now(), lambda: None))
    assert called.wait(PATIENCE)


def test_m14_an_idle_thread_of_the_pool_tries_again_for_others(system: System) -> None:
    with af.spawn(lambda batch, state: None) as worker:
        worker.push_block("the pool has threads")
    lane, run = ThreadLane("others"), Run()
    system.refuses = True
    lane.submit(run)
    until(lambda: system.refused > 3, "somebody tries again and again")
    system.refuses = False
    assert run.done.wait(PATIENCE)
    lane.release()


def test_m14_callers_on_an_event_loop_try_again(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_start, "AGENTS", [])  # no thread of ours comes by
    with af.spawn(lambda batch, state: None, executor="thread") as worker:
        system.refuses = True
        run, lane = Run(), ThreadLane("async")
        lane._submit_first(run)  # in this thread
        assert thread_start.PENDING

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.call_later(0.1, system.relent)
            await worker.apush_block("message")

        asyncio.run(main())
        assert run.done.wait(PATIENCE)
        lane.release()


def test_m14_without_file_descriptors_the_loop_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane, run = LoopLane("actorflow-no-files"), Run()
    with monkeypatch.context() as patch:

        def refuse() -> None:
            raise OSError(24, "Too many open files")

        patch.setattr("actorflow.runtime.lanes.loop._new_event_loop", refuse)
        lane.submit(run)
        until(lambda: bool(thread_start.PENDING), "the loop could not be made")
    assert run.done.wait(PATIENCE)
    close(lane)


def test_m14_workers_survive_a_real_process_limit() -> None:
    script = textwrap.dedent(
        """
        import copy, os, resource, sys, threading
        import actorflow as af

        af.spawn, af.PushTimeout  # imported while this user may read the files
        seen = []
        if os.getuid() == 0:
            os.setuid(65534)  # root has no limit
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        try:
            threading.Thread(target=print).start()
        except RuntimeError:
            pass
        else:
            sys.exit(77)
        workers = [af.spawn(lambda batch, state: seen.extend(batch), **options)
                   for options in ({}, {"executor": "thread"}, {"throttle": 0.001})]
        for worker in workers:
            worker.push(1)
            try:
                worker.push_block(2, timeout=0.1)
            except af.PushTimeout:
                pass
            else:
                sys.exit("there was a thread")
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
        for worker in workers:
            worker.push_block(3)
            worker.stop()
        assert sorted(seen) == [1, 1, 1, 2, 2, 2, 3, 3, 3], seen
        """
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    if done.returncode == 77:
        pytest.skip("this system has no RLIMIT_NPROC")
    assert done.returncode == 0
