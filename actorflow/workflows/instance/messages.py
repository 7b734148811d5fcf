"""What an instance receives and what it sends.

The times `at` are seconds since the epoch, or any other numbers that only grow. All of it is plain
data, which has no cycles, so the garbage collector need not look at it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from actorflow.workflows.instance.state import WorkType

__all__ = [
    "Cancel",
    "CancelWork",
    "ClearTimer",
    "Completed",
    "Decision",
    "DecisionBroken",
    "DecisionJob",
    "Ended",
    "Event",
    "Failed",
    "Kill",
    "LeaveWork",
    "Outgoing",
    "Pause",
    "Publish",
    "Published",
    "Received",
    "RecordValue",
    "Restore",
    "Resume",
    "Retry",
    "Rewind",
    "ScheduleWork",
    "SetOutput",
    "SetTimer",
    "Stalled",
    "Started",
    "Succeeded",
    "Tag",
    "Tagged",
    "Tick",
    "TimedOut",
    "UpdateProperties",
    "WorkJob",
]


class Event(Struct, frozen=True, gc=False):
    """An event that was sent to the instance."""

    at: float
    name: str
    input: Any = None
    id: str | UnsetType = UNSET
    """By which whoever asked knows the answer: the output of its branch."""
    interrupts: bool = False
    """Stop first what the branches wait for."""


class Started(Struct, frozen=True, gc=False):
    """A task or a child has started."""

    at: float
    work: str
    attempt: int | None = None
    """Which one; `None` stands for the current one."""


class Succeeded(Struct, frozen=True, gc=False):
    """A task or a child has ended well."""

    at: float
    work: str
    output: Any = None
    attempt: int | None = None
    """Which one; `None` stands for the current one."""


class Failed(Struct, frozen=True, gc=False):
    """A task has failed after its last attempt, or a child was killed."""

    at: float
    work: str
    error: dict[str, Any]
    """`name`, and what else there is to say: `message`, `code`, `stacktrace`."""
    attempt: int | None = None
    """Which one; `None` stands for the current one."""


class Stalled(Struct, frozen=True, gc=False):
    """A child has failed and waits for a fix; without an error, it goes on again."""

    at: float
    work: str
    error: dict[str, Any] | None
    attempt: int | None = None
    """Which one; `None` stands for the current one."""


class TimedOut(Struct, frozen=True, gc=False):
    """A work has run for longer than its timeout."""

    at: float
    work: str


class Tick(Struct, frozen=True, gc=False):
    """Time has passed: waits that are due end."""

    at: float


class Completed(Struct, frozen=True, gc=False):
    """A decision was taken."""

    at: float
    uuid: str
    decisions: list[Any]


class DecisionBroken(Struct, frozen=True, gc=False):
    """A decision could not be taken: the code was modified, or raised."""

    at: float
    uuid: str
    modified: bool
    error: Any = None


class Pause(Struct, frozen=True, gc=False):
    """Take no new decision until `Resume`."""

    at: float


class Resume(Struct, frozen=True, gc=False):
    """Go on after a pause, or after the code was fixed."""

    at: float


class Kill(Struct, frozen=True, gc=False):
    """End the instance as it is."""

    at: float


class Cancel(Struct, frozen=True, gc=False):
    """Stop a work: it has failed."""

    at: float
    work: str


class Retry(Struct, frozen=True, gc=False):
    """Schedule a failed work again."""

    at: float
    work: str


class Rewind(Struct, frozen=True, gc=False):
    """Go back to before a work, and let the code run again from there."""

    at: float
    work: str


class Restore(Struct, frozen=True, gc=False):
    """The engine was restarted: send again what was sent and not answered."""

    at: float


Received: TypeAlias = (
    Event
    | Started
    | Succeeded
    | Failed
    | Stalled
    | TimedOut
    | Tick
    | Completed
    | DecisionBroken
    | Pause
    | Resume
    | Kill
    | Cancel
    | Retry
    | Rewind
    | Restore
)


# What a decision consists of.


class ScheduleWork(Struct, frozen=True, gc=False):
    """Begin a task, a wait or a child."""

    branch_key: int
    position: str
    hash: str
    type: WorkType
    name: str
    input: Any
    sync: bool
    index: int
    """Of the execution that asks for it."""
    reached: int
    """The index at which the code has, in its own logic, come here: see `Instance`."""
    timeout: float | None = None
    event: str | None = None
    duration: float | None = None
    timestamp: float | None = None
    raises: bool = False

    @property
    def work(self) -> str:
        """What names it within the instance."""
        return f"{self.branch_key}/{self.position}"


class UpdateProperties(Struct, frozen=True, gc=False):
    """The properties from the index `key` on."""

    key: int
    values: dict[str, Any]


class SetOutput(Struct, frozen=True, gc=False):
    """A branch has returned a value."""

    branch_key: int
    output: Any


class RecordValue(Struct, frozen=True, gc=False):
    """A branch has drawn a value that its replays must see again."""

    branch_key: int
    position: str
    value: Any
    index: int = 0
    """Of the execution that draws it."""
    calls: int = 0
    """How many calls for works its branch has made before."""


class LeaveWork(Struct, frozen=True, gc=False):
    """A branch no longer waits for a work; `cancel` stops it as well."""

    work: str
    cancel: bool = False
    index: int = 0
    """Of the execution that goes on without it."""


class Publish(Struct, frozen=True, gc=False):
    """A branch has published a value."""

    value: Any


class Tag(Struct, frozen=True, gc=False):
    """A branch has set searchable attributes."""

    values: dict[str, Any]


Decision: TypeAlias = (
    ScheduleWork | UpdateProperties | SetOutput | RecordValue | LeaveWork | Publish | Tag
)


# What an instance sends.


class DecisionJob(Struct, frozen=True, gc=False):
    """Ask a decider to execute `executions[ongoing_index:]`."""

    uuid: str
    ongoing_index: int
    ongoing_executions: list[int]


class WorkJob(Struct, frozen=True, gc=False):
    """A task for an executor, or a child to start."""

    work: str
    type: WorkType
    name: str
    input: Any
    attempt: int = 1
    timeout: float | None = None
    redelivery: bool = False


class CancelWork(Struct, frozen=True, gc=False):
    """Stop a task or a child that nobody waits for."""

    work: str
    type: WorkType
    attempt: int = 1
    dispatched: bool = False


class SetTimer(Struct, frozen=True, gc=False):
    """Wake the instance for the end of a wait, or for the timeout of a work."""

    work: str
    at: float
    timeout: bool = False


class ClearTimer(Struct, frozen=True, gc=False):
    """Forget a timer."""

    work: str
    timeout: bool = False


class Published(Struct, frozen=True, gc=False):
    """A value for those who follow the instance."""

    value: Any


class Tagged(Struct, frozen=True, gc=False):
    """Searchable attributes."""

    values: dict[str, Any]


class Ended(Struct, frozen=True, gc=False):
    """The instance is over: with the output of `handle`, or killed (no output)."""

    output: Any | UnsetType = UNSET

    @property
    def killed(self) -> bool:
        """Whether somebody ended it."""
        return self.output is UNSET


Outgoing: TypeAlias = (
    DecisionJob | WorkJob | CancelWork | SetTimer | ClearTimer | Published | Tagged | Ended
)
