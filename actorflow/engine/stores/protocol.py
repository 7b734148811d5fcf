"""The protocol of a store: what a carrier must offer so that an engine can keep executions in it.

`actorflow.testing.check_store` checks an implementation against everything that is said here.

Ids of messages, revisions and cursors are *opaque*: an engine compares ids of one execution and
passes the rest back, and does no arithmetic on any of them. A store decides nothing: it commits
all the changes that it is given, or none.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from concurrent.futures import Future

    from actorflow.cluster.membership import Peer

__all__ = [
    "NEVER_RUN",
    "Change",
    "DeadRow",
    "DuplicateKey",
    "ExecutionRow",
    "HistoryRow",
    "MessageId",
    "MessageRow",
    "NewDead",
    "NewExecution",
    "NewMessage",
    "NotingStore",
    "Page",
    "Refusal",
    "Revision",
    "SharedStore",
    "Store",
    "StoreCounts",
    "StoreTraits",
    "TaskResult",
    "TaskRow",
    "TimerRow",
    "TrialNote",
    "Wake",
    "WatchRow",
    "new_row",
    "partition_of",
]

MessageId: TypeAlias = Any
"""Opaque, hashable, never used twice; ids of one execution are ordered as its messages are."""
Revision: TypeAlias = Any
"""Opaque; another one after each commit of a state."""
Cursor: TypeAlias = Any
"""Opaque: where a page ended."""

NEVER_RUN: Revision = 0
"""The revision of an execution that has no state yet: it was only created, or is not there."""

Wake: TypeAlias = "Callable[[Sequence[str] | None], None]"
"""Called with the executions that others have stored something for, or have ended; `None`: with
anything; nothing at all: a task was handed to this process. Returns at once."""

Row = TypeVar("Row")


# Stored rows.


class ExecutionRow(NamedTuple):
    """An execution as it is stored."""

    id: str
    kind: str
    revision: Revision
    status: str
    state: bytes | None
    version: int
    """The version of the state's format; only the kind uses it."""
    result: bytes | None
    error: bytes | None
    parent: str | None
    created: float
    updated: float


def new_row(execution: str, kind: str, at: float, parent: str | None = None) -> ExecutionRow:
    """Return an execution that was just created."""
    return ExecutionRow(execution, kind, NEVER_RUN, "active", None, 1, None, None, parent, at, at)


class MessageRow(NamedTuple):
    """A message that has not been consumed."""

    id: MessageId
    execution: str
    type: str
    """Which envelope it is; the engine's business."""
    body: bytes
    at: float
    attempts: int = 0
    """How often a run with it has begun after a crash; see `Change.attempted`."""


class TimerRow(NamedTuple):
    """A message that is to be sent at a moment."""

    execution: str
    id: str
    due: float
    body: bytes


class TaskRow(NamedTuple):
    """Work that a tasker has not finished."""

    id: str
    """Unique in the store."""
    execution: str
    tasker: str
    body: bytes
    attempts: int = 0
    """How many attempts are known to have ended without a result."""
    due: float = 0.0
    """Not to be handed out before."""
    timeout: float | None = None
    retries: int | None = None
    priority: int = 0
    tell_start: bool = False
    worker: str | None = None
    """The worker that the task is lent to; None if the owner of the execution does it."""


class WatchRow(NamedTuple):
    """Data of one execution that runs of its kind get to see."""

    execution: str
    id: str
    kind: str
    body: bytes


class HistoryRow(NamedTuple):
    """Something that happened to an execution."""

    id: Any
    execution: str
    at: float
    body: bytes


class DeadRow(NamedTuple):
    """A message that could not be processed."""

    id: MessageId
    """The id of the message; a new one if it had not been stored."""
    execution: str
    type: str
    body: bytes
    error: str
    at: float


# Changes to commit.


class NewMessage(NamedTuple):
    """A message to be stored; with a `key`, only if that execution had none with the same key."""

    execution: str
    type: str
    body: bytes
    key: str | None = None


class NewExecution(NamedTuple):
    """An execution to create unless its id exists already. It has no state yet."""

    id: str
    kind: str
    parent: str | None = None


class NewDead(NamedTuple):
    """A message that becomes a dead letter, and so is consumed.

    The `id` is `None` if it was not stored. One that is a dead letter already is replaced.
    """

    id: MessageId | None
    execution: str
    type: str
    body: bytes
    error: str


