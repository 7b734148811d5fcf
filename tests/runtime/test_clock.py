"""Clocks: the system's calls in a thread, the virtual one in `advance`."""

from __future__ import annotations

import gc
import math
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import actorflow as af
from actorflow.runtime.clock import SystemClock, Timer, TimerHeap
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.testing import VirtualClock
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable


def test_system_clock_calls_in_the_order_of_time() -> None:
    clock = SystemClock()
    called: queue.SimpleQueue[str] = queue.SimpleQueue()
    now = clock.now()
    clock.call_at(now + 0.03, lambda: called.put("third"))
    clock.call_at(now + 0.01, lambda: called.put("first"))
    clock.call_at(now + 0.02, lambda: called.put("second"))
    clock.call_at(now - 5.0, lambda: called.put("overdue"))
    got = [called.get(timeout=PATIENCE) for _ in range(4)]
    assert got == ["overdue", "first", "second", "third"]
    assert clock.now() >= now + 0.03


def test_system_clock_is_monotonic_time() -> None:
    assert abs(SystemClock().now() - time.monotonic()) < PATIENCE


def test_system_clock_forgets_what_was_cancelled() -> None:
    clock = SystemClock()
    called: queue.SimpleQueue[str] = queue.SimpleQueue()
    now = clock.now()
    cancelled = clock.call_at(now + 0.001, lambda: called.put("cancelled"))
    cancelled.cancel()
    clock.call_at(now + 0.002, lambda: called.put("kept"))
    assert called.get(timeout=PATIENCE) == "kept"
    cancelled.cancel()  # harmless


def test_system_clock_survives_a_call_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    clock = SystemClock()
    called = threading.Event()

    def fails() -> None:
        raise KeyError("missing")

    clock.call_at(clock.now(), fails)
    clock.call_at(clock.now(), called.set)
    assert called.wait(PATIENCE)
    assert "timer call failed" in caplog.text


def test_system_clock_wakes_for_an_earlier_call() -> None:
    clock = SystemClock()
    called = threading.Event()
    far = clock.call_at(clock.now() + 3_600.0, lambda: None)
    clock.call_at(clock.now() + 0.001, called.set)
    assert called.wait(PATIENCE)
    far.cancel()


def test_system_clock_starts_no_thread_until_needed() -> None:
    clock = SystemClock()
    clock.now()
    assert not clock._started


def test_virtual_clock_moves_only_by_advance() -> None:
    clock = VirtualClock(100.0)
    called: list[tuple[str, float]] = []
    clock.call_at(103.0, lambda: called.append(("b", clock.now())))
    clock.call_at(101.0, lambda: called.append(("a", clock.now())))
    clock.call_at(103.0, lambda: called.append(("c", clock.now())))
    assert clock.now() == 100.0
    assert clock.next_time() == 101.0
    clock.advance(2.0)
    assert called == [("a", 101.0)]
    clock.advance(0.0)
    clock.advance(1.0)
    assert called == [("a", 101.0), ("b", 103.0), ("c", 103.0)]
    assert clock.next_time() is None


def test_virtual_clock_makes_calls_that_calls_schedule() -> None:
    clock = VirtualClock()
    called: list[float] = []

    def again() -> None:
        called.append(clock.now())
        if len(called) < 5:
            clock.call_at(clock.now() + 1.0, again)

    clock.call_at(1.0, again)
    clock.advance(3.5)
    assert called == [1.0, 2.0, 3.0]
    clock.advance(10.0)
    assert called == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert clock.now() == 13.5


def test_virtual_clock_skips_what_was_cancelled() -> None:
    clock = VirtualClock()
    timer = clock.call_at(1.0, lambda: pytest.fail("it was cancelled"))
    assert isinstance(timer, Timer)
    timer.cancel()
    assert clock.next_time() is None
    clock.advance(5.0)


def test_virtual_time_does_not_go_back() -> None:
    with pytest.raises(af.BadOption, match="-1"):
        VirtualClock().advance(-1)


def test_idle_timeouts_do_not_pile_up_timers() -> None:
    """A worker that is idle a thousand times keeps one timer, not a thousand."""
    clock = VirtualClock()
    with af.spawn(lambda batch, state: None, clock=clock, idle_timeout=60.0) as worker:
        for _ in range(1_000):
            worker.push_block(1)
        assert len(clock._timers) < 10


def test_system_clock_survives_a_call_that_exits(caplog: pytest.LogCaptureFixture) -> None:
    clock, called = SystemClock(), threading.Event()

    def leaves() -> None:
        raise SystemExit(3)

    clock.call_at(clock.now(), leaves)
    clock.call_at(clock.now(), called.set)
    assert called.wait(PATIENCE)
    assert "timer call failed" in caplog.text


