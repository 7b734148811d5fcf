"""Dispatches a committed change: timers, tasks, watches, messages, and waiters of an end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.engine.executions.waiters import row_of
from actorflow.engine.failpoints import FAILPOINTS, failpoint
from actorflow.engine.kind import Status
from actorflow.runtime.lanes.lane import call_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.executions.waiters import Waiters, Watches
    from actorflow.engine.stores.protocol import Change, MessageRow, TaskRow, TimerRow
    from actorflow.runtime.environment import Environment

__all__ = ["ChangeDispatcher", "Listeners"]


class Tasks(Protocol):
    """What the table tells the part that hands out tasks."""

    def hand_out(self, rows: Iterable[TaskRow]) -> None:
        """Hand out tasks that were just stored."""

    def finished(self, tasks: Iterable[str]) -> None:
        """Forget tasks that are gone from the store."""

    def withdraw(self, tasks: Iterable[str]) -> None:
        """Take back tasks that have not begun."""

    def cancel_all(self, execution: str) -> None:
        """Forget all tasks of an execution that has ended."""

    def store_answer(self, row: TaskRow, type: str, body: bytes) -> None:  # noqa: A002
        """Replace a task by a message to its execution."""


class Listeners:
    """Where the table sends what does not concern it. The engine sets all of them."""

    tasks: Tasks
    timers_added: Callable[[Iterable[TimerRow]], None]
    """Called with timers that were just stored."""
    cancel: Callable[[str, Sequence[MessageRow]], None]
    """Called with an execution and the messages by which its parent cancels it."""
    moved: Callable[[LoadedExecution], None]
    """Called with an execution that another engine owns now, in the writer's thread."""


class ChangeDispatcher:
    """Sends out what a committed change says. In the writer's thread."""

    def __init__(
        self,
        environment: Environment,
        *,
        waiters: Waiters,
        watches: Watches,
        listeners: Listeners,
        deliver_rows: Callable[[Iterable[Any]], None],
    ) -> None:
        self._environment = environment
        self._waiters = waiters
        self._watches = watches
        self._listeners = listeners
        self._deliver_rows = deliver_rows

    def dispatch(self, change: Change, live: LoadedExecution) -> None:  # noqa: C901 - flat
        """Send out what a committed change says. In the writer's thread."""
        name, listeners = change.execution, self._listeners
        if change.timers:
            listeners.timers_added(change.timers)
        if change.finished_tasks:
            listeners.tasks.finished(change.finished_tasks)
        if change.clear:
            listeners.tasks.cancel_all(name)
            self._watches.forget(name)
        if change.watches or change.cancelled_watches:
            self._watches.change(change)
        if change.tasks:
            listeners.tasks.hand_out(change.tasks)
        if change.withdrawn_tasks:
            listeners.tasks.withdraw(change.withdrawn_tasks)
        if FAILPOINTS:
            failpoint("dispatch.inside")
        if change.rows:
            self._deliver_rows(change.rows)
        if change.status != Status.ACTIVE:
            row = None if change.appends else row_of(change, live.parent, live.created)
            self._waiters.tell(name, row)
        hook = getattr(live.kind, "committed", None)
        if hook is not None:
            call_in(self._environment.pool, "committed()", partial(hook, change))
