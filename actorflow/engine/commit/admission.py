"""Which messages can be committed: the receiver must exist, have the right kind, and be active."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from actorflow.behaviours.errors import Rejected
from actorflow.engine.commit.entries import Append, Request
from actorflow.engine.errors import ExecutionEnded, KindMismatch, UnknownExecution
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import new_row
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import Change, ExecutionRow, NewExecution, Store

__all__ = ["Admission", "Find", "InMemory"]


class InMemory(Protocol):
    """The facts about a loaded execution that admission needs."""

    kind: Kind
    status: Status
    creates: NewExecution | None
    """Set until the commit that creates it."""


Find: TypeAlias = "Callable[[str], InMemory | None]"


class Admission:
    """Divides the entries of one commit into accepted and rejected ones.

    Args:
        store: has the executions that are not in memory.
        find: returns an execution that is in memory.
        entries: the entries of this commit.
        made: executions that commits under way create, with their kinds.
        now: the time of the commit.

    Raises:
        Exception: the store cannot be read.

    """

    def __init__(
        self,
        store: Store,
        find: Find,
        entries: list[Append | Request],
        made: dict[str, str],
        now: float,
    ) -> None:
        self._store = store
        self._find = find
        self._made = made
        self._now = now
        self.accepted: list[Append | Request] = []
        self.rejected: list[tuple[Append, Exception | None]] = []
        """Messages that are not stored, and why; `None`: stored and processed before."""
        self.fetched: dict[str, ExecutionRow] = {}
        """Executions that were not in memory and had to be read from the store."""
        self.all_live = self._are_all_live(entries)
        """Whether every message is from outside, and for a live execution that takes it."""
        if self.all_live:
            self.accepted = entries
        else:
            self._divide(entries)

    def _are_all_live(self, entries: list[Append | Request]) -> bool:
        """Check executions in memory only, which is enough for almost all commits."""
        name = kind = None  # of the last one: many messages are for the same execution
        for entry in entries:
            if type(entry) is Append:
                if entry.execution == name and entry.kind == kind:
                    continue
                live = self._find(entry.execution)
                if live is None or live.creates is not None or live.status in ENDED:
                    return False
                if entry.kind is not None and entry.kind != live.kind.name:
                    return False
                name, kind = entry.execution, entry.kind
            elif type(entry) is Request and (entry.change.messages or entry.change.creates):
                return False
        return True

    def _divide(self, entries: list[Append | Request]) -> None:
        self.fetched = self._fetch(entries)
        fine: set[tuple[str, str | None]] = set()  # many messages are for the same execution
        for entry in entries:
            if not isinstance(entry, Append):
                self._see_change(entry.change)
                self.accepted.append(entry)
            elif (entry.execution, entry.kind) in fine:
                self.accepted.append(entry)
            elif (error := self._reason_against(entry)) is None:
                self.accepted.append(entry)
                fine.add((entry.execution, entry.kind))
            elif isinstance(error, ExecutionEnded) and entry.keys is not None:
                self.rejected.append((entry, self._before_the_end(entry, entry.keys, error)))
            else:
                self.rejected.append((entry, error))

    def _fetch(self, entries: list[Append | Request]) -> dict[str, ExecutionRow]:
        """Read the executions that messages are for and that are not live, all in one read."""
        names: set[str] = set()
        for entry in entries:
            if isinstance(entry, Append):
                names.add(entry.execution)
            else:
                names.update(message.execution for message in entry.change.messages)
        asleep = [name for name in names if self._find(name) is None]
        return self._store.executions(asleep) if asleep else {}

    def _reason_against(self, append: Append) -> Exception | None:
        name = append.execution
        live = self._find(name)
        row = None if live is not None else self.fetched.get(name)
        status: str
        if live is not None:
            kind, status = live.kind.name, live.status
        elif row is not None:
            kind, status = row.kind, row.status
        elif name in self._made or append.kind is not None:
            kind, status = self._made.setdefault(name, append.kind or ""), Status.ACTIVE
            self.fetched[name] = new_row(name, kind, self._now)
        else:
            return UnknownExecution(f"there is no execution {name!r}")
        if append.kind is not None and append.kind != kind:
            return KindMismatch(
                f"execution {name!r} is of kind {kind!r}, not {append.kind!r}: choose another id"
            )
        if status in ENDED:
            return ExecutionEnded(f"execution {name!r} has ended ({status}): it takes no messages")
        return None

    def _before_the_end(
        self, append: Append, keys: Sequence[str], error: Exception
    ) -> Exception | None:
        """Return what happened to messages that were stored before their execution ended.

        `None` if they were processed, and the given error if they were not stored.
        """
        for key in keys:
            known = self._store.keyed(append.execution, key)
            if known is None:
                return error
            letter = self._store.dead_letter(known.id)
            if letter is not None:
                return Rejected(letter.error)
        return None

    def _see_change(self, change: Change) -> None:
        """Record what a change creates; remove its messages to missing or ended executions."""
        for new in change.creates:
            self._made.setdefault(new.id, new.kind)
        if not change.messages:
            return
        reached = []
        for message in change.messages:
            name = message.execution
            live = self._find(name)
            row = self.fetched.get(name)
            status = live.status if live is not None else None if row is None else row.status
            if status in ENDED or (status is None and name not in self._made):
                log.info("message without a receiver", execution=name, sender=change.execution)
            else:
                reached.append(message)
        if len(reached) < len(change.messages):
            change.messages = reached
