"""The base class of workflows: what a user writes, and what its methods can call."""

from __future__ import annotations

import uuid as uuids
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import Struct

from actorflow.engine.tags import tag_text
from actorflow.workflows.errors import InvalidWork, InvalidWorkflow
from actorflow.workflows.frames.context import current
from actorflow.workflows.frames.frame import First, frame_of
from actorflow.workflows.frames.properties import capture
from actorflow.workflows.frames.values import freeze, hints_of, thaw
from actorflow.workflows.frames.work import Work
from actorflow.workflows.instance.decision import Until
from actorflow.workflows.instance.state import WorkType
from actorflow.workflows.wait import Event, Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterable
    from random import Random

__all__ = ["First", "WorkError", "WorkInfo", "Workflow"]

R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
E = TypeVar("E")


class WorkInfo(Struct, frozen=True):
    """A work, as it is passed to the `on_` methods."""

    type: WorkType
    name: str
    input: Any
    work: str
    """Its name within the instance."""


class WorkError(Struct, frozen=True):
    """Why a work failed."""

    name: str
    """Of the class of the error."""
    message: str = ""
    details: dict[str, Any] = {}
    """What else is known: `stacktrace`, `code`."""


class Workflow(Generic[R_co]):
    """A process written as plain Python; its result is an `R_co`.

    The attributes of the object are its *properties*: plain data, or values of a declared type. All
    methods see the same properties; each time that a method goes on after a work, it sees what the
    others have made of them meanwhile. So read a property after the work: `self.total +=
    self.execute(...)` reads it before, and undoes what others add to it meanwhile.

    The methods are replayed after a restart, so they must do the same each time: no input or
    output, no clock, no random numbers, except in tasks and by `now`, `random` and `uuid`.

    `handle` and the `on_` methods may be `async def`; then they await works.

        class Order(Workflow[str]):
            def __init__(self, id: str) -> None:
                self.id = id

            def handle(self) -> str:
                self.execute(charge(self.id), reserve(self.id))
                if self.wait("paid", days=3) is None:
                    return self.execute(refund(self.id))
                return self.execute(ship(self.id))
    """

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        """Refuse a class that cannot run; `abstract=True` is for bases without `handle`."""
        super().__init_subclass__(**options)
        if not abstract and cls.handle is Workflow.handle:
            raise InvalidWorkflow(
                f"{cls.__name__} has no `handle` method: define it, or say "
                f"`class {cls.__name__}(..., abstract=True)` if it is only a base"
            )
        if cls.__dict__.get("__slots__"):
            raise InvalidWorkflow(
                f"{cls.__name__} has __slots__, which would not be stored: leave them out"
            )

    # What a workflow defines.

    def handle(self) -> R_co | Awaitable[R_co]:
        """Run the process; called once, at the start. What it returns is the result."""
        raise NotImplementedError

    def on_event(self, event: Event) -> Any:
        """React to an event, each time that one is sent."""

    def on_start(self, work: WorkInfo) -> Any:
        """React to the start of a work."""

    def on_success(self, work: WorkInfo, output: Any) -> Any:
        """React to a work that is complete."""

    def on_failure(self, work: WorkInfo, error: WorkError) -> Any:
        """React to a work that has failed, after its last attempt."""

    def on_timeout(self, work: WorkInfo) -> Any:
        """React to a work that takes longer than its timeout; it goes on."""

    # What its methods call.

    @overload
    def execute(self, one: Work[A] | Workflow[A], /, *, raises: bool = False) -> A: ...
    @overload
    def execute(
        self, one: Work[A] | Workflow[A], two: Work[B] | Workflow[B], /, *, raises: bool = False
    ) -> tuple[A, B]: ...
    @overload
    def execute(
        self,
        one: Work[A] | Workflow[A],
        two: Work[B] | Workflow[B],
        three: Work[C] | Workflow[C],
        /,
        *,
        raises: bool = False,
    ) -> tuple[A, B, C]: ...
    @overload
    def execute(
        self,
        one: Work[A] | Workflow[A],
        two: Work[B] | Workflow[B],
        three: Work[C] | Workflow[C],
        four: Work[D] | Workflow[D],
        /,
        *,
        raises: bool = False,
    ) -> tuple[A, B, C, D]: ...
    @overload
    def execute(self, *works: Work[F] | Workflow[F], raises: bool = False) -> tuple[F, ...]: ...
    def execute(self, *works: Any, raises: bool = False) -> Any:
        """Do works in parallel; return their results when all are complete.

        For a single work that is its value, for several a tuple. A failed work is retried, or stays
        failed until somebody retries it, and the method waits here.

        Args:
            *works: calls of tasks, `Wait`s, sub-workflows.
            raises: raise `WorkFailed` here when a work has failed after its last attempt.

        """
        outputs, _ = frame_of(self).execute(works, raises=raises)
        return outputs[0] if len(works) == 1 else tuple(outputs)

    def execute_all(
        self, works: Iterable[Work[F] | Workflow[F]], *, raises: bool = False
    ) -> list[F]:
        """Do any number of works in parallel; return their results, always as a list."""
        outputs, _ = frame_of(self).execute(list(works), raises=raises)
        return outputs

    def dispatch(self, *works: Work[Any] | Workflow[Any]) -> None:
        """Begin works without waiting for them. They do not keep the workflow from ending."""
        frame_of(self).dispatch(works)

    @overload
    def wait(
        self,
        event: type[E],
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | float | None = None,
    ) -> E | None: ...
    @overload
    def wait(
        self,
        event: str | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | float | None = None,
    ) -> Event | None: ...
    def wait(
        self,
        event: Any = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | float | None = None,
    ) -> Any:
        """Wait for an event, for some time, or for the first of both.

        Return the event, or `None` when the time is over. See `Wait` for the arguments, and for an
        `async def` method: `await Wait("paid", days=3)`.
        """
        wait: Wait[Any] = Wait(
            event, seconds=seconds, minutes=minutes, hours=hours, days=days, until=until
        )
        outputs, _ = frame_of(self).execute([wait])
        return outputs[0]

    @overload
    def first(
        self,
        one: Work[A] | Workflow[A],
        two: Work[B] | Workflow[B],
        /,
        *,
        cancel: bool = False,
        raises: bool = False,
    ) -> First[A | B]: ...
    @overload
    def first(
        self,
        *works: Work[F] | Workflow[F],
        cancel: bool = False,
        raises: bool = False,
    ) -> First[F]: ...
    def first(self, *works: Any, cancel: bool = False, raises: bool = False) -> Any:
        """Do works in parallel; return the first that is complete: its place and its value.

        Args:
            *works: calls of tasks, `Wait`s, sub-workflows; at least one.
            cancel: stop the others; otherwise they go on, and nobody waits for them.
            raises: raise `WorkFailed` if the first one failed.

        """
        _refuse_none(works)
        outputs, winner = frame_of(self).execute(works, Until.FIRST, raises=raises, cancel=cancel)
        return First(winner or 0, outputs[0])

    def __await__(self) -> Generator[Any, Any, R_co]:
        """Execute it as a work of the `async def` method that awaits it."""
        outputs, _ = yield from current().execute_async([self]).__await__()
        result: R_co = outputs[0]
        return result

    @overload
    async def aexecute(self, one: Work[A] | Workflow[A], /, *, raises: bool = False) -> A: ...
    @overload
    async def aexecute(
        self, one: Work[A] | Workflow[A], two: Work[B] | Workflow[B], /, *, raises: bool = False
    ) -> tuple[A, B]: ...
    @overload
    async def aexecute(
        self,
        one: Work[A] | Workflow[A],
        two: Work[B] | Workflow[B],
        three: Work[C] | Workflow[C],
        /,
        *,
        raises: bool = False,
    ) -> tuple[A, B, C]: ...
    @overload
    async def aexecute(
        self, *works: Work[F] | Workflow[F], raises: bool = False
    ) -> tuple[F, ...]: ...
    async def aexecute(self, *works: Any, raises: bool = False) -> Any:
        """Like `execute`, but for `async def` methods."""
        outputs, _ = await frame_of(self).execute_async(works, raises=raises)
        return outputs[0] if len(works) == 1 else tuple(outputs)

    @overload
    async def afirst(
        self,
        one: Work[A] | Workflow[A],
        two: Work[B] | Workflow[B],
        /,
        *,
        cancel: bool = False,
        raises: bool = False,
    ) -> First[A | B]: ...
    @overload
    async def afirst(
        self, *works: Work[F] | Workflow[F], cancel: bool = False, raises: bool = False
    ) -> First[F]: ...
    async def afirst(self, *works: Any, cancel: bool = False, raises: bool = False) -> Any:
        """Like `first`, but for `async def` methods."""
        _refuse_none(works)
        frame = frame_of(self)
        outputs, winner = await frame.execute_async(
            works, Until.FIRST, raises=raises, cancel=cancel
        )
        return First(winner or 0, outputs[0])

    def publish(self, value: Any) -> None:
        """Publish a value, plain data, to the followers of the instance."""
        frame_of(self).publish(freeze(value, Any, "the published value"))

    def tag(self, **values: str | float | bool | None) -> None:
        """Set attributes by which the instance can be found; `None` removes one.

        `engine.executions(tags={"customer": "c-7"})` finds it through an index, also after it has
        ended. Values are compared as texts: 7 and "7" are the same.

        Raises:
            BadOption: a value is not a short text, a number, a boolean or `None`.
            NotStorable: a text has a lone surrogate, or a number more than 64 bits.

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

    # What makes it a work of another workflow.

    def _actorflow_work(self) -> Work[R_co]:
        return Work(
            type=WorkType.FLOW,
            name=workflow_name(type(self)),
            input=capture(self),
            read=lambda output: read_result(type(self), output),
        )


def workflow_name(cls: type[Workflow[Any]]) -> str:
    """Return the name under which instances of a class are stored."""
    return cls.__qualname__.rpartition("<locals>.")[2]


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


def _refuse_none(works: tuple[Any, ...]) -> None:
    if not works:
        raise InvalidWork("the first of no works never comes: give at least one")