class TaskResult(NamedTuple):
    """The end of a task: the task goes and the message is stored, if the task is still there."""

    task: str
    message: NewMessage


class DuplicateKey(NamedTuple):
    """In `Change.rows`: the key was used before; this is the message of that time."""

    id: MessageId
    at: float


class Refusal(NamedTuple):
    """Why a change was not applied."""

    reason: str
    """The first of these that holds: `"fenced"`: the epoch is over; `"exists"`: see
    `Change.new_only`; `"clash"`: an execution that it creates exists and is of another kind;
    `"raced"`: the state is at another revision."""
    execution: str


class Change(Struct):
    """Changes of one execution, committed together or not at all.

    With `expected` the state is replaced if it is still at that revision; else the whole change is
    refused. Without it, rows are only added or removed. Rows are removed before others are added: a
    timer that is cancelled and set again in one change is set. Removing a row that does not
    exist is not an error. Changes of one commit are applied in their order.
    """

    execution: str = ""
    kind: str = ""
    expected: Revision | None = None
    state: bytes | None = None
    appends: bool = False
    """Add `state` to the end of the state that is stored, instead of replacing it: for states that
    grow. A row that is read has all of it, as one."""
    version: int = 1
    status: str = "active"
    result: bytes | None = None
    error: bytes | None = None
    at: float = 0.0
    epoch: int | None = None
    """The epoch in which the committer owns the partition of the execution; `None`: not checked."""
    creates: Sequence[NewExecution] = ()
    """Applied first. One that exists keeps its parent and state."""
    new_only: bool = False
    """Refuse the whole change if the first execution that it creates exists already."""
    clear: bool = False
    """Remove all timers, tasks and watches of the execution, before anything is added."""
    consumed: Sequence[MessageId] = ()
    """Messages of the execution that `pending` must not return again; ids of others do not count. A
    carrier may record them with the state and trim them later."""
    attempted: Sequence[MessageId] = ()
    """Messages of the execution whose `attempts` grow by one."""
    messages: Sequence[NewMessage] = ()
    """To any execution. Their rows come back in `rows`, in this order."""
    timers: Sequence[TimerRow] = ()
    """One of the same execution and id is replaced."""
    cancelled_timers: Sequence[tuple[str, str]] = ()
    fired_timers: Sequence[tuple[TimerRow, NewMessage]] = ()
    """Each timer goes and its message is stored, if it is still there with that `due`."""
    tasks: Sequence[TaskRow] = ()
    """New ones. An id that is in use is an error: `StoreConflict`, and nothing is committed."""
    retried: Sequence[TaskRow] = ()
    """Tasks whose body, attempts, due and worker are replaced, if they are still there."""
    finished_tasks: Sequence[str] = ()
    task_results: Sequence[TaskResult] = ()
    watches: Sequence[WatchRow] = ()
    """One of the same execution and id is replaced."""
    cancelled_watches: Sequence[tuple[str, str]] = ()
    tags: Mapping[str, str] | None = None
    """What the execution can be found by: all of it, instead of what it was; `None` leaves it. Only
    with `expected`, so that a carrier can keep tags in the record of the state."""
    history: Sequence[bytes] = ()
    dead: Sequence[NewDead] = ()
    requeued_letters: Sequence[MessageId] = ()
    """Dead letters that become messages again, if they are still there."""
    purged_letters: Sequence[MessageId] = ()
    """Dead letters that go."""
    withdrawn_tasks: Sequence[str] = ()
    """Tasks that the engine takes back after the commit, if they have not begun. Not stored."""

    # Filled in by the commit.
    committed: bool = False
    refusal: Refusal | None = None
    """Why it was not applied, if it was not."""
    revision: Revision = NEVER_RUN
    """The new one, where `expected` was given."""
    rows: Sequence[MessageRow | DuplicateKey] = ()
    """One for each of `messages`."""
    resulting_messages: Sequence[MessageRow] = ()
    """The messages that `fired_timers`, `task_results` and `requeued_letters` led to.
    Their order is this one; their ids are new, and come after those of `messages`."""


# Results of queries.


class Page(NamedTuple, Generic[Row]):
    """Some rows; `after` is the cursor for the next page, `None` if this was the last."""

    rows: list[Row]
    after: Cursor | None


