"""The protocol of a store: what an engine needs to keep executions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Change",
    "DeadRow",
    "ExecutionRow",
    "HistoryRow",
    "MessageRow",
    "Store",
    "TaskRow",
    "TimerRow",
]


class MessageRow(NamedTuple):
    """A message that has not been consumed."""

    id: int
    execution: str
    body: bytes
    at: float


class TimerRow(NamedTuple):
    """A message that is to be sent at a moment."""

    execution: str
    id: str
    due: float
    body: bytes


class TaskRow(NamedTuple):
    """Work that a tasker has not finished."""

    id: str
    execution: str
    tasker: str
    body: bytes
    attempts: int
    """How often it has failed so far."""
    due: float
    """Not to be handed out before."""


class HistoryRow(NamedTuple):
    """Something that happened to an execution."""

    number: int
    execution: str
    at: float
    body: bytes


class DeadRow(NamedTuple):
    """A message that could not be processed."""

    id: int
    """The id of the message; 0 lets the store choose one, for a message that was not stored."""
    execution: str
    body: bytes
    error: str
    at: float


class ExecutionRow(NamedTuple):
    """An execution as it is stored."""

    id: str
    kind: str
    revision: int
    status: str
    state: bytes | None
    created: float
    updated: float


@dataclass(slots=True)
class Change:
    """What is committed together for one execution, or not at all.

    With `expected` the state is replaced if it is still at that revision (0: it does not exist
    yet, or has not run); else the whole change is dropped. Without it, rows are only added or
    removed. Rows are removed before others are added: a timer that is cancelled and set again in
    one change is set.
    """

    execution: str
    kind: str = ""
    expected: int | None = None
    state: bytes | None = None
    status: str = "active"
    at: float = 0.0
    consumed: Sequence[int] = ()
    messages: Sequence[tuple[str, bytes]] = ()
    """New messages: to which execution, and what. The store numbers them; see `rows`."""
    ahead: int = 0
    """So many of these, from the first on, come before all that is stored already."""
    creates: Sequence[tuple[str, str]] = ()
    """Executions, with their kinds, that messages of this change may be the first of."""
    timers: Sequence[TimerRow] = ()
    cancelled_timers: Sequence[tuple[str, str]] = ()
    """Timers, by execution and id, that have fired or are not wanted any more."""
    tasks: Sequence[TaskRow] = ()
    finished_tasks: Sequence[str] = ()
    history: Sequence[bytes] = ()
    dead: Sequence[DeadRow] = ()
    buried: Sequence[int] = ()
    """Dead letters that go: taken back as messages, or thrown away."""
    clear: bool = False
    """Remove all messages, timers and tasks of the execution first: it is cancelled."""
    committed: bool = field(default=False, compare=False)
    rows: Sequence[MessageRow] = field(default=(), compare=False)
    """After the commit: the new messages, with their numbers."""

    @property
    def has_rows(self) -> bool:
        """Whether it adds or removes anything besides the state."""
        return bool(self.consumed or self.messages or self.creates) or not self.has_only_messages

    @property
    def has_only_messages(self) -> bool:
        """Whether it neither adds nor removes any other row than new messages."""
        return not (
            self.consumed
            or self.timers
            or self.cancelled_timers
            or self.tasks
            or self.finished_tasks
            or self.history
            or self.dead
            or self.buried
            or self.clear
        )


class Store(Protocol):
    """Keeps executions. One thread writes, any thread reads."""

    def commit(self, changes: Sequence[Change]) -> None:
        """Commit many changes as one transaction; `committed` says which did not lose the race.

        Messages are numbered upwards in the order of the changes, from 1; those that come before
        what is there (`ahead`) get the numbers below the lowest one. None is ever used again.

        Raises:
            StoreFull: there is no room; nothing was changed.

        """

    def execution(self, execution: str) -> ExecutionRow | None:
        """Give one execution. O(log n)."""

    def executions(self, names: Sequence[str]) -> dict[str, ExecutionRow]:
        """Give many executions at once, those that there are. O(log n) each."""

    def rows(
        self, table: str, execution: str | None = None, limit: int | None = None
    ) -> Iterator[Any]:
        """Give the rows of a table in order: executions, messages, timers, tasks, history, dead.

        Timers come in the order in which they are due, at O(log n) for the first of them; messages
        in the order of their numbers.
        """

    def pending(self, kind: str) -> Iterator[MessageRow]:
        """Give the messages to executions of a kind that are not consumed, in order."""

    def purge(self, *, before: float) -> int:
        """Forget executions that ended before a moment, and history older than it; count them.

        In the thread that writes.
        """

    def close(self) -> None:
        """Let go of the store."""
