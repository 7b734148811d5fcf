"""Callers that wait for a commit or an end of an execution, and watches set by executions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Watch
from actorflow.engine.stores.protocol import ExecutionRow

if TYPE_CHECKING:
    from actorflow.engine.stores.protocol import Change, Store, WatchRow

__all__ = ["Waiters", "Watches", "row_of"]


class Waiters:
    """Callers that wait for an execution: for its end, or for its next commit. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: dict[str, list[Any]] = {}
        self._closed: BaseException | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, execution: str) -> bool:
        return execution in self._tickets

    def add(self, execution: str, ticket: Any) -> None:
        """Resolve a ticket when it is time; at once if this is closed."""
        with self._lock:
            if self._closed is None:
                self._tickets.setdefault(execution, []).append(ticket)
                return
        ticket.resolve(self._closed)

    def remove(self, execution: str, ticket: Any) -> None:
        """Forget a ticket."""
        with self._lock:
            tickets = self._tickets.get(execution, [])
            if ticket in tickets:
                tickets.remove(ticket)
            if not tickets:
                self._tickets.pop(execution, None)

    def names(self) -> set[str]:
        """Return the executions that have waiters."""
        with self._lock:
            return set(self._tickets)

    def tell(self, execution: str, row: ExecutionRow | None = None) -> None:
        """Resolve the tickets of an execution, with the execution as it is now if that is known."""
        if not self._tickets:
            return
        with self._lock:
            tickets = self._tickets.pop(execution, ())
        for ticket in tickets:
            ticket.resolve(None, row)

    def committed(self, change: Change) -> None:
        """Resolve the tickets of an execution that has committed."""
        self.tell(change.execution)

    def close(self, error: BaseException) -> None:
        """Resolve all tickets with an error, now and later."""
        with self._lock:
            self._closed = error
            tickets = [ticket for some in self._tickets.values() for ticket in some]
            self._tickets.clear()
        for ticket in tickets:
            ticket.resolve(error)


class Watches:
    """The watches that executions have set, by kind. Changed only in the writer's thread."""

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, str], Watch]] = {}
        self.there_are_some = False
        """Whether any execution has set one."""
        self._lists: dict[str, tuple[Watch, ...]] = {}

    def of(self, kind: str) -> tuple[Watch, ...]:
        """Return the watches of a kind. O(1) unless they have changed. Thread-safe."""
        found = self._lists.get(kind)
        if found is None:
            found = self._lists[kind] = tuple(self._found.get(kind, {}).copy().values())
        return found

    def reload(self, store: Store) -> None:
        """Replace all of them by those in the store. O(watches)."""
        self._found.clear()
        self._lists.clear()
        self.there_are_some = False
        cursor = None
        while True:
            page = store.watches(after=cursor)
            for row in page.rows:
                self._add(row)
            cursor = page.after
            if cursor is None:
                return

    def change(self, change: Change) -> None:
        """Apply a committed change."""
        for execution, name in change.cancelled_watches:
            self._remove(change.kind, (execution, name))
        for row in change.watches:
            self._add(row)

    def forget(self, execution: str) -> None:
        """Remove those of an execution that has ended. O(watches)."""
        for kind, found in list(self._found.items()):
            for key in [key for key in found if key[0] == execution]:
                self._remove(kind, key)

    def _add(self, row: WatchRow) -> None:
        watch = Watch(row.execution, row.id, bodies.decode(row.body))
        self._found.setdefault(row.kind, {})[row.execution, row.id] = watch
        self.there_are_some = True
        self._lists.pop(row.kind, None)

    def _remove(self, kind: str, key: tuple[str, str]) -> None:
        found = self._found.get(kind)
        if found is not None and found.pop(key, None) is not None:
            self._lists.pop(kind, None)
            if not found:
                del self._found[kind]
                self.there_are_some = bool(self._found)


def row_of(change: Change, parent: str | None, created: float) -> ExecutionRow:
    """Return an execution as a commit of a run has left it, without reading the store."""
    return ExecutionRow(
        change.execution,
        change.kind,
        change.revision,
        str(change.status),
        change.state,
        change.version,
        change.result,
        change.error,
        parent,
        created,
        change.at,
    )
