"""What a store promises, in the plainest way: lists and dicts that are searched.

Ids and revisions are opaque, so the model does not make them up: it copies them from the
answers of the store, and checks that they are new.
"""

# ruff: noqa: S101 - these checks consist of assertions

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    DeadRow,
    DuplicateKey,
    ExecutionRow,
    MessageRow,
    NewMessage,
    Refusal,
    TaskRow,
    TimerRow,
    WatchRow,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actorflow.engine.stores.protocol import Change

__all__ = ["ENDED", "Conflict", "Model"]

ENDED = ("done", "failed", "cancelled")


class Conflict(Exception):
    """The changes can never be committed."""


class Model:
    """The rows that a store should hold."""

    def __init__(self, epochs: Mapping[int, int], partitions: int) -> None:
        self.epochs = epochs
        """The partitions that are owned: other ones after the store was reopened."""
        self._partitions = partitions
        self.executions: dict[str, ExecutionRow] = {}
        self.messages: list[MessageRow] = []
        self.timers: dict[tuple[str, str], TimerRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.watches: dict[tuple[str, str], WatchRow] = {}
        self.history: list[tuple[str, float, bytes]] = []
        self.tags: dict[str, dict[str, str]] = {}
        self.dead: list[DeadRow] = []
        self.keys: dict[tuple[str, str], DuplicateKey] = {}
        self.used: dict[Any, None] = {}
        """All ids of messages so far, in order."""
        self._trial: Iterator[int] | None = None

    def copy(self) -> Model:
        """Return a copy, on which changes can be tried: it invents ids."""
        made = Model(self.epochs, self._partitions)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list, set)):
                setattr(made, name, value.copy())
        made._trial = itertools.count()
        return made

    def epoch_of(self, execution: str) -> int | None:
        """Return the epoch in which the partition of an execution is owned."""
        return self.epochs.get(partition_of(execution, self._partitions))

    def refusal(self, change: Change) -> Refusal | None:
        """Return why a change must be refused, if it must."""
        name = change.execution
        if change.epoch is not None and change.epoch != self.epoch_of(name):
            return Refusal("fenced", name)
        kinds: dict[str, str] = {}
        for number, new in enumerate(change.creates):
            row = self.executions.get(new.id)
            if row is not None and change.new_only and number == 0:
                return Refusal("exists", new.id)
            if kinds.setdefault(new.id, new.kind if row is None else row.kind) != new.kind:
                return Refusal("clash", new.id)
        if change.expected is not None:
            row = self.executions.get(name)
            if change.expected != (NEVER_RUN if row is None else row.revision):
                return Refusal("raced", name)
        return None

    def apply(self, change: Change) -> None:
        """Apply a change, and check what the store has answered, unless this is a copy."""
        refusal = self.refusal(change)
        if self._trial is None:
            assert change.refusal == refusal, f"{change.refusal} and not {refusal}"
            assert change.committed == (refusal is None), "`committed` and `refusal` contradict"
        if refusal is None:
            self._write_executions(change)
            extra = self._remove(change)
            self._add(change, extra)

    def _write_executions(self, change: Change) -> None:
        at = float(change.at)
        for new in change.creates:
            if new.id not in self.executions:
                self.executions[new.id] = ExecutionRow(
                    new.id, new.kind, NEVER_RUN, "active", None, 1, None, None, new.parent, at, at
                )
        if change.expected is None:
            return
        name = change.execution
        row = self.executions.get(name)
        revision = change.revision if self._trial is None else object()
        if self._trial is None:
            assert revision not in (NEVER_RUN, change.expected), "the revision is not a new one"
        state = change.state
        if change.appends:
            state = ((row and row.state) or b"") + (state or b"")
        self.executions[name] = ExecutionRow(
            name, change.kind if row is None else row.kind, revision, change.status, state,
            change.version, change.result, change.error, None if row is None else row.parent,
            at if row is None else row.created, at,
        )  # fmt: skip
        if change.tags is not None:
            self.tags[name] = dict(change.tags)

    def _remove(self, change: Change) -> list[NewMessage]:
        name = change.execution
        if change.clear:
            self._drop_all(name)
        gone = {(name, message) for message in change.consumed}
        gone |= {(letter.execution, letter.id) for letter in change.dead if letter.id is not None}
        self.messages = [row for row in self.messages if (row.execution, row.id) not in gone]
        for timer in change.cancelled_timers:
            self.timers.pop(timer, None)
        for task in change.finished_tasks:
            self.tasks.pop(task, None)
        for watch in change.cancelled_watches:
            self.watches.pop(watch, None)
        for letter in change.purged_letters:
            self._take_dead(letter)
        extra = []
        for timer_row, message in change.fired_timers:
            key = timer_row.execution, timer_row.id
            if key in self.timers and self.timers[key].due == timer_row.due:
                del self.timers[key]
                extra.append(message)
        extra += [each.message for each in change.task_results if self.tasks.pop(each.task, None)]
        for letter in change.requeued_letters:
            found = self._take_dead(letter)
            if found is not None:
                extra.append(NewMessage(found.execution, found.type, found.body))
        return extra

    def _drop_all(self, name: str) -> None:
        self.timers = {key: row for key, row in self.timers.items() if row.execution != name}
        self.tasks = {key: row for key, row in self.tasks.items() if row.execution != name}
        self.watches = {key: row for key, row in self.watches.items() if row.execution != name}

    def _take_dead(self, letter: Any) -> DeadRow | None:
        for number, row in enumerate(self.dead):
            if row.id == letter:
                return self.dead.pop(number)
        return None

    def _add(self, change: Change, extra: list[NewMessage]) -> None:
        name, at = change.execution, float(change.at)
        for number, row in enumerate(self.messages):
            times = list(change.attempted).count(row.id) if row.execution == name else 0
            self.messages[number] = row._replace(attempts=row.attempts + times)
        for task in change.retried:
            if task.id in self.tasks:
                self.tasks[task.id] = self.tasks[task.id]._replace(
                    body=task.body, attempts=task.attempts, due=task.due, worker=task.worker
                )
        self._add_messages(change, extra)
        for timer in change.timers:
            self.timers[timer.execution, timer.id] = timer
        for task in change.tasks:
            if task.id in self.tasks:
                raise Conflict(task.id)
            self.tasks[task.id] = task
        for watch in change.watches:
            self.watches[watch.execution, watch.id] = watch
        self.history += [(name, at, body) for body in change.history]
        for letter in change.dead:
            if letter.id is not None:
                self._take_dead(letter.id)
            self.dead.append(DeadRow(letter.id, *letter[1:], at))

    def _add_messages(self, change: Change, extra: list[NewMessage]) -> None:
        at = float(change.at)
        if self._trial is not None:
            for message in (*change.messages, *extra):
                if self._known(message) is None:
                    self._store(message, at, f"invented-{next(self._trial)}")
            return
        assert len(change.rows) == len(change.messages), "`rows` has one for each of `messages`"
        for message, row in zip(change.messages, change.rows, strict=True):
            known = self._known(message)
            if known is not None:
                assert row == known, f"{row} and not {known}"
            else:
                self._take_over(message, at, row)
        stored = iter(change.resulting_messages)
        for message in extra:
            if self._known(message) is None:
                found = next(stored, None)
                assert found is not None, f"{message} led to no message in `resulting_messages`"
                self._take_over(message, at, found)
        left = list(stored)
        assert not left, f"`resulting_messages` has messages that nothing led to: {left}"

    def _known(self, message: NewMessage) -> DuplicateKey | None:
        if message.key is None:
            return None
        return self.keys.get((message.execution, message.key))

    def _take_over(self, message: NewMessage, at: float, row: Any) -> None:
        assert isinstance(row, MessageRow), f"{row!r} is not a MessageRow"
        expected = MessageRow(row.id, message.execution, message.type, message.body, at)
        assert row == expected, f"{row} and not {expected}"
        assert row.id not in self.used, f"the id {row.id!r} was used before"
        before = [each.id for each in self.messages if each.execution == message.execution]
        assert all(id_ < row.id for id_ in before), f"{row.id!r} is not after {before}"
        self._store(message, at, row.id)

    def _store(self, message: NewMessage, at: float, id_: Any) -> None:
        self.used[id_] = None
        self.messages.append(MessageRow(id_, message.execution, message.type, message.body, at))
        if message.key is not None:
            self.keys[message.execution, message.key] = DuplicateKey(id_, at)

    # Other steps.

    def ended(self, before: float) -> list[str]:
        """Return the executions that a purge may forget."""
        return [
            row.id
            for row in self.executions.values()
            if row.status in ENDED and row.updated < before
        ]

    def forget(self, names: Sequence[str]) -> None:
        """Remove executions with all that is stored of them."""
        for name in names:
            del self.executions[name]
            self.tags.pop(name, None)
            self._drop_all(name)
        self.messages = [row for row in self.messages if row.execution not in names]
        self.history = [entry for entry in self.history if entry[0] not in names]
        self.dead = [row for row in self.dead if row.execution not in names]

    def forget_keys(self, before: float) -> None:
        """Remove old keys."""
        self.keys = {key: known for key, known in self.keys.items() if known.at >= before}
