"""M13: KeyboardInterrupt at every opcode of a submit or of a call_at in the main thread."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow.runtime
from actorflow.runtime.clock import SystemClock
from actorflow.runtime.lanes.loop import LoopLane
from actorflow.runtime.lanes.pool import ThreadPool
from actorflow.runtime.lanes.thread import ThreadLane
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from tests.runtime.lanes.test_lanes import Run
from tests.runtime.worker.probe import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OURS = tuple(actorflow.runtime.__path__)


def interrupted_at(place: int, call: Callable[[], Any]) -> bool:
    """Call with an interrupt at the `place`-th opcode of our code; return whether it got there."""
    count = 0

    def strike(frame: Any, event: str, arg: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == place:
                raise KeyboardInterrupt
        return strike

    before = sys.gettrace()
    sys.settrace(strike)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return count >= place


def places(call: Callable[[int], bool]) -> int:
    """Call for each place until one is not reached; return how many there are."""
    for place in itertools.count(1):
        if not call(place):
            return place - 1
    raise AssertionError


def lanes(kind: str) -> Iterator[Any]:
    if kind == "used pool":
        pool = ThreadPool(core=1, limit=3, name="actorflow-interrupted")
        while True:
            first = Run()
            pool.submit(first)
            assert first.done.wait(PATIENCE)
            until(lambda: bool(pool._idle), "the thread is idle")
            yield pool
    kinds: dict[str, Callable[[], Any]] = {
        "pool": lambda: ThreadPool(core=1, limit=3, name="actorflow-interrupted"),
        "thread": lambda: ThreadLane("interrupted"),
        "loop": lambda: LoopLane("actorflow-interrupted-loop"),
    }
    while True:
        yield kinds[kind]()


def close(lane: Any) -> None:
    if isinstance(lane, ThreadPool):
        lane.close()
    elif isinstance(lane, ThreadLane):
        lane.release()
    elif lane._loop is not None:
        loop = lane._loop
        lane.call_soon(loop.stop)
        until(lambda: not loop.is_running(), "the loop has stopped")
        loop.close()


@pytest.mark.parametrize("kind", ["pool", "used pool", "thread", "loop"])
def test_m13_an_interrupted_submit_is_made_wholly_or_not_at_all(kind: str) -> None:
    fresh = lanes(kind)
    ran: list[bool] = []

    def once(place: int) -> bool:
        lane, run = next(fresh), Run()
        reached = interrupted_at(place, lambda: lane.submit(run))
        UNINTERRUPTIBLE.run(lambda: None)  # all work handed over before is done
        if isinstance(lane, ThreadPool):
            until(lambda: lane.statistics().waiting == 0, "submitted work runs by itself")
        last = Run()
        lane.submit(last)
        assert last.done.wait(PATIENCE), f"the lane is stuck after an interrupt at {place}"
        ran.append(run.done.is_set())
        if kind != "used pool":
            close(lane)
        return reached

    assert places(once) > 10
    assert ran == sorted(ran)  # once it is handed over, it runs
    assert ran[-1]


class _Stale(list[None]):
    """The idle threads of a pool: one at the first look, which is taken by others right then."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def __bool__(self) -> bool:
        self.looks += 1
        return self.looks == 1


@pytest.mark.parametrize("how", ["submit", "claim"])
def test_m13_what_an_interrupted_submit_put_into_a_busy_pool_gets_a_thread(how: str) -> None:
    """The thread that was idle when the submit looked has begun something long meanwhile."""

    def once(place: int) -> bool:
        pool, gate = ThreadPool(core=1, limit=3, name="actorflow-interrupted"), threading.Event()
        begun = threading.Event()

        class Long:
            def run(self) -> None:
                begun.set()
                gate.wait(PATIENCE)

        pool.submit(Long())
        assert begun.wait(PATIENCE)
        pool._idle = _Stale()
        run = Run()
        call = {"submit": lambda: pool.submit(run), "claim": lambda: pool.claim([run])}[how]
        reached = interrupted_at(place, call)
        try:
            until(lambda: pool.statistics().waiting == 0, f"it runs by itself, {place}")
        finally:
            gate.set()
            for _ in range(2):
                pool.close()
        return reached

    assert places(once) > 10


def test_m13_an_interrupted_call_at_is_made_wholly_or_not_at_all() -> None:
    used = SystemClock()

    def once(place: int, clock: SystemClock) -> bool:
        called, last = threading.Event(), threading.Event()
        reached = interrupted_at(place, lambda: clock.call_at(clock.now() + 1e-6, called.set))
        UNINTERRUPTIBLE.run(lambda: None)
        if len(clock._heap):
            assert called.wait(PATIENCE), f"the timer is stuck after an interrupt at {place}"
        clock.call_at(clock.now(), last.set)
        assert last.wait(PATIENCE), f"the clock is stuck after an interrupt at {place}"
        return reached

    assert places(lambda place: once(place, used)) > 10
    assert places(lambda place: once(place, SystemClock())) > 10
