"""One execution in memory: a worker whose job is a run, and the tickets of its messages.

Its accumulator holds stored messages under the behaviour that its kind chooses; its executor runs
one batch, commits, and only then goes on. The state in memory is always one that was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from actorflow.behaviours import Queue
from actorflow.behaviours.adapt import adapt, release
from actorflow.engine.envelopes import Message, pack
from actorflow.engine.executions.inbox_state import restore
from actorflow.engine.kind import Options, Status
from actorflow.engine.stores.protocol import NEVER_RUN
from actorflow.runtime.lanes.serial_lane import SlowCallDetector
from actorflow.runtime.worker.port import Port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import Change, ExecutionRow, NewExecution, TaskRow
    from actorflow.runtime.clock import Clock
    from actorflow.runtime.environment import Environment
    from actorflow.runtime.errors import Displaced
    from actorflow.runtime.exits import ExitReason

__all__ = [
    "SLOW",
    "WINDOW",
    "Both",
    "LoadedExecution",
    "MessageTicket",
    "Owner",
    "RunPace",
    "answered",
]

WINDOW = 10_000
"""Stored messages of one execution that are in memory at the same time, about."""

_DEFAULT = Options()
SLOW = 0.005
"""Seconds from which on a run is slow, so that others should run meanwhile."""


class RunPace(SlowCallDetector):
    """How long the runs of one kind take."""

    __slots__ = ("is_swift",)

    def __init__(self) -> None:
        super().__init__(SLOW)
        self.is_swift = True
        """Whether the last run was quick, by the clock of the engine: its outcome says it. Then the
        creator of an execution can wait for its first run as well, and one commit stores both."""


class Owner(Protocol):
    """What a loaded execution needs of the table that it is in, and reports to it."""

    state: EngineState
    environment: Environment
    clock: EngineClock
    worker_clock: Clock

    def run_batch(self, batch: Any, live: LoadedExecution) -> Any:
        """Run a batch: the job of every worker."""

    def on_crash(self, live: LoadedExecution, reason: ExitReason) -> None:
        """Start another executor."""

    def on_lost(self, live: LoadedExecution, ticket: MessageTicket, error: BaseException) -> None:
        """React to a message that will not be processed here."""


class InboxLane(Protocol):
    """Admits messages to an inbox that runs code of a user: see `AdmissionLane`."""

    @property
    def is_clear(self) -> bool:
        """Whether no message waits here or is being admitted."""

    def add(
        self, pairs: list[tuple[Any, MessageTicket]], acks: Sequence[Any], *, accepted: bool
    ) -> None:
        """Admit messages, soon."""

    def look(self) -> None:
        """Admit waiting messages, if there is room by now."""


class LoadedExecution:
    """One execution in memory."""

    __slots__ = (
        "_owner", "broken", "created", "creates", "displaced", "epoch", "failure", "fetched",
        "first", "has_state", "has_unread", "id", "is_noted", "is_reading", "kind", "lane",
        "last", "options", "outdated", "pace", "parent", "port", "revision", "saves", "seen_ids",
        "state", "status", "takes_unstored", "unconsumed", "waiters_of_unread",
    )  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        execution: str,
        kind: Kind,
        row: ExecutionRow | None,
        *,
        pace: RunPace,
        epoch: int | None,
        shared: bool,
    ) -> None:
        self._owner = owner
        self.id = execution
        self.kind = kind
        self.pace = pace
        """How long runs of its kind take."""
        self.epoch = epoch
        """The epoch in which its partition is owned; its commits carry it."""
        self.fetched = row
        """The row that it was loaded with, until its first run."""
        self.has_state = False
        self.revision: Any = NEVER_RUN
        self.state: Any = None
        self.status = Status.ACTIVE if row is None else Status(row.status)
        self.parent = None if row is None else row.parent
        self.created = 0.0 if row is None else row.created
        self.creates: NewExecution | None = None
        """What its first commit creates: it is not in the store yet."""
        self.seen_ids: set[Any] | None = set() if shared else None
        """Stored messages that were delivered and are not consumed. Only where other engines store
        messages too, which may then appear in any order."""
        self.unconsumed = 0
        """How many stored messages were delivered and are not consumed. The writer's thread."""
        self.has_unread = False
        """Whether the store has messages after `last` that were not delivered yet."""
        self.last: Any = None
        self.waiters_of_unread: dict[Any, Any] = {}
        """The waiters of messages that were not delivered yet, by message id."""
        self.displaced: list[tuple[MessageTicket, Displaced]] = []
        """Messages that left the inbox without a run since the last commit."""
        self.first: MessageTicket | None = None
        """The first message of an execution that has never run: without it, it is stuck."""
        self.broken: BaseException | None = None
        """Why nothing of it can be processed here."""
        self.failure: bytes | None = None
        """Why it is stuck, as long as it lacks what it waits for."""
        self.outdated = False
        """It gets no more messages: another one, with the present inbox, takes its place."""
        self.is_noted = False
        """Whether the table looks at it again soon, because it may be evicted."""
        self.is_reading = False
        """Whether a read of its messages is scheduled."""
        self.takes_unstored = False
        """Whether it may get messages that are not stored: these never displace stored ones."""
        self.saves = False
        """Whether the behaviour has a state that is committed with each batch."""
        self.options = _DEFAULT
        self.port: Port | None = None
        self.lane: InboxLane | None = None
        """Admits its messages, if its behaviour runs code of a user."""

    def open(self) -> None:
        """Make the worker. Calls the kind, and perhaps a user's factory of behaviours."""
        owner = self._owner
        options = self.options = self.kind.options(self.id)
        behaviour = adapt(Queue if options.behaviour is None else options.behaviour)
        release(behaviour)  # its owner is the worker
        traits = behaviour.traits
        self.takes_unstored = not (traits.shrinks or traits.bounded or traits.expires)
        self.saves = traits.saves and options.bodies
        if self.saves:
            stored = None if self.fetched is None else self.fetched.state
            wall, now = owner.clock.now(), owner.worker_clock.now()
            restore(behaviour, stored, wall=wall, now=now)
        given: Any = {
            "clock": owner.worker_clock,
            "executor": owner.environment.serial_lane,
            "behaviour": behaviour,
            "on_failure": options.on_failure,
            "state": self,
        }
        self.port = Port.launch(owner.run_batch, given, self._on_crash)
        if owner.state.closed:  # the table may have stopped the others before this
            self.port.finish()

    def _on_crash(self, reason: ExitReason) -> None:
        self._owner.on_crash(self, reason)

    @property
    def has_ended(self) -> bool:
        """Whether its worker has stopped: the engine was closed, or it was evicted."""
        return self.port is not None and self.port.has_ended

    def finish(self) -> None:
        """Stop after the current batch. Thread-safe."""
        if self.port is not None:
            self.port.finish()
        if self.lane is not None:
            self.lane.look()

    @property
    def is_at_rest(self) -> bool:
        """Whether none of its messages is in memory, accumulated or running."""
        if self.unconsumed or (self.lane is not None and not self.lane.is_clear):
            return False
        return self.port is not None and self.port.is_idle

    def lost(self, ticket: MessageTicket, error: BaseException) -> None:
        """React to a message that will not be processed here. Thread-safe."""
        self._owner.on_lost(self, ticket, error)

    def add_creation(self, change: Change) -> None:
        """Make a change create the execution, if it is not in the store yet."""
        if self.creates is not None:
            change.creates = [self.creates, *change.creates]
            change.new_only = True

    def take_displaced(self) -> list[tuple[MessageTicket, Displaced]]:
        """Return the messages that were displaced since the last commit, and forget them."""
        displaced = self.displaced[:]
        del self.displaced[: len(displaced)]
        return displaced


