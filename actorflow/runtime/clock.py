"""Time goes through one `Clock`: the system's here, a virtual one in `actorflow.testing`."""

from __future__ import annotations

import heapq
import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadOption
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.thread_start import (
    AGENTS,
    PENDING,
    RETRY_EVERY,
    retry,
    retry_later,
    start_thread,
)
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, attend, in_main_thread
from actorflow.runtime.lanes.wakeup import Wakeup
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SYSTEM", "Clock", "SystemClock", "Timer", "TimerHeap", "checked_clock"]

_FEW = 64  # cancelled timers that are not worth a pass over the heap


class Timer:
    """A call to be made at a moment. Cancelling it is O(1) amortised."""

    __slots__ = ("_on_cancel", "callback", "when")

    def __init__(
        self,
        when: float,
        callback: Callable[[], object],
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        self.when = when
        self.callback: Callable[[], object] | None = callback
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Prevent the call. Thread-safe; does nothing when the call was made or cancelled."""
        if self.callback is None:
            return
        self.callback = None
        if self._on_cancel is not None:
            self._on_cancel()


class Clock(Protocol):
    """What the runtime needs of time: to read it, and to be called at a moment."""

    def now(self) -> float:
        """Return the monotonic time in seconds."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `now() >= when`, in a thread of the clock: it must be short."""


def checked_clock(clock: Any) -> Clock:
    """Return `clock` if it is a clock.

    Raises:
        BadOption: it is not a clock.

    """
    if not (callable(getattr(clock, "now", None)) and hasattr(clock, "call_at")):
        msg = f"clock={brief(clock)} must have now() and call_at(when, callback)"
        raise BadOption(msg)
    return clock  # type: ignore[no-any-return]


class TimerHeap:
    """Pending timers in the order of their time; those for the same time in their order of arrival.

    Cancelled timers are removed when they come first, and all at once when they are the majority,
    so that they never take more space than twice that of the others. Not thread-safe.
    """

    __slots__ = ("_cancelled", "_entries", "_number")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Timer]] = []
        self._number = 0
        self._cancelled = 0  # an estimate: an entry that has left may be counted until `compact`

    def __len__(self) -> int:
        """Return the number of entries, cancelled ones included."""
        return len(self._entries)

    def push(self, timer: Timer) -> None:
        """Add a timer. O(log n)."""
        self._number += 1
        heapq.heappush(self._entries, (timer.when, self._number, timer))

    def next_time(self) -> float:
        """Return when the first timer is due; infinity without one. O(log n) amortised."""
        entries = self._entries
        while entries:
            if entries[0][2].callback is not None:
                return entries[0][0]
            heapq.heappop(entries)
            self._cancelled -= 1
        return math.inf

    def pop_due(self, now: float) -> Callable[[], object] | None:
        """Remove the first timer that is due and return its callback; `None` without one."""
        while self.next_time() <= now and self._entries:
            timer = heapq.heappop(self._entries)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:  # else it was cancelled since `next_time` looked
                return callback
        return None

    def count_cancelled(self) -> bool:
        """Count a cancelled timer; return whether it is time to `compact`."""
        self._cancelled += 1
        return self._cancelled > _FEW and 2 * self._cancelled > len(self._entries)

    def compact(self) -> None:
        """Remove all cancelled timers. O(n)."""
        live = [entry for entry in self._entries if entry[2].callback is not None]
        heapq.heapify(live)
        self._entries[:] = live
        self._cancelled = 0

    def check(self) -> None:
        """Raise AssertionError if the heap is not in order."""
        entries = self._entries
        assert all(entries[(at - 1) // 2] <= entries[at] for at in range(1, len(entries)))  # noqa: S101


class SystemClock:
    """The machine's monotonic clock; one daemon thread makes the calls, started when needed.

    In a forked child it is as new: without the calls that the parent has asked for.
    """

    def __init__(self) -> None:
        self._reset()
        after_fork(self._reset)

    def _reset(self) -> None:
        self._heap = TimerHeap()
        self._lock = threading.Lock()
        self._wakeup = Wakeup()
        self._started = False

    now = staticmethod(time.monotonic)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` at `when`. O(log n) in the number of pending calls; thread-safe."""
        timer = Timer(when, callback, self._on_cancel)
        if when == math.inf:
            return timer  # never
        if in_main_thread():  # an interrupt must not strike under the lock
            UNINTERRUPTIBLE.post(partial(self._add, timer))
        else:
            self._add(timer)
        return timer

    def _add(self, timer: Timer) -> None:
        with self._lock:
            first = timer.when < self._heap.next_time()
            self._heap.push(timer)
        if not self._started:
            self._start()
        elif first:
            self._wakeup.wake()

    def _on_cancel(self) -> None:
        if self._heap.count_cancelled():
            attend(self._compact)

    def _compact(self) -> None:
        with self._lock:
            self._heap.compact()

    def _start(self) -> None:
        with self._lock:
            if not self._started:
                self._started = start_thread(self._run, name="actorflow-clock")
            if not self._started:
                retry_later(self._start)

    def _run(self) -> None:
        lock, heap, wakeup = self._lock, self._heap, self._wakeup
        while True:
            with lock:
                callback = heap.pop_due(time.monotonic())
                delay = heap.next_time() - time.monotonic()
            if callback is not None:
                self._call(callback)
                del callback  # it may refer to much, and the next one may come late
            elif delay > 0:
                if PENDING:
                    retry()
                    delay = min(delay, RETRY_EVERY)
                wakeup.wait(None if delay == math.inf else delay)

    def poke(self) -> None:
        """Make the thread look for attempts that are pending. Thread-safe."""
        if self._started:
            self._wakeup.wake()

    @staticmethod
    def _call(callback: Callable[[], object]) -> None:
        try:
            callback()
        except BaseException:  # noqa: BLE001 - one bad call must not stop the clock
            log.error("timer call failed", exc_info=True)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Copy and pickle the clock of the process as itself: specifications refer to it."""
        return "SYSTEM" if self is SYSTEM else super().__reduce__()


SYSTEM = SystemClock()
"""The clock that workers use unless told otherwise."""

AGENTS.append(SYSTEM.poke)
