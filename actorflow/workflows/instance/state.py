"""The stored state of an instance: plain data, with the names of the agent protocol.

`msgspec.UNSET` stands for a field that is absent, because `None` is a value that works and events
may have. Plain data has no cycles, so the garbage collector need not look at the thousands of
objects of a long instance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CANCELLED",
    "EVENT_DATA",
    "NOTICES",
    "UNSET",
    "Branch",
    "BranchType",
    "BufferedAction",
    "CancelState",
    "DecisionMode",
    "InstanceState",
    "KeptEvent",
    "PropertiesAt",
    "Record",
    "RunningTimeout",
    "RunningWait",
    "StepState",
    "StepStatus",
    "StepType",
    "decode",
    "encode",
    "next_run",
]


class BranchType(StrEnum):
    """What a branch was created by, and so which method it runs."""

    HANDLE = "handle"
    EVENT = "onEvent"
    START = "onStart"
    SUCCESS = "onSuccess"
    FAILURE = "onFailure"
    TIMEOUT = "onTimeout"


class StepType(StrEnum):
    """What a branch may ask for."""

    TASK = "task"
    WAIT = "wait"
    FLOW = "flow"


class StepState(StrEnum):
    """Where a step stands."""

    SCHEDULED = "scheduled"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """A loser of `first(..., cancel=True)`: whatever arrives for it is dropped."""


class DecisionMode(StrEnum):
    """Whether decisions are triggered, and if not, why."""

    RUN = "run"
    PAUSED = "paused"
    MODIFIED = "modified"
    """The code does not repeat the recorded steps; the decision was discarded."""
    FAILED = "failed"
    """The code raised; the decision was discarded."""
    TERMINATED = "terminated"
    KILLED = "killed"
    GIVEN_UP = "given up"
    """The code has raised `Failed`: the instance has failed."""
    CONTINUED = "continued"
    """This run is over: the instance goes on with another, which has a history of its own."""
    CANCELLED = "cancelled"
    """It was cancelled, and its code has finished cleaning up."""


INTERRUPTED = "Interrupted"
"""The name of the error of a step that an event has interrupted."""
UNDONE = {"name": "Refused", "message": "another event has interrupted and undone it"}
"""Why an event is refused that another one has undone."""
TIMED_OUT = "TaskTimeout"
"""The name of the error of a task whose timeout is up."""
CANCELLED = "WorkflowCancelled"
"""The name of the error of a step for which a branch waited when its instance was cancelled."""
NOTICES = frozenset((INTERRUPTED, CANCELLED))
"""Failures of which a branch hears whether it asks for failures or not."""
EVENT_DATA = ("event_name", "event_input", "event_id", "event_asks", "event_number")
"""The fields of a branch that its event is planned again with: it has interrupted already."""
COMPLETIONS = frozenset((BranchType.SUCCESS, BranchType.FAILURE))
ENDED_MODES = frozenset(
    (
        DecisionMode.TERMINATED,
        DecisionMode.KILLED,
        DecisionMode.GIVEN_UP,
        DecisionMode.CONTINUED,
        DecisionMode.CANCELLED,
    )
)
BROKEN_MODES = frozenset((DecisionMode.MODIFIED, DecisionMode.FAILED))


class Branch(Struct, omit_defaults=True, gc=False):
    """A method of the workflow that is, or was, executed for something that happened."""

    type: BranchType
    at: float = 0
    """When that happened."""
    step: str | UnsetType = UNSET
    task_type: StepType | UnsetType = UNSET
    event_name: str | UnsetType = UNSET
    event_input: Any = UNSET
    event_id: str | UnsetType = UNSET
    """The ids under which callers wait for its output."""
    event_asks: bool | UnsetType = UNSET
    """Whether the sender of the event waits for its output."""
    event_number: int | UnsetType = UNSET
    """Its place among the events, of an instance that keeps events."""
    interrupts: str | UnsetType = UNSET
    """What the event does to steps that branches wait for: "stop", or "undo" their branches."""
    task_name: str | UnsetType = UNSET
    task_input: Any = UNSET
    task_output: Any = UNSET
    error_name: str | UnsetType = UNSET
    error_input: Any = UNSET
    output: Any = UNSET
    start_index: int = 0
    """Its first position in `executions`."""


class StepStatus(Struct, omit_defaults=True, gc=False):
    """A step that a branch has asked for, and what happened to it."""

    branch_key: int
    position: str
    hash: str
    type: StepType
    name: str
    input: Any
    sync: bool
    status: StepState = StepState.SCHEDULED
    completion_index: int | UnsetType = UNSET
    """Index of the branch that was created by its completion."""
    output: Any = UNSET
    error: Any = UNSET
    released_index: int | UnsetType = UNSET
    """Index of the event that had already happened when the wait for it was created."""
    taken: int | UnsetType = UNSET
    """Number of the event that a wait has taken, of an instance that keeps events."""
    timeout: float | None = None
    ends: bool = False
    """Its attempt ends when its timeout is up; else it goes on."""
    raises: bool = False
    """Its failure goes back to its branch, as an exception."""
    attempt: int = 1
    started: int = 0
    """The last attempt whose start was received."""
    index: int = 0
    """The execution that asked for it."""
    left_index: int | UnsetType = UNSET
    """The execution that continued without it; from then on it is not `sync` any more."""
    event: str | None = None
    """What a wait is for."""
    deadline: float | None = None
    """Until when a wait lasts."""
    lane: dict[str, Any] | None = None
    """The lane in which a task waits before it begins: whom it sends what."""

    @property
    def step(self) -> str:
        """What names it within the instance."""
        return f"{self.branch_key}/{self.position}"

    @property
    def dispatched(self) -> bool:
        """Whether its branch never waited for it."""
        return not self.sync and self.left_index is UNSET

    @property
    def apart(self) -> bool:
        """Whether an execution of its own does it, if it is a task."""
        return self.dispatched or self.lane is not None


class RunningWait(Struct, gc=False):
    """A wait that is not over: until a moment, an event, or the first of both."""

    step: str
    timestamp: float | None
    event: str | None


class RunningTimeout(Struct, gc=False):
    """A step that has started, and when it will have taken too long."""

    step: str
    timestamp: float


class PropertiesAt(Struct, gc=False):
    """The properties from the execution index `key` on, until the next entry."""

    key: int
    values: dict[str, Any]


class BufferedAction(Struct, gc=False):
    """Something that happened and waits for the next decision."""

    timestamp: float
    type: BranchType
    data: dict[str, Any]


class Record(Struct, omit_defaults=True, gc=False):
    """A value that a branch has drawn (`now`, `random`, `uuid`, `patched`): replays get it back."""

    branch_key: int
    position: str
    value: Any
    index: int = 0
    """The execution that drew it."""
    calls: int = 0
    """How many calls for steps its branch had made before."""


class KeptEvent(Struct, omit_defaults=True, gc=False):
    """An event that no wait has taken."""

    number: int
    """Its place among the events of the instance."""
    at: float
    """When it was received."""
    name: str
    input: Any = None
    id: str | UnsetType = UNSET


class CancelState(Struct, omit_defaults=True, gc=False):
    """A cancel that the code of an instance gets to see."""

    at: float
    deadline: float
    """When the instance ends, whatever its code does."""
    index: int
    """The next execution at that time: later steps are part of cleaning up."""
    branches: int
    """How many branches there were, or were to be: these see the cancel."""
    children: str = "first"
    """When open steps are stopped: "first", "last", or not at all ("leave")."""
    steps: list[str] = []
    """Tasks and children that were open when it came."""
    told: list[int] = []
    """Keys of the branches that have seen it."""
    ending: list[str] = []
    """Steps that were stopped before their branches see it: their children take a while to end."""
    events: list[KeptEvent] = []
    """Events since then: they have no branches."""


class InstanceState(Struct, omit_defaults=True, gc=False):
    """All that is stored of an instance."""

    id: str
    workflow_name: str
    programming_language: str = "python"
    custom_id: str | None = None
    branches: list[Branch] = []
    executions: list[int] = []
    """Keys of the branches that were, or are being, executed, in order."""
    ongoing_index: int | None = None
    """Where the executions of the last decision begin."""
    statuses: list[StepStatus] = []
    waits: list[RunningWait] = []
    timeouts: list[RunningTimeout] = []
    properties: list[PropertiesAt] = []
    buffer: list[BufferedAction] = []
    records: list[Record] = []
    decision_mode: DecisionMode = DecisionMode.RUN
    decision_ongoing: bool = False
    decision_current_index: int | None = None
    decision_number: int = 0
    decision_triggered_at: float = 0
    error: Any = None
    """Why the mode is modified, failed or given up."""
    keeps_events: bool = False
    """Whether an event that no wait expects is kept for the next one."""
    kept_names: list[str] | None = None
    """The names of the events that are kept; `None` for all."""
    carried_events: list[KeptEvent] = []
    """Events that were kept before its history began."""
    removed_events: list[int] = []
    """Numbers of events that were discarded by hand."""
    attempts: dict[str, int] = {}
    """How often steps were begun that a rewind has undone."""
    dropped: int = 0
    """Messages that arrived too late, twice, or without a receiver."""
    cancellation: CancelState | None = None
    """Set while it is being cancelled."""
    run: int = 0
    """How often it has begun again with a fresh history."""
    held: bool = False
    """Whether its code may not begin yet: it waits for a moment, or in a lane."""
    successor: dict[str, Any] | None = None
    """The properties with which it begins again once all branches have ended."""

    @property
    def decision_uuid(self) -> str:
        """What the answer to the last decision that was sent must name."""
        return f"{self.id}/{self.decision_number}"

    def keeps(self, name: str) -> bool:
        """Return whether an event of a name is kept if no wait expects it."""
        return self.keeps_events and (self.kept_names is None or name in self.kept_names)

    @property
    def ended(self) -> bool:
        """Whether nothing will ever happen again."""
        return self.decision_mode in ENDED_MODES


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(InstanceState)


def encode(state: InstanceState) -> bytes:
    """Return a state as bytes."""
    return _encoder.encode(state)


def decode(data: bytes) -> InstanceState:
    """Return the state that `encode` made bytes of."""
    return _decoder.decode(data)


def next_run(state: InstanceState, kept: Iterable[KeptEvent], at: float) -> InstanceState:
    """Return the state of the run that follows one whose code has asked for it.

    Args:
        state: of the run that is over; only events are left in its buffer.
        kept: events that no wait has taken, those in the buffer included.
        at: when the new run begins.

    """
    buffered = {action.data["event_number"] for action in state.buffer if state.keeps_events}
    taken = {
        each.taken
        for each in state.statuses
        if isinstance(each.taken, int) and each.left_index is UNSET
    }
    begun = min([at, *(action.timestamp for action in state.buffer)])
    return InstanceState(
        id=state.id,
        workflow_name=state.workflow_name,
        programming_language=state.programming_language,
        custom_id=state.custom_id,
        properties=[PropertiesAt(0, state.successor or {})],
        keeps_events=state.keeps_events,
        kept_names=state.kept_names,
        run=state.run + 1,
        # Decisions and events go on to be counted, so that late answers cannot fit.
        decision_number=state.decision_number,
        decision_triggered_at=state.decision_triggered_at,
        carried_events=[event for event in kept if event.number not in buffered],
        # A wait of the last run has taken these: only `on_event` is to see them yet.
        removed_events=sorted(buffered & taken),
        # `handle` is the first branch of each run.
        buffer=[BufferedAction(begun, BranchType.HANDLE, {}), *state.buffer],
    )