def test_a_call_at_infinity_is_never_made() -> None:
    clock = SystemClock()
    timer = clock.call_at(math.inf, lambda: None)
    timer.cancel()
    assert not clock._started
    virtual = VirtualClock()
    virtual.call_at(math.inf, lambda: pytest.fail("never"))
    assert virtual.next_time() is None
    virtual.advance(1e9)


class Large:
    """Something that a callback refers to."""

    def call(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("make", [SystemClock, VirtualClock])
def test_cancelled_timers_do_not_wait_for_their_time(
    make: type[SystemClock | VirtualClock],
) -> None:
    clock = make()
    large = Large()
    kept = weakref.ref(large)
    timers = [clock.call_at(clock.now() + 3_600.0 + n, large.call) for n in range(5_000)]
    weak = weakref.ref(large)
    del large
    UNINTERRUPTIBLE.run(lambda: None)  # all are in the heap
    for timer in timers[:-3]:
        timer.cancel()
        timer.cancel()  # counted once
    UNINTERRUPTIBLE.run(lambda: None)
    assert len(clock._heap if isinstance(clock, SystemClock) else clock._timers) <= 70
    for timer in timers:
        timer.cancel()
    UNINTERRUPTIBLE.run(lambda: None)
    gc.collect()
    assert weak() is None
    assert kept() is None


def test_the_callback_of_a_call_that_was_made_is_not_kept() -> None:
    clock, called, large = SystemClock(), threading.Event(), Large()
    kept = weakref.ref(large)
    clock.call_at(clock.now(), large.call)
    clock.call_at(clock.now(), called.set)
    del large
    assert called.wait(PATIENCE)
    gc.collect()
    assert kept() is None


class HeapMachine(RuleBasedStateMachine):
    """`TimerHeap` against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.heap = TimerHeap()
        self.model: list[tuple[float, int, Timer]] = []
        self.number = 0

    def compact_if_due(self) -> None:
        if self.heap.count_cancelled():
            self.heap.compact()

    @rule(whens=st.lists(st.integers(0, 9), min_size=1, max_size=40))
    def push(self, whens: list[int]) -> None:
        for when in whens:
            self.number += 1
            timer = Timer(when, lambda number=self.number: number, self.compact_if_due)  # type: ignore[misc]
            self.heap.push(timer)
            self.model.append((when, self.number, timer))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, len(self.model)))):
            at = data.draw(st.integers(0, len(self.model) - 1))
            self.model.pop(at)[2].cancel()

    @precondition(lambda self: self.model)
    @rule()
    def cancel_all_but_the_last(self) -> None:
        for _, _, timer in self.model[:-1]:
            timer.cancel()
        del self.model[:-1]
        assert len(self.heap) <= 2 * 64 + 2

    @rule(now=st.integers(0, 9))
    def pop_due(self, now: int) -> None:
        due = sorted(entry for entry in self.model if entry[0] <= now)
        callback: Callable[[], object] | None = self.heap.pop_due(now)
        if not due:
            assert callback is None
            return
        assert callback is not None
        assert callback() == due[0][1]
        self.model.remove(due[0])
        due[0][2].cancel()  # harmless

    @rule()
    def compact(self) -> None:
        self.heap.compact()
        assert len(self.heap) == len(self.model)

    @invariant()
    def the_first_is_the_first(self) -> None:
        self.heap.check()
        assert self.heap.next_time() == min((entry[0] for entry in self.model), default=math.inf)
        assert len(self.heap) >= len(self.model)


TestTimerHeap = HeapMachine.TestCase


@given(whens=st.lists(st.floats(0, 100), max_size=50), steps=st.lists(st.floats(0, 30), max_size=9))
def test_virtual_clock_calls_each_at_its_time_in_order(
    whens: list[float], steps: list[float]
) -> None:
    clock = VirtualClock()
    called: list[tuple[float, int]] = []
    for number, when in enumerate(whens):
        clock.call_at(when, lambda number=number: called.append((clock.now(), number)))  # type: ignore[misc]
    for step in [0.0, *steps]:
        clock.advance(step)
    expected = sorted((when, number) for number, when in enumerate(whens) if when <= clock.now())
    assert called == expected


def test_a_call_that_is_due_within_microseconds_is_made() -> None:
    """A wait of almost nothing must not become one without end."""
    clock = SystemClock()
    for number in range(4_000):
        called = threading.Event()
        clock.call_at(clock.now() + number % 100 * 1e-6, called.set)
        assert called.wait(PATIENCE), number
