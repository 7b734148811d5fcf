"""The base class of workflows: what a user writes, and what its methods can call."""

from __future__ import annotations

import inspect
import uuid as uuids
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from msgspec import Struct

from actorflow.behaviours.arguments import count, seconds
from actorflow.engine.ids import check_id
from actorflow.engine.tags import tag_text
from actorflow.engine.typed import freeze, hints_of, thaw
from actorflow.runtime.errors import near
from actorflow.workflows.errors import InvalidStep, InvalidWorkflow
from actorflow.workflows.instance.decision import Until
from actorflow.workflows.instance.messages import CancelAll
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.suspended.context import current
from actorflow.workflows.suspended.frame import First, frame_of
from actorflow.workflows.suspended.properties import capture
from actorflow.workflows.suspended.step import Step, UntilStep
from actorflow.workflows.wait import (
    Event,
    Wait,
    declared_events,
    duration_of,
    kept_names,
    written_event,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
    from random import Random

__all__ = ["First", "StepError", "StepInfo", "Workflow", "workflow"]

R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
E = TypeVar("E")
W = TypeVar("W", bound="Workflow[Any]")


class StepInfo(Struct, frozen=True):
    """A step, as it is passed to the `on_` methods."""

    type: StepType
    name: str
    input: Any
    step: str
    """Its name within the instance."""


class StepError(Struct, frozen=True):
    """Why a step failed."""

    name: str
    """The name of the class of the error."""
    message: str = ""
    details: dict[str, Any] = {}
    """What else is known: `stacktrace`, `code`."""


class _OwnId:
    """The id of the instance whose code reads it; a property of that name hides it."""

    def __get__(self, workflow: Any, cls: Any) -> Any:
        return self if workflow is None else frame_of(workflow).session.id


class Workflow(Generic[R_co]):
    """A process written as plain Python; its result is an `R_co`.

    The attributes of the object are its *properties*: plain data, or values of a declared type. All
    methods see the same properties; each time that a method goes on after a step, it sees what the
    others have made of them meanwhile. So read a property after the step: `self.total +=
    self.execute(...)` reads it before, and overwrites additions that others make meanwhile.

    The methods are replayed after a restart, so they must do the same each time: no input or
    output, no clock, no random numbers, except in tasks and by `now`, `random` and `uuid`.

    `handle` and the `on_` methods may be `async def`; then they await steps.

        class Order(Workflow[str]):
            def __init__(self, id: str) -> None:
                self.id = id

            def handle(self) -> str:
                self.execute(charge(self.id), reserve(self.id))
                if self.wait("paid", days=3) is None:
                    return self.execute(refund(self.id))
                return self.execute(ship(self.id))
    """

    def __init_subclass__(
        cls,
        *,
        abstract: bool = False,
        keep_events: bool | Iterable[str | type[Any]] | None = None,
        max_kept: int | None = None,
        events: Mapping[str, Any] | Iterable[type[Any] | str] | None = None,
        on_error: str | None = None,
        history_limit: int | None = None,
        cancel_timeout: float | None = None,
        cancel_children: str | None = None,
        **options: Any,
    ) -> None:
        """Refuse a class that cannot run. Subclasses inherit the options that they leave out.

        Args:
            abstract: the class is only a base, without `handle`.
            keep_events: which events are kept if no wait expects them: all (`True`, the default),
                or those of the given names. `False` selects the rule of workflows in other
                languages.
            max_kept: how many events one instance keeps at most, 10,000 by default. Beyond that,
                `send` and `ask` raise `Rejected`.
            events: the events that may be sent: their names with the types of their data (`None`
                for any data), or classes, whose names they have. All events by default.
            on_error: what an exception in `on_event` does. "refuse" (the default) refuses the
                event, as `Refused` does; "stick" stops the instance until `resume`.
            history_limit: how many entries the history of one run may have before a warning is
                logged, 10,000 by default: `again` begins a fresh history.
            cancel_timeout: how many seconds the code may take after a cancel, 3,600 by default.
                Then the instance ends.
            cancel_children: when open tasks and sub-workflows are cancelled: "first" (the default:
                the code sees the cancel when they have ended), "last" (after the code), or "leave"
                (sub-workflows go on).
            **options: of other bases.

        """
        super().__init_subclass__(**options)
        if keep_events is not None:
            cls._actorflow_keeps_events = keep_events is not False
            cls._actorflow_kept_names = kept_names(cls.__name__, keep_events)
        if max_kept is not None:
            cls._actorflow_max_kept = count(
                max_kept, "max_kept", f"class {cls.__name__}(Workflow, max_kept=100)",
                error=InvalidWorkflow,
            )  # fmt: skip
        if history_limit is not None:
            cls._actorflow_history_limit = count(
                history_limit, "history_limit",
                f"class {cls.__name__}(Workflow, history_limit=1_000)", error=InvalidWorkflow,
            )  # fmt: skip
        _set_cancel_options(cls, cancel_timeout, cancel_children)
        if on_error is not None:
            if on_error not in ("refuse", "stick"):
                raise InvalidWorkflow(f"on_error={on_error!r:.80}: use 'refuse' or 'stick'")
            cls._actorflow_on_error = on_error
        if events is not None:
            cls._actorflow_events = declared_events(cls.__name__, events)
        _check_kept_names(cls)
        if not abstract and cls.handle is Workflow.handle:
            raise InvalidWorkflow(
                f"{cls.__name__} has no `handle` method: define it, or say "
                f"`class {cls.__name__}(..., abstract=True)` if it is only a base"
            )
        if cls.__dict__.get("__slots__"):
            raise InvalidWorkflow(
                f"{cls.__name__} has __slots__, which would not be stored: leave them out"
            )

    id: Any = _OwnId()
    """The id of the instance. If `__init__` sets a property `id`, it is that."""

    _actorflow_name: ClassVar[str]
    """Set by `workflow(name=...)`; not inherited."""
    _actorflow_keeps_events: ClassVar[bool] = True
    _actorflow_kept_names: ClassVar[list[str] | None] = None
    _actorflow_on_error: ClassVar[str] = "refuse"
    _actorflow_max_kept: ClassVar[int] = 10_000
    _actorflow_history_limit: ClassVar[int] = 10_000
    _actorflow_cancel_timeout: ClassVar[float] = 3_600.0
    _actorflow_cancel_children: ClassVar[str] = "first"
    _actorflow_events: ClassVar[Mapping[str, Any] | None] = None

    # What a workflow defines.

    def handle(self) -> R_co | Awaitable[R_co]:
        """Run the process; called once, at the start. What it returns is the result."""
        raise NotImplementedError

    def on_event(self, event: Event) -> Any:
        """React to an event, each time that one is sent."""

    def on_start(self, step: StepInfo) -> Any:
        """React to the start of a step."""

    def on_success(self, step: StepInfo, output: Any) -> Any:
        """React to a step that is complete."""

    def on_failure(self, step: StepInfo, error: StepError) -> Any:
        """React to a step that has failed, after its last attempt."""

    def on_timeout(self, step: StepInfo) -> Any:
        """React to a task that takes longer than its `timeout`; then it has failed."""

    # What its methods call.

    @overload
    def execute(self, one: Step[A] | Workflow[A], /, *, raises: bool = False) -> A: ...
    @overload
    def execute(
        self, one: Step[A] | Workflow[A], two: Step[B] | Workflow[B], /, *, raises: bool = False
    ) -> tuple[A, B]: ...
    @overload
    def execute(
        self,
        one: Step[A] | Workflow[A],
        two: Step[B] | Workflow[B],
        three: Step[C] | Workflow[C],
        /,
        *,
        raises: bool = False,
    ) -> tuple[A, B, C]: ...
    @overload
    def execute(
        self,
        one: Step[A] | Workflow[A],
        two: Step[B] | Workflow[B],
        three: Step[C] | Workflow[C],
        four: Step[D] | Workflow[D],
        /,
        *,
        raises: bool = False,
    ) -> tuple[A, B, C, D]: ...
    @overload
    def execute(self, *steps: Step[F] | Workflow[F], raises: bool = False) -> tuple[F, ...]: ...
    def execute(self, *steps: Any, raises: bool = False) -> Any:
        """Do steps in parallel; return their results when all are complete.

        For a single step that is its value, for several a tuple. A failed step is retried, or stays
        failed until somebody retries it, and the method waits here.

        Args:
            *steps: calls of tasks, `Wait`s, sub-workflows.
            raises: raise `StepFailed` here as soon as a step has failed after its last attempt. The
                others go on, but nobody waits for them.

        """
        outputs, _ = frame_of(self).execute(steps, raises=raises)
        return outputs[0] if len(steps) == 1 else tuple(outputs)

    def execute_all(
        self, steps: Iterable[Step[F] | Workflow[F]], *, raises: bool = False
    ) -> list[F]:
        """Do any number of steps in parallel; return their results, always as a list."""
        outputs, _ = frame_of(self).execute(list(steps), raises=raises)
        return outputs

    def dispatch(self, *steps: Step[Any] | Workflow[Any]) -> None:
        """Begin steps without waiting for them. They do not keep the workflow from ending."""
        frame_of(self).dispatch(steps)

    @overload
    def wait(self, event: type[E]) -> E: ...
    @overload
    def wait(self, event: str) -> Event: ...
    @overload
    def wait(
        self,
        event: type[E],
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> E | None: ...
    @overload
    def wait(
        self,
        event: str | None = None,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> Event | None: ...
    def wait(
        self,
        event: Any = None,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> Any:
        """Wait for an event, for some time, or for the first of both.

        Return the event, or `None` when the time is over, if one is given. An event that came
        before is returned at once, the oldest first: each is kept until a wait has taken it. See
        `Wait` for the arguments, and for an `async def` method: `await Wait("paid", days=3)`.
        """
        wait: Wait[Any] = Wait(
            event, seconds=seconds, minutes=minutes, hours=hours, days=days, until=until
        )
        outputs, _ = frame_of(self).execute([wait])
        return outputs[0]

    @overload
    def receive(self, event: type[E]) -> E: ...
    @overload
    def receive(self, event: str) -> Event: ...
    @overload
    def receive(
        self,
        event: type[E],
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> E | None: ...
    @overload
    def receive(
        self,
        event: str,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> Event | None: ...
    def receive(
        self,
        event: Any,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
        until: datetime | float | None = None,
    ) -> Any:
        """Return the next event of a name; `None` if none has come in time. The same as `wait`."""
        return self.wait(
            event, seconds=seconds, minutes=minutes, hours=hours, days=days, until=until
        )

    def until(
        self,
        condition: Callable[[], Any],
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> bool:
        """Wait until a condition holds, for some time or forever; return whether it holds.

        It is evaluated now, and again whenever other methods have changed properties:
        `self.until(lambda: len(self.votes) >= 3, days=2)`. It may only depend on properties, must
        not change them, and cannot ask for steps, `now` or `random`.
        """
        duration = duration_of(seconds=seconds, minutes=minutes, hours=hours, days=days)
        return frame_of(self).until(_condition(condition), UntilStep(duration))

    async def auntil(
        self,
        condition: Callable[[], Any],
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> bool:
        """Like `until`, but for `async def` methods."""
        duration = duration_of(seconds=seconds, minutes=minutes, hours=hours, days=days)
        return await frame_of(self).until_async(_condition(condition), UntilStep(duration))

    @overload
    def first(
        self,
        one: Step[A] | Workflow[A],
        two: Step[B] | Workflow[B],
        /,
        *,
        cancel: bool = False,
        raises: bool = False,
    ) -> First[A | B]: ...
    @overload
    def first(
        self,
        *steps: Step[F] | Workflow[F],
        cancel: bool = False,
        raises: bool = False,
    ) -> First[F]: ...
    def first(self, *steps: Any, cancel: bool = False, raises: bool = False) -> Any:
        """Do steps in parallel; return the first that is complete: its place and its value.

        Args:
            *steps: calls of tasks, `Wait`s, sub-workflows; at least one.
            cancel: stop the others; otherwise they go on, and nobody waits for them.
            raises: raise `StepFailed` if the first one failed.

        """
        _refuse_none(steps)
        outputs, winner = frame_of(self).execute(steps, Until.FIRST, raises=raises, cancel=cancel)
        return First(winner or 0, outputs[0])

    def __await__(self) -> Generator[Any, Any, R_co]:
        """Execute it as a step of the `async def` method that awaits it."""
        outputs, _ = yield from current().execute_async([self]).__await__()
        result: R_co = outputs[0]
        return result

    @overload
    async def aexecute(self, one: Step[A] | Workflow[A], /, *, raises: bool = False) -> A: ...
    @overload
    async def aexecute(
        self, one: Step[A] | Workflow[A], two: Step[B] | Workflow[B], /, *, raises: bool = False
    ) -> tuple[A, B]: ...
    @overload
    async def aexecute(
        self,
        one: Step[A] | Workflow[A],
        two: Step[B] | Workflow[B],
        three: Step[C] | Workflow[C],
        /,
        *,
        raises: bool = False,
    ) -> tuple[A, B, C]: ...
    @overload
    async def aexecute(
        self, *steps: Step[F] | Workflow[F], raises: bool = False
    ) -> tuple[F, ...]: ...
    async def aexecute(self, *steps: Any, raises: bool = False) -> Any:
        """Like `execute`, but for `async def` methods."""
        outputs, _ = await frame_of(self).execute_async(steps, raises=raises)
        return outputs[0] if len(steps) == 1 else tuple(outputs)

    @overload
    async def afirst(
        self,
        one: Step[A] | Workflow[A],
        two: Step[B] | Workflow[B],
        /,
        *,
        cancel: bool = False,
        raises: bool = False,
    ) -> First[A | B]: ...
    @overload
    async def afirst(
        self, *steps: Step[F] | Workflow[F], cancel: bool = False, raises: bool = False
    ) -> First[F]: ...
    async def afirst(self, *steps: Any, cancel: bool = False, raises: bool = False) -> Any:
        """Like `first`, but for `async def` methods."""
        _refuse_none(steps)
        frame = frame_of(self)
        outputs, winner = await frame.execute_async(
            steps, Until.FIRST, raises=raises, cancel=cancel
        )
        return First(winner or 0, outputs[0])

    def again(self, workflow: Workflow[R_co], /) -> R_co:
        """Return the value that starts a new run: `return self.again(Order(...))` in `handle`.

        It keeps its id, its handle, its followers and its inbox, and begins with the properties of
        the given object and a fresh history. So it can live forever: histories cost memory, and
        time in restarts. Callers of `result` get the result of the last run. The next run begins
        when the other methods have also ended; events that have not been handled, and kept ones,
        are for the next run.
        """
        made: Any = frame_of(self).again(workflow)
        result: R_co = made
        return result

    def send(self, to: str, event: Any, /, **data: Any) -> None:
        """Send an event to another workflow: `self.send("o-1", "paid", amount=40)`.

        It is a recorded step: sent once, however often the code is replayed, when the decision is
        stored. Nothing waits for it; an event to a workflow that does not exist, or has ended, is
        dropped. Without `await` also in an `async def` method.

        Args:
            to: the id of the other workflow.
            event: its name, with its data as keyword arguments; or an object of a class of yours.
            **data: what `event.data` is then.

        """
        check_id(to, "a workflow")
        name, given = written_event(event, data)
        frame_of(self).send(to, name, given)

    def start(self, workflow: Workflow[Any], /, *, id: str | None = None) -> str:  # noqa: A002
        """Start another workflow, which goes on alone; return its id.

        It is a recorded step, as `send` is. Unlike a sub-workflow, the other one is not cancelled
        with this one. If there is one of that id already, nothing is started.

        Args:
            workflow: the object to start.
            id: of the new workflow; made if not given.

        """
        if not isinstance(workflow, Workflow):
            raise InvalidStep(f"{workflow!r:.80} is not a workflow: give Order('o-1')")
        if id is not None:
            check_id(id, "a workflow")
        return frame_of(self).start(workflow, id)

    def publish(self, value: Any) -> None:
        """Publish a value, plain data, to the followers of the instance."""
        frame_of(self).publish(freeze(value, Any, "the published value"))

    def tag(self, **values: str | float | bool | None) -> None:
        """Set attributes by which the instance can be found; `None` removes one.

        `engine.executions(tags={"customer": "c-7"})` finds it through an index, also after it has
        ended. Values are compared as texts: 7 and "7" are the same.

        Raises:
            BadOption: a value is not a short text, a number, a boolean or `None`.
            NotStorable: a string has a lone surrogate, or a number more than 64 bits.

        """
        for name, value in values.items():
            if value is not None:
                tag_text(name, value)
        frame_of(self).tag(freeze(values, Any, "a tag"))

    def patched(self, name: str) -> bool:
        """Return whether this branch takes the new code: instances that are past it do not.

        `if self.patched("check fraud first"): self.execute(check(self.id))`
        """
        return frame_of(self).patched(freeze(name, Any, "the name of a patch"))

    def now(self) -> datetime:
        """Return the time, the same in every replay."""
        frame = frame_of(self)
        at = frame.draw("now", lambda _: frame.session.now)
        return datetime.fromtimestamp(at, UTC)

    def random(self) -> float:
        """Return a random number from 0 to 1, the same in every replay."""
        number: float = frame_of(self).draw("random", lambda dice: dice.random())
        return number

    def uuid(self) -> uuids.UUID:
        """Return a random UUID, the same in every replay."""
        return uuids.UUID(frame_of(self).draw("uuid", _random_uuid))

    # What makes it a step of another workflow.

    def _actorflow_step(self) -> Step[R_co]:
        return Step(
            type=StepType.FLOW,
            name=workflow_name(type(self)),
            input=capture(self),
            read=lambda output: read_result(type(self), output),
        )


def workflow(*, name: str) -> Callable[[type[W]], type[W]]:
    """Name a class of workflows, so that it can be renamed: instances are stored under the name.

    `@af.workflow(name="Order")` above `class CustomerOrder(af.Workflow[str])` goes on with the
    instances of a class that was called `Order`. Subclasses have their own names.

    Args:
        name: under which instances are stored; by default, it is that of the class.

    Raises:
        InvalidWorkflow: it is not a name, or it is not above a class of workflows.

    """
    given: Any = name
    if not isinstance(given, str) or not given or not given.isprintable():
        raise InvalidWorkflow(f"name={name!r:.80} is not a name: @af.workflow(name='Order')")

    def named(cls: type[W]) -> type[W]:
        found: Any = cls
        if not isinstance(found, type) or not issubclass(found, Workflow):
            raise InvalidWorkflow(
                f"{cls!r:.80} is not a workflow class: put @af.workflow(name={name!r:.40}) above "
                "a subclass of af.Workflow"
            )
        cls._actorflow_name = name
        return cls

    return named


def workflow_name(cls: type[Workflow[Any]]) -> str:
    """Return the name under which instances of a class are stored."""
    return cls.__dict__.get("_actorflow_name") or cls.__qualname__.rpartition("<locals>.")[2]


def _check_kept_names(cls: type[Workflow[Any]]) -> None:
    """Refuse to keep events that a class does not declare.

    Raises:
        InvalidWorkflow: it does.

    """
    names, declared = cls._actorflow_kept_names, cls._actorflow_events
    if names is None or declared is None:
        return
    for name in names:
        if name not in declared:
            raise InvalidWorkflow(
                f"keep_events={names!r:.80} of {cls.__name__}: it declares no event "
                f"{name!r:.40}{near(name, declared)}"
            )


def _set_cancel_options(
    cls: type[Workflow[Any]], timeout: float | None, children: str | None
) -> None:
    """Set the options of a class that are about cancels, if they are given.

    Raises:
        InvalidWorkflow: one of them is wrong.

    """
    if timeout is not None:
        example = f"class {cls.__name__}(Workflow, cancel_timeout=60)"
        cls._actorflow_cancel_timeout = seconds(
            timeout, "cancel_timeout", example, error=InvalidWorkflow
        )
    if children is not None:
        if children not in ("first", "last", "leave"):
            raise InvalidWorkflow(
                f"cancel_children={children!r:.80}: use 'first', 'last' or 'leave'"
            )
        cls._actorflow_cancel_children = children


def cancel_of(cls: type[Workflow[Any]], at: float) -> CancelAll:
    """Return the message that cancels an instance of a class."""
    return CancelAll(at, cls._actorflow_cancel_timeout, cls._actorflow_cancel_children)


def write_result(cls: type[Workflow[Any]], result: Any) -> Any:
    """Return what `handle` returned as plain data."""
    hint = hints_of(cls.handle).get("return", Any)
    return freeze(result, hint, f"the result of {workflow_name(cls)}")


def read_result(cls: type[Workflow[Any]], output: Any) -> Any:
    """Return plain data as what `handle` returned."""
    hint = hints_of(cls.handle).get("return", Any)
    return thaw(output, hint, f"the result of {workflow_name(cls)}")


def _random_uuid(dice: Random) -> str:
    return str(uuids.UUID(int=dice.getrandbits(128), version=4))


def _condition(given: Any) -> Callable[[], Any]:
    """Return a condition, which must be a function without arguments.

    Raises:
        InvalidStep: the object is not a step.

    """
    if not callable(given) or inspect.iscoroutinefunction(given):
        raise InvalidStep(
            f"until({given!r:.80}): give a function that returns whether the condition holds, as "
            "in self.until(lambda: self.paid)"
        )
    found: Callable[[], Any] = given
    return found


def _refuse_none(steps: tuple[Any, ...]) -> None:
    if not steps:
        raise InvalidStep("the first of no steps never comes: give at least one")
