"""The verbs that change something."""

from __future__ import annotations

import inspect
import uuid
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from actorflow.api.errors import ControlUnreachable
from actorflow.api.plain import plain
from actorflow.api.verbs.parameters import (
    Days,
    ExecutionId,
    Kind,
    Parent,
    Plain,
    Seconds,
    StatusName,
    StepName,
    Tags,
    cursor,
    handle_of,
    refuse_unknown,
)
from actorflow.api.verbs.queries import Since, Until, matching
from actorflow.api.verbs.table import Access, verb
from actorflow.engine.errors import KindMismatch, TaskFailed, UnknownExecution, UnknownKind
from actorflow.engine.ids import check_id
from actorflow.engine.kind import ENDED
from actorflow.engine.kinds.lane import LANE
from actorflow.engine.operations.dead_letters import Letter
from actorflow.runtime.errors import ActorflowError, BadOption, near
from actorflow.runtime.tickets import ThreadTicket
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.names import kind_name
from actorflow.workflows.service.received_messages import control_body, event_body, start_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.schedules import Schedule
    from actorflow.workflows.service.handle import WorkflowHandle

__all__: list[str] = []

What = Annotated[str, Meta(description="The name of a workflow or of another kind.")]
First = Annotated[
    Any,
    Meta(
        description="Arguments of a workflow: a list, an object, or a single one; the first "
        "message to another kind."
    ),
]
FlowText = Annotated[str, Meta(description="The text of a flow to launch.")]
JsonObject = Annotated[dict[str, Any], Meta(description="A JSON object.")]
Domain = Annotated[str, Meta(description="The domain in which its taskers are looked up.")]
NewId = Annotated[str, Meta(description="Id of the execution; the same id again starts nothing.")]
EventName = Annotated[
    str, Meta(min_length=1, description="The name of an event of a workflow, a signal of a flow.")
]
OfKind = Annotated[
    str, Meta(description="Create the execution, of this kind, if it does not exist.")
]
Kept = Annotated[
    str | int, Meta(description="The id with which it was sent, or its number among the events.")
]
Key = Annotated[str, Meta(description="Only the first message with the same key counts.")]
TaskId = Annotated[str, Meta(description="The id of a task.")]
Why = Annotated[str, Meta(description="Why it failed.")]
Part = Annotated[
    str, Meta(description="Only this part of it: a node of a flow, a step of a workflow.")
]
Letters = Annotated[
    list[Any], Meta(max_length=10_000, description="Only these dead letters, by their ids.")
]
ScheduleName = Annotated[str, Meta(description="The name of a schedule.")]
Text = Annotated[str, Meta(description="Only executions whose id or error contains this text.")]
Expected = Annotated[int, Meta(ge=0, description="How many there were when they were counted.")]
Action = Literal["cancel", "kill", "pause", "resume", "retry", "delete"]

_BULK = 100_000  # executions that one bulk action reaches, at most
_SHOWN = 20  # errors that a bulk action reports


@verb(Access.WRITE)
def start(
    engine: BareEngine,
    what: What | None = None,
    body: First = None,
    *,
    flow: FlowText | None = None,
    payload: JsonObject | None = None,
    vars: JsonObject | None = None,  # noqa: A002 - the word of the language
    domain: Domain | None = None,
    id: NewId | None = None,  # noqa: A002
) -> dict[str, Any]:
    """Start a workflow, a flow, or an execution of another kind.

    A workflow whose class the engine knows gets `body` as the arguments of `__init__`, converted to
    their annotated types. Otherwise `workflow:NAME` with an object sets its first properties.
    """
    if (what is None) == (flow is None):
        msg = "name a workflow or a kind, or give the text of a flow (flow=..., --flow FILE)"
        raise BadOption(msg)
    if flow is not None:
        options = {} if domain is None else {"domain": domain}
        launch = _flows(engine).launch
        return {"execution": launch(flow, payload=payload, vars=vars, id=id, **options)}
    kinds = engine.parts.kinds
    name = str(what)
    workflow = kinds.get(kind_name(name))
    if isinstance(workflow, WorkflowKind) and name not in kinds:
        return {"execution": _workflows(engine).start(_made(workflow.cls, body), id=id).id}
    if name.startswith(kind_name("")):
        if body is not None and not isinstance(body, dict):
            msg = f"the first properties of {name!r} are a JSON object, not {body!r:.80}"
            raise BadOption(msg)
        id = f"{name.partition(':')[2]}-{uuid.uuid4().hex}" if id is None else id  # noqa: A001
        body = start_body(body or {})
    return {"execution": _created(engine, name, body, id)}


