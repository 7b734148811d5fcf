"""The engine that users open: durable executions, with the verbs of each kind of execution.

The engine knows no kind of execution, and the kinds do not know each other. This module stands
above them all and gives them one face.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.clock import WALL
from actorflow.engine.engine import Engine as BareEngine
from actorflow.flows.api import DOMAIN, UNIT, Flows
from actorflow.flows.executor import MAX_MESSAGES
from actorflow.flows.kind import KIND as FLOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from actorflow.engine.stores.protocol import Store
    from actorflow.flows.node import Message, Payload, Tree
    from actorflow.flows.view import FlowExecution

__all__ = ["Engine"]

_NOTHING: Any = object()


class Engine(BareEngine):
    """Runs durable executions: flows and durable workers. Safe in any thread.

    Args:
        where: a file, `":memory:"`, or a store of your own.
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

    def __init__(
        self,
        where: str | Path | Store = ":memory:",
        *,
        durability: str = "full",
        check: bool = True,
        retention: float | None = None,
        max_live: int = 10_000,
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

    # -- taskers ------------------------------------------------------------------------------

    def tasker(
        self,
        name: str,
        do: Callable[..., Any] | str,
        *,
        domain: str = "",
        include_vars: bool = False,
        cancellable: bool = True,
        **options: Any,
    ) -> None:
        """Register a tasker: `do(task)` is called for each task, sync or async; or a URL.

        For a task of a flow, `None` gives its payload back, a dict replaces the payload, any other
        value becomes its `ret`, and `HOLD` says that the answer comes later.

        Args:
            name: as flows and workflows write it.
            do: the function; what it raises fails the task, after `retries`.
            domain: for flows: seen in this domain and below; the deepest of a name wins.
            include_vars: for flows: whether `task.vars` holds the variables of the node.
            cancellable: for flows: whether a cancelled task ends at once; else it ends when the
                tasker answers.
            options: those of the engine's taskers: `concurrency`, `retries`, `backoff`,
                `timeout`, `behaviour`, `throttle`, `executor`, `on_cancel`.

        """
        self.flows.tasker(
            name,
            do,
            domain=domain,
            include_vars=include_vars,
            cancellable=cancellable,
            **options,
        )

    def router(self, route: Callable[[Message], Any], *, domain: str = "") -> None:
        """Have a function say who gets the tasks of flows; see `Flows.router`."""
        self.flows.router(route, domain=domain)

    def subflow(self, name: str, flow: str | Tree, *, domain: str = "") -> None:
        """Make a flow known, for `graft` and `import`, in a domain and below."""
        self.flows.subflow(name, flow, domain=domain)

    def define(self, name: str, value: Any, *, domain: str = "") -> None:
        """Make a variable known to the flows of a domain and below; they only read it."""
        self.flows.define(name, value, domain=domain)

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

    # -- flows --------------------------------------------------------------------------------

    def launch(
        self,
        flow: str | Tree,
        *,
        payload: Payload | None = None,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
    ) -> str:
        """Start a flow; return the id of the execution once it is stored.

        Raises:
            FlowSyntaxError: the text is not a flow.
            BadPayload: the payload or the variables are not JSON objects.

        """
        return self.flows.launch(flow, payload=payload, vars=vars, domain=domain, unit=unit)

    def launch_many(
        self, flow: str | Tree, payloads: Iterable[Payload], **options: Any
    ) -> list[str]:
        """Start a flow for each payload, in one commit; return their ids."""
        return self.flows.launch_many(flow, payloads, **options)

    def wait(self, execution: str, timeout: float | None = None) -> Any:
        """Wait until an execution is done, failed or cancelled; give it as it is then.

        Raises:
            UnknownExecution: there is none of that id.
            WaitTimeout: not in time. It goes on.

        """
        if self.row(execution).kind == FLOW:
            return self.flows.wait(execution, timeout)
        return super().wait(execution, timeout)

    def execution(self, exid: str) -> FlowExecution:
        """Give a flow as it is stored: nodes, counters, failures, tasks, history."""
        return self.flows.execution(exid)

    def cancel(self, execution: str, nid: str = "0") -> bool:
        """Cancel an execution, or a node of a flow; tell whether it was still there.

        A flow hears of it: handlers run, taskers are told, and it ends after that.

        Raises:
            UnknownExecution: there is none of that id.

        """
        if self.row(execution).kind != FLOW:
            return super().cancel(execution)
        return self.flows.cancel(execution, nid)

    def kill(self, exid: str, nid: str = "0") -> bool:
        """End a node of a flow at once; no handler is asked. Tells whether it was there."""
        return self.flows.kill(exid, nid)

    def signal(self, exid: str, name: str, payload: Payload | None = None) -> None:
        """Send a signal to a flow."""
        self.flows.signal(exid, name, payload)

    def re_apply(
        self, exid: str, nid: str, flow: str | Tree, payload: Payload | None = None
    ) -> None:
        """Cancel a node of a flow and execute another flow in its place."""
        self.flows.re_apply(exid, nid, flow, payload)

    def add_branches(self, exid: str, nid: str, flows: Sequence[str | Tree]) -> None:
        """Give a concurrence of a flow more branches."""
        self.flows.add_branches(exid, nid, flows)

    def add_iterations(self, exid: str, nid: str, elements: Sequence[Any]) -> None:
        """Give an iterator of a flow more elements."""
        self.flows.add_iterations(exid, nid, elements)

    def resume(self) -> None:
        """Let what is in the store go on; to be called once the taskers are registered."""
        self.flows.resume()
