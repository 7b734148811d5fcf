"""A store in memory: for tests, and for executions that need not outlive the process."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedDict

from actorflow.engine.stores.protocol import (
    Change,
    DeadRow,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    TaskRow,
    TimerRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MemoryStore", "from_url"]


class MemoryStore:
    """Keeps everything in dicts. Any thread may read while one writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executions: dict[str, ExecutionRow] = {}
        self._messages: dict[int, MessageRow] = {}  # in the order of their numbers
        self._ahead: SortedDict[int, MessageRow] = SortedDict()  # those with numbers below 0
        self._timers: dict[tuple[str, str], TimerRow] = {}
        self._due: SortedDict[tuple[float, str, str], TimerRow] = SortedDict()
        self._tasks: dict[str, TaskRow] = {}
        self._history: list[HistoryRow] = []
        self._dead: dict[int, DeadRow] = {}
        self._numbers = itertools.count(1)
        self._first = self._last = 0

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes. O(their rows)."""
        with self._lock:
            for change in changes:
                change.committed = self._apply(change)

    def _apply(self, change: Change) -> bool:
        if change.expected is not None and not self._update(change):
            return False
        name = change.execution
        for created, kind in change.creates:
            row = ExecutionRow(created, kind, 0, "active", None, change.at, change.at)
            self._executions.setdefault(created, row)
        if change.clear:
            self._clear(name)
        for number in change.consumed:
            (self._messages if number > 0 else self._ahead).pop(number, None)
        for number in change.buried:
            self._dead.pop(number, None)
        for timer in change.cancelled_timers:
            self._drop_timer(timer)
        for task in change.finished_tasks:
            self._tasks.pop(task, None)
        self._add_messages(change)
        for added in change.timers:
            self._drop_timer((added.execution, added.id))
            self._timers[added.execution, added.id] = added
            self._due[added.due, added.execution, added.id] = added
        self._tasks.update((task.id, task) for task in change.tasks)
        for dead in change.dead:
            numbered = dead if dead.id else dead._replace(id=self._number())
            self._dead[numbered.id] = numbered
            self._last = max(self._last, numbered.id)
        self._history.extend(
            HistoryRow(next(self._numbers), name, change.at, body) for body in change.history
        )
        return True

    def _add_messages(self, change: Change) -> None:
        ahead = change.ahead
        self._first -= ahead
        numbers = itertools.chain(
            range(self._first, self._first + ahead), itertools.count(self._last + 1)
        )
        change.rows = [
            MessageRow(number, to, body, change.at)
            for number, (to, body) in zip(numbers, change.messages, strict=False)
        ]
        self._last += len(change.rows) - ahead
        self._ahead.update((row.id, row) for row in change.rows[:ahead])
        self._messages.update((row.id, row) for row in change.rows[ahead:])

    def _in_order(self) -> Iterator[MessageRow]:
        return itertools.chain(self._ahead.values(), self._messages.values())

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _drop_timer(self, key: tuple[str, str]) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            del self._due[timer.due, timer.execution, timer.id]

    def _clear(self, name: str) -> None:
        for number in [row.id for row in self._in_order() if row.execution == name]:
            (self._messages if number > 0 else self._ahead).pop(number)
        for key in [key for key in self._timers if key[0] == name]:
            self._drop_timer(key)
        for task in [row.id for row in self._tasks.values() if row.execution == name]:
            del self._tasks[task]

    def _update(self, change: Change) -> bool:
        row = self._executions.get(change.execution)
        if (0 if row is None else row.revision) != change.expected:
            return False
        self._executions[change.execution] = ExecutionRow(
            change.execution,
            change.kind if row is None else row.kind,
            (change.expected or 0) + 1,
            change.status,
            change.state,
            change.at if row is None else row.created,
            change.at,
        )
        return True

    def execution(self, execution: str) -> ExecutionRow | None:
        """Give one execution. O(1)."""
        return self._executions.get(execution)

    def executions(self, names: Sequence[str]) -> dict[str, ExecutionRow]:
        """Give many executions at once. O(1) each."""
        there = self._executions
        return {name: there[name] for name in names if name in there}

    def rows(
        self, table: str, execution: str | None = None, limit: int | None = None
    ) -> Iterator[Any]:
        """Give the rows of a table in order. O(n), or O(limit) where all executions are asked."""
        with self._lock:
            rows = self._table(table)
            if execution is not None:
                name = "id" if table == "executions" else "execution"
                rows = [row for row in rows if getattr(row, name) == execution]
            return iter(list(itertools.islice(rows, limit)))

    def _table(self, table: str) -> Any:
        if table == "executions":
            return sorted(self._executions.values())
        if table == "messages":
            return self._in_order()
        if table == "timers":
            return self._due.values()
        if table == "tasks":
            return sorted(self._tasks.values())
        return self._history if table == "history" else sorted(self._dead.values())

    def pending(self, kind: str) -> Iterator[MessageRow]:
        """Give the messages to executions of a kind, in order. O(n)."""
        with self._lock:
            executions = self._executions
            return iter(
                [
                    row
                    for row in self._in_order()
                    if row.execution in executions and executions[row.execution].kind == kind
                ]
            )

    def purge(self, *, before: float) -> int:
        """Forget what ended before a moment. O(n)."""
        with self._lock:
            gone = {
                row.id
                for row in self._executions.values()
                if row.status in {"done", "cancelled"} and row.updated < before
            }
            for name in gone:
                del self._executions[name]
            self._history = [
                row for row in self._history if row.at >= before and row.execution not in gone
            ]
        return len(gone)

    def close(self) -> None:
        """Do nothing: the store goes with its engine."""


def from_url(_url: str, **_options: Any) -> MemoryStore:
    """Make a new store for `memory://`, whatever follows."""
    return MemoryStore()
