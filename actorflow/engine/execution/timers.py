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
from actorflow.engine.envelopes import TimerFired, pack
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.stores.protocol import Change, NewMessage
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.stores.protocol import TimerRow
    from actorflow.runtime.clock import Timer

__all__ = ["Timers"]

_FEW, _MANY = 32, 1_000  # timers that are looked at, and fired in one commit at the most


class Timers:
    """The pending timers of an engine."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._alarm: Timer | None = None
        self.fired = 0

    def start(self) -> None:
        """Look for the first timer in the store. O(log n), however many there are."""
        self.added(self._core.store.due(1))

    def added(self, rows: Iterable[TimerRow]) -> None:
        """Learn of timers that are in the store now. O(1) each."""
        self._expect(min((row.due for row in rows), default=inf))

    def _expect(self, due: float) -> None:
        """Schedule a call at `due`, unless an earlier one is scheduled."""
        core = self._core
        with self._lock:
            alarm = self._alarm
            if due == inf or core.closed or not core.resumed:
                return
            if alarm is not None and alarm.callback is None:
                alarm = None  # the call was made
            if alarm is None or due < alarm.when:
                if alarm is not None:
                    alarm.cancel()
                self._alarm = core.clock.call_at(due, self._on_alarm)
        if due <= core.clock.now():
            # Time went on while it was stored. A virtual clock only calls when it advances.
            core.writer.call(self._fire)

    def _on_alarm(self) -> None:
        """Schedule the firing of what is due. In the clock's thread."""
        with self._lock:
            self._alarm = None
        self._core.writer.call(self._fire)

    def _fire(self) -> None:
        """Fire what is due: one commit for many. In the writer's thread."""
        core = self._core
        if core.closed:
            return
        now = core.clock.now()
        try:
            rows = core.store.due(_FEW)
            if rows and rows[-1].due <= now:
                rows = core.store.due(_MANY)
        except Exception as error:  # noqa: BLE001 - they are stored: look again
            log.error("timers cannot be read; trying again", exc_info=error)
            self._expect(now + AGAIN)
            return
        due = [row for row in rows if row.due <= now]
        if due:
            changes = self._changes(due, now)
            if core.writer.commit(changes) is not None:
                self._expect(now + AGAIN)
                return
            extra = [row for change in changes for row in change.extra]
            self.fired += len(extra)
            core.host.deliver_rows(extra)
        if len(due) < len(rows):
            self._expect(rows[len(due)].due)
        elif due:
            core.writer.call(self._fire)  # there may be more; others have their turn first

    def _changes(self, due: Sequence[TimerRow], now: float) -> list[Change]:
        """Return what fires timers: one change, or one for each owner's partition."""
        if not self._core.ownership.shared:
            return [Change(at=now, fired=[(row, _message(row)) for row in due])]
        changes = []
        for row in due:
            epoch = self._core.ownership.epoch_of(row.execution)
            if epoch is not None:
                fired = [(row, _message(row))]
                changes.append(Change(row.execution, at=now, epoch=epoch, fired=fired))
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
    return NewMessage(row.execution, *pack(TimerFired(None, 0.0, row.id, row.due, body)))
