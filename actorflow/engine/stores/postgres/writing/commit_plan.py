"""The plan of a commit: changes in, rows to write out. Pure, without a database.

Problem
    A group of changes must be checked against the store (revisions, epochs, keys, existence) and
    written, in few round trips. Reading and locking all rows first would cost a round trip for
    every commit, although almost all changes succeed.

Approach
    The first plan is made without rows. It assumes that everything is as the changes expect, and
    the statements that write it check these assumptions and fail otherwise. Only then, or if a
    change cannot be judged without rows (`NeedRows`), the rows are read and locked, and another
    plan is made on them.

Invariants
    1. Changes are applied in their order. A later change sees the effect of earlier ones in the
       same plan, so the result equals committing them one by one.
    2. The result is one set of rows for each table: the statements do not depend on the order of
       changes any more.
    3. A plan without rows never contains a refusal. A refusal is only decided on locked rows.
    4. Every assumption of a plan without rows is checked by a statement that writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    DeadRow,
    DuplicateKey,
    MessageRow,
    NewDead,
    NewExecution,
    NewMessage,
    Refusal,
    TaskRow,
    TimerRow,
    WatchRow,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from actorflow.engine.stores.protocol import Change

__all__ = ["CommitPlan", "LockedRows", "NeedRows", "PlannedMessage", "WrittenState", "plan_changes"]

_new: Any = tuple.__new__  # half the cost of calling the class


class NeedRows(Exception):
    """The changes cannot be judged without the stored rows."""


@dataclass(slots=True)
class LockedRows:
    """The stored rows that some changes look at; a row that is missing here is not stored."""

    epochs: dict[int, int] = field(default_factory=dict)
    """By partition."""
    executions: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The kind and revision of each."""
    keys: dict[tuple[str, str], DuplicateKey] = field(default_factory=dict)
    timers: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each is due."""
    tasks: dict[str, str] = field(default_factory=dict)
    """The execution of each."""
    dead: dict[Any, DeadRow] = field(default_factory=dict)


class WrittenState(NamedTuple):
    """The state of an execution after a change."""

    revision: int
    status: str
    state: bytes | None
    version: int
    result: bytes | None
    error: bytes | None
    updated: float


class _StatePart(NamedTuple):
    """A part to be added to a state."""

    execution: str
    revision: int
    body: bytes


class PlannedMessage:
    """A message to be stored; it gets its id when it is."""

    __slots__ = ("at", "id", "message")

    def __init__(self, message: NewMessage, at: float) -> None:
        self.message = message
        self.at = at
        self.id: Any = None

    def row(self) -> MessageRow:
        """Return the message as it is stored."""
        execution, type_, body, _ = self.message
        row: MessageRow = _new(MessageRow, (self.id, execution, type_, body, self.at, 0))
        return row


class _Execution:
    """What happens to one execution."""

    __slots__ = (
        "at", "expected", "kind", "new", "parts", "revision", "strict", "there", "written",
    )  # fmt: skip

    def __init__(self, *, there: bool | None, kind: str | None, revision: int | None) -> None:
        self.there = there
        """Whether it is stored, before or by this plan; `None`: nobody knows."""
        self.kind = kind
        self.revision = revision
        self.new: NewExecution | None = None
        self.at = 0.0
        self.strict = False
        """It must be new: if it is there after all, the plan is void."""
        self.expected: int | None = None
        """The stored revision that the plan relies on."""
        self.written: WrittenState | None = None
        self.parts: list[_StatePart] | None = None
        """Parts to be added to the stored state, where that is not replaced."""


class _Answered(NamedTuple):
    """A change, and what its messages have become."""

    change: Change
    refusal: Refusal | None
    revision: Any = NEVER_RUN
    rows: Sequence[PlannedMessage | DuplicateKey] = ()
    extra: Sequence[PlannedMessage] = ()
    """Those of `rows` that are `PlannedMessage` twice are duplicates within the commit."""
    repeated: frozenset[int] = frozenset()


class CommitPlan:
    """The rows to be written, table by table, and the outcomes for the callers."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.executions: dict[str, _Execution] = {}
        self.kinds: dict[str, str] = {}
        """Executions that are created unless they are there, and must be of that kind then."""
        self.attempted: list[tuple[str, Any]] = []
        self.consumed: list[tuple[str, Any]] = []
        self.messages: list[PlannedMessage] = []
        self.cleared: dict[str, None] = {}
        self.timers: dict[tuple[str, str], TimerRow] = {}
        self.cancelled_timers: dict[tuple[str, str], None] = {}
        self.fired: dict[tuple[str, str], float] = {}
        """Timers that must be there with that `due`."""
        self.tasks: dict[str, TaskRow] = {}
        self.retried: dict[str, TaskRow] = {}
        self.finished_tasks: dict[str, None] = {}
        self.answered: dict[str, None] = {}
        """Tasks that must be there."""
        self.watches: dict[tuple[str, str], WatchRow] = {}
        self.cancelled_watches: dict[tuple[str, str], None] = {}
        self.tags: dict[str, Mapping[str, str]] = {}
        self.history: list[tuple[str, float, bytes]] = []
        self.dead: dict[Any, tuple[NewDead, float]] = {}
        self.removed_dead: dict[Any, None] = {}
        self.ended: list[str] = []
        """Executions that are not active any more."""
        self.answers: list[_Answered] = []

    def settle(self, ids: Iterable[Any]) -> None:
        """Say in each change what happened to it; `ids` are those of `messages`."""
        for out, id_ in zip(self.messages, ids, strict=True):
            out.id = id_
        for answer in self.answers:
            change = answer.change
            change.refusal = answer.refusal
            change.committed = answer.refusal is None
            change.revision = answer.revision
            change.rows = [
                each
                if isinstance(each, DuplicateKey)
                else DuplicateKey(each.id, each.at)
                if number in answer.repeated
                else each.row()
                for number, each in enumerate(answer.rows)
            ]
            change.resulting_messages = [each.row() for each in answer.extra]


