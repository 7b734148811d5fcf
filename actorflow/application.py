"""The engine that users open: durable executions, with the verbs of each kind of execution.

The engine knows no kind of execution, and the kinds do not know each other. This module stands
above them all and gives them one face.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, TypeVar, overload

from actorflow.behaviours.arguments import choice, count, flag
from actorflow.engine.clock import WALL
from actorflow.engine.engine import RETENTION, BareEngine
from actorflow.engine.kinds.cron import ALLOW, OVERLAPS
from actorflow.flows.execution.loop import MAX_MESSAGES
from actorflow.flows.service.flows import DOMAIN, UNIT, Flows
from actorflow.plans.plan import Plan
from actorflow.plans.service.plans import Plans
from actorflow.runtime.environment import PROCESS
from actorflow.runtime.errors import BadOption, install_hint
from actorflow.workflows.service.workflows import Workflows
from actorflow.workflows.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from actorflow.engine.handle import Execution
    from actorflow.engine.kinds.lane import Lane
    from actorflow.engine.schedules import Schedule
    from actorflow.engine.stores.encoded import Codec
    from actorflow.engine.stores.protocol import Store
    from actorflow.flows.execution.node import Payload
    from actorflow.flows.language.tree import Tree
    from actorflow.plans.service.plans import PlanHandle
    from actorflow.runtime.environment import Environment
    from actorflow.workflows.service.handle import WorkflowHandle
    from actorflow.workflows.workflow import Workflow

__all__ = ["Engine"]

R = TypeVar("R")


class Engine(BareEngine):
    """Runs durable executions: workflows, flows, plans and durable workers. Thread-safe.

    Args:
        where: a file, `":memory:"`, a URL such as `"sqlite://orders.db"`, or a store of your own.
        durability: for a file: `"full"`, `"normal"` or `"off"`; see `SqliteStore`.
        check: for a file: check its structure when it is opened.
        retention: seconds that executions are kept after they have ended; `None`: forever.
        max_live: the number of idle executions that stay in memory.
        clock: the source of time; tests pass a virtual one.
        worker: whether this engine runs executions of a shared store. With `False` it starts,
            sends, cancels, reads and waits, and other engines run them.
        codec: encrypts stored data, as in `af.Encrypted(key)`. Needs the extra `encryption`.
        max_messages: the most messages that one run of a flow processes.
        history: whether every message of a flow is kept.
        control: open a socket for the commands `actorflow ...` and for HTTP while the engine runs:
            `True` for `STORE.sock` beside the store, a path, or `"tcp://127.0.0.1:4000"`; or a list
            of these. Needs the extra `web`.
        token: the token of every request over TCP, as `Authorization: Bearer TOKEN`.
        environment: its lanes and its steady clock; a simulation passes others.

    Stored work does not run before `resume()`, or the first `launch`, `send`, `start`, `wait` or
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
        codec: Codec | None = None,
        max_messages: int = MAX_MESSAGES,
        history: bool = True,
        control: bool | str | Path | Sequence[bool | str | Path] = False,
        token: str | None = None,
        environment: Environment = PROCESS,
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
            codec=codec,
            environment=environment,
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
        """Close the control sockets after answering all requests."""
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
        self.parts.state.require_open()
        server = _web_server("serve_agent()").open_agent(self, host, port, token)
        self._controls.append(server)
        return str(server.address).replace("tcp://", "http://")

    def pause(self, what: Lane | Task[..., Any] | str) -> None:
        """Start nothing more in a lane, or no more calls of a task, until `resume(what)`.

        Executions and calls that have begun continue. A lane stays paused after a restart, for all
        engines. A task is paused in this engine until it closes; its calls wait in the store.

        Raises:
            BadOption: there is no tasker of that name.

        """
        super().pause(self._named(what))

    def resume(self, what: Lane | Task[..., Any] | str | None = None) -> None:
        """Start to run stored messages, timers and tasks; or resume a paused lane or task.

        The first `send`, `start`, `wait` or push does the same. Register kinds, workers and taskers
        before; messages and tasks for a missing one wait until it is registered.

        Args:
            what: a lane or a task that was paused.

        """
        super().resume(self._named(what))

    async def apause(self, what: Lane | Task[..., Any] | str) -> None:
        """Like `pause`, from a task of any event loop."""
        await asyncio.to_thread(self.pause, what)

    async def aresume(self, what: Lane | Task[..., Any] | str | None = None) -> None:
        """Like `resume`, from a task of any event loop."""
        await asyncio.to_thread(self.resume, what)

    def _named(self, what: Any) -> Any:
        """Return a lane, or the name of a task."""
        if not isinstance(what, Task):
            return what
        self.workflows.register(what)
        return what.name

    @overload
    def start(
        self,
        kind: Workflow[R],
        *,
        id: str | None = None,
        inbox: Any = None,
        at: datetime | float | None = None,
        lane: Lane | None = None,
        on_conflict: str = "return",
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
        connection: Any = None,
        **options: Any,
    ) -> Any:
        """Start a workflow, a plan, or an execution of any kind by its name.

        With an `id`, only the first call starts it. A workflow may start later (`at=`), in a lane
        (`lane=`), or with an inbox (`inbox=`). With a `connection` (a `psycopg.Connection`, on
        Postgres) it joins the open transaction: it happens when that commits. See
        `Workflows.start`, `Plans.start` and `Engine.start` of the module `actorflow.engine.engine`.
        """
        if isinstance(kind, str):
            _refuse_options(options)
            return super().start(kind, body, id=id, connection=connection)
        _refuse_body(body)
        if isinstance(kind, Plan):
            _refuse_options(options)
            _refuse_connection(connection)
            return self.plans.start(kind, id=id)
        return self.workflows.start(kind, id=id, connection=connection, **options)

    @overload
    async def astart(
        self,
        kind: Workflow[R],
        *,
        id: str | None = None,
        inbox: Any = None,
        at: datetime | float | None = None,
        lane: Lane | None = None,
        on_conflict: str = "return",
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
        connection: Any = None,
        **options: Any,
    ) -> Any:
        """Like `start`, from a task of any event loop."""
        if isinstance(kind, str):
            _refuse_options(options)
            return await super().astart(kind, body, id=id, connection=connection)
        _refuse_body(body)
        if isinstance(kind, Plan):
            _refuse_options(options)
            _refuse_connection(connection)
            return await self.plans.astart(kind, id=id)
        return await self.workflows.astart(kind, id=id, connection=connection, **options)

    def schedule(
        self,
        name: str,
        cron: str,
        workflow: Workflow[Any],
        *,
        zone: str = "UTC",
        overlap: str = ALLOW,
    ) -> Schedule:
        """Start a workflow by the clock, also after a restart; return the schedule once stored.

        Each occurrence starts an instance with the id `NAME@TIME`, such as
        `nightly@2026-11-17T02:00:00Z`, and the tag `schedule=NAME`: once, whatever crashes. Of the
        occurrences that went by while no engine ran, the first is made up for; `backfill` does so
        for all. See `Schedule` for its verbs, and `engine.schedules` for all of them.

        Args:
            name: the schedule's; the same name again replaces it, and leaves it paused if it is.
            cron: five fields, as in `"30 9 * * 1-5"`; or six, the first being seconds.
            workflow: the workflow to start each time.
            zone: the time zone that the fields are meant in.

        Raises:
            BadOption: the cron line or the zone cannot be read.
            InvalidWorkflow: it is not a workflow.
            NotStorable: a property is not plain data and has no declared type.

        """
        choice(overlap, "overlap", OVERLAPS, error=BadOption)
        kind, body = self.workflows.to_start(workflow, tags={"schedule": name})
        plan = {"cron": cron, "zone": zone, "kind": kind, "body": body, "start": True}
        if overlap != ALLOW:
            plan["overlap"] = overlap
        return self.schedules.set(name, plan)

    async def aschedule(
        self,
        name: str,
        cron: str,
        workflow: Workflow[Any],
        *,
        zone: str = "UTC",
        overlap: str = ALLOW,
    ) -> Schedule:
        """Like `schedule`, from a task of any event loop."""
        return await asyncio.to_thread(
            self.schedule, name, cron, workflow, zone=zone, overlap=overlap
        )

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


def _refuse_options(options: dict[str, Any]) -> None:
    if options:
        msg = f"{', '.join(f'{each}=' for each in options)} is for workflows, not for other kinds"
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
        return importlib.import_module("actorflow.api.http.server")
    except ImportError as error:
        msg = f"{what} needs {error.name}: {install_hint('web')}"
        raise BadOption(msg) from error
