"""Timers: one clock service for all executions, to the millisecond; a million of them are fine.

A timer is a row in the store, and nothing in memory: the store keeps them in the order in which
they are due, so all that is known here is when the first one is. When it is due, one commit
removes the row and adds the message, so it fires exactly once, also over crashes.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING

from actorflow.engine import bodies
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.envelopes import TimerFired, pack
from actorflow.engine.stores.protocol import Change, NewMessage
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.table import ExecutionTable
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import Store, TimerRow
    from actorflow.runtime.clock import Timer

__all__ = ["Timers"]

_FEW, _MANY = 32, 1_000  # timers that are looked at, and fired in one commit at the most


class Timers:
    """The pending timers of an engine."""

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        ownership: Ownership,
        executions: ExecutionTable,
    ) -> None:
        self._store = store
        self._clock = clock
        self._writer = writer
        self._state = state
        self._ownership = ownership
        self._executions = executions
        executions.listeners.timers_added = self.added
        self._lock = threading.Lock()
        self._alarm: Timer | None = None
        self.fired = 0

    def start(self) -> None:
        """Look for the first timer in the store. O(log n), however many there are."""
        self.added(self._store.due(1))

    def added(self, rows: Iterable[TimerRow]) -> None:
        """Learn of timers that are in the store now. O(1) each."""
        self._expect(min((row.due for row in rows), default=inf))

    def _expect(self, due: float) -> None:
        """Schedule a call at `due`, unless an earlier one is scheduled."""
        with self._lock:
            alarm = self._alarm
            if due == inf or self._state.closed or not self._state.resumed:
                return
            if alarm is not None and alarm.callback is None:
                alarm = None  # the call was made
            if alarm is None or due < alarm.when:
                if alarm is not None:
                    alarm.cancel()
                self._alarm = self._clock.call_at(due, self._on_alarm)
        if due <= self._clock.now():
            # Time went on while it was stored. A virtual clock only calls when it advances.
            self._writer.call(self._fire)

    def _on_alarm(self) -> None:
        """Schedule the firing of due timers. In the clock's thread."""
        with self._lock:
            self._alarm = None
        self._writer.call(self._fire)

    def _fire(self) -> None:
        """Fire the due timers, many in one commit. In the writer's thread."""
        if self._state.closed:
            return
        now = self._clock.now()
        try:
            rows = self._store.due(_FEW)
            if rows and rows[-1].due <= now:
                rows = self._store.due(_MANY)
        except Exception as error:  # noqa: BLE001 - they are stored: look again
            outage_of(self._store).failed(error, "timers cannot be read; trying again")
            self._expect(now + AGAIN)
            return
        due = [row for row in rows if row.due <= now]
        if due:
            changes = self._changes(due, now)
            if self._writer.commit(changes) is not None:
                self._expect(now + AGAIN)
                return
            messages = [row for change in changes for row in change.resulting_messages]
            self.fired += len(messages)
            self._executions.deliver_rows(messages)
        if len(due) < len(rows):
            self._expect(rows[len(due)].due)
        elif due:
            self._writer.call(self._fire)  # there may be more; others have their turn first

    def _changes(self, due: Sequence[TimerRow], now: float) -> list[Change]:
        """Return what fires timers: one change, or one for each owner's partition."""
        if not self._ownership.shared:
            return [Change(at=now, fired_timers=[(row, _message(row)) for row in due])]
        changes = []
        for row in due:
            epoch = self._ownership.epoch_of(row.execution)
            if epoch is not None:
                fired = [(row, _message(row))]
                changes.append(Change(row.execution, at=now, epoch=epoch, fired_timers=fired))
        return changes

    def close(self) -> None:
        """Stop firing timers."""
        with self._lock:
            if self._alarm is not None:
                self._alarm.cancel()


def _message(row: TimerRow) -> NewMessage:
    try:
        body = bodies.decode(row.body)
    except ValueError:  # its execution will find that it cannot be read; the others fire
        type_, _ = pack(TimerFired(None, 0.0, row.id, row.due))
        return NewMessage(row.execution, type_, row.body)
    type_, data = pack(TimerFired(None, 0.0, row.id, row.due, body))
    if row.body[0] in bodies.EXTENSIONS:
        data = bodies.with_context_of(row.body, data)
    return NewMessage(row.execution, type_, data)