class StoreCounts(NamedTuple):
    """The numbers of rows stored for one execution."""

    messages: int = 0
    timers: int = 0
    tasks: int = 0
    dead: int = 0


class TrialNote(NamedTuple):
    """Which message runs alone, because it may end the process."""

    execution: str
    message: MessageId
    late: bool = False
    """It is slow, so others run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """The declared properties of a store; the engine does not probe for them."""

    shared: bool = False
    """Several engines may use it at the same time."""
    partitions: int = 1
    """How many parts its executions are divided into; see `partition_of`."""
    max_batch: int = 10_000
    """Changes and rows of one commit, at most."""
    in_flight: int = 1
    """Commits that may be under way at the same time."""
    decides: bool = False
    """A commit that succeeds decides what happened to an earlier one that raised `OutcomeUnknown`:
    then its changes say whether they were `committed`."""
    notes_trials: bool = False
    """It is a `NotingStore`."""
    backup: bool = False
    """`backup(path)` copies it while it is in use."""


def partition_of(execution: str, partitions: int) -> int:
    """Return the partition that an execution belongs to: the same on every machine, forever.

    >>> partition_of("order-7", 64)
    26
    """
    return zlib.crc32(execution.encode()) % partitions


class Store(Protocol):
    """Keeps executions. One thread commits; any thread reads, at any time.

    Everything that is read by an owner of partitions (`pending`, `due`, `open`) is limited to the
    partitions that are owned (all, where the store is not shared). No method returns more than its
    `limit`.
    """

    traits: StoreTraits
    left_open: bool
    """Whether an earlier owner ended without closing it: messages may have been under way."""

    def commit(self, changes: Sequence[Change], /) -> Future[None] | None:
        """Commit many changes at once: all that are not refused, or none.

        Each change says afterwards whether it was `committed`, its `refusal` or its new `revision`,
        and its `rows`. A store whose `traits.in_flight` is more than 1 may return a future instead,
        which ends when it is decided, and raises then; commits are decided in the order in which
        they were asked for.

        Raises:
            StoreFull: there is no room; nothing was changed. It may work later.
            StoreRefused: the store cannot be reached or written now; nothing was changed, and
                nothing of this will ever be stored. An `OSError` counts as one.
            OutcomeUnknown: it may or may not have been committed.
            StoreConflict: one of the changes can never be committed; nothing was changed.
            TypeError: an id is not text; nothing was changed.

        """

    def owned(self) -> Mapping[int, int]:
        """Return the partitions that this process owns, each with its epoch."""

    def subscribe(self, wake: Wake, /) -> Callable[[], None]:
        """Call `wake(executions)` when others may have stored something; return how to end that.

        It may also be called for nothing, and by any thread. An embedded store has no others, and
        never calls it.
        """

    def execution(self, execution: str, /) -> ExecutionRow | None:
        """Return one execution. O(log n)."""

    def executions(self, ids: Sequence[str], /) -> dict[str, ExecutionRow]:
        """Return many executions at once, without the ids that do not exist. O(log n) each."""

    def listing(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        after: Cursor | None = None,
        limit: int = 100,
    ) -> Page[ExecutionRow]:
        """Return executions in the order of their ids; with `tags`, only if they have all of them.

        With one tag, O(limit log n): found through an index, not by looking at every execution.
        """

    def tags(self, execution: str, /) -> dict[str, str]:
        """Return the tags of an execution, which outlive its end. O(log n)."""

    def pending(
        self,
        *,
        execution: str | None = None,
        kind: str | None = None,
        after: Cursor | None = None,
        limit: int = 1_000,
    ) -> Page[MessageRow]:
        """Return messages that are not consumed, those of one execution together and in order.

        `after` may also be the id of a message if `execution` is given: return later messages.
        """

    def due(self, limit: int = 1_000, *, execution: str | None = None) -> list[TimerRow]:
        """Return the timers that are due first, in that order. O(log n) for the first."""

    def open(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Cursor | None = None,
        limit: int = 1_000,
    ) -> Page[TaskRow]:
        """Return tasks that have not ended, in the order in which they were stored."""

    def task(self, task: str, /) -> TaskRow | None:
        """Return one task that has not ended. O(log n)."""

    def watches(self, *, after: Cursor | None = None, limit: int = 1_000) -> Page[WatchRow]:
        """Return all watches."""

    def history(
        self, execution: str, *, after: Cursor | None = None, limit: int = 1_000
    ) -> Page[HistoryRow]:
        """Return what happened to an execution, oldest first.

        `after` may also be the id of an entry: return later entries.
        """

    def dead(
        self, *, execution: str | None = None, after: Cursor | None = None, limit: int = 1_000
    ) -> Page[DeadRow]:
        """Return dead letters in the order in which they became that."""

    def dead_letter(self, id: MessageId, /) -> DeadRow | None:  # noqa: A002 - what it is
        """Return one dead letter. O(log n)."""

    def keyed(self, execution: str, key: str, /) -> DuplicateKey | None:
        """Return the message that was stored with a key, if there was one. O(log n)."""

    def counts(self, executions: Sequence[str], /) -> dict[str, StoreCounts]:
        """Return how much is stored for each of some executions."""

    def purge(
        self,
        *,
        before: float,
        keys_before: float,
        limit: int = 1_000,
        only: Sequence[str] | None = None,
    ) -> int:
        """Forget executions that ended before a moment, `limit` at most; return how many.

        With them goes everything that is stored of them, but not their keys (`NewMessage.key`):
        each call removes up to `limit` keys that are older than `keys_before`. Called in the
        thread that commits. O(limit log n).

        Args:
            before: when they ended at the latest, not included.
            keys_before: how old keys are that go, too.
            limit: of executions, and of keys.
            only: forget only these executions, with their keys, and no other keys.

        """

    def snapshot(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield all rows of this moment, each with the name of its table, while commits go on.

        The tables are `executions`, `messages`, `timers`, `tasks`, `watches`, `history` and `dead`,
        with the fields of their rows; `tags`, with execution, name and value; `keys`, with
        execution, key, message and moment; and `meta`, with a name and a value, which other stores
        may ignore. Executions come first.
        """

    def restore(self, rows: Iterator[tuple[str, tuple[Any, ...]]], /) -> int:
        """Fill an empty store with what `snapshot` of any store gave; return how many rows.

        Messages keep their order; ids and revisions may become others.

        Raises:
            StoreConflict: it is not empty, or a row cannot be stored; nothing was changed.

        """

    def close(self) -> None:
        """Close the store. Reading or committing raises `StoreRefused` from then on."""


