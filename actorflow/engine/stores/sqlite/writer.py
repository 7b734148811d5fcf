"""Writes changes: decides them one by one, and collects their rows into few statements.

Rows are queued for each table. In each table, removals are written before additions. So the queue
must be written before a row that it adds is removed, and before anything reads the table.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreConflict
from actorflow.engine.failpoints import FAILPOINTS, failpoint
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    DuplicateKey,
    MessageRow,
    NewExecution,
    NewMessage,
    Refusal,
)
from actorflow.engine.stores.sqlite import states
from actorflow.engine.stores.sqlite.schema import (
    CHUNK,
    CREATE,
    HAS_ROWS,
    NOTE,
    insert,
    listed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["EPOCH", "SqliteWriter"]

EPOCH = 1  # of the only partition, which is always owned
_KNOWN = 10_000  # executions that are known to be there
_RESERVED = 10_000  # numbers that are set aside at a time
_new: Any = tuple.__new__  # half the cost of calling the class


class SqliteWriter:
    """Commits on one connection, in one thread.

    All numbers (of messages, tasks, entries of the history, dead letters) come from one counter.
    How far they may go is noted ahead, by the transaction that needs it: none is used again.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT value FROM meta WHERE key = 'last_id'").fetchone()
        self._last: int = 0 if found is None else found[0]
        self._reserved = self._last
        self._written = self._last  # messages up to here are in their table
        self._kinds: dict[str, str] = {}  # of executions that are known to be there
        self._consumed: list[tuple[str, int, int]] = []
        self._messages: list[Any] = []
        self._no_timers: list[tuple[str, str]] = []
        self._timers: dict[tuple[str, str], Any] = {}
        self._no_tasks: list[str] = []
        self._tasks: dict[str, Any] = {}
        self._history: list[Any] = []

    # The transaction.

    def use(self, connection: sqlite3.Connection) -> None:
        """Continue with another connection."""
        self._connection = connection

    def commit(self, changes: Sequence[Change]) -> None:
        """Write changes as one transaction. Raises what SQLite raises; then nothing is written."""
        if FAILPOINTS:
            failpoint("commit.before")
        before = self._last, self._reserved
        try:
            if len(changes) != 1 or not self._write_alone(changes[0]):
                self._connection.execute("BEGIN IMMEDIATE")
                for change in changes:
                    self._apply(change)
                self._flush()
                if self._last > self._reserved:
                    self.reserve()
                if FAILPOINTS:
                    failpoint("commit.inside")
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except BaseException:
            self._last, self._reserved = before
            self._forget()
            for change in changes:
                change.committed, change.refusal, change.revision = False, None, NEVER_RUN
                change.rows = change.resulting_messages = ()
            self.roll_back()
            raise
        if FAILPOINTS:
            failpoint("commit.after")

    def _write_alone(self, change: Change) -> bool:
        """Write a change if a single statement does it, which is a transaction by itself."""
        if _has_more(change) or (change.epoch is not None and change.epoch != EPOCH):
            return False
        if change.expected is not None:
            return self._write_state_alone(change)
        count = len(change.messages)
        if change.new_only or not 0 < count <= CHUNK or self._last + count > self._reserved:
            return False
        for new in change.creates:
            if self._kinds.get(new.id) != new.kind:
                return False
        if any([message.key is not None for message in change.messages]):  # noqa: C419 - faster
            return False
        change.rows = self._add_messages(change.messages, float(change.at))
        if FAILPOINTS:
            failpoint("commit.inside")
        self._flush_messages()
        change.committed, change.refusal, change.revision = True, None, NEVER_RUN
        change.resulting_messages = ()
        return True

    def _write_state_alone(self, change: Change) -> bool:
        if change.messages or change.creates or change.appends:
            return False
        if FAILPOINTS:
            failpoint("commit.inside")
        change.rows = change.resulting_messages = ()
        change.committed = self._update(change, {})
        change.refusal = None if change.committed else Refusal("raced", change.execution)
        if not change.committed:
            change.revision = NEVER_RUN
        return True

    def roll_back(self) -> None:
        """Roll the transaction back."""
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # SQLite has done so itself
                self._connection.execute("ROLLBACK")

    def _forget(self) -> None:
        self._written = self._last
        for queue in (
            self._kinds, self._consumed, self._messages, self._no_timers, self._timers,
            self._no_tasks, self._tasks, self._history,
        ):  # fmt: skip
            queue.clear()

    def reserve(self) -> None:
        """Record how far numbers may go from now on: the next owner begins after that.

        Many at a time, since each note is one more page to be synced.
        """
        self._reserved = self._last + _RESERVED
        self._connection.execute(NOTE, ("last_id", self._reserved))

    def give_back(self, token: str) -> None:
        """Return unused reserved numbers to the next owner, and leave it the token of this one."""
        with self.transaction() as connection:
            connection.execute(NOTE, ("last_id", self._last))
            connection.execute(NOTE, ("closed", token))

    # One change.

    def _apply(self, change: Change) -> None:
        change.rows = change.resulting_messages = ()
        change.refusal = self._write_executions(change)
        change.committed = change.refusal is None
        if not change.committed:
            change.revision = NEVER_RUN
            return
        extra: list[NewMessage] = []
        more = _has_more(change)
        if more:
            extra = self._remove(change)
        if change.messages:
            change.rows = self._add_messages(change.messages, float(change.at))
        if extra:
            rows = self._add_messages(extra, float(change.at))
            change.resulting_messages = [row for row in rows if isinstance(row, MessageRow)]
        if more:
            self._add(change)
            if change.tags is not None and change.expected is not None:
                self._tag(change.execution, change.tags)

    def _write_executions(self, change: Change) -> Refusal | None:
        """Decide whether the change is applied, and write the executions of one that is."""
        if change.epoch is not None and change.epoch != EPOCH:
            return Refusal("fenced", change.execution)
        missing: dict[str, NewExecution] = {}
        if change.new_only and _creates_itself(change):
            created = states.create(self._connection, change, change.creates[0], only=True)
            return None if created else Refusal("exists", change.execution)
        if change.creates:
            found = self._missing(change)
            if isinstance(found, Refusal):
                return found
            missing = found
        if change.expected is not None and not self._update(change, missing):
            return Refusal("raced", change.execution)
        if missing:
            at = float(change.at)
            self._connection.executemany(
                CREATE,
                [
                    (new.id, new.kind, 0, "active", None, 1, None, None, new.parent, at, at)
                    for new in missing.values()
                ],
            )
        if change.creates:
            self._kinds.update((new.id, new.kind) for new in change.creates)
        return None

    def _missing(self, change: Change) -> dict[str, NewExecution] | Refusal:
        """Return which executions have to be created, or why the change is refused."""
        kinds = self._kinds
        if not change.new_only and all(kinds.get(new.id) == new.kind for new in change.creates):
            return {}
        if len(kinds) > _KNOWN:
            kinds.clear()
        there: dict[str, str] = {}
        ids = [new.id for new in change.creates]
        for at in range(0, len(ids), CHUNK):
            some = ids[at : at + CHUNK]
            text = f"SELECT id, kind FROM executions WHERE id IN {listed(len(some))}"  # noqa: S608
            there.update(self._connection.execute(text, some))
        if change.new_only and ids[0] in there:
            return Refusal("exists", ids[0])
        missing: dict[str, NewExecution] = {}
        for new in change.creates:
            known = missing.setdefault(new.id, new).kind if new.id not in there else there[new.id]
            if known != new.kind:
                return Refusal("clash", new.id)
        return missing

    def _update(self, change: Change, missing: dict[str, NewExecution]) -> bool:
        """Write the state of an execution if nobody else has; create it if it has to be."""
        if change.expected:
            return states.update(self._connection, change)
        name = change.execution
        new = missing.pop(name, None) or NewExecution(name, change.kind)
        return states.create(self._connection, change, new, only=False)

    # Removals.

    def _remove(self, change: Change) -> list[NewMessage]:
        """Remove rows; return the messages that result from that."""
        if change.clear:
            self._clear(change.execution)
        if change.consumed:
            self._consume(change.execution, change.consumed)
        for letter in change.dead:
            if letter.id is not None:
                self._consume(letter.execution, (letter.id,))
        if change.cancelled_timers:
            if not self._timers.keys().isdisjoint(map(tuple, change.cancelled_timers)):
                self._flush_timers()
            self._no_timers += change.cancelled_timers
        if change.finished_tasks:
            if not self._tasks.keys().isdisjoint(change.finished_tasks):
                self._flush_tasks()
            self._no_tasks += change.finished_tasks
        if change.cancelled_watches or change.purged_letters:
            many = self._connection.executemany
            many("DELETE FROM watches WHERE execution = ? AND id = ?", change.cancelled_watches)
            many("DELETE FROM dead WHERE id = ?", [(letter,) for letter in change.purged_letters])
        return (
            self._take(change)
            if change.fired_timers or change.task_results or change.requeued_letters
            else []
        )

    def _take(self, change: Change) -> list[NewMessage]:
        """Remove what becomes a message, as far as it is there; return these messages."""
        extra: list[NewMessage] = []
        if change.fired_timers:
            extra += self._fire(change)
        if change.task_results:
            extra += self._answer(change)
        if change.requeued_letters:
            extra += self._revive(change)
        return extra

    def _clear(self, name: str) -> None:
        execute = self._connection.execute
        if any(key[0] == name for key in self._timers):
            self._flush_timers()
        if any(row[2] == name for row in self._tasks.values()):
            self._flush_tasks()
        # One statement that looks costs less than three that find nothing.
        found = execute(HAS_ROWS, (name, name, name)).fetchone()
        for table, there in zip(("timers", "tasks", "watches"), found, strict=True):
            if there:
                if table == "tasks" and self._tasks:  # one of them may have an id that is in use
                    self._flush_tasks()
                execute(f"DELETE FROM {table} WHERE execution = ?", (name,))  # noqa: S608 - ours

    def _consume(self, name: str, messages: Sequence[int]) -> None:
        if self._messages and max(messages) > self._written:
            self._flush_messages()
        if len(messages) == 1:
            self._consumed.append((name, messages[0], messages[0]))
        else:
            self._consumed += [(name, first, last) for first, last in _spans(messages)]

    def _fire(self, change: Change) -> Iterator[NewMessage]:
        self._flush_timers()
        text = "DELETE FROM timers WHERE execution = ? AND id = ? AND due = ?"
        for timer, message in change.fired_timers:
            if self._connection.execute(text, timer[:3]).rowcount:
                yield message

    def _answer(self, change: Change) -> Iterator[NewMessage]:
        self._flush_tasks()
        for answer in change.task_results:
            if self._connection.execute("DELETE FROM tasks WHERE id = ?", answer[:1]).rowcount:
                yield answer.message

    def _revive(self, change: Change) -> Iterator[NewMessage]:
        execute = self._connection.execute
        for letter in change.requeued_letters:
            found = execute("SELECT execution, type, body FROM dead WHERE id = ?", (letter,))
            row = found.fetchone()
            if row is not None:
                execute("DELETE FROM dead WHERE id = ?", (letter,))
                yield NewMessage._make((*row, None))

    # Additions.

    def _add_messages(
        self, messages: Sequence[NewMessage], at: float
    ) -> list[MessageRow | DuplicateKey]:
        rows: list[MessageRow | DuplicateKey] = []
        add, last = rows.append, self._last
        duplicates = False
        for execution, kind, body, key in messages:
            if key is not None:
                known = self._find_key(execution, key)
                if known is not None:
                    add(known)
                    duplicates = True
                    continue
                values = (execution, key, last + 1, at)
                self._connection.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", values)
            last += 1
            add(_new(MessageRow, (last, execution, kind, body, at, 0)))
        self._last = last
        self._messages += [r for r in rows if type(r) is MessageRow] if duplicates else rows
        return rows

    def _find_key(self, execution: str, key: str) -> DuplicateKey | None:
        found = self._connection.execute(
            "SELECT message, at FROM keys WHERE execution = ? AND key = ?", (execution, key)
        ).fetchone()
        return None if found is None else DuplicateKey._make(found)

    def _add(self, change: Change) -> None:
        name, at = change.execution, float(change.at)
        many = self._connection.executemany
        if change.attempted:
            self._flush_messages()
            many(
                "UPDATE messages SET attempts = attempts + 1 WHERE execution = ? AND id = ?",
                [(name, message) for message in change.attempted],
            )
        if change.retried:
            self._flush_tasks()
            many(
                "UPDATE tasks SET body = ?, attempts = ?, due = ?, worker = ? WHERE id = ?",
                [
                    (task.body, task.attempts, task.due, task.worker, task.id)
                    for task in change.retried
                ],
            )
        for timer in change.timers:
            self._timers[timer.execution, timer.id] = timer
        for task in change.tasks:
            if task.id in self._tasks:
                raise _conflict(task.id)
            self._tasks[task.id] = (self.number(), *task)
        if change.watches:
            insert(self._connection, "watches", change.watches)
        if change.history:
            self._history += [(self.number(), name, at, body) for body in change.history]
        for letter in change.dead:
            number = self.number()
            if letter.id is not None:
                self._connection.execute("DELETE FROM dead WHERE id = ?", (letter.id,))
            id_ = number if letter.id is None else letter.id
            insert(self._connection, "dead", [(number, id_, *letter[1:], at)])

    def _tag(self, name: str, tags: Mapping[str, str]) -> None:
        self._connection.execute("DELETE FROM tags WHERE execution = ?", (name,))
        if tags:
            insert(self._connection, "tags", [(name, *tag) for tag in tags.items()])

    def number(self) -> int:
        """Return the next number."""
        self._last += 1
        return self._last

    def skip(self, number: int) -> None:
        """Use none up to this one."""
        self._last = max(self._last, number)

    # The queues.

    def _flush(self) -> None:
        if self._consumed or self._messages:
            self._flush_messages()
        if self._no_timers or self._timers:
            self._flush_timers()
        if self._no_tasks or self._tasks:
            self._flush_tasks()
        if self._history:
            insert(self._connection, "history", self._history)
            self._history.clear()

    def _flush_messages(self) -> None:
        if self._consumed:
            # The plus keeps SQLite from looking in the index first: the id is enough.
            text = "DELETE FROM messages WHERE +execution = ? AND id BETWEEN ? AND ?"
            self._connection.executemany(text, self._consumed)
            self._consumed.clear()
        if self._messages:
            insert(self._connection, "messages", self._messages)
            self._messages.clear()
        self._written = self._last

    def _flush_timers(self) -> None:
        if self._no_timers:
            text = "DELETE FROM timers WHERE execution = ? AND id = ?"
            self._connection.executemany(text, self._no_timers)
            self._no_timers.clear()
        if self._timers:
            insert(self._connection, "timers", list(self._timers.values()))
            self._timers.clear()

    def _flush_tasks(self) -> None:
        for at in range(0, len(self._no_tasks), CHUNK):
            some = self._no_tasks[at : at + CHUNK]
            text = f"DELETE FROM tasks WHERE id IN {listed(len(some))}"  # noqa: S608 - ours
            self._connection.execute(text, some)
        self._no_tasks.clear()
        if self._tasks:
            try:
                insert(self._connection, "tasks", list(self._tasks.values()))
            except sqlite3.IntegrityError as error:
                raise self._find_conflict() from error
            self._tasks.clear()

    def _find_conflict(self) -> StoreConflict:
        for task in self._tasks:
            text = "SELECT number FROM tasks WHERE id = ?"
            (number,) = self._connection.execute(text, (task,)).fetchone() or (None,)
            if number is not None and number != self._tasks[task][0]:
                return _conflict(task)
        return StoreConflict("a task has a value that cannot be stored")

    # Other transactions.

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit all that is written inside, or nothing of it."""
        before = self._last, self._reserved
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            if self._last > self._reserved:
                self.reserve()
            self._connection.execute("COMMIT")
        except BaseException:
            self._last, self._reserved = before
            self.roll_back()
            raise
        finally:
            self._forget()

    def purge(
        self, *, before: float, keys_before: float, limit: int, only: Sequence[str] | None
    ) -> int:
        """Forget some of what ended, with all that is stored of it, and old keys."""
        with self.transaction() as connection:
            if only is None:
                gone = connection.execute(
                    "SELECT id FROM executions WHERE status IN ('done', 'failed', 'cancelled')"
                    " AND updated < ? ORDER BY updated LIMIT ?",
                    (before, limit),
                ).fetchall()
            else:
                text = (
                    "SELECT id FROM executions WHERE status IN ('done', 'failed', 'cancelled')"
                    " AND updated < ? AND id = ?"
                )
                gone = [
                    row
                    for name in dict.fromkeys(only)
                    for row in connection.execute(text, (before, name)).fetchall()
                ]
                connection.executemany("DELETE FROM keys WHERE execution = ?", gone)
            for table in (
                "parts", "messages", "timers", "tasks", "watches", "history", "dead", "tags",
            ):  # fmt: skip
                text = f"DELETE FROM {table} WHERE execution = ?"  # noqa: S608 - ours
                connection.executemany(text, gone)
            connection.executemany("DELETE FROM executions WHERE id = ?", gone)
            if only is None:
                connection.execute(
                    "DELETE FROM keys WHERE (execution, key) IN"
                    " (SELECT execution, key FROM keys WHERE at < ? ORDER BY at LIMIT ?)",
                    (keys_before, limit),
                )
        return len(gone)


def _creates_itself(change: Change) -> bool:
    """Return whether all that it creates, if it is new, is its own execution."""
    return (
        change.expected == NEVER_RUN
        and len(change.creates) == 1
        and change.creates[0].id == change.execution
    )


def _has_more(change: Change) -> bool:
    """Return whether it has anything besides a state, executions and messages."""
    return bool(
        change.consumed
        or change.timers
        or change.tasks
        or change.clear
        or change.history
        or change.task_results
        or change.fired_timers
        or change.cancelled_timers
        or change.finished_tasks
        or change.attempted
        or change.retried
        or change.watches
        or change.cancelled_watches
        or change.tags is not None
        or change.dead
        or change.requeued_letters
        or change.purged_letters
    )


def _conflict(task: str) -> StoreConflict:
    msg = f"there is a task {task!r} already: ids of tasks are unique in the store"
    return StoreConflict(msg)


def _spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive numbers: one DELETE for each, however many messages it holds."""
    ordered = sorted(numbers)
    first = last = ordered[0]
    for number in ordered:
        if number > last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
