"""What may be sent a message: executions that exist, of the right kind, and have not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.engine.errors import ExecutionEnded, KindMismatch, UnknownExecution
from actorflow.engine.execution.writing.entries import Append, Request
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import new_row
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from actorflow.engine.core import Core
    from actorflow.engine.stores.protocol import Change, ExecutionRow

__all__ = ["Admission"]


class Admission:
    """Divides the entries of one commit into those that can be committed and those that cannot.

    Args:
        core: the store and the live executions.
        entries: what is to be committed together.
        made: executions that commits under way create, with their kinds.
        now: the time of the commit.

    Raises:
        Exception: the store cannot be read.

    """

    def __init__(
        self, core: Core, entries: list[Append | Request], made: dict[str, str], now: float
    ) -> None:
        self._find = core.host.find
        self._made = made
        self._now = now
        self.accepted: list[Append | Request] = []
        self.rejected: list[tuple[Append, Exception]] = []
        self.fetched: dict[str, ExecutionRow] = {}
        """The executions that had to be read, which are those that are not live."""
        self.all_live = self._are_all_live(entries)
        """Whether every message is from outside, and for a live execution that takes it."""
        if self.all_live:
            self.accepted = entries
        else:
            self._divide(core, entries)

    def _are_all_live(self, entries: list[Append | Request]) -> bool:
        """Look at what is in memory only, as is enough for almost all commits."""
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

    def _divide(self, core: Core, entries: list[Append | Request]) -> None:
        self.fetched = self._fetch(core, entries)
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
            else:
                self.rejected.append((entry, error))

    def _fetch(self, core: Core, entries: list[Append | Request]) -> dict[str, ExecutionRow]:
        """Read the executions that messages are for and that are not live, all in one read."""
        names: set[str] = set()
        for entry in entries:
            if isinstance(entry, Append):
                names.add(entry.execution)
            else:
                names.update(message.execution for message in entry.change.messages)
        asleep = [name for name in names if self._find(name) is None]
        return core.store.executions(asleep) if asleep else {}

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

    def _see_change(self, change: Change) -> None:
        """Note what a change creates; remove its messages to what is not there, or has ended."""
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
                log.info("message for nobody", execution=name, sender=change.execution)
            else:
                reached.append(message)
        if len(reached) < len(change.messages):
            change.messages = reached
