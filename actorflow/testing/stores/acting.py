"""What all cases do with a store: commit, read, and see what is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    NewMessage,
)
from actorflow.testing.stores.comparison import read_all
from actorflow.testing.stores.machine import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store

__all__ = ["bodies", "commit", "created", "messages", "raised", "state_of"]


def commit(store: Store, *changes: Change) -> None:
    """Commit, and wait for it."""
    settle(store.commit(changes))


def raised(error: type[Exception], call: Callable[[], object]) -> Exception | None:
    """Return the error that a call raises, or `None` if it raises none."""
    try:
        call()
    except error as found:
        return found
    return None


def state_of(store: Store, name: str = "a") -> Any:
    """Return the state of an execution; `None` if there is none."""
    row = store.execution(name)
    return None if row is None else row.state


def bodies(store: Store, name: str = "a") -> list[bytes]:
    """Return the bodies of the messages that an execution has not consumed, in their order."""
    return [row.body for row in read_all(store.pending, 100, execution=name)]


def messages(*texts: bytes, to: str = "a") -> list[NewMessage]:
    """Return messages with these bodies."""
    return [NewMessage(to, "message", text) for text in texts]


def created(store: Store, name: str = "a", *, kind: str = "k") -> Any:
    """Create an execution with a state; return its revision."""
    change = Change(name, kind=kind, expected=NEVER_RUN, state=b"0", at=1.0)
    commit(store, change)
    assert change.committed
    return change.revision