def _created(engine: BareEngine, kind: str, body: Any, given: str | None) -> str:
    if not engine.parts.state.passive:
        if kind not in engine.parts.kinds:
            prefix = kind_name("")
            known = [each.removeprefix(prefix) for each in engine.parts.kinds]
            msg = f"there is no workflow or kind {kind!r}{near(kind, known)}"
            raise UnknownKind(msg)
        return engine.start(kind, body, id=given).id
    if given is None:
        msg = f"no engine runs to make an id for a {kind!r}: name one (id=..., --id ...)"
        raise BadOption(msg)
    done = ThreadTicket()
    kind = check_id(kind, "a kind")
    engine.parts.sender.create(check_id(given, "an execution"), kind, body, done)
    engine.parts.sender.wait_created(done)
    return given


def _made(cls: type[Any], given: Any) -> Any:
    """Return an object of a workflow class, made by its `__init__` with converted arguments."""
    args: list[Any] = given if isinstance(given, list) else []
    kwargs: dict[str, Any] = given if isinstance(given, dict) else {}
    if given is not None and not isinstance(given, (list, dict)):
        args = [given]
    signature = inspect.signature(cls)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        msg = f"{cls.__name__}{signature} cannot be made with {given!r:.80}: {error}"
        raise BadOption(msg) from None
    hints = _hints(cls)
    for name, value in bound.arguments.items():
        if name in hints:
            try:
                bound.arguments[name] = msgspec.convert(value, hints[name])
            except msgspec.ValidationError as error:
                msg = f"{name}={value!r:.80} does not fit {cls.__name__}{signature}: {error}"
                raise BadOption(msg) from None
    return cls(*bound.args, **bound.kwargs)


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Return the annotations of the single parameters of `__init__` that can be resolved."""
    from typing import get_type_hints  # noqa: PLC0415

    names = [
        each.name
        for each in inspect.signature(cls).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    try:
        hints = get_type_hints(cls.__init__)
    except NameError:  # types that are there for the checker only
        return {}
    return {name: hints[name] for name in names if name in hints}


@verb(Access.WRITE)
def send(
    engine: BareEngine,
    execution: ExecutionId,
    body: Plain = None,
    *,
    event: EventName | None = None,
    kind: OfKind | None = None,
    key: Key | None = None,
) -> dict[str, Any]:
    """Send a message; or, with `event`, an event to a workflow, a signal to a flow."""
    if event is None:
        engine.send(execution, body, kind=kind, key=key)
    elif _is_workflow(engine, execution):
        engine.send(execution, event_body(event, body or {}), key=key)
    else:
        _flows(engine).signal(execution, event, body)
    return {"execution": execution}


@verb(Access.WRITE, waits="timeout")
async def ask(
    engine: BareEngine,
    execution: ExecutionId,
    event: EventName,
    body: JsonObject | None = None,
    *,
    id: Key | None = None,  # noqa: A002
    timeout: Seconds = 30.0,
) -> dict[str, Any]:
    """Send an event to a workflow, and return what its `on_event` has answered."""
    handle = handle_of(engine, execution)
    if handle is None:
        msg = f"{execution!r} cannot be asked: it is not a workflow, or its code runs nowhere"
        raise BadOption(msg)
    answer = await handle.aask(event, id=id, timeout=timeout, **(body or {}))
    return {"execution": execution, "answer": plain(answer)}


@verb(Access.WRITE, audited=True)
def cancel(engine: BareEngine, execution: ExecutionId, part: Part | None = None) -> dict[str, Any]:
    """Cancel an execution, or a part of it: its handlers run first, then it ends."""
    handle = handle_of(engine, execution)
    if handle is not None and part is not None:
        done = _with_step(handle.cancel, part)
    else:
        done = engine.cancel(execution, part)
    return {"execution": execution, "cancelled": done}


@verb(Access.WRITE, audited=True)
def kill(engine: BareEngine, execution: ExecutionId) -> dict[str, Any]:
    """End an execution at once, whatever its code does."""
    done = ThreadTicket()
    engine.parts.state.require_open()
    engine.parts.cancellation.end(execution, done)
    return {"execution": execution, "killed": bool(engine.parts.writer.wait_for(done, None, None))}


@verb(Access.WRITE, audited=True)
def pause(engine: BareEngine, execution: ExecutionId) -> dict[str, Any]:
    """Pause a workflow, which then takes no decisions, or a lane, which then starts nothing."""
    return _controlled(engine, execution, "pause")


@verb(Access.WRITE, audited=True)
def resume(engine: BareEngine, execution: ExecutionId) -> dict[str, Any]:
    """Resume a workflow or a lane after a pause, or a workflow after an error in its code."""
    return _controlled(engine, execution, "resume")


@verb(Access.WRITE, audited=True)
def rewind(engine: BareEngine, execution: ExecutionId, step: StepName) -> dict[str, Any]:
    """Go back to before a step of a workflow; its code runs again from there."""
    return _controlled(engine, execution, "rewind", step)


@verb(Access.WRITE, audited=True)
def fork(
    engine: BareEngine,
    execution: ExecutionId,
    step: StepName,
    *,
    id: NewId | None = None,  # noqa: A002
) -> dict[str, Any]:
    """Start another workflow with the past of this one before a step."""
    handle = _live_handle(engine, execution, "fork it")
    return {"execution": _with_step(handle.fork, step, id=id).id}


@verb(Access.WRITE, audited=True)
def discard(engine: BareEngine, execution: ExecutionId, event: Kept) -> dict[str, Any]:
    """Forget an event that a workflow keeps: no wait gets it any more."""
    handle = _live_handle(engine, execution, "discard its events")
    ids = [each.id for each in handle.query().kept_events]
    if isinstance(event, str) and event.isdecimal() and event not in ids:
        event = int(event)
    _with_step(handle.discard, event)
    return {"execution": execution}


@verb(Access.WRITE, audited=True)
def retry(
    engine: BareEngine,
    execution: ExecutionId | None = None,
    *,
    step: StepName | None = None,
    letters: Letters | None = None,
) -> dict[str, Any]:
    """Retry dead letters: those named, those of an execution, or all; or a failed step."""
    if step is not None:
        if execution is None:
            msg = f"step={step!r} is a step of a workflow: name the execution as well"
            raise BadOption(msg)
        _controlled(engine, execution, "retry", step)
        return {"retried": 1}
    return {"retried": _move(engine, execution, letters, lambda box, some: box.retry(*some))}


@verb(Access.WRITE, audited=True)
def bury(
    engine: BareEngine,
    execution: ExecutionId | None = None,
    *,
    letters: Letters | None = None,
) -> dict[str, Any]:
    """Delete dead letters: those named, those of an execution, or all."""
    return {"purged": _move(engine, execution, letters, lambda box, some: box.purge(*some))}


@verb(Access.WRITE, audited=True)
def delete(engine: BareEngine, execution: ExecutionId) -> dict[str, Any]:
    """Delete an execution that has ended, with its children and their history."""
    engine.parts.row(check_id(execution, "an execution"))
    return {"execution": execution, "deleted": engine.upkeep.delete(execution)}


@verb(Access.WRITE, audited=True)
def purge(engine: BareEngine, *, days: Days = 30.0) -> dict[str, Any]:
    """Delete executions that ended some time ago, with their history."""
    before = engine.parts.clock.now() - days * 86_400
    return {"purged": engine.upkeep.purge(before=before)}


@verb(Access.WRITE)
def return_task(engine: BareEngine, task: TaskId, *, value: Plain = None) -> dict[str, Any]:
    """Return a task that a tasker holds, with its result."""
    return {"task": task, "wanted": engine.return_task(task, value)}


@verb(Access.WRITE)
def fail_task(engine: BareEngine, task: TaskId, *, error: Why) -> dict[str, Any]:
    """Fail a task that a tasker holds."""
    return {"task": task, "wanted": engine.fail_task(task, TaskFailed(error))}


@verb(Access.WRITE, audited=True)
def pause_schedule(engine: BareEngine, name: ScheduleName) -> dict[str, Any]:
    """Suspend a schedule until it is resumed."""
    _schedule(engine, name).pause()
    return {"schedule": name}


@verb(Access.WRITE, audited=True)
def resume_schedule(engine: BareEngine, name: ScheduleName) -> dict[str, Any]:
    """Resume a schedule; occurrences missed meanwhile are skipped."""
    _schedule(engine, name).resume()
    return {"schedule": name}


@verb(Access.WRITE, audited=True)
def trigger_schedule(engine: BareEngine, name: ScheduleName) -> dict[str, Any]:
    """Do now what a schedule does by the clock."""
    return {"schedule": name, "execution": _schedule(engine, name).trigger()}


@verb(Access.WRITE, audited=True)
def delete_schedule(engine: BareEngine, name: ScheduleName) -> dict[str, Any]:
    """Delete a schedule; what it has started goes on."""
    return {"schedule": name, "deleted": _schedule(engine, name).delete()}


def _schedule(engine: BareEngine, name: str) -> Schedule:
    try:
        return engine.schedules.get(name)
    except LookupError as error:
        raise UnknownExecution(str(error.args[0])) from None


def _delete(engine: BareEngine, execution: str) -> None:
    engine.upkeep.delete(execution)  # which may have gone with its parent


_SINGLE: dict[str, Callable[..., Any]] = {
    "pause": pause,
    "resume": resume,
    "retry": retry,
    "delete": _delete,
}


@verb(Access.WRITE, audited=True)
def bulk(
    engine: BareEngine,
    action: Action,
    *,
    kind: Kind | None = None,
    status: StatusName | None = None,
    parent: Parent | None = None,
    tag: Tags = [],  # noqa: B006 - never changed
    text: Text | None = None,
    since: Since | None = None,
    until: Until | None = None,
    expected: Expected | None = None,
) -> dict[str, Any]:
    """Do something with all executions that filters choose; `count` says how many these are.

    "delete" takes those that have ended, "retry" all executions, the others running ones. With
    `expected`, nothing is done if there are more by now.
    """
    found = matching(
        engine,
        kind=kind,
        status=status,
        parent=parent,
        tag=tag,
        text=text,
        since=since,
        until=until,
    )
    chosen = {
        row.id: row.kind
        for row in islice(found, _BULK)
        if action == "retry" or (row.status in ENDED) is (action == "delete")
    }
    if expected is not None and len(chosen) > expected:
        msg = f"there are {len(chosen):,} by now, not {expected:,}: count again, then repeat"
        raise BadOption(msg)
    failed: list[str] = []
    together = []
    for execution, of in chosen.items():
        if action in ("retry", "delete") or (action in _SINGLE and of not in engine.parts.kinds):
            try:
                _SINGLE[action](engine, execution)
            except ActorflowError as error:
                failed.append(f"{execution}: {error}")
        else:
            together.append(execution)
    if together:
        errors = engine.bulk(action, ids=together).errors
        failed += [f"{execution}: {error}" for execution, error in errors.items()]
    done = len(chosen) - len(failed)
    return {"chosen": len(chosen), "done": done, "failed": len(failed), "errors": failed[:_SHOWN]}


def _controlled(
    engine: BareEngine, execution: str, verb: str, step: str | None = None
) -> dict[str, Any]:
    """Control a workflow: through its handle, or by a message that the next engine reads."""
    if verb in ("pause", "resume") and engine.parts.row(execution).kind == LANE:
        engine.send(execution, {"do": verb})
        return {"execution": execution}
    _require_workflow(engine, execution)
    handle = handle_of(engine, execution)
    if handle is None:
        engine.send(execution, control_body(verb, step))
    else:
        do = getattr(handle, verb)
        do() if step is None else _with_step(do, step)
    return {"execution": execution}


def _live_handle(engine: BareEngine, execution: str, what: str) -> WorkflowHandle[Any]:
    handle = handle_of(engine, execution)
    if handle is None:
        _require_workflow(engine, execution)
        msg = f"only a live engine that has the code of {execution!r} can {what}"
        raise ControlUnreachable(msg)
    return handle


def _with_step(do: Callable[..., Any], step: Any, **options: Any) -> Any:
    try:
        return do(step, **options)
    except LookupError as error:
        raise BadOption(str(error)) from None


def _is_workflow(engine: BareEngine, execution: str) -> bool:
    return engine.parts.row(execution).kind.startswith(kind_name(""))


def _require_workflow(engine: BareEngine, execution: str) -> None:
    row = engine.parts.row(execution)
    if not row.kind.startswith(kind_name("")):
        msg = f"execution {execution!r} is of kind {row.kind!r}: only a workflow can do that"
        raise KindMismatch(msg)


def _flows(engine: Any) -> Any:
    return _front(engine, "flows")


def _workflows(engine: Any) -> Any:
    return _front(engine, "workflows")


def _front(engine: Any, name: str) -> Any:
    found = getattr(engine, name, None)
    if found is None:
        msg = f"this engine runs no {name}: open it as actorflow.Engine"
        raise BadOption(msg)
    return found


def _move(
    engine: BareEngine,
    execution: str | None,
    letters: list[Any] | None,
    move: Callable[[Any, list[Letter]], int],
) -> int:
    if execution is not None:
        check_id(execution, "an execution")
    box = engine.dead_letters(execution)
    if letters is None:
        count = move(box, [])
        refuse_unknown(engine, execution, found=count)
        return count
    store = engine.parts.store
    rows = [
        store.dead_letter(each)
        for each in dict.fromkeys([cursor(each, "letter") for each in letters])
    ]
    some = [
        Letter(row.id, row.execution, None, row.error, row.at, row.type)
        for row in rows
        if row is not None and execution in (None, row.execution)
    ]
    return move(box, some) if some else 0
