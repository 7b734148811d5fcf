"""A store in memory: for tests, and for executions that need not outlive the process."""

from __future__ import annotations

import threading
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedSet

from actorflow.engine.errors import StoreConflict, StoreRefused
from actorflow.engine.stores.memory.tables import Grown, Tables, whole
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    DeadRow,
    DuplicateKey,
    ExecutionRow,
    HistoryRow,
    MessageRow,
    NewMessage,
    Page,
    Refusal,
    StoreCounts,
    StoreTraits,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.engine.stores.validation import validate_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from actorflow.engine.stores.protocol import Wake

__all__ = ["MemoryStore"]

_EPOCH = 1  # of the only partition, which is always owned
_NOBODY: SortedSet[str] = SortedSet()


class MemoryStore:
    """Keeps everything in dicts. Any thread may read while one writes."""

    traits = StoreTraits()
    left_open = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._tables = Tables()

    # Writing: one thread.

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply the changes. O(their rows)."""
        validate_ids(changes)
        with self._lock:
            self._require_open()
            try:
                for change in changes:
                    change.rows = change.resulting_messages = ()
                    change.revision = NEVER_RUN
                    change.refusal = self._refusal(change)
                    change.committed = change.refusal is None
                    if change.committed:
                        self._apply(change)
            except BaseException:
                self._tables.take_back()
                for change in changes:
                    change.committed, change.refusal, change.revision = False, None, NEVER_RUN
                    change.rows = change.resulting_messages = ()
                raise
            self._tables.keep()

    def _epoch_of(self, _execution: str) -> int:
        """Return the epoch of the partition of an execution: there is one, always owned."""
        return _EPOCH

    def _is_visible(self, _execution: str) -> bool:
        """Return whether an owner of partitions sees an execution: that of all sees everything."""
        return True

    def _require_open(self) -> None:
        if self._closed:
            msg = "this store in memory is closed"
            raise StoreRefused(msg)

    def _refusal(self, change: Change) -> Refusal | None:
        if change.epoch is not None and change.epoch != self._epoch_of(change.execution):
            return Refusal("fenced", change.execution)
        executions = self._tables.executions
        kinds: dict[str, str] = {}
        for number, new in enumerate(change.creates):
            row = executions.get(new.id)
            if row is not None and change.new_only and number == 0:
                return Refusal("exists", new.id)
            if kinds.setdefault(new.id, new.kind if row is None else row.kind) != new.kind:
                return Refusal("clash", new.id)
        if change.expected is not None:
            row = executions.get(change.execution)
            if change.expected != (NEVER_RUN if row is None else row.revision):
                return Refusal("raced", change.execution)
        return None

    def _apply(self, change: Change) -> None:
        tables, at = self._tables, change.at
        for new in change.creates:
            if new.id not in tables.executions:
                tables.put_execution(
                    ExecutionRow(
                        new.id, new.kind, NEVER_RUN, "active", None, 1, None, None, new.parent, at,
                        at,
                    )
                )  # fmt: skip
        if change.expected is not None:
            self._update(change)
        extra = self._remove(change)
        self._count_attempts(change)
        change.rows = [self._add_message(message, at) for message in change.messages]
        added = [self._add_message(message, at) for message in extra]
        change.resulting_messages = [row for row in added if isinstance(row, MessageRow)]
        self._add(change)

    def _update(self, change: Change) -> None:
        name, at = change.execution, change.at
        row = self._tables.executions.get(name) or ExecutionRow(
            name, change.kind, NEVER_RUN, "active", None, 1, None, None, None, at, at
        )
        change.revision = row.revision + 1
        state: Any = change.state
        if change.appends:
            state = Grown(row.state, change.state or b"")
        self._tables.put_execution(
            ExecutionRow(
                name, row.kind, change.revision, change.status, state, change.version,
                change.result, change.error, row.parent, row.created, at,
            )
        )  # fmt: skip
        if change.tags is not None:
            self._tables.put_tags(name, change.tags)

    def _remove(self, change: Change) -> list[NewMessage]:
        """Remove rows; return the messages that result from that."""
        tables, name = self._tables, change.execution
        if change.clear:
            tables.clear(name)
        for message in change.consumed:
            tables.drop_message(name, message)
        for execution, timer in change.cancelled_timers:
            tables.drop_timer((execution, timer))
        for task in change.finished_tasks:
            tables.drop_task(task)
        for execution, watch in change.cancelled_watches:
            tables.watches.drop((execution, watch))
        for letter in change.purged_letters:
            tables.drop_dead(letter)
        return [
            *(message for timer, message in change.fired_timers if self._take_timer(timer)),
            *(answer.message for answer in change.task_results if tables.drop_task(answer.task)),
            *(
                NewMessage(row.execution, row.type, row.body)
                for letter in change.requeued_letters
                if (row := tables.drop_dead(letter)) is not None
            ),
        ]

    def _take_timer(self, timer: TimerRow) -> bool:
        key = timer.execution, timer.id
        found = self._tables.timers.rows.get(key)
        if found is None or found.due != timer.due:
            return False
        self._tables.drop_timer(key)
        return True

    def _count_attempts(self, change: Change) -> None:
        tables = self._tables
        for message in change.attempted:
            row = tables.messages.of.get(change.execution, {}).get(message)
            if row is not None:
                tables.messages.put(message, row._replace(attempts=row.attempts + 1))
        for task in change.retried:
            number = tables.task_numbers.get(task.id)
            if number is not None:
                found: TaskRow = tables.tasks.rows[number]
                changed = found._replace(
                    body=task.body, attempts=task.attempts, due=task.due, worker=task.worker
                )
                tables.tasks.put(number, changed)

    def _add_message(self, message: NewMessage, at: float) -> MessageRow | DuplicateKey:
        tables, name, key = self._tables, message.execution, message.key
        if key is not None and (name, key) in tables.keys:
            return tables.keys[name, key]
        row = MessageRow(tables.number(), name, message.type, message.body, at)
        tables.messages.put(row.id, row)
        if key is not None:
            tables.put_key(name, key, DuplicateKey(row.id, at))
        return row

    def _add(self, change: Change) -> None:
        tables, at = self._tables, change.at
        for timer in change.timers:
            tables.drop_timer((timer.execution, timer.id))
            tables.put_timer(timer)
        for task in change.tasks:
            tables.add_task(task)
        for watch in change.watches:
            tables.watches.put((watch.execution, watch.id), watch)
        if change.history:
            tables.add_history(change.execution, at, change.history)
        for letter in change.dead:
            if letter.id is not None:
                tables.drop_message(letter.execution, letter.id)
                tables.drop_dead(letter.id)
            tables.put_dead(DeadRow(*letter, at))

    def purge(
        self,
        *,
        before: float,
        keys_before: float,
        limit: int = 1_000,
        only: Sequence[str] | None = None,
    ) -> int:
        """Forget what ended before a moment, with all that is stored of it. O(limit log n)."""
        with self._lock:
            self._require_open()
            tables = self._tables
            if only is not None:
                return self._purge_only(only, before)
            gone = list(islice(tables.ended.irange(None, (before,)), limit))
            for _, name in gone:
                tables.drop_execution(name)
            for key in list(islice(tables.key_ages.irange(None, (keys_before,)), limit)):
                tables.drop_key(*key)
            tables.keep()
        return len(gone)

    def _purge_only(self, only: Sequence[str], before: float) -> int:
        tables = self._tables
        gone = {
            name
            for name in only
            if (row := tables.executions.get(name)) is not None
            and (row.updated, name) in tables.ended
            and row.updated < before
        }
        for name in sorted(gone):
            tables.drop_execution(name)
        for key, known in list(tables.keys.items()):
            if key[0] in gone:
                tables.drop_key(known.at, *key)
        tables.keep()
        return len(gone)

    # Reading: any thread.

    def owned(self) -> Mapping[int, int]:
        """Return the only partition."""
        return {0: _EPOCH}

    def subscribe(self, _wake: Wake) -> Callable[[], None]:
        """Never call it: nobody else can store anything here."""
        return lambda: None

    def execution(self, execution: str) -> ExecutionRow | None:
        """Return one execution. O(1), and O(parts) if its state was added to."""
        self._require_open()
        row = self._tables.executions.get(execution)
        return None if row is None else whole(row)

    def executions(self, ids: Sequence[str]) -> dict[str, ExecutionRow]:
        """Return many executions at once. O(1) each."""
        self._require_open()
        there = self._tables.executions
        found = ((name, there.get(name)) for name in ids)
        return {name: whole(row) for name, row in found if row is not None}

    def listing(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        after: Any = None,
        limit: int = 100,
    ) -> Page[ExecutionRow]:
        """Return executions in the order of their ids. O(n), or O(those with the tags)."""
        with self._lock:
            self._require_open()
            ids: Any = self._tables.executions
            if tags:
                ids = min((self._tables.tagged.get(tag, _NOBODY) for tag in tags.items()), key=len)
            rows = (
                row
                for name in ids.irange(after, inclusive=(False, True))
                if (row := self._tables.executions[name]).id == name
                and (kind is None or row.kind == kind)
                and (status is None or row.status == status)
                and (parent is None or row.parent == parent)
                and (not tags or tags.items() <= self._tables.tags[name].items())
            )
            found = list(map(whole, islice(rows, limit + 1)))
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def tags(self, execution: str) -> dict[str, str]:
        """Return the tags of an execution. O(1)."""
        with self._lock:
            self._require_open()
            return dict(self._tables.tags_of(execution))

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
            messages = self._tables.messages.of
            if execution is not None:
                last = after[1] if isinstance(after, tuple) else after
                start = (execution, last) if last is not None else None
                names = [execution] if execution in messages else []
            else:
                start = after
                names = sorted(
                    name
                    for name in messages
                    if (start is None or name >= start[0]) and self._is_visible(name)
                )
            rows: list[MessageRow] = []
            for name in names:
                if kind is None or self._kind_of(name) == kind:
                    ids = sorted(messages[name])
                    if start is not None and name == start[0]:
                        ids = ids[bisect_right(ids, start[1]) :]
                    rows += [messages[name][id_] for id_ in ids]
                if len(rows) > limit:
                    last = rows[limit - 1]
                    return Page(rows[:limit], (last.execution, last.id))
        return Page(rows, None)

    def _kind_of(self, name: str) -> str | None:
        row = self._tables.executions.get(name)
        return None if row is None else row.kind

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return the timers that are due first. O(limit)."""
        with self._lock:
            self._require_open()
            if execution is None:
                rows = (row for row in self._tables.due.values() if self._is_visible(row.execution))
                return list(islice(rows, limit))
            found = self._tables.timers.of.get(execution, {}).values()
            return sorted(found, key=lambda row: (row.due, row.id))[:limit]

    def open(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Any = None,
        limit: int = 1_000,
    ) -> Page[TaskRow]:
        """Return tasks in the order in which they were stored. O(tasks of other taskers)."""

        def wanted(row: TaskRow) -> bool:
            mine = execution is not None or self._is_visible(row.execution)
            return mine and (tasker is None or row.tasker == tasker)

        with self._lock:
            self._require_open()
            return self._tables.tasks.page(limit, after, execution=execution, wanted=wanted)

    def task(self, task: str) -> TaskRow | None:
        """Return one task. O(1)."""
        with self._lock:
            self._require_open()
            number = self._tables.task_numbers.get(task)
            row: TaskRow | None = None if number is None else self._tables.tasks.rows[number]
            return row

    def watches(self, *, after: Any = None, limit: int = 1_000) -> Page[WatchRow]:
        """Return all watches."""
        with self._lock:
            self._require_open()
            return self._tables.watches.page(limit, after)

    def history(self, execution: str, *, after: Any = None, limit: int = 1_000) -> Page[HistoryRow]:
        """Return what happened to an execution, oldest first."""
        with self._lock:
            self._require_open()
            entries = self._tables.history.get(execution, [])
            start = 0 if after is None else bisect_right(entries, after, key=lambda row: row.id)
            found = entries[start : start + limit + 1]
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def dead(
        self, *, execution: str | None = None, after: Any = None, limit: int = 1_000
    ) -> Page[DeadRow]:
        """Return dead letters, oldest first."""
        with self._lock:
            self._require_open()
            return self._tables.dead.page(limit, after, execution=execution)

    def dead_letter(self, id: Any) -> DeadRow | None:  # noqa: A002 - what it is
        """Return one dead letter. O(1)."""
        with self._lock:
            self._require_open()
            number = self._tables.dead_numbers.get(id)
            row: DeadRow | None = None if number is None else self._tables.dead.rows[number]
            return row

    def keyed(self, execution: str, key: str) -> DuplicateKey | None:
        """Return the message that was stored with a key, if there was one. O(1)."""
        with self._lock:
            self._require_open()
            return self._tables.keys.get((execution, key))

    def counts(self, executions: Sequence[str]) -> dict[str, StoreCounts]:
        """Return how much is stored for each of some executions. O(1) each."""
        with self._lock:
            self._require_open()
            held = self._tables
            tables = (held.messages, held.timers, held.tasks, held.dead)
            return {
                name: StoreCounts(*(len(table.of.get(name, ())) for table in tables))
                for name in executions
            }

    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield all rows of this moment. O(n) at once: they are listed, not copied."""
        with self._lock:
            self._require_open()
            return iter(self._tables.all_rows())

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]]) -> int:
        """Fill an empty store; return how many rows. O(n)."""
        with self._lock:
            self._require_open()
            if any(table != "meta" for table, _ in self._tables.all_rows()):
                msg = "this store in memory is not empty: only an empty store can be filled"
                raise StoreConflict(msg)
            tables = Tables()
            count = tables.fill(rows)
            self._tables = tables
        return count

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self._tables = Tables()
