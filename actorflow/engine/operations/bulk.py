"""Verbs for many executions at once: all are sent first, so that they share few commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actorflow.engine import bodies
from actorflow.engine.commit.entries import Append
from actorflow.engine.errors import ExecutionEnded, KindMismatch
from actorflow.engine.ids import execution_row
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.cancellation import Cancellation
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import Store

__all__ = ["ACTIONS", "Bulk", "BulkResult"]

ACTIONS = ("cancel", "kill", "pause", "resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """What became of a verb for many executions."""

    chosen: int
    """How many executions the filters chose."""
    done: int
    """For how many of these the verb is stored."""
    errors: dict[str, Exception] = field(default_factory=dict)
    """Why the others refused it, by their ids."""


class Bulk:
    """Sends verbs to many executions. Thread-safe.

    Args:
        store: of the executions.
        state: of the engine.
        writer: stores the verbs.
        cancellation: for `cancel` and `kill`.
        kinds: of executions, by name.

    """

    def __init__(
        self,
        store: Store,
        state: EngineState,
        writer: Writer,
        *,
        cancellation: Cancellation,
        kinds: dict[str, Kind],
    ) -> None:
        self._store = store
        self._state = state
        self._writer = writer
        self._cancellation = cancellation
        self._kinds = kinds

    def run(self, action: str, executions: Iterable[str]) -> BulkResult:
        """Send a verb to executions; return once it is stored for all of them.

        One that has ended meanwhile counts as done.
        """
        self._state.require_open()
        waiting: dict[str, ThreadTicket] = {}
        errors: dict[str, Exception] = {}
        for execution in executions:
            ticket = waiting[execution] = ThreadTicket()
            try:
                self._send(action, execution, ticket)
            except ActorflowError as error:
                errors[execution] = error
        for execution, ticket in waiting.items():
            if execution in errors:
                continue
            try:
                self._writer.wait_for(ticket, None, execution)
            except ExecutionEnded:
                continue
            except ActorflowError as error:
                errors[execution] = error
        done = len(waiting) - len(errors)
        return BulkResult(chosen=len(waiting), done=done, errors=errors)

    def _send(self, action: str, execution: str, ticket: ThreadTicket) -> None:
        if action == "cancel":
            self._cancellation.cancel(execution, None, ticket)
        elif action == "kill":
            self._cancellation.end(execution, ticket)
        else:
            row = execution_row(self._store, self._state, execution)
            control = getattr(self._kinds.get(row.kind), "control", None)
            body = None if control is None else control(action)
            if body is None:
                raise KindMismatch(
                    f"execution {execution!r} is of kind {row.kind!r}, which knows no {action!r}"
                )
            self._writer.append(Append(execution, None, (bodies.encode(body),), ticket))
