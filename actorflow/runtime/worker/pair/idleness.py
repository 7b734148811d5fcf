"""The idle timeout: `on_idle` is called once for each stretch without work.

A part of the accumulator, made when there is a timeout: it shares its lock and its private names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.runtime.worker.pair.machine import IDLE, IDLE_LONG
from actorflow.runtime.worker.pair.transitions import Effects, schedule

if TYPE_CHECKING:
    from actorflow.runtime.clock import Timer
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["Idleness"]


class Idleness:
    """Watches how long one pair has had nothing to do."""

    __slots__ = ("_called", "_due", "_pair", "_timer")

    def __init__(self, pair: Accumulator) -> None:
        self._pair = pair
        self._timer: Timer | None = None
        self._due = 0.0
        self._called = -1  # the number of batches at the last call

    def cancel(self) -> None:
        """Forget the timer. Under the lock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self) -> None:
        """Schedule `on_idle`, unless something happens before. Under the lock."""
        pair = self._pair
        if self._called == pair.core.batches:
            return  # once for each stretch
        clock = pair.settings.clock
        when = self._due = clock.now() + (pair._idle_timeout() or 0.0)
        timer = self._timer
        if timer is None or when < timer.when:  # an earlier one looks again when its time comes
            if timer is not None:
                timer.cancel()
            self._timer = clock.call_at(when, self._on_due)

    def _on_due(self) -> None:
        """Check whether the pair has been idle all the time. In the clock's thread."""
        pair = self._pair
        clock = pair.settings.clock
        with pair.lock:
            self._timer = None
            if pair.state is not IDLE or not pair.idle or pair.core.raw:
                return
            if clock.now() < self._due:  # it was busy meanwhile
                self._timer = clock.call_at(self._due, self._on_due)
                return
            self._called = pair.core.batches
            effects = Effects()
            schedule(pair, IDLE_LONG, effects)
        pair.conclude(effects)
