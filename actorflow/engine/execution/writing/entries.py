"""What the writer is given: messages from outside, changes with their owners, and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Append", "Entry", "Group", "Request", "group"]

_new: Any = tuple.__new__  # half the cost of calling the class


class Append:
    """Messages from outside to one execution, and the tickets of their senders."""

    __slots__ = ("bodies", "execution", "keys", "kind", "processed", "stored")

    def __init__(
        self,
        execution: str,
        kind: str | None,
        bodies: Sequence[bytes],
        stored: Any = None,
        processed: Any = None,
        *,
        keys: Sequence[str] | None = None,
    ) -> None:
        self.execution = execution
        self.kind = kind
        """The kind of the execution, which is created if need be; `None`: it must be there."""
        self.bodies = bodies
        self.keys = keys
        self.stored = stored
        """Resolved when they are stored and accumulated."""
        self.processed = processed
        """Resolved when the last of them has been processed."""

    @property
    def waiting(self) -> list[Any]:
        """Whoever waits for them."""
        return [each for each in (self.stored, self.processed) if each is not None]


class Request:
    """A change with its owner."""

    __slots__ = ("change", "insist", "then", "waiter")

    def __init__(
        self,
        change: Change,
        then: Callable[[Change, Exception | None], None] | None,
        *,
        insist: bool,
        waiter: Any = None,
    ) -> None:
        self.change = change
        self.then = then
        self.insist = insist
        self.waiter = waiter


Entry: TypeAlias = "Append | Request | list[Request] | Callable[[], None]"
Group: TypeAlias = "tuple[Change, Any]"


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
