"""What is stored of an instance: plain data, as the seed names it.

`msgspec.UNSET` stands for a field that is absent, because `None` is a value that works and events
may have. Plain data has no cycles, so the garbage collector need not look at the thousands of
objects of a long instance.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

__all__ = [
    "UNSET",
    "Branch",
    "BranchType",
    "BufferedAction",
    "DecisionMode",
    "InstanceState",
    "PropertiesAt",
    "Record",
    "RunningTimeout",
    "RunningWait",
    "WorkState",
    "WorkStatus",
    "WorkType",
    "decode",
    "encode",
]


class BranchType(StrEnum):
    """What a branch was created by, and so which method it runs."""

    HANDLE = "handle"
    EVENT = "onEvent"
    START = "onStart"
    SUCCESS = "onSuccess"
    FAILURE = "onFailure"
    TIMEOUT = "onTimeout"


class WorkType(StrEnum):
    """What a branch may ask for."""

    TASK = "task"
    WAIT = "wait"
    FLOW = "flow"


class WorkState(StrEnum):
    """Where a work stands."""

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
    """The code does not do what is recorded; the decision was discarded."""
    FAILED = "failed"
    """The code raised; the decision was discarded."""
    TERMINATED = "terminated"
    KILLED = "killed"


INTERRUPTED = "Interrupted"
"""The name of the error of a work that an event has interrupted."""
COMPLETIONS = frozenset((BranchType.SUCCESS, BranchType.FAILURE))
ENDED_MODES = frozenset((DecisionMode.TERMINATED, DecisionMode.KILLED))
BROKEN_MODES = frozenset((DecisionMode.MODIFIED, DecisionMode.FAILED))


class Branch(Struct, omit_defaults=True, gc=False):
    """A method of the workflow that is, or was, executed for something that happened."""

    type: BranchType
    at: float = 0
    """When that happened."""
    work: str | UnsetType = UNSET
    task_type: WorkType | UnsetType = UNSET
    event_name: str | UnsetType = UNSET
    event_input: Any = UNSET
    event_id: str | UnsetType = UNSET
    """By which somebody waits for its output."""
    task_name: str | UnsetType = UNSET
    task_input: Any = UNSET
    task_output: Any = UNSET
    error_name: str | UnsetType = UNSET
    error_input: Any = UNSET
    output: Any = UNSET
    start_index: int = 0
    """Its first position in `executions`."""


class WorkStatus(Struct, omit_defaults=True, gc=False):
    """A work that a branch has asked for, and what became of it."""

    branch_key: int
    position: str
    hash: str
    type: WorkType
    name: str
    input: Any
    sync: bool
    status: WorkState = WorkState.SCHEDULED
    completion_index: int | UnsetType = UNSET
    """Index of the branch that was created by its completion."""
    output: Any = UNSET
    error: Any = UNSET
    released_index: int | UnsetType = UNSET
    """Index of the event that had already happened when the wait for it was created."""
    timeout: float | None = None
    raises: bool = False
    """Its failure goes back to its branch, as an exception."""
    attempt: int = 1
    started: int = 0
    """The last attempt whose start was received."""
    index: int = 0
    """Of the execution that asked for it."""
    left_index: int | UnsetType = UNSET
    """Of the execution that went on without it; then it is not `sync` any more."""
    event: str | None = None
    """What a wait is for."""
    deadline: float | None = None
    """Until when a wait lasts."""

    @property
    def work(self) -> str:
        """What names it within the instance."""
        return f"{self.branch_key}/{self.position}"

    @property
    def dispatched(self) -> bool:
        """Whether its branch never waited for it."""
        return not self.sync and self.left_index is UNSET


class RunningWait(Struct, gc=False):
    """A wait that is not over: until a moment, an event, or the first of both."""

    work: str
    timestamp: float | None
    event: str | None


class RunningTimeout(Struct, gc=False):
    """A work that has started, and when it will have taken too long."""

    work: str
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
    """Of the execution that drew it."""
    calls: int = 0
    """How many calls for works its branch had made before."""


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
    statuses: list[WorkStatus] = []
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
    """Why the mode is modified or failed."""
    attempts: dict[str, int] = {}
    """How often works were begun that a rewind has undone."""
    dropped: int = 0
    """Messages that arrived too late, twice, or for nobody."""

    @property
    def decision_uuid(self) -> str:
        """What the answer to the last decision that was sent must name."""
        return f"{self.id}/{self.decision_number}"

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
