"""What users call: start workflows, find them, register their code."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from actorflow.behaviours.adapt import Base
from actorflow.behaviours.arguments import choice, number
from actorflow.behaviours.behaviour import Behaviour
from actorflow.engine.errors import ExecutionExists, KindMismatch
from actorflow.engine.ids import check_id
from actorflow.engine.kinds.lane import LANE, Lane
from actorflow.engine.stores.protocol import NewExecution
from actorflow.engine.tags import texts_of
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.log import log
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket
from actorflow.workflows.agent.jobs import AgentQueue
from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.nondeterminism import impurities
from actorflow.workflows.remote import (
    ENVIRONMENT,
    LEASE,
    RemoteWorkflow,
    check_lease,
    check_place,
)
from actorflow.workflows.service.discovery import found_in
from actorflow.workflows.service.dispatched import DispatchedKind
from actorflow.workflows.service.handle import WorkflowHandle
from actorflow.workflows.service.inbox import EventInbox
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.names import kind_name
from actorflow.workflows.service.pure import PureTasks
from actorflow.workflows.service.received_messages import start_body
from actorflow.workflows.service.remote.agent import Agent
from actorflow.workflows.service.remote.kind import declare, remote_kind
from actorflow.workflows.service.stored import read_row, recorded_state
from actorflow.workflows.service.tasks import remote_options, tasker_of
from actorflow.workflows.suspended.properties import capture
from actorflow.workflows.task import Task
from actorflow.workflows.workflow import Workflow, workflow_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.kind import Status
    from actorflow.workflows.code_errors import Difference

__all__ = ["Workflows"]

R = TypeVar("R")
_CONFLICTS = ("return", "refuse", "replace")


class _Begin(NamedTuple):
    """What starts an instance."""

    kind: WorkflowKind
    id: str
    body: dict[str, Any]
    on_conflict: str
    inbox: Callable[[], Any] | None
    parent: NewExecution | None = None
    """Its lane."""
    to_parent: Sequence[Any] = ()


class Workflows:
    """The workflows of an engine. Thread-safe.

    Register classes before `engine.resume()`, or the first start: instances whose class is missing
    wait for it, and so do steps whose task is missing.
    """

    def __init__(self, engine: BareEngine) -> None:
        self._engine = engine
        self._parts = engine.parts
        self._decider = Decider(strict=True)
        self.agent = Agent(engine)
        """Hands out decisions and tasks to workers of other languages."""
        self._lock = threading.RLock()
        self._kinds: dict[str, WorkflowKind] = {}
        self._tasks: dict[str, Task[..., Any]] = {}
        self._pure = PureTasks(self._tasks, self._parts.tasks.is_paused)
        self._fronts: list[Any] = []
        self._parts.register(DispatchedKind())

    # Registering.

    def register(self, *code: type[Workflow[Any]] | Task[..., Any], inbox: Any = None) -> None:
        """Make workflows and tasks known.

        With a class come the tasks and workflows that its methods name, and the tasks of its
        module. Registering something twice changes nothing. A class or task that was defined again
        at the top level of its module, as by running a cell of a notebook again, replaces the one
        before. `start` registers the class as well.

        Args:
            *code: classes and tasks.
            inbox: a behaviour in front of the events of all instances of the classes; a class or a
                factory, because each instance gets its own.

        Raises:
            InvalidWorkflow: something is neither a class of a workflow nor a task.
            BadOption: another class or task of that name is registered.

        """
        for each in code:
            if isinstance(each, Task):
                self._register_task(each)
            elif _is_class(each):
                self._register_class(each, _factory(inbox))
            else:
                raise InvalidWorkflow(
                    f"{each!r:.80} is neither a workflow nor a task: register(Order, charge)"
                )

    def _register_class(
        self, cls: type[Workflow[Any]], inbox: Callable[[], Any] | None = None
    ) -> WorkflowKind:
        _check_class(cls)
        name = workflow_name(cls)
        with self._lock:
            known = self._kinds.get(name)
            if known is not None and known.cls is not cls and _defined_again(known.cls, cls):
                known.cls = cls
                known.definitions = -1
            if known is not None and known.cls is cls:
                if known.definitions != Task.definitions:
                    self._register_found_in(known)
                if inbox is not None:
                    raise BadOption(
                        f"{name} is registered already: register({name}, inbox=...) before it is "
                        "started, or give start(..., inbox=...)"
                    )
                return known
            if known is not None:
                raise BadOption(
                    f"there is a workflow {name!r} already, in {known.cls.__module__}: call the "
                    f"one in {cls.__module__} something else"
                )
            kind = self._kind(cls, inbox)
            self._kinds[name] = kind
            for impurity in () if issubclass(cls, RemoteWorkflow) else impurities(cls):
                log.warning(str(impurity), workflow=name)
            try:
                self._register_found_in(kind)
                self._parts.register(kind)
            except BaseException:
                del self._kinds[name]
                raise
            return kind

    def _register_found_in(self, kind: WorkflowKind) -> None:
        """Register the tasks and workflows that a class names. Under the lock."""
        kind.definitions = Task.definitions
        if issubclass(kind.cls, RemoteWorkflow):
            return
        tasks, classes = found_in(kind.cls)
        for task in tasks:
            self._register_task(task)
        for other in classes:
            self._register_class(other)

    def _kind(self, cls: type[Workflow[Any]], inbox: Callable[[], Any] | None) -> WorkflowKind:
        if not issubclass(cls, RemoteWorkflow):
            return WorkflowKind(
                cls,
                self._decider,
                inbox=inbox,
                look=self._parts.store.execution,
                has_code=self._parts.ownership.has_code,
                pure=self._pure,
                store=str(getattr(self._parts.store, "path", "STORE")),
            )
        kind = remote_kind(cls, inbox, look=self._parts.store.execution)
        self.agent.add_workflow(kind, _queue_of(cls), cls._actorflow_lease)
        return kind

    def remote(
        self,
        name: str,
        *,
        lang: str,
        env: str = ENVIRONMENT,
        tasks: Iterable[str] = (),
        inbox: Any = None,
        lease: float = LEASE,
    ) -> type[RemoteWorkflow[Any]]:
        """Make a workflow known whose code is in another language; return a class to start it by.

        A worker of that language takes its decisions, and does the tasks that are named here: see
        `actorflow agent`. The arguments of the class are the first properties.

        Args:
            name: of the workflow, there and here.
            lang: the language, by which workers ask for jobs.
            env: the environment; workers also ask by it.
            tasks: names of tasks in that language. Declare tasks that need options, or another
                language, by `task(lang=...)`.
            inbox: as for `register`.
            lease: seconds that a worker has for its next request about a decision or a task.

        Raises:
            BadOption: there is a workflow or a task of that name, or the lease is not positive.

        """
        given: Any = tasks
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise BadOption(f"tasks={given!r:.80}: give a list of names, as in tasks=['charge']")
        tasks = [check_id(each, "a task") for each in given]
        cls = declare(check_id(name, "a workflow"), lang=lang, env=env, lease=lease)
        self._register_class(cls, _factory(inbox))
        self.remote_tasks(*tasks, lang=lang, env=env, lease=lease)
        return cls

    def remote_tasks(
        self, *names: str, lang: str, env: str = ENVIRONMENT, lease: float = LEASE
    ) -> None:
        """Make tasks known that workers of another language do.

        Raises:
            BadOption: there is a task of one of the names, or the lease is not positive.

        """
        check_lease(lease)
        queue = AgentQueue(check_place(env, "env", "test"), check_place(lang, "lang", "javascript"))
        for name in [check_id(each, "a task") for each in names]:
            self.agent.add_task(name, queue, lease, {})

    def _register_task(self, task: Task[..., Any]) -> None:
        with self._lock:
            known = self._tasks.get(task.name)
            if known is task:
                return
            if known is not None and _defined_again(known.function, task.function):
                self._replace_task(known, task)
                return
            if known is not None:
                raise BadOption(
                    f"there is a task {task.name!r} already, in {known.function.__module__}: give "
                    f"the one in {task.function.__module__} another name, as in @task(name='...')"
                )
            lang, env = task.options.lang, task.options.env
            if lang is not None:
                name, queue = check_id(task.name, "a task"), AgentQueue(env, lang)
                lease = LEASE if task.options.lease is None else task.options.lease
                self.agent.add_task(name, queue, lease, remote_options(task))
                self._tasks[task.name] = task
                return
            do, options, front = tasker_of(task, self._parts.worker_clock)
            self._parts.tasks.register(check_id(task.name, "a task"), do, options)
            self._tasks[task.name] = task
            if front is not None:
                self._fronts.append(front)

    def _replace_task(self, known: Task[..., Any], task: Task[..., Any]) -> None:
        """Let the tasker of a task call a function that was defined again. Under the lock."""
        options = task.options
        elsewhere = options.executor == "process" or (options.batch, options.lang) != (None, None)
        if elsewhere or _place_of(known) != _place_of(task):
            raise BadOption(
                f"the task {task.name!r} was defined again with {_place_of(task)}, before with "
                f"{_place_of(known)}: an open engine can replace the function of a task, but not "
                "where it runs; close the engine and open it again"
            )
        do, given, _ = tasker_of(task, self._parts.worker_clock)
        self._parts.tasks.redefine(task.name, do, given)
        self._tasks[task.name] = task

    # Starting.

    def start(
        self,
        workflow: Workflow[R],
        *,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        inbox: Any = None,
        at: datetime | float | None = None,
        lane: Lane | None = None,
        on_conflict: str = "return",
        connection: Any = None,
    ) -> WorkflowHandle[R]:
        """Start a workflow; return its handle once it is stored.

        Args:
            workflow: an object of its class; its attributes are the first properties.
            id: only the first call with the same id starts an instance; another one changes
                nothing and returns the same, as long as that is kept. Made if not given.
            inbox: a behaviour in front of its events: how they accumulate while it decides. It is
                not stored: after a restart, start it again with its id, or register the class with
                one. A behaviour, its class, or a factory.
            at: when its code begins: an aware `datetime`, or seconds since the epoch. Events that
                come before are kept.
            lane: in which it waits until the limits of the lane let its code begin.
            on_conflict: what happens if there is an instance of that id: "return" its handle (the
                default), "refuse" (raise `ExecutionExists`), or "replace": end it at once, as
                `kill` does, delete it with its sub-workflows, and start a new one.
            connection: a `psycopg.Connection` whose open transaction this joins: it happens when
                that commits, and never if it is rolled back. For engines on Postgres.

        Raises:
            NotStorable: a property is not plain data and has no declared type.
            InvalidWorkflow: it is not a workflow.
            KindMismatch: the id is that of another kind of execution, or another workflow.
            ExecutionExists: there is one of that id, and that was to be refused.

        """
        begin = self._begin(workflow, id, inbox, at=at, lane=lane, on_conflict=on_conflict)
        kind, name = begin.kind, begin.id
        if connection is not None:
            if on_conflict == "replace":
                raise BadOption(
                    "on_conflict='replace' cannot join a transaction: the end of the instance that "
                    "is there could not be undone; leave out connection="
                )
            made = self._parts.transactions.create(
                connection,
                name,
                kind.name,
                begin.body,
                parent=begin.parent,
                to_parent=begin.to_parent,
            )
        else:
            made = self._make(begin)
        if begin.on_conflict == "refuse" and not made:
            raise _exists(begin)
        return WorkflowHandle(self._engine, kind, name)

    def _make(self, begin: _Begin) -> bool:
        """Create an instance; return whether there was none that stays."""
        while True:
            done = ThreadTicket()
            self._create(begin, done)
            if self._parts.sender.wait_created(done):
                return True
            if begin.on_conflict != "replace":
                return False
            self._remove(begin)

    def _remove(self, begin: _Begin) -> None:
        """End an instance and its sub-workflows at once, and delete them."""
        kind, name, upkeep = begin.kind, begin.id, self._engine.upkeep
        self._engine.bulk("kill", ids=upkeep.family(name))
        with suppress(BadOption):  # it has just started another one, or was started again
            upkeep.delete(name)
        kind.ended(name)
        if begin.inbox is not None:
            kind.add_inbox(name, begin.inbox)

    async def astart(
        self,
        workflow: Workflow[R],
        *,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        inbox: Any = None,
        at: datetime | float | None = None,
        lane: Lane | None = None,
        on_conflict: str = "return",
        connection: Any = None,
    ) -> WorkflowHandle[R]:
        """Like `start`, from a task of any event loop."""
        if connection is not None:
            return await asyncio.to_thread(
                self.start, workflow, id=id, inbox=inbox, at=at, lane=lane,
                on_conflict=on_conflict, connection=connection,
            )  # fmt: skip
        begin = self._begin(workflow, id, inbox, at=at, lane=lane, on_conflict=on_conflict)
        while True:
            done = AsyncTicket()
            self._create(begin, done)
            if await self._parts.writer.await_for(done, None, workflow):
                break
            if begin.on_conflict == "refuse":
                raise _exists(begin)
            if begin.on_conflict == "return":
                break
            await asyncio.to_thread(self._remove, begin)
        return WorkflowHandle(self._engine, begin.kind, begin.id)

    def _create(self, begin: _Begin, done: Any) -> None:
        sender, kind = self._parts.sender, begin.kind.name
        if begin.parent is None:
            sender.create(begin.id, kind, begin.body, done)
        else:
            launch = (begin.id, begin.body)
            sender.create_many([launch], kind, done, begin.parent, begin.to_parent)

    def _begin(
        self,
        workflow: Any,
        given: str | None,
        inbox: Any,
        *,
        at: Any,
        lane: Any,
        on_conflict: str,
    ) -> _Begin:
        if on_conflict != "return":
            choice(on_conflict, "on_conflict", _CONFLICTS, error=BadOption)
        due = None if at is None else _moment(at)
        if lane is not None and not isinstance(lane, Lane):
            raise BadOption(f"lane={lane!r:.80} is not a lane: lane=af.Lane('c-7', concurrency=1)")
        if not isinstance(workflow, Workflow):
            raise InvalidWorkflow(f"{workflow!r:.80} is not a workflow: start(Order('o-1'))")
        self._parts.state.require_open()
        if given is None:
            given = f"{workflow_name(type(workflow))}-{uuid.uuid4().hex}"
        name = check_id(given, "a workflow")
        enters = None if lane is None else {"to": lane.execution, "body": lane.entry(name)}
        body = start_body(capture(workflow), inbox=inbox is not None, lane=enters, due=due)
        factory = _factory(inbox)
        kind = self._register_class(type(workflow))
        if factory is not None and kind.add_inbox(name, factory) and self._parts.table.find(name):
            self._parts.writer.call(partial(self._parts.table.renew, name))
        if lane is None or enters is None:
            return _Begin(kind, name, body, on_conflict, factory)
        parent = NewExecution(lane.execution, LANE)
        now = () if due is not None else (enters["body"],)
        return _Begin(kind, name, body, on_conflict, factory, parent, now)

    def to_start(
        self, workflow: Workflow[Any], *, tags: Mapping[str, str]
    ) -> tuple[str, dict[str, Any]]:
        """Return the kind and the first message of an instance, for a caller that starts it.

        Raises:
            NotStorable: a property is not plain data and has no declared type.
            InvalidWorkflow: it is not a workflow.

        """
        if not isinstance(workflow, Workflow):
            raise InvalidWorkflow(f"{workflow!r:.80} is not a workflow: give Order('o-1')")
        body = start_body(capture(workflow), tags=texts_of(tags))
        return self._register_class(type(workflow)).name, body

    # Finding.

    def get(self, cls: type[Workflow[R]], id: str) -> WorkflowHandle[R]:  # noqa: A002 - its id
        """Return the handle of an instance that was started before.

        Raises:
            UnknownExecution: no instance has that id.
            KindMismatch: it is of another class, or no workflow.

        """
        kind = self._register_class(cls)
        row = self._parts.row(id)
        if row.kind != kind.name:
            raise KindMismatch(f"execution {id!r} is of kind {row.kind!r}, not {kind.name!r}")
        return WorkflowHandle(self._engine, kind, id)

    def instances(
        self,
        cls: type[Workflow[R]],
        *,
        status: Status | str | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> Iterator[WorkflowHandle[R]]:
        """Yield the handles of the instances of a class, in the order of their ids.

        With `tags`, only instances that have all of these.
        """
        kind = self._register_class(cls)
        for found in self._engine.executions(kind=kind.name, status=status, tags=tags):
            yield WorkflowHandle(self._engine, kind, found.id)

    def check(
        self, history: Mapping[str, Any] | str, cls: type[Workflow[Any]] | None = None
    ) -> Difference | None:
        """Replay a recorded instance with the code of a class; return the first difference, if any.

        Nothing is changed. For tests that hold new code against recorded instances: `assert
        engine.workflows.check(history, Order) is None`.

        Args:
            history: what `handle.export()` has returned; or the id of a stored instance.
            cls: the code; the registered class of that name if not given.

        Raises:
            BadOption: the history cannot be read, or no class of that name is registered.
            KindMismatch: it is the history of another workflow.
            UnknownExecution: no instance has that id.

        """
        if isinstance(history, str):
            row = self._parts.row(history)
            if row.state is None or not row.kind.startswith(kind_name("")):
                raise KindMismatch(f"execution {history!r} is not a workflow that has begun")
            state = read_row(row).instance
        else:
            state = recorded_state(history)
        if cls is None:
            known = self._kinds.get(state.workflow_name)
            if known is None:
                raise BadOption(
                    f"no workflow {state.workflow_name!r} is registered"
                    f"{near(state.workflow_name, self._kinds)}"
                )
            cls = known.cls
        _check_class(cls)
        if issubclass(cls, RemoteWorkflow):
            raise InvalidWorkflow(f"the code of {workflow_name(cls)} is not here, to be replayed")
        if workflow_name(cls) != state.workflow_name:
            raise KindMismatch(
                f"{state.id!r} is of the workflow {state.workflow_name!r}, not "
                f"{workflow_name(cls)!r}: give the class that it was recorded with"
            )
        return self._decider.check(cls, state)

    def close(self) -> None:
        """Stop the threads that hold code, and what makes batches. After the engine is closed.

        A decision whose code blocks is left alone: nothing of it will be stored.
        """
        for kind in list(self._kinds.values()):
            kind.give_up_frames()
        if not self._decider.statistics().instances:
            self._decider.close()
        for front in self._fronts:
            front.worker.stop(drain=False, timeout=None)


def _exists(begin: _Begin) -> ExecutionExists:
    return ExecutionExists(
        f"there is a workflow {begin.id!r} already: choose another id, or "
        f"workflows.get({begin.kind.workflow}, {begin.id!r})"
    )


def _moment(at: Any) -> float:
    """Return when an instance is to begin.

    Raises:
        BadOption: it is not a point in time.

    """
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise BadOption(f"at={at} has no time zone: use `at.astimezone()`")
        return at.timestamp()
    return number(at, "at", "at=time.time() + 60", error=BadOption)


def _queue_of(cls: type[RemoteWorkflow[Any]]) -> AgentQueue:
    """Return where workers look for the decisions of a workflow."""
    return AgentQueue(cls._actorflow_env, cls._actorflow_lang)


def _place_of(task: Task[..., Any]) -> str:
    """Return where and how a task runs, as text."""
    options = task.options
    place = {
        each: getattr(options, each) for each in ("executor", "batch", "concurrency", "lang", "env")
    }
    return f"async={inspect.iscoroutinefunction(task.function)}, {place}"


def _defined_again(before: Any, after: Any) -> bool:
    """Return whether the same place of a module was executed again, as a cell of a notebook."""
    if before.__module__ != after.__module__ or before.__qualname__ != after.__qualname__:
        return False
    return "<locals>" not in before.__qualname__


def _is_class(each: Any) -> bool:
    return isinstance(each, type) and issubclass(each, Workflow)


def _check_class(cls: Any) -> None:
    """Refuse anything but a workflow class.

    Raises:
        InvalidWorkflow: it is not a workflow class, or has no `handle`.

    """
    if not _is_class(cls) or cls.handle is Workflow.handle:
        raise InvalidWorkflow(
            f"{cls!r:.80} is not a workflow class with a `handle`: give one, as in "
            "workflows.get(Order, 'o-1')"
        )


def _factory(inbox: Any) -> Callable[[], Any] | None:
    """Return the factory of the inbox, called each time that an instance is loaded.

    Raises:
        BadOption, BadBehaviour: it cannot be one.

    """
    if inbox is None:
        return None
    if isinstance(inbox, (Behaviour, Base)) or hasattr(inbox, "take"):
        if isinstance(inbox, type):
            EventInbox(inbox)
            return inbox

        def made() -> Any:
            return copy.deepcopy(inbox)

        EventInbox(made)
        return made
    EventInbox(inbox)
    factory: Callable[[], Any] = inbox
    return factory
