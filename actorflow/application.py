"""The engine that users open: durable executions, with the verbs of each kind of execution.

The engine knows no kind of execution, and the kinds do not know each other. This module stands
above them all and gives them one face.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, TypeVar, overload

from actorflow.engine.clock import WALL
from actorflow.engine.engine import RETENTION
from actorflow.engine.engine import Engine as BareEngine
from actorflow.flows.execution.loop import MAX_MESSAGES
from actorflow.flows.service.front import DOMAIN, UNIT, Flows
from actorflow.plans.plan import Plan
from actorflow.plans.service.front import Plans
from actorflow.runtime.errors import BadOption
from actorflow.workflows.service.front import Workflows
from behaviours.arguments import count, flag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from actorflow.engine.handle import Execution
    from actorflow.engine.schedules import Schedule
    from actorflow.engine.stores.protocol import Store
    from actorflow.flows.execution.node import Payload
    from actorflow.flows.language.tree import Tree
    from actorflow.plans.service.front import PlanHandle
    from actorflow.workflows.service.handle import WorkflowHandle
    from actorflow.workflows.workflow import Workflow

__all__ = ["Engine"]

R = TypeVar("R")


class Engine(BareEngine):
    """Runs durable executions: workflows, flows, plans and durable workers. Thread-safe.

    Args:
        where: a file, `":memory:"`, a URL such as `"sqlite://orders.db"`, or a store of your own.
        durability: of a file: `"full"`, `"normal"` or `"off"`; see `SqliteStore`.
        check: of a file: check its structure when it is opened.
        retention: seconds that executions are kept after they have ended; `None`: for ever.
        max_live: executions that stay in memory although they have nothing to do.
        clock: where time comes from; tests give a virtual one.
        worker: of a store that several engines share: run executions here. Without, this engine
            starts, sends, cancels, looks and waits, and others do the work.
        max_messages: that one run of a flow processes, at most.
        history: whether every message of a flow is kept.
        control: open a socket through which the engine is steered while it runs, by the commands
            `actorflow ...` and over HTTP: `True` for `STORE.sock` beside the store, a path, or
            `"tcp://127.0.0.1:4000"`; or a list of these. Needs the extra `web`.
        token: what every request over TCP must carry, as `Authorization: Bearer TOKEN`.

    Nothing that is stored runs before `resume()`, or the first `launch`, `send`, `start`, `wait` or
    push: so kinds, workers and taskers can be registered in any order before.

    Raises:
        StoreBusy: another process has the store open for writing.
        StoreBroken: the file is torn, empty, not ours, or of another version.
        BadOption: a control socket cannot be opened, or TCP was asked for without a token.

    """

    def __init__(
        self,
        where: str | Path | Store = ":memory:",
        *,
        durability: str = "full",
        check: bool = True,
        retention: float | None = RETENTION,
        max_live: int = 1_000,
        clock: Any = WALL,
        worker: bool = True,
        max_messages: int = MAX_MESSAGES,
        history: bool = True,
        control: bool | str | Path | Sequence[bool | str | Path] = False,
        token: str | None = None,
    ) -> None:
        count(max_messages, "max_messages", f"max_messages={MAX_MESSAGES:_}", error=BadOption)
        flag(history, "history", "history=False", error=BadOption)
        if control is not False:  # before a file is made
            _web_server("control=").check_controls(control, token)
        self._controls: list[Any] = []
        super().__init__(
            where,
            durability=durability,
            check=check,
            retention=retention,
            max_live=max_live,
            clock=clock,
            worker=worker,
        )
        try:
            self._closing.before.append(self._close_controls)
            self.flows = Flows(self, max_messages=max_messages, history=history)
            """The verbs of flows."""
            self.workflows = Workflows(self)
            """The verbs of workflows."""
            self._closing.before.insert(0, self.workflows.agent.close)
            self._closing.after.append(self.workflows.close)
            self.plans = Plans(self)
            """The verbs of durable plans."""
            self._closing.after.append(self.plans.close)
            if control is not False:
                self._controls = _open_controls(self, control, token)
        except BaseException:
            self.close()
            raise

    def _close_controls(self) -> None:
        """Close the control sockets, after what was asked through them is answered."""
        while self._controls:
            self._controls.pop().close()

    def serve_agent(
        self, *, host: str = "127.0.0.1", port: int = 4001, token: str | None = None
    ) -> str:
        """Serve jobs to workers in other languages over HTTP, until the engine is closed.

        Return the URL that they ask: see docs/workflows/other-languages.md. Needs the extra `web`.

        Args:
            host: to listen on; without a token only a loopback address.
            port: to listen on; 0 finds a free one.
            token: what every request must carry, as `Authorization: Bearer TOKEN`.

        Raises:
            BadOption: the port is in use, or the host can be reached from elsewhere and there is no
                token.

        """
        self.core.refuse_if_closed()
        server = _web_server("serve_agent()").open_agent(self, host, port, token)
        self._controls.append(server)
        return str(server.address).replace("tcp://", "http://")

    @overload
    def start(
        self,
        kind: Workflow[R],
        *,
        id: str | None = None,
        inbox: Any = None,
        connection: Any = None,
    ) -> WorkflowHandle[R]: ...
    @overload
    def start(self, kind: Plan, *, id: str | None = None) -> PlanHandle: ...
    @overload
    def start(
        self, kind: str, body: Any = None, *, id: str | None = None, connection: Any = None
    ) -> Execution: ...
    def start(
        self,
        kind: Any,
        body: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        inbox: Any = None,
        connection: Any = None,
    ) -> Any:
        """Start a workflow, a plan, or an execution of any kind by its name.

        With an `id`, only the first call starts it. With a `connection` (a `psycopg.Connection`, on
        Postgres) it joins the open transaction: it happens when that commits. See
        `Workflows.start`, `Plans.start` and `Engine.start` of the module `actorflow.engine.engine`.
        """
        if isinstance(kind, str):
            _refuse_inbox(inbox)
            return super().start(kind, body, id=id, connection=connection)
        _refuse_body(body)
        if isinstance(kind, Plan):
            _refuse_inbox(inbox)
            _refuse_connection(connection)
            return self.plans.start(kind, id=id)
        return self.workflows.start(kind, id=id, inbox=inbox, connection=connection)

    @overload
    async def astart(
        self,
        kind: Workflow[R],
        *,
        id: str | None = None,
        inbox: Any = None,
        connection: Any = None,
    ) -> WorkflowHandle[R]: ...
    @overload
    async def astart(self, kind: Plan, *, id: str | None = None) -> PlanHandle: ...
    @overload
    async def astart(
        self,
        kind: str,
        body: Any = None,
        *,
        id: str | None = None,
        connection: Any = None,
    ) -> Execution: ...
    async def astart(
        self,
        kind: Any,
        body: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        inbox: Any = None,
        connection: Any = None,
    ) -> Any:
        """Like `start`, from a task of any event loop."""
        if isinstance(kind, str):
            _refuse_inbox(inbox)
            return await super().astart(kind, body, id=id, connection=connection)
        _refuse_body(body)
        if isinstance(kind, Plan):
            _refuse_inbox(inbox)
            _refuse_connection(connection)
            return await self.plans.astart(kind, id=id)
        return await self.workflows.astart(kind, id=id, inbox=inbox, connection=connection)

    def schedule(
        self, name: str, cron: str, workflow: Workflow[Any], *, zone: str = "UTC"
    ) -> Schedule:
        """Start a workflow by the clock, also after a restart; return the schedule once stored.

        Each occurrence starts an instance with the id `NAME@TIME`, such as
        `nightly@2026-11-17T02:00:00Z`, and the tag `schedule=NAME`: once, whatever crashes. Of the
        occurrences that went by while no engine ran, the first is made up for; `backfill` does so
        for all. See `Schedule` for its verbs, and `engine.schedules` for all of them.

        Args:
            name: the schedule's; the same name again replaces it, and leaves it paused if it is.
            cron: five fields, as in `"30 9 * * 1-5"`; or six, the first being seconds.
            workflow: what is started each time.
            zone: the time zone that the fields are meant in.

        Raises:
            BadOption: the cron line or the zone cannot be read.
            InvalidWorkflow: it is no workflow.
            NotStorable: a property is no plain data and has no declared type.

        """
        kind, body = self.workflows.to_start(workflow, tags={"schedule": name})
        plan = {"cron": cron, "zone": zone, "kind": kind, "body": body, "start": True}
        return self.schedules.set(name, plan)

    async def aschedule(
        self, name: str, cron: str, workflow: Workflow[Any], *, zone: str = "UTC"
    ) -> Schedule:
        """Like `schedule`, from a task of any event loop."""
        return await asyncio.to_thread(self.schedule, name, cron, workflow, zone=zone)

    def launch(
        self,
        flow: str | Tree,
        *,
        payload: Payload | None = None,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        connection: Any = None,
    ) -> str:
        """Start a flow; return the id of its execution once it is stored. See `Flows.launch`."""
        return self.flows.launch(
            flow, payload=payload, vars=vars, domain=domain, unit=unit, id=id, connection=connection
        )

    async def alaunch(
        self,
        flow: str | Tree,
        *,
        payload: Payload | None = None,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        connection: Any = None,
    ) -> str:
        """Like `launch`, from a task of any event loop."""
        return await self.flows.alaunch(
            flow, payload=payload, vars=vars, domain=domain, unit=unit, id=id, connection=connection
        )

    def tasker(self, name: str, do: Callable[..., Any] | str, **options: Any) -> None:
        """Register a tasker for all kinds of execution; see `engine.Engine.tasker`.

        A task of a flow is shown to it as a `FlowTask`, and what it returns becomes the payload:
        see `Flows.tasker`, which has more options.
        """
        self.flows.tasker(name, do, **options)


def _refuse_inbox(inbox: Any) -> None:
    if inbox is not None:
        msg = "inbox= is for workflows: other kinds choose their own behaviour"
        raise BadOption(msg)


def _refuse_connection(connection: Any) -> None:
    if connection is not None:
        msg = "connection= is for flows, workflows and kinds: a plan is stored before it starts"
        raise BadOption(msg)


def _refuse_body(body: Any) -> None:
    if body is not None:
        msg = f"workflows and plans take no message to start with: give {body!r:.80} to __init__"
        raise BadOption(msg)


def _open_controls(engine: Engine, control: Any, token: str | None) -> list[Any]:
    opened: list[Any] = _web_server("control=").open_controls(engine, control, token)
    return opened


def _web_server(what: str) -> Any:
    """Return the module that serves sockets. It stands above this one, and is an extra."""
    try:
        return importlib.import_module("actorflow.web.server")
    except ImportError as error:
        msg = f"{what} needs {error.name}: pip install 'actorflow[web]'"
        raise BadOption(msg) from error
