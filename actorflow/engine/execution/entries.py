"""What the writer is given: messages from outside, changes with their owners, and calls."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Append", "Entry", "Group", "Request", "group"]


class Append:
    """Messages from outside to one execution, and who waits for them."""

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


Entry: TypeAlias = "Append | Request | Callable[[], None]"
Group: TypeAlias = "tuple[Change, Any]"


def group(entries: list[Append | Request], now: float) -> list[Group]:
    """Group entries into changes; adjacent messages from outside become one change."""
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
        change.messages = [
            NewMessage(each.execution, "message", body, key)
            for each in owner
            for body, key in zip(each.bodies, each.keys or repeat(None), strict=False)
        ]
        change.creates = [
            NewExecution(name, kind)
            for name, kind in {
                (each.execution, each.kind): None for each in owner if each.kind is not None
            }
        ]
    return groups
