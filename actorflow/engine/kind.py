"""What a kind of execution is: one small protocol, and what a run comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Kind", "NewTask", "Outcome", "Outgoing", "SetTimer", "Status"]


class Status(StrEnum):
    """Where an execution stands."""

    ACTIVE = "active"
    """It goes on when something arrives: a message, a timer, the result of a task."""
    FAILED = "failed"
    """It needs somebody: a retry, a repair, a cancel."""
    DONE = "done"
    """It has ended."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to another execution; `kind` makes it if there is none of that id."""

    to: str
    body: Any
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class SetTimer:
    """A message to the execution itself, at a moment (seconds since the epoch)."""

    id: str
    at: float
    body: Any


@dataclass(frozen=True, slots=True)
class NewTask:
    """Work for a tasker; its result comes back as a message. The id is for deduplication."""

    id: str
    tasker: str
    body: Any


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one run of an execution comes to: all of it is committed together, or none."""

    state: Any
    status: Status = Status.ACTIVE
    messages: list[Outgoing] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    cancelled_timers: list[str] = field(default_factory=list)
    tasks: list[NewTask] = field(default_factory=list)
    cancelled_tasks: list[str] = field(default_factory=list)
    leftover: list[Any] = field(default_factory=list)
    """Messages to itself, for which the budget was too short: they are stored, and are the next
    run, before anything that has accumulated meanwhile, also after a crash. Other executions have
    their turn first."""
    history: list[Any] = field(default_factory=list)


class Kind(Protocol):
    """A kind of execution. Pure with respect to the outside: a run may be thrown away and redone.

    `run` gets the state, what the execution's behaviour has handed over (a list of messages,
    unless it is one that hands over something else), and a function that says whether it may go
    on (the budget: 500 ms). It is never called twice at the same time for one execution. What
    it raises is a bug of the kind, or of the user's job: nothing is committed, the state is
    fetched anew, and the failure policy decides about the messages.
    """

    name: str
    """What executions of this kind are stored under."""

    def options(self, execution: str) -> dict[str, Any]:
        """Give options of `spawn` for an execution that is woken: `behaviour`, `on_failure`, ...

        Each call must give a behaviour of its own, or a class. In the writer's thread: be quick.
        """

    def decode(self, data: bytes | None) -> Any:
        """Make a state of what `encode` made; `None` for a new execution."""

    def encode(self, state: Any) -> bytes:
        """Make bytes of a state."""

    def run(self, execution: str, state: Any, batch: Any, keep_going: Callable[[], bool]) -> Any:
        """Handle a batch of messages: give an `Outcome`, or an awaitable of one."""
