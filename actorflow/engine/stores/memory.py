"""A store in memory: for tests, and for executions that need not outlive the process."""

from __future__ import annotations

import threading
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedDict

from actorflow.engine.errors import StoreConflict, StoreRefused
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    Counts,
    DeadRow,
    Duplicate,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    NewMessage,
    Page,
    Refusal,
    TaskRow,
    TimerRow,
    Traits,
    WatchRow,
)
from actorflow.engine.stores.validation import validate_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["MemoryStore", "from_url"]

_EPOCH = 1  # of the only partition, which is always owned
_ENDED = frozenset(("done", "cancelled"))


class _Table:
    """Rows by key and by execution. Every step notes how to take it back."""

    def __init__(self, undo: list[Callable[[], object]]) -> None:
        self.rows: SortedDict[Any, Any] = SortedDict()
        self.of: dict[str, dict[Any, Any]] = {}
        self._undo = undo

    def put(self, key: Any, row: Any) -> None:
        old = self._put(key, row)
        self._undo.append((lambda: self._drop(key)) if old is None else lambda: self._put(key, old))

    def drop(self, key: Any) -> Any:
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

    def drop_all(self, execution: str) -> None:
        for key in list(self.of.get(execution, ())):
            self.drop(key)

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


class _Messages(_Table):
    """Messages are found by their id within their execution, so nothing is sorted by it."""

    def __init__(self, undo: list[Callable[[], object]]) -> None:
        super().__init__(undo)
        self.rows = {}


