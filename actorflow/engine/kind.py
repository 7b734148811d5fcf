"""What a kind of execution is: one small protocol, and what a run returns.

A run is a function of its arguments: the same context, state and batch give the same outcome. So a
kind can be tested, replayed and simulated without threads, files or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from actorflow.engine.envelopes import (
    ChildEnded,
    ChildResumed,
    Envelope,
    Failure,
    Message,
    TaskEnded,
    TaskStarted,
    TimerFired,
)
from actorflow.engine.errors import StateUnreadable
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = [
    "ENDED",
    "Addition",
    "ChildEnded",
    "ChildResumed",
    "Context",
    "Envelope",
    "Failure",
    "Kind",
    "Message",
    "NewChild",
    "NewTask",
    "NewWatch",
    "Options",
    "Outcome",
    "Outgoing",
    "RefusedMessage",
    "SetTimer",
    "Status",
    "TaskEnded",
    "TaskStarted",
    "TimerFired",
    "Watch",
    "decode_state",
    "is_cancel",
]


class Status(StrEnum):
    """Where an execution stands."""

    ACTIVE = "active"
    """It continues when a message arrives."""
    STUCK = "stuck"
    """It needs an operator: a repair, a retry or a cancel. Its timers and tasks stay."""
    DONE = "done"
    """It has ended, with a result."""
    FAILED = "failed"
    """It has ended, with an error."""
    CANCELLED = "cancelled"


ENDED = frozenset((Status.DONE, Status.FAILED, Status.CANCELLED))
"""What never runs again: its messages, timers and tasks are gone."""


class Outgoing(Struct, frozen=True):
    """A message to an execution; with `kind`, the execution is created if it does not exist.

    A message to an execution that is not there, or has ended, is dropped; its sender's history is
    the place to note it.
    """

    to: str
    body: Any
    kind: str | None = None
    key: str | None = None
    """Only the first message to that execution with the same key counts, for a week."""


class SetTimer(Struct, frozen=True):
    """A `TimerFired` to the execution itself, at a moment (seconds since the epoch).

    The same id again replaces it.
    """

    id: str
    at: float
    body: Any = None


class NewTask(Struct, frozen=True):
    """Work for a tasker; its end comes back as `TaskEnded`. The id is for deduplication."""

    id: str
    tasker: str
    body: Any = None
    """Plain data, or `msgspec.Raw` of plain data that the kind has encoded itself."""
    due: float = 0.0
    """Not to be begun before this moment."""
    timeout: float | None = None
    """Seconds for one attempt; `None` leaves it to the tasker."""
    retries: int | None = None
    """How often it is tried again; `None` leaves it to the tasker."""
    priority: int = 0
    """Tasks that wait for the same tasker start in the order of their priority, highest first."""
    tell_start: bool = False
    """Send a `TaskStarted` when an attempt begins. One more commit for each."""


class NewChild(Struct, frozen=True):
    """Another execution, whose end comes back as `ChildEnded`; `body` is its first message.

    An id that exists already starts nothing: the child is that execution.
    """

    id: str
    kind: str
    body: Any = None


class NewWatch(Struct, frozen=True):
    """Data that every run of the same kind gets to see (`Context.watches`) while it is stored.

    So an execution can ask others to send it a message: what they do with it is up to the kind.
    """

    id: str
    body: Any


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that some execution of the kind has set."""

    execution: str
    id: str
    body: Any


class RefusedMessage(Struct, frozen=True):
    """A message that the execution has received, now or in an earlier run, and refuses."""

    body: Any
    error: str
    """Why."""


class Outcome(Struct, kw_only=True):
    """What one run of an execution returns: all of it is committed together, or none.

    When the status is done, failed or cancelled, the engine removes the timers, tasks and watches
    of the execution and tells its parent.
    """

    state: Any
    status: Status = Status.ACTIVE
    result: Any = None
    """What `engine.result()` returns once it is done; the data of the error if it has failed."""
    error: Failure | None = None
    """Why it is stuck, or has failed."""
    messages: list[Outgoing] = []
    timers: list[SetTimer] = []
    cancelled_timers: list[str] = []
    tasks: list[NewTask] = []
    cancelled_tasks: list[str] = []
    withdrawn_tasks: list[str] = []
    """Tasks that are not to be begun. One that has begun goes on; the others end as failed, with
    `TaskWithdrawn`. If the engine is killed just after the commit, they may still be begun."""
    children: list[NewChild] = []
    cancelled_children: list[str] = []
    watches: list[NewWatch] = []
    cancelled_watches: list[str] = []
    tags: dict[str, str] | None = None
    """What the execution can be found by, all of it; `None` leaves it as it is."""
    answers: list[Any] | None = None
    """One for each message of the batch, for the callers that asked; not stored. An exception is
    raised to the caller; without a caller its message becomes a dead letter."""
    refused: list[RefusedMessage] = []
    """Messages that become dead letters; sent again, they begin another run."""
    history: list[Any] = []
    """Entries that `actorflow show` prints and `store.history` returns: plain data, or
    `msgspec.Raw` of plain data that the kind has encoded itself."""


class Addition(Struct, frozen=True):
    """What `Kind.encode` may return for a state that has grown: only the added bytes.

    `decode` gets the bytes of the state that the run began with, followed by these.
    """

    data: bytes


