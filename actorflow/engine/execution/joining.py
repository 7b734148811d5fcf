"""Starts and messages that join a transaction of the user's: they happen when it commits, or not.

The store writes them with the connection that it is given. The engine delivers nothing: whoever
owns the execution is told by the store once the transaction has been committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from actorflow.engine import bodies
from actorflow.engine.errors import ExecutionEnded, KindMismatch
from actorflow.engine.identifiers import check_id, unknown_execution
from actorflow.engine.kind import ENDED
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["Joining"]


class _Joined(Protocol):
    """What a store offers that can write in a transaction of somebody else."""

    def commit_within(self, connection: Any, changes: Sequence[Change]) -> None:
        """Write changes in the transaction of a connection, which commits them or not."""

    def execution_within(self, connection: Any, execution: str) -> ExecutionRow | None:
        """Return an execution as that transaction sees it."""


class Joining:
    """Writes in transactions of users. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def _store(self) -> _Joined:
        self._core.refuse_if_closed()
        store: Any = self._core.store
        if not hasattr(store, "commit_within"):
            msg = (
                f"connection= joins a transaction of the database that the store is in, and "
                f"{type(store).__name__} is in none: open the engine on postgresql://..."
            )
            raise BadOption(msg)
        joined: _Joined = store
        return joined

    def create(self, connection: Any, execution: str, kind: str, message: Any) -> bool:
        """Create an execution with its first message; return whether there was none of that id.

        Raises:
            KindMismatch: there is one, and it is of another kind.

        """
        store = self._store()
        change = Change(
            check_id(execution, "an execution"),
            at=self._core.clock.now(),
            creates=(NewExecution(execution, kind),),
            new_only=True,
            messages=(NewMessage(execution, "message", bodies.encode(message)),),
        )
        store.commit_within(connection, (change,))
        if change.refusal is None:
            return True
        row = store.execution_within(connection, execution)
        if row is not None and row.kind != kind:
            raise _mismatch(row, kind)
        return False

    def send(
        self, connection: Any, execution: str, message: Any, kind: str | None, key: str | None
    ) -> None:
        """Send a message, to an execution that is created if need be and a kind is given.

        Raises:
            UnknownExecution, ExecutionEnded, KindMismatch: as for `Engine.send`.

        """
        store = self._store()
        row = store.execution_within(connection, execution)
        if row is None and kind is None:
            raise unknown_execution(self._core.store, execution)
        if row is not None and kind is not None and row.kind != kind:
            raise _mismatch(row, kind)
        if row is not None and row.status in ENDED:
            msg = f"execution {execution!r} has ended ({row.status}): it takes no messages"
            raise ExecutionEnded(msg)
        made = NewMessage(execution, "message", bodies.encode(message), key)
        creates = () if kind is None else (NewExecution(execution, kind),)
        change = Change(execution, at=self._core.clock.now(), creates=creates, messages=(made,))
        store.commit_within(connection, (change,))


def _mismatch(row: ExecutionRow, kind: str) -> KindMismatch:
    msg = f"execution {row.id!r} is of kind {row.kind!r}, not {kind!r}: choose another id"
    return KindMismatch(msg)
