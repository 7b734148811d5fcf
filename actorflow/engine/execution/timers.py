"""Timers: one clock service for all executions, to the millisecond; a million of them are fine.

A timer is a row in the store, and nothing in memory: the store keeps them in the order in which
they are due, so all that is known here is when the first one is. When it is due, one commit
removes the row and adds the message, so it fires exactly once, also over crashes.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING

from actorflow.engine.execution.writer import AGAIN
from actorflow.engine.stores.protocol import Change

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.engine.engine import Engine
    from actorflow.engine.stores.protocol import TimerRow
    from actorflow.runtime.clock import Timer

__all__ = ["Timers"]

_FEW, _MANY = 32, 1_000  # timers that are looked at, and fired in one commit at the most


class Timers:
    """The pending timers of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._alarm: Timer | None = None
        self.fired = 0

    def start(self) -> None:
        """Look for the first timer in the store. O(log n), however many there are."""
        for row in self._engine.store.rows("timers", limit=1):
            self._expect(row.due)

    def added(self, rows: Iterable[TimerRow]) -> None:
        """Hear of timers that are in the store now. O(1) each."""
        self._expect(min((row.due for row in rows), default=inf))

    def _expect(self, due: float) -> None:
        """Have the clock call at `due`, unless it does so before anyway."""
        with self._lock:
            alarm = self._alarm
            if due == inf or self._engine.closed:
                return
            if alarm is not None and alarm.callback is not None:
                if alarm.when <= due:
                    return
                alarm.cancel()
            self._alarm = self._engine.clock.call_at(due, self._on_alarm)

    def _on_alarm(self) -> None:
        """Have what is due fired. In the clock's thread."""
        with self._lock:
            self._alarm = None
        self._engine.writer.call(self._fire)

    def _fire(self) -> None:
        """Fire what is due: one commit for many. In the writer's thread."""
        engine = self._engine
        if engine.closed:
            return
        now = engine.clock.now()
        rows = list(engine.store.rows("timers", limit=_FEW))
        if rows and rows[-1].due <= now:
            rows = list(engine.store.rows("timers", limit=_MANY))
        due = [row for row in rows if row.due <= now]
        if due:
            change = Change(
                "",
                at=float(now),
                messages=[(row.execution, row.body) for row in due],
                cancelled_timers=[(row.execution, row.id) for row in due],
            )
            if engine.writer.commit([change]) is not None:
                self._expect(now + AGAIN)
                return
            self.fired += len(due)
            engine.host.deliver_rows(change.rows)
        if len(due) < len(rows):
            self._expect(rows[len(due)].due)
        elif due:
            engine.writer.call(self._fire)  # there may be more; others have their turn first

    def close(self) -> None:
        """Let go of the clock."""
        with self._lock:
            if self._alarm is not None:
                self._alarm.cancel()
