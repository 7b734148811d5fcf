"""The handle of an execution: one type for every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.envelopes import decode_failure
from actorflow.engine.errors import ExecutionCancelled, ExecutionFailed, StateUnreadable
from actorflow.engine.kind import Status, decode_state
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.envelopes import Failure
    from actorflow.engine.parts import EngineParts
    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["Execution"]


class Execution:
    """An execution at one moment, as its store has it. `refresh()` looks again.

    What its kind shows of it (the nodes of a flow, the state of a durable worker) is `view`.
    """

    __slots__ = ("_parts", "_row", "_view")

    def __init__(self, parts: EngineParts, row: ExecutionRow) -> None:
        self._parts = parts
        self._row = row
        self._view: Any = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id!r} {self.status}>"

    @property
    def id(self) -> str:
        """Its id."""
        return self._row.id

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self._row.kind

    @property
    def status(self) -> Status:
        """Where it stands."""
        return Status(self._row.status)

    @property
    def parent(self) -> str | None:
        """The execution that started it."""
        return self._row.parent

    @property
    def created(self) -> float:
        """When it was created, in seconds since the epoch."""
        return self._row.created

    @property
    def updated(self) -> float:
        """When its state was last committed."""
        return self._row.updated

    @property
    def tags(self) -> dict[str, str]:
        """What it can be found by: `engine.executions(tags=...)`. Read from the store."""
        return self._parts.store.tags(self.id)

    @property
    def failure(self) -> Failure | None:
        """Why it is stuck, or has failed."""
        data = self._row.error
        return None if data is None else decode_failure(data)

    @property
    def result(self) -> Any:
        """Its result.

        Raises:
            ExecutionFailed: it is stuck, or has failed.
            ExecutionCancelled: it was cancelled.
            LookupError: it goes on; `engine.result(id)` waits for it.

        """
        status = self.status
        if status in (Status.DONE, Status.FAILED):
            data = self._row.result
            result = None if data is None else bodies.decode(data)
            if status == Status.DONE:
                return result
            failure = self.failure
            msg = f"execution {self.id!r} has failed: {failure}"
            raise ExecutionFailed(msg, failure, ended=True, data=result)
        if status == Status.CANCELLED:
            msg = f"execution {self.id!r} was cancelled"
            raise ExecutionCancelled(msg)
        if status == Status.STUCK:
            failure = self.failure
            msg = f"execution {self.id!r} is stuck: {failure or 'see its view'}"
            raise ExecutionFailed(msg, failure)
        msg = f"execution {self.id!r} has not ended; engine.result({self.id!r}) waits for it"
        raise LookupError(msg)

    @property
    def view(self) -> Any:
        """What its kind shows of it; the state as bytes where the kind is not registered.

        Raises:
            StateUnreadable: its kind cannot decode it.

        """
        kind = self._parts.kinds.get(self.kind)
        if kind is None:
            return self._row.state
        if self._view is None:
            look = getattr(kind, "view", None)
            try:
                if look is None:
                    self._view = decode_state(kind, self._row)
                else:
                    self._view = look(self._row, self._parts.store)
            except ActorflowError:
                raise
            except Exception as error:
                raise StateUnreadable(self.id, self.kind, self._row.state, error) from error
        return self._view

    def history(self) -> Iterator[Any]:
        """Yield what its kind has noted of it, oldest first."""
        cursor = None
        while True:
            page = self._parts.store.history(self.id, after=cursor)
            yield from (bodies.decode(row.body) for row in page.rows)
            cursor = page.after
            if cursor is None:
                return

    def refresh(self) -> Execution:
        """Return it as it is now."""
        return Execution(self._parts, self._parts.row(self.id))
