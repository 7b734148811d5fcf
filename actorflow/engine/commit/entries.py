"""What the writer is given: messages from outside, changes with their owners, and calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage

if TYPE_CHECKING:
    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["Append", "Deliver", "Entry", "Group", "Request", "group", "undelivered"]

_new: Any = tuple.__new__  # half the cost of calling the class


class Append(Struct, eq=False):
    """Messages from outside to one execution, and the tickets of their senders."""

    execution: str
    kind: str | None
    """The kind of the execution, which is created if need be; `None`: it must be there."""
    bodies: Sequence[bytes]
    stored: Any = None
    """Resolved when they are stored and accumulated."""
    processed: Any = None
    """Resolved when the last of them has been processed."""
    keys: Sequence[str] | None = None

    @property
    def waiting(self) -> list[Any]:
        """The waiters of these messages."""
        return [each for each in (self.stored, self.processed) if each is not None]


class Request(Struct, eq=False):
    """A change with its owner."""

    change: Change
    then: Callable[[Change, Exception | None], None] | None
    insist: bool
    waiter: Any = None


Entry: TypeAlias = "Append | Request | list[Request] | Callable[[], None]"
Group: TypeAlias = "tuple[Change, Any]"
Deliver: TypeAlias = (
    "Callable[[list[Append], Sequence[Any], dict[str, ExecutionRow]],"
    " list[tuple[Any, Exception | None]]]"
)


def undelivered(
    _appends: list[Append], _rows: Sequence[Any], _fetched: dict[str, ExecutionRow]
) -> list[tuple[Any, Exception | None]]:
    """Deliver nothing: the messages stay in the store until an engine reads them."""
    return []


def group(entries: Sequence[Append | Request], now: float, *, creates: bool = True) -> list[Group]:
    """Group entries into changes; adjacent messages from outside become one change.

    Without `creates`, the executions that messages are for are known to be stored.
    """
    groups: list[Group] = []
    appends: list[Append] = []
    for entry in entries:
        if type(entry) is Append:
            if not appends:
                groups.append((Change(at=now), appends))
            appends.append(entry)
        elif type(entry) is Request:
            appends = []
            groups.append((entry.change, entry))
    for change, owner in groups:
        if type(owner) is not list:
            continue
        change.messages = _messages(owner)
        if creates:
            kinds = {(each.execution, each.kind): None for each in owner if each.kind is not None}
            change.creates = [NewExecution(name, kind) for name, kind in kinds]
    return groups


def _messages(appends: list[Append]) -> list[NewMessage]:
    made: list[NewMessage] = []
    for each in appends:
        if each.keys is None:
            for body in each.bodies:
                made.append(_new(NewMessage, (each.execution, "message", body, None)))  # noqa: PERF401 - of one body nearly always
        else:
            made += [
                NewMessage(each.execution, "message", body, key)
                for body, key in zip(each.bodies, each.keys, strict=True)
            ]
    return made
