"""Starts and messages that join a transaction of the user: they happen if it commits.

The store writes them with the connection of that transaction. The engine delivers nothing: the
owner of the execution hears from the store once the transaction is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from actorflow.engine import bodies
from actorflow.engine.errors import ExecutionEnded, KindMismatch
from actorflow.engine.executions.sender import creation
from actorflow.engine.ids import unknown_execution
from actorflow.engine.kind import ENDED
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import ExecutionRow, Store

__all__ = ["UserTransactions"]


class _Joined(Protocol):
    """A store that can write in a transaction of the user."""

    def commit_within(self, connection: Any, changes: Sequence[Change]) -> None:
        """Write changes in the transaction of a connection, which commits them or not."""

    def execution_within(self, connection: Any, execution: str) -> ExecutionRow | None:
        """Return an execution as that transaction sees it."""


class UserTransactions:
    """Writes in transactions of users. Thread-safe."""

    def __init__(self, store: Store, clock: EngineClock, state: EngineState) -> None:
        self._store = store
        self._clock = clock
        self._state = state

    def _joined(self) -> _Joined:
        self._state.require_open()
        store: Any = self._store
        if not hasattr(store, "commit_within"):
            msg = (
                f"connection= joins a transaction of the database that the store is in, and "
                f"{type(store).__name__} is in none: open the engine on postgresql://..."
            )
            raise BadOption(msg)
        joined: _Joined = store
        return joined

    def create(
        self,
        connection: Any,
        execution: str,
        kind: str,
        message: Any,
        *,
        parent: NewExecution | None = None,
        to_parent: Sequence[Any] = (),
    ) -> bool:
        """Create an execution with its first message; return whether there was none of that id.

        See `creation` for the arguments.

        Raises:
            KindMismatch: there is one, and it is of another kind.

        """
        store = self._joined()
        change = creation([(execution, message)], kind, self._clock.now(), parent, to_parent)
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
        store = self._joined()
        row = store.execution_within(connection, execution)
        if row is None and kind is None:
            raise unknown_execution(self._store, execution)
        if row is not None and kind is not None and row.kind != kind:
            raise _mismatch(row, kind)
        if row is not None and row.status in ENDED:
            msg = f"execution {execution!r} has ended ({row.status}): it takes no messages"
            raise ExecutionEnded(msg)
        made = NewMessage(execution, "message", bodies.with_context(bodies.encode(message)), key)
        creates = () if kind is None else (NewExecution(execution, kind),)
        change = Change(execution, at=self._clock.now(), creates=creates, messages=(made,))
        store.commit_within(connection, (change,))


def _mismatch(row: ExecutionRow, kind: str) -> KindMismatch:
    msg = f"execution {row.id!r} is of kind {row.kind!r}, not {kind!r}: choose another id"
    return KindMismatch(msg)
