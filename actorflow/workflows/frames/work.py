"""What a branch may ask for: a call of a task, a wait, a sub-workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from actorflow.workflows.frames.context import current
from actorflow.workflows.instance.decision import WorkCall

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from actorflow.workflows.instance.state import WorkType

__all__ = ["Work"]

T_co = TypeVar("T_co", covariant=True)


class Work(Generic[T_co]):
    """Something to be done, whose result is a `T_co`. Only a description: `execute` does it.

    In an `async def` method it can be awaited, or given to `asyncio.gather`.
    """

    __slots__ = ("duration", "event", "input", "name", "read", "timeout", "timestamp", "type")

    def __init__(
        self,
        *,
        type: WorkType,  # noqa: A002 - what it is called everywhere
        name: str,
        input: Any,  # noqa: A002 - what it is called everywhere
        read: Callable[[Any], Any],
        timeout: float | None = None,
        event: str | None = None,
        duration: float | None = None,
        timestamp: float | None = None,
    ) -> None:
        self.type = type
        self.name = name
        self.input = input
        self.read = read
        """Makes its output, as plain data, what the code gets."""
        self.timeout = timeout
        self.event = event
        self.duration = duration
        self.timestamp = timestamp

    def __repr__(self) -> str:
        return f"<{self.type} {self.name}({self.input!r:.80})>"

    def __await__(self) -> Generator[Any, Any, T_co]:
        """Execute it, in an `async def` method of a workflow."""
        outputs, _ = yield from current().execute_async([self]).__await__()
        result: T_co = outputs[0]
        return result

    def call(self, position: str, *, sync: bool, raises: bool) -> WorkCall:
        """Return it as it is asked for at a position."""
        return WorkCall(
            position=position,
            type=self.type,
            name=self.name,
            input=self.input,
            sync=sync,
            timeout=self.timeout,
            event=self.event,
            duration=self.duration,
            timestamp=self.timestamp,
            raises=raises,
        )