class Both:
    """Two callers that wait for one message: until it is stored, and for its outcome."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: Any, other: Any) -> None:
        self._one = one
        self._other = other

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Resolve both."""
        self._one.resolve(error, answer)
        self._other.resolve(error, answer)


class MessageTicket:
    """The fate of one message: resolves its waiter, and counts what the store still has."""

    __slots__ = ("answer", "context", "id", "item", "live", "open", "task", "waiter")

    context: bytes
    """Of the span in which it was sent; missing where no spans are made."""

    def __init__(
        self,
        live: LoadedExecution,
        id: Any,  # noqa: A002 - what it is
        item: Any,
        waiter: Any = None,
        task: TaskRow | None = None,
    ) -> None:
        self.live = live
        self.id = id
        """Under which it is stored; `None` if it is not, because its pusher waits anyway."""
        self.item = item
        """What the behaviour holds: an envelope, or the body of a message."""
        self.waiter = waiter
        self.task = task
        """The task that it answers, where only that is stored."""
        self.answer: Any = None
        """What the waiter gets, once the message is processed; an exception is raised."""
        self.open = True

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """React if the runtime will not process the message. Thread-safe."""
        if error is not None and self.open:
            self.live.lost(self, error)

    def consume(self, error: BaseException | None = None) -> None:
        """Record that it is gone from the store; resolve the waiter. In the writer's thread."""
        if self.open:
            self.open = False
            if self.id is not None:
                live = self.live
                live.unconsumed -= 1
                if live.seen_ids is not None:
                    live.seen_ids.discard(self.id)
        if self.waiter is not None:
            if error is None and self.answer is not None:
                failed = isinstance(self.answer, BaseException)
                self.waiter.resolve(*((self.answer,) if failed else (None, self.answer)))
            else:
                self.waiter.resolve(error)
            self.waiter = None

    def packed(self) -> tuple[str, bytes]:
        """Return the type and body under which it is stored."""
        item = self.item
        if self.live.options.bodies and not hasattr(item, "__struct_fields__"):
            return pack(Message(None, 0.0, item))
        return pack(item)


def answered(tickets: Any) -> list[str]:
    """Return the ids of the tasks that unstored messages answer."""
    return [ticket.task.id for ticket in tickets if ticket.task is not None]