class NotingStore(Store, Protocol):
    """A store whose `traits.notes_trials` is set."""

    def note_trial(self, note: TrialNote | None, /) -> None:
        """Record which message runs alone now, if any; at once, and not synced. Thread-safe.

        If it cannot be written, the note of before is removed or nothing is noted.
        """

    def last_trial(self) -> TrialNote | None:
        """Return the note that was there when this was opened, or was made since."""


class SharedStore(Store, Protocol):
    """A store whose `traits.shared` is set: several engines use it, and divide its partitions.

    `subscribe` also wakes an engine when `owned()` or `draining()` has changed. A partition that is
    not owned any more is let go of: what runs in it is finished, nothing new begins. If it is
    draining, `drained` is called then.
    """

    name: str
    """The name of this process among the `peers`."""

    def join(self) -> None:
        """Begin to own partitions: an engine that only stores and looks never does."""

    def inherited(self, partition: int, /) -> bool:
        """Return whether the last owner of a partition ended without handing it over."""

    def draining(self) -> Collection[int]:
        """Return the partitions that others are to have once nothing of them runs here."""

    def drained(self, partition: int, /) -> None:
        """Record that nothing of a partition runs here any more."""

    def follow(self, execution: str, /) -> None:
        """Let `subscribe` also tell of all commits of an execution that others own, for a while.

        That may be lost, like every wake-up.
        """

    def time(self) -> float:
        """Return the time of the store's clock as far as it is known, by which timers are due."""

    def serve(
        self, taskers: Collection[str], busy: Callable[[], int], codes: Collection[str] = ()
    ) -> None:
        """Announce the taskers and the code of this process; `busy` counts its tasks."""

    def peers(self) -> Sequence[Peer]:
        """Return the live engines that share the store, including this one if it is alive."""

    def lent(self, worker: str | None = None) -> list[TaskRow]:
        """Return tasks lent to `worker`, or all lent tasks in owned partitions."""
