"""Forks: what a child renews, in which order, and that it can use all of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import pytest

from actorflow.runtime import fork
from actorflow.runtime.fork import after_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "_early", {})
    monkeypatch.setattr(fork, "_late", {})


def test_callbacks_run_in_the_order_of_registration_and_the_last_ones_last() -> None:
    seen: list[str] = []
    after_fork(lambda: seen.append("late"), last=True)
    after_fork(lambda: seen.append("a"))
    after_fork(lambda: seen.append("later"), last=True)
    after_fork(lambda: seen.append("b"))
    fork._run_callbacks()
    fork._run_callbacks()
    assert seen == ["a", "b", "late", "later"] * 2


def test_a_bound_method_is_forgotten_with_its_object() -> None:
    seen: list[str] = []

    class Part:
        def renew(self) -> None:
            seen.append("renewed")

    part = Part()
    after_fork(part.renew)
    fork._run_callbacks()
    assert seen == ["renewed"]
    del part
    gc.collect()
    fork._run_callbacks()
    assert seen == ["renewed"]
    assert not fork._early


def test_a_callback_that_raises_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def fails() -> None:
        raise ValueError("broken")

    after_fork(fails)
    after_fork(lambda: seen.append(1))
    fork._run_callbacks()
    assert seen == [1]
    assert "callback after fork failed" in caplog.text


def in_child(body: str) -> None:
    """Run a script in which `parent()` has used everything, and `check` in a fork of it."""
    script = textwrap.dedent(
        """
        import os, sys, threading, traceback, warnings
        import actorflow as af
        from actorflow.runtime.clock import SYSTEM, SystemClock
        from actorflow.runtime.lanes.loop import LOOP, LoopLane
        from actorflow.runtime.lanes.pool import POOL, ThreadPool
        from actorflow.runtime.lanes.thread import ThreadLane

        warnings.simplefilter("ignore")  # that threads and forks do not mix is the point here

        class Run:
            def __init__(self, action=lambda: None):
                self.action, self.done = action, threading.Event()
            def run(self):
                self.action()
                self.done.set()

        def fork(check):
            child = os.fork()
            if child == 0:
                try:
                    check()
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    ) + textwrap.dedent(body)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_m24_a_child_has_fresh_lanes_and_clocks() -> None:
    in_child(
        """
        lanes = [POOL, LOOP, ThreadLane("a"), ThreadPool(core=1, limit=1), LoopLane("b")]
        clocks = [SYSTEM, SystemClock()]
        gate, busy = threading.Event(), [Run() for _ in lanes]

        def use(lanes, clocks):
            for lane in lanes:
                run = Run()
                lane.submit(run)
                assert run.done.wait(20), lane
            for clock in clocks:
                called = threading.Event()
                clock.call_at(clock.now() + 0.001, called.set)
                assert called.wait(20), clock

        use(lanes, clocks)
        held = Run(lambda: gate.wait(20))
        lanes[3].submit(held)
        stale = Run()
        lanes[3].submit(stale)  # waits in the parent, and must not run in the child
        clocks[1].call_at(clocks[1].now() + 3600, lambda: None)

        def check():
            assert POOL.statistics().threads == 0
            use(lanes, clocks)
            assert not stale.done.is_set()

        fork(check)
        gate.set()
        assert stale.done.wait(20)
        use(lanes, clocks)  # the parent goes on
        """
    )


def test_m24_a_child_can_spawn_workers_of_each_kind() -> None:
    in_child(
        """
        seen = []

        async def coroutine(batch, state):
            seen.extend(batch)

        def job(batch, state):
            seen.extend(batch)

        def use():
            for options in ({}, {"throttle": 0.001}, {"executor": "thread"}):
                with af.spawn(job, **options) as worker:
                    worker.push_block(1)
                    worker.push_block(2)
            with af.spawn(coroutine) as worker:
                worker.push_block(3)

        use()
        fork(use)
        use()
        assert seen == [1, 2, 1, 2, 1, 2, 3] * 2, seen
        """
    )


def test_m24_locks_that_other_threads_held_are_free_in_the_child() -> None:
    in_child(
        """
        pool, clock, lane = ThreadPool(core=1), SystemClock(), ThreadLane("locked")
        for lock in (pool._growing, clock._lock, lane._starting):
            threading.Thread(target=lock.acquire).start()

        def check():
            run, called = Run(), threading.Event()
            pool.submit(run)
            lane.submit(run)
            clock.call_at(clock.now(), called.set)
            assert run.done.wait(20)
            assert called.wait(20)
            assert pool.statistics().threads <= 1

        fork(check)
        """
    )


def test_m24_a_child_can_wait_for_messages_whatever_lock_was_held_at_the_fork() -> None:
    in_child(
        """
        from actorflow.runtime.worker.pair import callers

        threading.Thread(target=callers._MARKING.acquire).start()

        def check():
            with af.spawn(lambda batch, state: state) as worker:
                worker.push_block(1, timeout=20)

        fork(check)
        """
    )


def test_m24_a_thread_of_the_pool_that_forks_runs_nothing_else_in_the_child() -> None:
    in_child(
        """
        pool, forked, results = ThreadPool(core=1, limit=1), [], []

        def action():
            child = os.fork()
            forked.append(child)
            if child:
                results.append(os.waitpid(child, 0)[1])

        first = Run(action)
        second = Run(lambda: os._exit(1) if forked == [0] else None)
        pool.submit(first)
        pool.submit(second)
        assert second.done.wait(20)
        assert [os.waitstatus_to_exitcode(status) for status in results] == [0], results
        """
    )
