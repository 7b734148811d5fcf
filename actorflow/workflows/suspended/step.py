"""What a branch may ask for: a call of a task, a wait, a sub-workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from actorflow.workflows.errors import InvalidStep
from actorflow.workflows.instance.decision import StepCall
from actorflow.workflows.instance.state import StepType
from actorflow.workflows.suspended.context import current

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


__all__ = ["UNTIL", "Step", "TimerStep", "UntilStep"]

T_co = TypeVar("T_co", covariant=True)
UNTIL = "Until"
"""The name of the steps by which `until` waits."""


class Step(Generic[T_co]):
    """Something to be done, whose result is a `T_co`. Only a description: `execute` does it.

    In an `async def` method it can be awaited, or given to `asyncio.gather`.
    """

    __slots__ = (
        "duration", "ends", "event", "input", "lane", "name", "read", "timeout", "timestamp",
        "type", "typed",
    )  # fmt: skip

    def __init__(
        self,
        *,
        type: StepType,  # noqa: A002 - what it is called everywhere
        name: str,
        input: Any,  # noqa: A002 - what it is called everywhere
        read: Callable[[Any], Any],
        timeout: float | None = None,
        ends: bool = False,
        event: str | None = None,
        duration: float | None = None,
        timestamp: float | None = None,
        lane: dict[str, Any] | None = None,
        typed: bool = False,
    ) -> None:
        self.typed = typed
        """Whether it waits for an event of a type, and others are refused."""
        self.lane = lane
        """The lane in which it waits before it begins: whom it sends what."""
        self.type = type
        self.name = name
        self.input = input
        self.read = read
        """Makes its output, as plain data, what the code gets."""
        self.timeout = timeout
        self.ends = ends
        """Whether it ends when its timeout is up."""
        self.event = event
        self.duration = duration
        self.timestamp = timestamp

    def __repr__(self) -> str:
        return f"<{self.type} {self.name}({self.input!r:.80})>"

    def explain_not_storable(self) -> str:
        """Return why it cannot be stored."""
        return (
            f"{self!r} is only the description of a step: self.execute({self.name}(...)) does it "
            "and returns its result"
        )

    def __await__(self) -> Generator[Any, Any, T_co]:
        """Execute it, in an `async def` method of a workflow."""
        outputs, _ = yield from current().execute_async([self]).__await__()
        result: T_co = outputs[0]
        return result

    def add_done_callback(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse what only tasks can do: `asyncio.wait` asks for it."""
        raise InvalidStep(
            f"asyncio.wait takes tasks, and {self!r} is a step: write "
            "`asyncio.wait([asyncio.ensure_future(step) for step in steps])`"
        )

    def call(self, position: str, *, sync: bool, raises: bool) -> StepCall:
        """Return it as it is asked for at a position."""
        return StepCall(
            position=position,
            type=self.type,
            name=self.name,
            input=self.input,
            sync=sync,
            timeout=self.timeout,
            ends=self.ends,
            event=self.event,
            duration=self.duration,
            timestamp=self.timestamp,
            raises=raises,
            lane=self.lane,
        )


class TimerStep(Step[None]):
    """A step that ends at a time: a timer of asyncio.

    Args:
        timestamp: in seconds since the epoch.

    """

    __slots__ = ()

    def __init__(self, timestamp: float) -> None:
        super().__init__(
            type=StepType.WAIT,
            name="Timer",
            input={"timestamp": timestamp},
            read=lambda _output: None,
            timestamp=timestamp,
        )


class UntilStep(Step[bool]):
    """A step that ends when a condition holds, or at a time; its result is whether it held.

    Args:
        duration: seconds; `None` to wait forever.
        timestamp: when to stop waiting, instead of a duration.

    """

    __slots__ = ()

    def __init__(self, duration: float | None = None, timestamp: float | None = None) -> None:
        shown = {"duration": duration, "timestamp": timestamp}
        super().__init__(
            type=StepType.WAIT,
            name=UNTIL,
            input={key: value for key, value in shown.items() if value is not None},
            read=bool,
            duration=duration,
            timestamp=timestamp,
        )