class MemoryStore:
    """Keeps everything in dicts. Any thread may read while one writes."""

    traits = Traits()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._undo: list[Callable[[], object]] = []
        self._executions: SortedDict[str, ExecutionRow] = SortedDict()
        self._ended: SortedDict[tuple[float, str], None] = SortedDict()
        self._messages = _Messages(self._undo)  # by id
        self._timers = _Table(self._undo)  # by execution and id
        self._due: SortedDict[tuple[float, str, str], TimerRow] = SortedDict()
        self._tasks = _Table(self._undo)  # by number
        self._task_numbers: dict[str, int] = {}
        self._watches = _Table(self._undo)  # by execution and id
        self._dead = _Table(self._undo)  # by number
        self._dead_numbers: dict[Any, int] = {}
        self._history: dict[str, list[HistoryRow]] = {}
        self._keys: dict[tuple[str, str], Duplicate] = {}
        self._key_ages: SortedDict[tuple[float, str, str], None] = SortedDict()
        self._last = 0  # number of a message, task, entry or dead letter

    # Writing: one thread.

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes. O(their rows)."""
        validate_ids(changes)
        with self._lock:
            self._require_open()
            last = self._last
            try:
                for change in changes:
                    change.rows = change.extra = ()
                    change.revision = NEVER_RUN
                    change.refusal = self._refusal(change)
                    change.committed = change.refusal is None
                    if change.committed:
                        self._apply(change)
            except BaseException:
                for step in reversed(self._undo):
                    step()
                self._last = last
                for change in changes:
                    change.committed, change.refusal, change.revision = False, None, NEVER_RUN
                    change.rows = change.extra = ()
                raise
            finally:
                self._undo.clear()

    def _require_open(self) -> None:
        if self._closed:
            msg = "this store in memory is closed"
            raise StoreRefused(msg)

    def _refusal(self, change: Change) -> Refusal | None:
        if change.epoch is not None and change.epoch != _EPOCH:
            return Refusal("fenced", change.execution)
        kinds: dict[str, str] = {}
        for number, new in enumerate(change.creates):
            row = self._executions.get(new.id)
            if row is not None and change.new_only and number == 0:
                return Refusal("exists", new.id)
            if kinds.setdefault(new.id, new.kind if row is None else row.kind) != new.kind:
                return Refusal("clash", new.id)
        if change.expected is not None:
            row = self._executions.get(change.execution)
            if change.expected != (0 if row is None else row.revision):
                return Refusal("raced", change.execution)
        return None

    def _apply(self, change: Change) -> None:
        for new in change.creates:
            if new.id not in self._executions:
                self._put_execution(
                    ExecutionRow(
                        new.id, new.kind, 0, "active", None, 1, None, None, new.parent,
                        change.at, change.at,
                    )
                )  # fmt: skip
        if change.expected is not None:
            self._update(change)
        messages = self._remove(change)
        self._add(change, messages)

    def _update(self, change: Change) -> None:
        name, at = change.execution, change.at
        row = self._executions.get(name) or ExecutionRow(
            name, change.kind, 0, "active", None, 1, None, None, None, at, at
        )
        change.revision = row.revision + 1
        self._put_execution(
            ExecutionRow(
                name, row.kind, change.revision, change.status, change.state, change.version,
                change.result, change.error, row.parent, row.created, at,
            )
        )  # fmt: skip

    def _put_execution(self, row: ExecutionRow | None, name: str = "") -> None:
        """Replace an execution, or remove the one of that name."""
        name = name if row is None else row.id
        old = self._executions.pop(name, None) if row is None else self._executions.get(name)
        if old is not None and old.status in _ENDED:
            del self._ended[old.updated, name]
        if row is not None:
            self._executions[name] = row
            if row.status in _ENDED:
                self._ended[row.updated, name] = None
        self._undo.append(lambda: self._put_execution(old, name))

    def _remove(self, change: Change) -> list[NewMessage]:
        """Remove rows; return the messages that `fired`, `answers` and `revived` lead to."""
        name = change.execution
        if change.clear:
            for key in list(self._timers.of.get(name, ())):
                self._drop_timer(key)
            for number in list(self._tasks.of.get(name, ())):
                self._drop_task(self._tasks.rows[number].id)
            self._watches.drop_all(name)
        for message in change.consumed:
            self._drop_message(name, message)
        for timer in change.cancelled_timers:
            self._drop_timer(tuple(timer))
        for task in change.finished_tasks:
            self._drop_task(task)
        for watch in change.cancelled_watches:
            self._watches.drop(tuple(watch))
        for dead in change.buried:
            self._drop_dead(dead)
        messages = []
        for row, message in change.fired:
            found = self._timers.rows.get((row.execution, row.id))
            if found is not None and found.due == row.due:
                self._drop_timer((row.execution, row.id))
                messages.append(message)
        messages += [each.message for each in change.answers if self._drop_task(each.task)]
        for dead in change.revived:
            letter = self._drop_dead(dead)
            if letter is not None:
                messages.append(NewMessage(letter.execution, letter.type, letter.body))
        return messages

    def _add(self, change: Change, extra: list[NewMessage]) -> None:
        name, at = change.execution, change.at
        for id_ in change.attempted:
            row = self._messages.of.get(name, {}).get(id_)
            if row is not None:
                self._messages.put(id_, row._replace(attempts=row.attempts + 1))
        for task in change.retried:
            number = self._task_numbers.get(task.id)
            if number is not None:
                found: TaskRow = self._tasks.rows[number]
                self._tasks.put(number, found._replace(attempts=task.attempts, due=task.due))
        change.rows = [self._add_message(message, at) for message in change.messages]
        added = [self._add_message(message, at) for message in extra]
        change.extra = [row for row in added if isinstance(row, MessageRow)]
        for timer in change.timers:
            self._drop_timer((timer.execution, timer.id))
            self._put_timer(timer)
        for task in change.tasks:
            self._add_task(task)
        for watch in change.watches:
            self._watches.put((watch.execution, watch.id), watch)
        if change.history:
            entries = self._history.setdefault(name, [])
            self._undo.append(lambda size=len(entries): entries.__delitem__(slice(size, None)))
            entries += [HistoryRow(self._number(), name, at, body) for body in change.history]
        for dead in change.dead:
            if dead.id is not None:
                self._drop_message(dead.execution, dead.id)
                self._drop_dead(dead.id)
            number = self._number()
            id_ = number if dead.id is None else dead.id
            self._put_dead(number, DeadRow(id_, *dead[1:], at))

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _add_message(self, message: NewMessage, at: float) -> MessageRow | Duplicate:
        name, key = message.execution, message.key
        if key is not None and (name, key) in self._keys:
            return self._keys[name, key]
        row = MessageRow(self._number(), name, message.type, message.body, at)
        self._messages.put(row.id, row)
        if key is not None:
            self._put_key(name, key, Duplicate(row.id, at))
        return row

    def _put_key(self, name: str, key: str, known: Duplicate) -> None:
        self._keys[name, key] = known
        self._key_ages[known.at, name, key] = None
        self._undo.append(lambda: self._drop_key(known.at, name, key))

    def _drop_key(self, at: float, name: str, key: str) -> None:
        del self._keys[name, key]
        del self._key_ages[at, name, key]

    def _drop_message(self, execution: str, message: Any) -> None:
        if message in self._messages.of.get(execution, ()):
            self._messages.drop(message)

    def _put_timer(self, row: TimerRow) -> None:
        self._timers.put((row.execution, row.id), row)
        self._due[row.due, row.execution, row.id] = row
        self._undo.append(lambda: self._due.pop((row.due, row.execution, row.id)))

    def _drop_timer(self, key: Any) -> None:
        row: TimerRow | None = self._timers.drop(key)
        if row is not None:
            due = (row.due, row.execution, row.id)
            del self._due[due]
            self._undo.append(lambda: self._due.__setitem__(due, row))

    def _add_task(self, task: TaskRow) -> None:
        if task.id in self._task_numbers:
            msg = f"there is a task {task.id!r} already: ids of tasks are unique in the store"
            raise StoreConflict(msg)
        number = self._task_numbers[task.id] = self._number()
        self._tasks.put(number, task)
        self._undo.append(lambda: self._task_numbers.pop(task.id))

    def _drop_task(self, task: str) -> bool:
        number = self._task_numbers.pop(task, None)
        if number is None:
            return False
        self._tasks.drop(number)
        self._undo.append(lambda: self._task_numbers.__setitem__(task, number))
        return True

    def _put_dead(self, number: int, row: DeadRow) -> None:
        self._dead.put(number, row)
        self._dead_numbers[row.id] = number
        self._undo.append(lambda: self._dead_numbers.pop(row.id))

    def _drop_dead(self, id_: Any) -> DeadRow | None:
        number = self._dead_numbers.pop(id_, None)
        if number is None:
            return None
        self._undo.append(lambda: self._dead_numbers.__setitem__(id_, number))
        row: DeadRow | None = self._dead.drop(number)
        return row

    def purge(self, *, before: float, keys_before: float, limit: int = 1_000) -> int:
        """Forget what ended before a moment, with all that is stored of it. O(limit log n)."""
        with self._lock:
            self._require_open()
            gone = [name for _, name in islice(self._ended.irange(None, (before,)), limit)]
            for name in gone:
                self._put_execution(None, name)
                self._remove(Change(name, clear=True))
                self._messages.drop_all(name)
                for number in list(self._dead.of.get(name, ())):
                    self._drop_dead(self._dead.rows[number].id)
                self._history.pop(name, None)
            for key in list(islice(self._key_ages.irange(None, (keys_before,)), limit)):
                self._drop_key(*key)
            self._undo.clear()
        return len(gone)

    # Reading: any thread.

    def owned(self) -> Mapping[int, int]:
        """Return the only partition."""
        return {0: _EPOCH}

    def subscribe(self, _wake: Callable[[], None]) -> Callable[[], None]:
        """Never call it: nobody else can store anything here."""
        return lambda: None

    def execution(self, execution: str) -> ExecutionRow | None:
        """Return one execution. O(1)."""
        self._require_open()
        return self._executions.get(execution)

    def executions(self, ids: Sequence[str]) -> dict[str, ExecutionRow]:
        """Return many executions at once. O(1) each."""
        self._require_open()
        there = self._executions
        found = ((name, there.get(name)) for name in ids)
        return {name: row for name, row in found if row is not None}

    def listing(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        after: Any = None,
        limit: int = 100,
    ) -> Page[ExecutionRow]:
        """Return executions in the order of their ids. O(n)."""
        with self._lock:
            self._require_open()
            rows = (
                row
                for name in self._executions.irange(after, inclusive=(False, True))
                if (row := self._executions[name])
                and (kind is None or row.kind == kind)
                and (status is None or row.status == status)
                and (parent is None or row.parent == parent)
            )
            found = list(islice(rows, limit + 1))
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def pending(
        self,
        *,
        execution: str | None = None,
        kind: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[MessageRow]:
        """Return messages, those of one execution together. O(executions with messages)."""
        with self._lock:
            self._require_open()
            messages = self._messages.of
            if execution is not None:
                if isinstance(after, tuple):
                    after = after[1]
                names = [execution] if execution in messages else []
                start = (execution, -1 if after is None else after)
            else:
                start = after or ("", -1)
                names = sorted(name for name in messages if name >= start[0])
            rows: list[MessageRow] = []
            for name in names:
                if kind is not None:
                    row = self._executions.get(name)
                    if row is None or row.kind != kind:
                        continue
                group = messages[name]
                ids = (
                    sorted(group) if name != start[0] else sorted(i for i in group if i > start[1])
                )
                rows += [group[id_] for id_ in ids]
                if len(rows) > limit:
                    last = rows[limit - 1]
                    return Page(rows[:limit], (last.execution, last.id))
        return Page(rows, None)

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return the timers that are due first. O(limit)."""
        with self._lock:
            self._require_open()
            if execution is None:
                return list(islice(self._due.values(), limit))
            rows = self._timers.of.get(execution, {}).values()
            return sorted(rows, key=lambda row: (row.due, row.id))[:limit]

    def open(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[TaskRow]:
        """Return tasks in the order in which they were stored. O(tasks of other taskers)."""
        wanted = None if tasker is None else lambda row: row.tasker == tasker
        with self._lock:
            self._require_open()
            return self._tasks.page(limit, after, execution=execution, wanted=wanted)

    def task(self, task: str) -> TaskRow | None:
        """Return one task. O(1)."""
        with self._lock:
            self._require_open()
            number = self._task_numbers.get(task)
            row: TaskRow | None = None if number is None else self._tasks.rows[number]
            return row

    def watches(self, *, after: Any = None, limit: int = 1_000) -> Page[WatchRow]:
        """Return all watches."""
        with self._lock:
            self._require_open()
            return self._watches.page(limit, after)

    def history(self, execution: str, *, after: Any = None, limit: int = 1_000) -> Page[HistoryRow]:
        """Return what happened to an execution, oldest first."""
        with self._lock:
            self._require_open()
            entries = self._history.get(execution, [])
            start = 0 if after is None else bisect_right(entries, after, key=lambda row: row.id)
            found = entries[start : start + limit + 1]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def dead(
        self, *, execution: str | None = None, after: Any = None, limit: int = 1_000
    ) -> Page[DeadRow]:
        """Return dead letters, oldest first."""
        with self._lock:
            self._require_open()
            return self._dead.page(limit, after, execution=execution)

    def dead_letter(self, id: Any) -> DeadRow | None:  # noqa: A002 - what it is
        """Return one dead letter. O(1)."""
        with self._lock:
            self._require_open()
            number = self._dead_numbers.get(id)
            row: DeadRow | None = None if number is None else self._dead.rows[number]
            return row

    def counts(self, executions: Sequence[str]) -> dict[str, Counts]:
        """Return how much is stored for each of some executions. O(1) each."""
        tables = (self._messages, self._timers, self._tasks, self._dead)
        with self._lock:
            self._require_open()
            return {
                name: Counts(*(len(table.of.get(name, ())) for table in tables))
                for name in executions
            }

    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield all rows of this moment. O(n) at once: what is read is the list of rows."""
        with self._lock:
            self._require_open()
            tables = {
                "meta": [("last_id", self._last)],
                "executions": self._executions.values(),
                "messages": sorted(self._messages.rows.values(), key=lambda row: row.id),
                "timers": self._due.values(),
                "tasks": self._tasks.rows.values(),
                "watches": self._watches.rows.values(),
                "history": [row for rows in self._history.values() for row in rows],
                "dead": self._dead.rows.values(),
                "keys": [(*key, *known) for key, known in self._keys.items()],
            }
            rows = [(table, tuple(row)) for table, found in tables.items() for row in found]
        return iter(rows)

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store; return how many rows. O(n)."""
        with self._lock:
            self._require_open()
            if self._last or self._executions or self._timers.rows or self._watches.rows:
                msg = "only an empty store can be filled"
                raise StoreConflict(msg)
            made = MemoryStore()
            count = _Filling(made).fill(rows)
            made._move_to(self)
        return count

    def _move_to(self, other: MemoryStore) -> None:
        self._undo.clear()
        for name, value in vars(self).items():
            if name not in {"_lock", "_closed"}:
                setattr(other, name, value)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            if not self._closed:
                MemoryStore()._move_to(self)
                self._closed = True


class _Filling:
    """Puts the rows of a snapshot into a store, also of one whose ids are of another sort."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._ids: dict[Any, int] = {}

    def fill(self, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
        count = 0
        for table, row in rows:
            count += table != "meta"
            getattr(self, f"_{table}")(*row)
        return count

    def _id(self, given: Any) -> int:
        if isinstance(given, int):
            self._store._last = max(self._store._last, given)
            return given
        if given not in self._ids:
            self._ids[given] = self._store._number()
        return self._ids[given]

    def _meta(self, name: str, value: Any) -> None:
        if name == "last_id":
            self._id(value)

    def _executions(self, *row: Any) -> None:
        self._store._put_execution(ExecutionRow(*row))

    def _messages(self, id_: Any, *row: Any) -> None:
        made = MessageRow(self._id(id_), *row)
        self._store._messages.put(made.id, made)

    def _timers(self, *row: Any) -> None:
        self._store._put_timer(TimerRow(*row))

    def _tasks(self, *row: Any) -> None:
        self._store._add_task(TaskRow(*row))

    def _watches(self, *row: Any) -> None:
        made = WatchRow(*row)
        self._store._watches.put((made.execution, made.id), made)

    def _history(self, id_: Any, *row: Any) -> None:
        made = HistoryRow(self._id(id_), *row)
        self._store._history.setdefault(made.execution, []).append(made)

    def _dead(self, id_: Any, *row: Any) -> None:
        self._store._put_dead(self._store._number(), DeadRow(self._id(id_), *row))

    def _keys(self, execution: str, key: str, message: Any, at: float) -> None:
        self._store._put_key(execution, key, Duplicate(self._id(message), at))


def from_url(_url: str, **_options: Any) -> MemoryStore:
    """Make a new store for `memory://`, whatever follows."""
    return MemoryStore()
