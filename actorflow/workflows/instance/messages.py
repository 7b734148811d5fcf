"""What an instance receives and what it sends.

The times `at` are seconds since the epoch, or any other numbers that only grow. All of it is plain
data, which has no cycles, so the garbage collector need not look at it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from actorflow.workflows.instance.state import StepType

__all__ = [
    "Begin",
    "CancelAll",
    "CancelStep",
    "ClearTimer",
    "Completed",
    "Decision",
    "DecisionBroken",
    "DecisionJob",
    "Discard",
    "EndWait",
    "Ended",
    "EventRefused",
    "EventSent",
    "GiveUp",
    "Kill",
    "LeaveStep",
    "NoRoom",
    "Outgoing",
    "Pause",
    "Publish",
    "Published",
    "Received",
    "RecordValue",
    "RefusedByCode",
    "Restore",
    "Resume",
    "RetryStep",
    "Rewind",
    "RunAgain",
    "ScheduleStep",
    "Send",
    "SetOutput",
    "SetStepTimer",
    "Stalled",
    "StartOther",
    "Started",
    "StepHasFailed",
    "StepJob",
    "StopStep",
    "Succeeded",
    "Tag",
    "Tagged",
    "Tick",
    "TimedOut",
    "UpdateProperties",
]


class EventSent(Struct, frozen=True, gc=False):
    """An event that was sent to the instance."""

    at: float
    name: str
    input: Any = None
    id: str | UnsetType = UNSET
    """Identifies the answer for the caller that asked: the output of its branch."""
    interrupts: bool = False
    """Stop first the steps that branches wait for."""
    undoes: bool = False
    """If it interrupts: undo the branches of other events that are stopped by it."""
    asks: bool = False
    """Whether a caller waits for the answer, who also hears of a refusal."""
    room: int | None = None
    """Refuse it if so many events are kept and no wait expects it."""


class Started(Struct, frozen=True, gc=False):
    """A task or a child has started."""

    at: float
    step: str
    attempt: int | None = None
    """The number of the attempt; `None` stands for the current one."""


class Succeeded(Struct, frozen=True, gc=False):
    """A task or a child has ended well."""

    at: float
    step: str
    output: Any = None
    attempt: int | None = None
    """The number of the attempt; `None` stands for the current one."""


class StepHasFailed(Struct, frozen=True, gc=False):
    """A task has failed after its last attempt, or a child was killed."""

    at: float
    step: str
    error: dict[str, Any]
    """`name`, and optionally `message`, `code` and `stacktrace`."""
    attempt: int | None = None
    """The number of the attempt; `None` stands for the current one."""


class Stalled(Struct, frozen=True, gc=False):
    """A child has failed and waits for a fix; without an error, it continues."""

    at: float
    step: str
    error: dict[str, Any] | None
    attempt: int | None = None
    """The number of the attempt; `None` stands for the current one."""


class TimedOut(Struct, frozen=True, gc=False):
    """A step has run for longer than its timeout."""

    at: float
    step: str


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


class EventRefused(Struct, frozen=True, gc=False):
    """The code has refused an event: a decision is to be taken as if it had never come."""

    at: float
    uuid: str
    number: int
    """Of the event."""
    error: Any = None
    """Why: `name`, `message`, `stacktrace`."""


class Pause(Struct, frozen=True, gc=False):
    """Take no new decision until `Resume`."""

    at: float


class Resume(Struct, frozen=True, gc=False):
    """Continue after a pause, or after the code was fixed."""

    at: float


class Kill(Struct, frozen=True, gc=False):
    """End the instance as it is."""

    at: float


class StopStep(Struct, frozen=True, gc=False):
    """Stop a step: it has failed."""

    at: float
    step: str


class Begin(Struct, frozen=True, gc=False):
    """Start the code of an instance that was held back."""

    at: float


class Discard(Struct, frozen=True, gc=False):
    """Forget a kept event; `on_event` has seen it, or will."""

    at: float
    number: int
    """Its place among the events of the instance."""


class CancelAll(Struct, frozen=True, gc=False):
    """Ask the code to end; the second time, end the instance at once."""

    at: float
    timeout: float = 3_600.0
    """Seconds after which the instance ends, whatever its code does."""
    children: str = "first"
    """When open steps are stopped: "first", "last", or not at all ("leave")."""


class RetryStep(Struct, frozen=True, gc=False):
    """Schedule a failed step again."""

    at: float
    step: str


class Rewind(Struct, frozen=True, gc=False):
    """Go back to before a step, and let the code run again from there."""

    at: float
    step: str


class Restore(Struct, frozen=True, gc=False):
    """The engine was restarted: send unanswered messages again."""

    at: float


Received: TypeAlias = (
    EventSent
    | Started
    | Succeeded
    | StepHasFailed
    | Stalled
    | TimedOut
    | Tick
    | Completed
    | DecisionBroken
    | EventRefused
    | Begin
    | Discard
    | Pause
    | Resume
    | Kill
    | StopStep
    | CancelAll
    | RetryStep
    | Rewind
    | Restore
)


# What a decision consists of.


class ScheduleStep(Struct, frozen=True, gc=False):
    """Begin a task, a wait or a child."""

    branch_key: int
    position: str
    hash: str
    type: StepType
    name: str
    input: Any
    sync: bool
    index: int
    """The execution that asks for it."""
    reached: int
    """The index at which the code has, in its own logic, come here: see `Instance`."""
    timeout: float | None = None
    ends: bool = False
    """It ends when its timeout is up."""
    event: str | None = None
    duration: float | None = None
    timestamp: float | None = None
    raises: bool = False
    lane: dict[str, Any] | None = None
    """The lane in which it waits before it begins: whom it sends what."""

    @property
    def step(self) -> str:
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
    """The execution that draws it."""
    calls: int = 0
    """How many calls for steps its branch has made before."""


class LeaveStep(Struct, frozen=True, gc=False):
    """A branch no longer waits for a step; `cancel` stops it as well."""

    step: str
    cancel: bool = False
    index: int = 0
    """The execution that continues without it."""


class EndWait(Struct, frozen=True, gc=False):
    """The condition for which a branch waits holds."""

    step: str


class GiveUp(Struct, frozen=True, gc=False):
    """The code has ended the instance with a failure."""

    error: dict[str, Any]
    """`name`, `message`, `stacktrace` and `data`."""


class RunAgain(Struct, frozen=True, gc=False):
    """The code has asked for a new run of the instance, with a history of its own."""

    properties: dict[str, Any]
    """Of the new run."""
    index: int
    """The execution that asks for it. Later steps of this plan are left to the new run."""


class Send(Struct, frozen=True, gc=False):
    """A branch has sent an event to another instance."""

    to: str
    name: str
    data: Any = None


class StartOther(Struct, frozen=True, gc=False):
    """A branch has started another instance, without becoming its parent."""

    id: str
    workflow: str
    properties: dict[str, Any]


class Publish(Struct, frozen=True, gc=False):
    """A branch has published a value."""

    value: Any


class Tag(Struct, frozen=True, gc=False):
    """A branch has set searchable attributes."""

    values: dict[str, Any]


Decision: TypeAlias = (
    ScheduleStep
    | UpdateProperties
    | SetOutput
    | RecordValue
    | LeaveStep
    | EndWait
    | GiveUp
    | RunAgain
    | Send
    | StartOther
    | Publish
    | Tag
)


# What an instance sends.


class DecisionJob(Struct, frozen=True, gc=False):
    """Ask a decider to execute `executions[ongoing_index:]`."""

    uuid: str
    ongoing_index: int
    ongoing_executions: list[int]


class StepJob(Struct, frozen=True, gc=False):
    """A task for an executor, or a child to start."""

    step: str
    type: StepType
    name: str
    input: Any
    attempt: int = 1
    timeout: float | None = None
    redelivery: bool = False


class CancelStep(Struct, frozen=True, gc=False):
    """Stop a task or a child that no branch waits for."""

    step: str
    type: StepType
    attempt: int = 1
    apart: bool = False
    """Whether it is a task that is done by an execution of its own."""


class SetStepTimer(Struct, frozen=True, gc=False):
    """Wake the instance for the end of a wait, or for the timeout of a step."""

    step: str
    at: float
    timeout: bool = False


class ClearTimer(Struct, frozen=True, gc=False):
    """Forget a timer."""

    step: str
    timeout: bool = False


class Published(Struct, frozen=True, gc=False):
    """A value for the followers of the instance."""

    value: Any


class RefusedByCode(Struct, frozen=True, gc=False):
    """An event was refused by the code."""

    name: str
    input: Any
    id: str | UnsetType
    error: Any
    asked: bool = False
    """Whether its sender hears of this."""


class NoRoom(Struct, frozen=True, gc=False):
    """An event was refused on arrival, because too many are kept."""

    event: EventSent


class Tagged(Struct, frozen=True, gc=False):
    """Searchable attributes."""

    values: dict[str, Any]


class Ended(Struct, frozen=True, gc=False):
    """The instance is over: with the output of `handle`, with an error, or killed."""

    output: Any | UnsetType = UNSET
    error: dict[str, Any] | None = None
    cancelled: bool = False
    """Whether its code saw a cancel; the output is then the result of `handle`."""

    @property
    def killed(self) -> bool:
        """Whether it was killed, without asking its code."""
        return self.output is UNSET and self.error is None and not self.cancelled


Outgoing: TypeAlias = (
    DecisionJob
    | StepJob
    | CancelStep
    | SetStepTimer
    | ClearTimer
    | Published
    | Send
    | StartOther
    | Tagged
    | RefusedByCode
    | NoRoom
    | Ended
)