def plan_changes(
    changes: Sequence[Change], locked: LockedRows | None, partitions: int
) -> CommitPlan:
    """Return the plan of a commit: which changes are applied, and the rows that they write.

    Raises:
        NeedRows: without rows, a change is refused, or cannot be judged.
        StoreConflict: one of them can never be committed.

    """
    planner = _Planner(locked, partitions)
    for change in changes:
        planner.apply(change)
    return planner.plan


class _Planner:
    """Applies changes one by one, on locked rows or on assumptions."""

    def __init__(self, locked: LockedRows | None, partitions: int) -> None:
        self._locked = locked
        self._partitions = partitions
        self._keys: dict[tuple[str, str], PlannedMessage] = {}
        self._nameless = 0
        self.plan = CommitPlan()

    def apply(self, change: Change) -> None:
        """Apply one change, or note why it is refused."""
        plan = self.plan
        refusal = self._refusal(change)
        if refusal is not None:
            if self._locked is None:
                raise NeedRows
            plan.answers.append(_Answered(change, refusal))
            return
        at = float(change.at)
        if change.creates:
            self._create(change, at)
        revision = NEVER_RUN if change.expected is None else self._write_state(change, at)
        extra = self._remove(change)
        if change.attempted:
            plan.attempted += [(change.execution, message) for message in change.attempted]
        if change.retried:
            self._retry(change)
        rows, repeated = self._send(change.messages, at) if change.messages else ((), ())
        kept: list[PlannedMessage] = []
        if extra:
            made, again = self._send(extra, at)
            kept = [
                out
                for number, out in enumerate(made)
                if isinstance(out, PlannedMessage) and number not in again
            ]
        self._add(change, at)
        plan.answers.append(_Answered(change, None, revision, rows, kept, frozenset(repeated)))

    # Executions.

    def _find(self, name: str) -> _Execution:
        found = self.plan.executions.get(name)
        if found is None:
            if self._locked is None:
                found = _Execution(there=None, kind=None, revision=None)
            else:
                kind, revision = self._locked.executions.get(name, (None, NEVER_RUN))
                found = _Execution(there=kind is not None, kind=kind, revision=revision)
            self.plan.executions[name] = found
        return found

    def _refusal(self, change: Change) -> Refusal | None:
        name = change.execution
        if change.epoch is not None:
            partition = partition_of(name, self._partitions)
            epochs = self.plan.epochs if self._locked is None else self._locked.epochs
            if epochs.get(partition, change.epoch if self._locked is None else 0) != change.epoch:
                return Refusal("fenced", name)
            self.plan.epochs[partition] = change.epoch
        kinds: dict[str, str] = {}
        for number, new in enumerate(change.creates):
            found = self._find(new.id)
            if found.there and change.new_only and number == 0:
                return Refusal("exists", new.id)
            if kinds.setdefault(new.id, found.kind or new.kind) != new.kind:
                return Refusal("clash", new.id)
        if change.expected is not None:
            revision = self._find(name).revision
            if revision is not None and change.expected != revision:
                return Refusal("raced", name)
        return None

    def _create(self, change: Change, at: float) -> None:
        for number, new in enumerate(change.creates):
            found = self._find(new.id)
            if found.there:
                if found.kind is None:
                    found.kind = self.plan.kinds[new.id] = new.kind
                continue
            strict = found.there is False or (change.new_only and number == 0)
            if found.new is None:
                found.new, found.at = new, at
            found.strict = found.strict or strict
            found.there, found.kind = True, new.kind
            if strict:
                found.revision = NEVER_RUN
            else:
                self.plan.kinds[new.id] = new.kind

    def _write_state(self, change: Change, at: float) -> int:
        found = self._find(change.execution)
        if found.written is None:
            found.expected = change.expected
        if not found.there and change.expected == NEVER_RUN:
            found.new = NewExecution(change.execution, change.kind)
            found.at = at
            found.strict = found.there is False
            found.kind = change.kind if found.there is False else None
        found.there = True
        revision: int = (change.expected or 0) + 1
        status = str(change.status)
        found.revision = revision
        state = change.state
        if change.appends:
            state = self._add_to_state(found, change, revision)
        else:
            found.parts = None
        found.written = WrittenState(
            revision, status, state, change.version, change.result, change.error, at
        )
        if change.tags is not None:
            self.plan.tags[change.execution] = change.tags
        if status != "active":
            self.plan.ended.append(change.execution)
        return revision

    def _add_to_state(self, found: _Execution, change: Change, revision: int) -> bytes | None:
        """Return the state if all of it is known; note a part of it otherwise."""
        part = change.state or b""
        if found.written is not None and found.parts is None:
            return (found.written.state or b"") + part
        if found.written is None:
            if found.expected == NEVER_RUN:  # it has no state yet
                return part
            found.parts = []
        assert found.parts is not None  # noqa: S101 - see above
        found.parts.append(_StatePart(change.execution, revision, part))
        return None

    # Removed rows.

    def _remove(self, change: Change) -> list[NewMessage]:
        """Remove rows; return the messages that result from that."""
        plan, name = self.plan, change.execution
        if change.clear:
            self._clear(name)
        if change.consumed:
            plan.consumed += [(name, message) for message in change.consumed]
        for letter in change.dead:
            if letter.id is not None:
                plan.consumed.append((letter.execution, letter.id))
        for task in change.finished_tasks:
            self._drop_task(task)
        if change.cancelled_timers or change.cancelled_watches or change.purged_letters:
            self._cancel(change)
        return (
            self._take(change)
            if change.fired_timers or change.task_results or change.requeued_letters
            else []
        )

    def _cancel(self, change: Change) -> None:
        plan = self.plan
        for execution, timer in change.cancelled_timers:
            plan.timers.pop((execution, timer), None)
            plan.cancelled_timers[execution, timer] = None
        for execution, watch in change.cancelled_watches:
            plan.watches.pop((execution, watch), None)
            plan.cancelled_watches[execution, watch] = None
        for letter in change.purged_letters:
            plan.dead.pop(letter, None)
            plan.removed_dead[letter] = None

    def _take(self, change: Change) -> list[NewMessage]:
        """Remove what becomes a message, as far as it is there; return these messages."""
        extra = [message for timer, message in change.fired_timers if self._fire(timer)]
        extra += [answer.message for answer in change.task_results if self._answer(answer.task)]
        for letter_id in change.requeued_letters:
            found = self._take_dead(letter_id)
            if found is not None:
                extra.append(NewMessage(found.execution, found.type, found.body))
        return extra

    def _clear(self, name: str) -> None:
        plan = self.plan
        plan.cleared[name] = None
        plan.timers = {key: row for key, row in plan.timers.items() if key[0] != name}
        plan.watches = {key: row for key, row in plan.watches.items() if key[0] != name}
        for task in [row.id for row in plan.tasks.values() if row.execution == name]:
            self._drop_task(task)

    def _drop_task(self, task: str) -> None:
        if self.plan.tasks.pop(task, None) is not None and self._locked is None:
            raise NeedRows  # its id may have been in use before it was added
        self.plan.finished_tasks[task] = None

    def _fire(self, timer: TimerRow) -> bool:
        """Remove a timer that is set with this `due`; return whether it is."""
        plan, key = self.plan, (timer.execution, timer.id)
        if key in plan.timers:
            due: float | None = plan.timers[key].due
        elif key in plan.cancelled_timers or key in plan.fired or key[0] in plan.cleared:
            due = None
        elif self._locked is None:
            due = timer.due
        else:
            due = self._locked.timers.get(key)
        if due is None or due != timer.due:
            return False
        if plan.timers.pop(key, None) is None:
            plan.fired[key] = due
        else:
            plan.cancelled_timers[key] = None
        return True

    def _has_task(self, task: str) -> bool | None:
        """Return whether a task is there; `None` if that is not known."""
        plan = self.plan
        if task in plan.tasks:
            return True
        if task in plan.finished_tasks or task in plan.answered:
            return False
        if self._locked is None:
            return None
        return self._locked.tasks.get(task, _NOBODY) not in {_NOBODY, *plan.cleared}

    def _answer(self, task: str) -> bool:
        if self._has_task(task) is False:
            return False
        if self._locked is None and self.plan.cleared:
            raise NeedRows  # it may be a row that was cleared
        if task in self.plan.tasks:
            self._drop_task(task)
        else:
            self.plan.answered[task] = None
        return True

    def _take_dead(self, letter: Any) -> DeadRow | None:
        plan = self.plan
        if self._locked is None:
            raise NeedRows
        added = plan.dead.pop(letter, None)
        if added is not None:
            plan.removed_dead[letter] = None
            return DeadRow(*added[0], added[1])
        if letter in plan.removed_dead:
            return None
        plan.removed_dead[letter] = None
        return self._locked.dead.get(letter)

    # Added rows.

    def _retry(self, change: Change) -> None:
        plan = self.plan
        for task in change.retried:
            added = plan.tasks.get(task.id)
            if added is not None:
                plan.tasks[task.id] = added._replace(
                    body=task.body, attempts=task.attempts, due=task.due, worker=task.worker
                )
            elif self._has_task(task.id) is not False:
                plan.retried[task.id] = task

    def _send(
        self, messages: Iterable[NewMessage], at: float
    ) -> tuple[list[PlannedMessage | DuplicateKey], set[int]]:
        """Return what each message becomes, and which of them repeat another of this commit."""
        rows: list[PlannedMessage | DuplicateKey] = []
        repeated: set[int] = set()
        for message in messages:
            if message.key is not None:
                key = message.execution, message.key
                stored = None if self._locked is None else self._locked.keys.get(key)
                if stored is not None:
                    rows.append(stored)
                    continue
                if key in self._keys:
                    repeated.add(len(rows))
                    rows.append(self._keys[key])
                    continue
            out = PlannedMessage(message, at)
            if message.key is not None:
                self._keys[message.execution, message.key] = out
            rows.append(out)
            self.plan.messages.append(out)
        return rows, repeated

    def _add(self, change: Change, at: float) -> None:
        plan, name = self.plan, change.execution
        for timer in change.timers:
            plan.timers[timer.execution, timer.id] = timer
        for task in change.tasks:
            if self._has_task(task.id):
                raise _conflict(task.id)
            plan.retried.pop(task.id, None)
            plan.tasks[task.id] = task
        for watch in change.watches:
            plan.watches[watch.execution, watch.id] = watch
        if change.history:
            plan.history += [(name, at, body) for body in change.history]
        for letter in change.dead:
            if letter.id is None:
                self._nameless += 1
                plan.dead[None, self._nameless] = letter, at
            else:
                plan.dead.pop(letter.id, None)
                plan.removed_dead[letter.id] = None
                plan.dead[letter.id] = letter, at


_NOBODY = "\0"  # the execution of a task that is not there


def _conflict(task: str) -> StoreConflict:
    msg = f"there is a task {task!r} already: ids of tasks are unique in the store"
    return StoreConflict(msg)
