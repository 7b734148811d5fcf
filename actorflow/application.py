"""The engine that users open: durable executions, with the verbs of each kind of execution.

The engine knows no kind of execution, and the kinds do not know each other. This module stands
above them all and gives them one face.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from actorflow.engine.clock import WALL
from actorflow.engine.engine import Engine as BareEngine
from actorflow.flows.execution.loop import MAX_MESSAGES
from actorflow.flows.service.front import Flows
from actorflow.flows.service.kind import KIND as FLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from actorflow.engine.stores.protocol import Change, MessageRow, Store

__all__ = ["Engine"]

_NOTHING: Any = object()
P = ParamSpec("P")
R = TypeVar("R")


def _verb(method: Callable[Concatenate[Flows, P], R]) -> Callable[Concatenate[Engine, P], R]:
    """Return a method of the engine that is one of its flows."""

    @functools.wraps(method)
    def verb(engine: Engine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(engine.flows, *args, **kwargs)

    return verb


class Engine(BareEngine):
    """Runs durable executions: flows and durable workers. Safe in any thread.

    Args:
        where: a file, `":memory:"`, a URL such as `"sqlite://orders.db"`, or a store of your own.
        durability: of a file: `"full"`, `"normal"` or `"off"`; see `SqliteStore`.
        check: of a file: read and verify everything when it is opened.
        retention: seconds that ended executions and history are kept; for ever by default.
        max_live: executions that stay in memory although they have nothing to do.
        clock: where time comes from; tests give a virtual one.
        max_messages: that one run of a flow processes, at most.
        history: whether every message of a flow is kept.

    Opening an engine on a store goes on with what was not finished. Flows go on at the first call
    of one of their verbs, or of `resume`, so that their taskers can be registered before.

    """

    _on_commit: Callable[[Change], None] | None = None  # commits begin before there are flows

    def __init__(
        self,
        where: str | Path | Store = ":memory:",
        *,
        durability: str = "full",
        check: bool = True,
        retention: float | None = None,
        max_live: int = 1_000,
        clock: Any = WALL,
        max_messages: int = MAX_MESSAGES,
        history: bool = True,
    ) -> None:
        super().__init__(
            where,
            durability=durability,
            check=check,
            retention=retention,
            max_live=max_live,
            clock=clock,
        )
        self.flows = Flows(self, max_messages=max_messages, history=history)
        self._on_commit = self.flows.committed

    # -- verbs of flows -----------------------------------------------------------------------

    launch = _verb(Flows.launch)
    launch_many = _verb(Flows.launch_many)
    execution = _verb(Flows.execution)
    resume = _verb(Flows.resume)
    kill = _verb(Flows.kill)
    signal = _verb(Flows.signal)
    re_apply = _verb(Flows.re_apply)
    add_branches = _verb(Flows.add_branches)
    add_iterations = _verb(Flows.add_iterations)
    tasker = _verb(Flows.tasker)
    router = _verb(Flows.router)
    subflow = _verb(Flows.subflow)
    define = _verb(Flows.define)

    # -- verbs that mean something for other executions, too ------------------------------------

    def return_task(self, task: str, value: Any = None, payload: Any = _NOTHING) -> bool:
        """Give the result of a task that a tasker holds.

        Either `return_task(task.id, value)`, which tells whether it was still wanted; or, for a
        flow, `return_task(exid, nid, payload)`.

        Raises:
            MessageRefused: of a flow: it was given back already, or cancelled.
            BadPayload: of a flow: the payload is not a JSON object.

        """
        if payload is _NOTHING:
            return super().return_task(task, value)
        self.flows.return_task(task, value, payload)
        return True

    def wait(  # type: ignore[override] # where something is waited for, the timeout comes third
        self,
        execution: str,
        until: str | float | None = None,
        timeout: float | None = None,
        *,
        after: int = 0,
    ) -> Any:
        """Wait until an execution is done, failed or cancelled; give it as it is then.

        Or, for a flow, until something happens in it: `wait(exid, "0_1 task; failed|terminated")`
        gives the message that was waited for; see `Flows.wait_for`. A number in the place of that
        is the timeout.

        Raises:
            UnknownExecution: there is none of that id.
            PointMissed: it has ended, and what was waited for has not happened.
            WaitTimeout: not in time. It goes on.

        """
        if isinstance(until, str):
            return self.flows.wait_for(execution, until, timeout, after=after)
        limit = timeout if until is None else until
        row = self.row(execution)
        if row.kind == FLOW:
            return self.flows.wait_for_end(row, limit)
        return super().wait(execution, limit)

    def dispatch(self, change: Change, rows: Sequence[MessageRow]) -> None:
        """Send out what a committed change says. In the writer's thread."""
        super().dispatch(change, rows)
        if self._on_commit is not None:
            self._on_commit(change)

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is running, commit it, and let go of the store; see `engine.Engine.close`."""
        super().close(timeout)
        self.flows.close()

    def cancel(self, execution: str, nid: str = "0") -> bool:
        """Cancel an execution, or a node of a flow; tell whether it was still there.

        A flow hears of it: handlers run, taskers are told, and it ends after that.

        Raises:
            UnknownExecution: there is none of that id.

        """
        if self.row(execution).kind != FLOW:
            return super().cancel(execution)
        return self.flows.cancel(execution, nid)
