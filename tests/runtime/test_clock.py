"""Clocks: the system's, which calls in a thread, and the virtual one, which calls when told."""

from __future__ import annotations

import queue
import threading
import time

import pytest

import actorflow as af
from actorflow.runtime.clock import SystemClock, Timer
from actorflow.testing import VirtualClock
from tests.runtime.worker.probe import PATIENCE


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
    assert clock._thread is None


def test_virtual_clock_moves_only_when_told() -> None:
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


def test_virtual_clock_makes_calls_that_calls_ask_for() -> None:
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
