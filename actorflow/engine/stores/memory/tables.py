"""The rows of a store in memory. Each step notes how to take it back, until it is kept."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedDict, SortedSet

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.protocol import (
    DeadRow,
    DuplicateKey,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    Page,
    TaskRow,
    TimerRow,
    WatchRow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping

    from actorflow.engine.stores.protocol import Change

__all__ = ["ENDED", "Grown", "MemoryTable", "Tables", "concerned", "whole"]

ENDED = frozenset(("done", "failed", "cancelled"))


class Grown:
    """A state with additions: the old state and the added parts, joined when it is read."""

    __slots__ = ("added", "before")

    def __init__(self, before: bytes | Grown | None, added: bytes) -> None:
        self.before = before
        self.added = added


def whole(row: ExecutionRow) -> ExecutionRow:
    """Return an execution with its state as one. O(1) unless that was added to."""
    state: Any = row.state
    if type(state) is not Grown:
        return row
    parts = []
    while type(state) is Grown:
        parts.append(state.added)
        state = state.before
    return row._replace(state=b"".join((state or b"", *reversed(parts))))


class MemoryTable:
    """Rows by key and by execution."""

    def __init__(
        self, undo: list[Callable[[], object]], rows: MutableMapping[Any, Any] | None = None
    ) -> None:
        self.rows: Any = SortedDict() if rows is None else rows
        self.of: dict[str, dict[Any, Any]] = {}
        self._undo = undo

    def put(self, key: Any, row: Any) -> None:
        """Add a row, or replace the one of this key."""
        old = self._put(key, row)
        self._undo.append((lambda: self._drop(key)) if old is None else lambda: self._put(key, old))

    def drop(self, key: Any) -> Any:
        """Remove a row; return it, or `None` if it was not there."""
        row = self._drop(key)
        if row is not None:
            self._undo.append(lambda: self._put(key, row))
        return row

    def _put(self, key: Any, row: Any) -> Any:
        old = self.rows.get(key)
        self.rows[key] = row
        self.of.setdefault(row.execution, {})[key] = row
        return old

    def _drop(self, key: Any) -> Any:
        row = self.rows.pop(key, None)
        if row is not None:
            group = self.of[row.execution]
            del group[key]
            if not group:
                del self.of[row.execution]
        return row

    def keys_of(self, execution: str) -> list[Any]:
        """Return the keys of the rows of one execution."""
        return list(self.of.get(execution, ()))

    def page(
        self,
        limit: int,
        after: Any,
        *,
        execution: str | None = None,
        wanted: Callable[[Any], bool] | None = None,
    ) -> Page[Any]:
        """Return rows in the order of their keys; the cursor is the key of the last."""
        if execution is None:
            keys: Iterable[Any] = self.rows.irange(after, inclusive=(False, True))
        else:
            group = sorted(self.of.get(execution, ()))
            keys = group if after is None else group[bisect_right(group, after) :]
        if wanted is not None:
            keys = (key for key in keys if wanted(self.rows[key]))
        found = list(islice(keys, limit + 1))
        more = found[limit - 1] if len(found) > limit else None
        return Page([self.rows[key] for key in found[:limit]], more)


class Tables:
    """All that a store in memory holds."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self.executions: SortedDict[str, ExecutionRow] = SortedDict()
        self.ended: SortedDict[Any, None] = SortedDict()  # by the moment and the id
        self.messages = MemoryTable(self._undo, {})  # by id; never read in the order of all ids
        self.timers = MemoryTable(self._undo)  # by execution and id
        self.due: SortedDict[tuple[float, str, str], TimerRow] = SortedDict()
        self.tasks = MemoryTable(self._undo)  # by number
        self.task_numbers: dict[str, int] = {}
        self.watches = MemoryTable(self._undo)  # by execution and id
        self.dead = MemoryTable(self._undo)  # by number
        self.dead_numbers: dict[Any, int] = {}
        self.history: dict[str, list[HistoryRow]] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.tagged: dict[tuple[str, str], SortedSet[str]] = {}  # by name and value
        self.keys: dict[tuple[str, str], DuplicateKey] = {}
        self.key_ages: SortedDict[Any, None] = SortedDict()  # by the moment, execution and key
        self._last = 0  # number of a message, task, entry or dead letter

    def keep(self) -> None:
        """Discard the undo log: the changes are final."""
        self._undo.clear()

    def take_back(self) -> None:
        """Undo all steps since the last `keep`."""
        for step in reversed(self._undo[:]):
            step()
        self._undo.clear()

    def number(self) -> int:
        """Return the next number. Those of a commit that failed are not used again."""
        self._last += 1
        return self._last

    def put_execution(self, row: ExecutionRow) -> None:
        """Add or replace an execution."""
        old = self._put_execution(row.id, row)
        self._undo.append(lambda: self._put_execution(row.id, old))

    def drop_execution(self, name: str) -> None:
        """Remove an execution with all that is stored of it, but not its keys."""
        old = self._put_execution(name, None)
        self._undo.append(lambda: self._put_execution(name, old))
        self.clear(name)
        for message in self.messages.keys_of(name):
            self.messages.drop(message)
        for number in self.dead.keys_of(name):
            self.drop_dead(self.dead.rows[number].id)
        past = self.history.pop(name, [])
        self._undo.append(lambda: self.history.__setitem__(name, past))
        self.put_tags(name, {})

    def _put_execution(self, name: str, row: ExecutionRow | None) -> ExecutionRow | None:
        old = self.executions.pop(name, None) if row is None else self.executions.get(name)
        if old is not None and old.status in ENDED:
            del self.ended[old.updated, name]
        if row is not None:
            self.executions[name] = row
            if row.status in ENDED:
                self.ended[row.updated, name] = None
        return old

    def clear(self, name: str) -> None:
        """Remove the timers, tasks and watches of an execution."""
        for timer in self.timers.keys_of(name):
            self.drop_timer(timer)
        for number in self.tasks.keys_of(name):
            self.drop_task(self.tasks.rows[number].id)
        for watch in self.watches.keys_of(name):
            self.watches.drop(watch)

    def drop_message(self, execution: str, message: Any) -> None:
        """Remove a message, if it is one of that execution."""
        if message in self.messages.of.get(execution, ()):
            self.messages.drop(message)

    def put_key(self, name: str, key: str, known: DuplicateKey) -> None:
        """Record that a key was used."""
        self.keys[name, key] = known
        self.key_ages[known.at, name, key] = None
        self._undo.append(lambda: self.drop_key(known.at, name, key))

    def drop_key(self, at: float, name: str, key: str) -> None:
        """Forget a key."""
        del self.keys[name, key]
        del self.key_ages[at, name, key]

    def put_timer(self, row: TimerRow) -> None:
        """Set a timer that is not set."""
        self.timers.put((row.execution, row.id), row)
        due = (row.due, row.execution, row.id)
        self.due[due] = row
        self._undo.append(lambda: self.due.pop(due))

    def drop_timer(self, key: tuple[str, str]) -> None:
        """Remove a timer, if it is set."""
        row: TimerRow | None = self.timers.drop(key)
        if row is not None:
            due = (row.due, row.execution, row.id)
            del self.due[due]
            self._undo.append(lambda: self.due.__setitem__(due, row))

    def add_task(self, task: TaskRow) -> None:
        """Add a task. Raises `StoreConflict` if its id is in use."""
        if task.id in self.task_numbers:
            msg = f"there is a task {task.id!r} already: ids of tasks are unique in the store"
            raise StoreConflict(msg)
        number = self.task_numbers[task.id] = self.number()
        self._undo.append(lambda: self.task_numbers.pop(task.id))
        self.tasks.put(number, task)

    def drop_task(self, task: str) -> bool:
        """Remove a task; return whether it was there."""
        number = self.task_numbers.pop(task, None)
        if number is None:
            return False
        self._undo.append(lambda: self.task_numbers.__setitem__(task, number))
        self.tasks.drop(number)
        return True

    def put_dead(self, row: DeadRow) -> None:
        """Add a dead letter; its id is that of its message, or a new one."""
        number = self.number()
        row = row if row.id is not None else row._replace(id=number)
        self.dead.put(number, row)
        self.dead_numbers[row.id] = number
        self._undo.append(lambda: self.dead_numbers.pop(row.id))

    def drop_dead(self, letter: Any) -> DeadRow | None:
        """Remove a dead letter; return it, or `None` if it was not there."""
        number = self.dead_numbers.pop(letter, None)
        if number is None:
            return None
        self._undo.append(lambda: self.dead_numbers.__setitem__(letter, number))
        row: DeadRow | None = self.dead.drop(number)
        return row

    def add_history(self, name: str, at: float, bodies: Iterable[bytes]) -> None:
        """Add entries to the history of an execution."""
        entries = self.history.setdefault(name, [])
        size = len(entries)
        self._undo.append(lambda: entries.__delitem__(slice(size, None)))
        entries += [HistoryRow(self.number(), name, at, body) for body in bodies]

    def put_tags(self, name: str, tags: Mapping[str, str]) -> None:
        """Replace the tags of an execution."""
        old = self._put_tags(name, dict(tags))
        self._undo.append(lambda: self._put_tags(name, old))

    def tags_of(self, name: str) -> Iterable[tuple[str, str]]:
        """Return the tags of an execution."""
        return self.tags.get(name, {}).items()

    def _put_tags(self, name: str, tags: dict[str, str]) -> dict[str, str]:
        old = self.tags.pop(name, {})
        for tag in old.items():
            self.tagged[tag].discard(name)
            if not self.tagged[tag]:
                del self.tagged[tag]
        for tag in tags.items():
            self.tagged.setdefault(tag, SortedSet()).add(name)
        if tags:
            self.tags[name] = tags
        return old

    # Snapshots.

    def all_rows(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the rows of all tables, each with the name of its table."""
        tables: dict[str, Iterable[Any]] = {
            "meta": [("last_id", self._last)],
            "executions": map(whole, self.executions.values()),
            "messages": sorted(self.messages.rows.values()),
            "timers": self.due.values(),
            "tasks": self.tasks.rows.values(),
            "watches": self.watches.rows.values(),
            "history": [row for rows in self.history.values() for row in rows],
            "dead": self.dead.rows.values(),
            "tags": [(name, *tag) for name, tags in self.tags.items() for tag in tags.items()],
            "keys": [(*key, *known) for key, known in self.keys.items()],
        }
        return [(table, tuple(row)) for table, rows in tables.items() for row in rows]

    def dump(self) -> list[Any]:
        """Return everything as plain data, with the numbers of rows: an exact copy."""
        rows = [row for row in self.all_rows() if row[0] not in {"meta", "tasks", "dead"}]
        return [rows, list(self.tasks.rows.items()), list(self.dead.rows.items()), self._last]

    @classmethod
    def load(cls, content: Iterable[Any]) -> Tables:
        """Return what `dump` gave, also after it was encoded and decoded."""
        rows, tasks, dead, last = content
        tables = cls()
        tables.fill((table, tuple(row)) for table, row in rows)
        for number, row in tasks:
            task = TaskRow(*row)
            tables.task_numbers[task.id] = number
            tables.tasks.put(number, task)
        for number, row in dead:
            letter = DeadRow(*row)
            tables.dead_numbers[letter.id] = number
            tables.dead.put(number, letter)
        tables._last = last
        tables.keep()
        return tables

    def fill(self, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
        """Add the rows of a snapshot, also of a store whose ids are of another sort."""
        ids: dict[Any, int] = {}

        def known(given: Any) -> int:
            if isinstance(given, int):
                self._last = max(self._last, given)
                return given
            if given not in ids:
                ids[given] = self.number()
            return ids[given]

        def put_message(id_: Any, *row: Any) -> None:
            made = MessageRow(known(id_), *row)
            self.messages.put(made.id, made)

        def put_watch(*row: Any) -> None:
            made = WatchRow(*row)
            self.watches.put((made.execution, made.id), made)

        def put_entry(id_: Any, execution: str, *row: Any) -> None:
            made = HistoryRow(known(id_), execution, *row)
            self.history.setdefault(execution, []).append(made)

        put: dict[str, Callable[..., object]] = {
            "meta": lambda name, value: known(value) if name == "last_id" else None,
            "executions": lambda *row: self.put_execution(ExecutionRow(*row)),
            "messages": put_message,
            "timers": lambda *row: self.put_timer(TimerRow(*row)),
            "tasks": lambda *row: self.add_task(TaskRow(*row)),
            "watches": put_watch,
            "history": put_entry,
            "dead": lambda id_, *row: self.put_dead(DeadRow(known(id_), *row)),
            "tags": lambda id_, *tag: self.put_tags(id_, dict([*self.tags_of(id_), tag])),
            "keys": lambda name, key, id_, at: self.put_key(
                name, key, DuplicateKey(known(id_), at)
            ),
        }
        count = 0
        for table, row in rows:
            put[table](*row)
            count += table != "meta"
        self.keep()
        return count


def concerned(change: Change) -> Iterator[str]:
    """Yield the executions that a change has given something, or has ended."""
    for row in change.resulting_messages:
        yield row.execution
    for message in change.messages:
        yield message.execution
    ended = change.expected is not None and change.status in ENDED
    if ended or change.consumed or change.dead:
        yield change.execution