class Context:
    """What a run may know besides its state and batch.

    Args:
        id: of the execution.
        now: the moment of the run, in seconds since the epoch.
        keep_going: whether the budget (500 ms) lasts. Send the rest of the work to the execution
            itself.
        seed: of the random numbers: a run that is repeated gets the same ones.
        parent: the execution that started this one.
        watches: what executions of the same kind have set, its own included.

    """

    __slots__ = ("_random", "_seed", "id", "keep_going", "now", "parent", "watches")

    def __init__(
        self,
        id: str,  # noqa: A002 - what it is
        now: float,
        keep_going: Callable[[], bool] = lambda: True,
        *,
        seed: Any = None,
        parent: str | None = None,
        watches: Sequence[Watch] = (),
    ) -> None:
        self.id = id
        self.now = now
        self.keep_going = keep_going
        self.parent = parent
        self.watches = watches
        self._seed = seed
        self._random: Random | None = None

    @property
    def random(self) -> Random:
        """Random numbers, seeded by the execution and its revision."""
        if self._random is None:
            self._random = Random(f"{self.id} {self._seed}")  # noqa: S311 - no secrets
        return self._random


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The inbox of one execution."""

    behaviour: Any = None
    """How envelopes accumulate; a class, a factory or a new object. A queue by default."""
    on_failure: Any = "isolate"
    """What becomes of a batch whose run raises: see `spawn`."""
    bodies: bool = False
    """The behaviour holds the bodies of messages instead of envelopes, and `run` gets what it hands
    over. For kinds whose users choose a behaviour for their own messages."""


class Kind(Protocol):
    """A kind of execution.

    `run` gets one batch of the execution's behaviour. It is never called twice at the same
    time for one execution. An exception is a bug of the kind or of user code in it:
    nothing is committed, the state is decoded again, and the failure policy decides about the
    messages.

    Optional attributes, so that no other code has to know which kinds there are:

    - `version` (1): of the states. `upgrade(data, version) -> bytes` makes a state of this version
      from an older one. A state of a newer version waits for newer code.
    - `knows(execution)`: whether there is code for this one; until then its messages wait. `run`
      may find that out as well, and raise `CodeElsewhere`.
    - `reserves(execution)`: whether an id is for this kind although nothing is stored under it;
      then nobody creates an execution of another kind there.
    - `code`: names the code, for workers of one cluster whose code differs during a deploy: see
      `Ownership.has_code`.
    - `quick(execution)`: whether its `options` and its behaviour run no code of a user, so that the
      engine need not call them in a lane.
    - `unhurried` (False): whether a commit that nobody waits for may wait for company, a few
      milliseconds while other commits are made; meanwhile the execution accumulates messages.
    - `view(row, store)`: what `engine.execution(id).view` returns; the decoded state by default. A
      method `plain()` of a view returns what `actorflow show` prints of it.
    - `cancel(target) -> body | None`: the message that asks an execution to end, or the part of it
      that `target` names; `None` just ends it, which is the default. `has_part(row, target)`:
      whether there is such a part; `cancel` returns that, and sends the message in any case.
      `is_cancel(body)`: whether a body is such a message. One that comes after the end of its
      execution is dropped; by default it becomes a dead letter, as other messages do.
    - `farewell(state) -> Sequence[Outgoing]`: messages that go out when an execution is ended from
      outside, without a run; given its stored bytes.
    - `control(verb) -> body`: the message for the verbs "pause" and "resume".
    - `check_message(execution, body)`: raises if the body can be no message to that execution;
      called before a message is stored, in the thread that sends it.
    - `bounded(execution, state, unread, body) -> body | None`: the body to store instead, if its
      sender has to wait for the run, which may refuse it with an answer. Called after
      `check_message`, with the last committed state, and how many messages no run has processed.
    - `committed(change)`: called in a lane after each commit of a run.
    - `ended(execution)`: called in a lane after an execution that is in memory was ended from
      outside, without a run. What its inbox holds back then becomes dead letters.
    - `events_left` (0): how many events executions had not used when they ended, for statistics.
    - `traced_as` ("run"): what the spans of its runs are called; see `af.trace`.
    - `waiters`: a `Waiters` of callers that wait for the next commit of an execution; commits of
      other engines count as well.
    """

    name: str
    """What executions of this kind are stored under."""

    def options(self, execution: str, /) -> Options:
        """Return the options of the inbox of an execution that is woken."""

    def decode(self, data: bytes | None, /) -> Any:
        """Return the state from what `encode` made; `None` for a new execution."""

    def encode(self, state: Any, /) -> bytes | Addition:
        """Return a state as bytes, or the bytes that a run has added to it."""

    def run(self, context: Context, state: Any, batch: Any, /) -> Any:
        """Handle a batch: return an `Outcome`, or an awaitable or `Deferred` of one."""


def is_cancel(kind: Any, body: Any) -> bool:
    """Return whether a body asks an execution to end: if it has ended, nothing is lost by it."""
    check = getattr(kind, "is_cancel", None)
    return check is not None and bool(check(body))


def decode_state(kind: Kind, row: ExecutionRow | None) -> Any:
    """Return the state of an execution; an older version is upgraded.

    Raises:
        StateUnreadable: it cannot be decoded, or is of a newer version.

    """
    if row is None or row.state is None:
        return kind.decode(None)
    version = getattr(kind, "version", 1)
    data = row.state
    try:
        if row.version != version:
            upgrade = getattr(kind, "upgrade", None)
            if row.version > version or upgrade is None:
                msg = (
                    f"the state of {row.id!r} has version {row.version}, but kind {kind.name!r} "
                    f"knows version {version}: run the code that wrote it, or give it an upgrade()"
                )
                raise ValueError(msg)  # noqa: TRY301 - wrapped as others are
            data = upgrade(data, row.version)
        return kind.decode(data)
    except ActorflowError:
        raise
    except Exception as error:
        raise StateUnreadable(row.id, kind.name, row.state, error) from error
