"""One run of an execution: fetch, run, commit, dispatch.

A run that loses the race (the execution was written meanwhile) is discarded and repeated on the
newer state. Each step says in which thread it happens; no thread waits for another.
"""

from __future__ import annotations

import inspect
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import Cancelled
from actorflow.engine.execution.failpoints import failpoint
from actorflow.engine.kind import Outcome, Status
from actorflow.engine.stores.protocol import Change, TaskRow, TimerRow
from actorflow.runtime.errors import WorkerStopped
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.worker.deferred import Deferred

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.engine.execution.host import Live, Stored

__all__ = ["BUDGET", "Run", "answered"]

BUDGET = 0.5
"""Seconds that one run may take before it has to leave the rest for the next."""


def answered(tickets: Iterable[Stored]) -> list[str]:
    """Return the ids of the tasks that unstored messages answer."""
    return [ticket.task.id for ticket in tickets if ticket.task is not None]


class Run:
    """A batch on its way into the state."""

    __slots__ = ("batch", "deferred", "displaced", "live", "ran", "second", "state", "tickets")

    def __init__(self, live: Live, batch: Any, tickets: list[Stored]) -> None:
        self.live = live
        self.batch = batch
        self.tickets = tickets
        self.deferred = Deferred()
        """Resolved when all of it is committed and dispatched."""
        self.displaced: list[Any] = []
        self.ran = False
        self.state: Any = None
        """The new state, if it ran; the rest of the outcome is in the change."""
        self.second = False
        """The batch is what an earlier run of this very object has left."""

    def _done(self, error: BaseException | None = None) -> None:
        self.deferred.resolve(error, self.live)

    # The lane's thread.

    def start(self) -> None:
        """Run the kind. What it raises goes to the failure policy of the execution."""
        live = self.live
        if live.is_cut_off:
            self._done()
            return
        failpoint("run.fetch")
        live.load()
        if live.status in {Status.DONE, Status.CANCELLED}:
            self.ran = False
            self._submit(Change(live.id))
            return
        end = perf_counter() + BUDGET
        try:
            outcome = live.kind.run(live.id, live.state, self.batch, lambda: perf_counter() < end)
            if type(outcome) is not Outcome and inspect.isawaitable(outcome):
                LOOP.call_soon(partial(LOOP.spawn, lambda: self._await(outcome)))
                return
            self._conclude(outcome)
        except BaseException:
            live.loaded = False  # it may have changed the state in place
            raise

    def run(self) -> None:
        """Run again: after a lost race, or with what the budget left over."""
        try:
            self.start()
        except BaseException as error:  # noqa: BLE001 - goes to the executor, or becomes a dead letter
            self._fail(error)

    async def _await(self, outcome: Any) -> None:
        """Wait for a kind that is asynchronous. On the event loop."""
        try:
            self._conclude(await outcome, may_block=False)
        except BaseException as error:  # noqa: BLE001 - goes to the executor
            self.live.loaded = False
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.second:
            self._done(error)
            return
        for ticket in self.tickets:  # the policy must not run the first part again
            self.live.lost(ticket, error)
        self._done()

    def _conclude(self, outcome: Outcome, *, may_block: bool = True) -> None:
        failpoint("run.after")
        self.ran, self.state = True, outcome.state
        self._submit(self._change(outcome), may_block=may_block)

    def _change(self, outcome: Outcome) -> Change:
        """Return the one change that an outcome amounts to."""
        live, encode = self.live, bodies.encode
        change = Change(
            live.id,
            kind=live.kind.name,
            expected=live.revision,
            state=live.kind.encode(outcome.state),
            status=outcome.status,
        )
        # Only what there is gets a list of its own: thousands of these may wait for one commit.
        if outcome.leftover or outcome.messages:
            change.messages = [
                *((live.id, encode(body)) for body in outcome.leftover),
                *((out.to, encode(out.body)) for out in outcome.messages),
            ]
            change.ahead = len(outcome.leftover)
            change.creates = [
                (out.to, out.kind) for out in outcome.messages if out.kind is not None
            ]
        if outcome.timers:
            change.timers = [
                TimerRow(live.id, timer.id, float(timer.at), encode(timer.body))
                for timer in outcome.timers
            ]
        if outcome.cancelled_timers:
            change.cancelled_timers = [(live.id, name) for name in outcome.cancelled_timers]
        if outcome.tasks:
            change.tasks = [
                TaskRow(task.id, live.id, task.tasker, encode(task.body), 0, 0.0)
                for task in outcome.tasks
            ]
        change.finished_tasks = outcome.cancelled_tasks
        if outcome.history:
            change.history = [encode(entry) for entry in outcome.history]
        return change

    def _submit(self, change: Change, *, may_block: bool = True) -> None:
        live = self.live
        if live.is_cut_off:  # it may be running elsewhere by now
            self._done()
            return
        self.displaced = live.take_displaced() if live.displaced else []
        tickets = self.tickets
        if self.displaced:
            tickets = [*tickets, *(ticket for ticket, _ in self.displaced)]
        change.consumed = [ticket.number for ticket in tickets if ticket.number]
        if done := answered(tickets):
            change.finished_tasks = [*change.finished_tasks, *done]
        change.at = float(live.engine.clock.now())
        writer = live.engine.writer
        if writer.expects_more and not self._is_awaited(change):
            writer.submit_soon(change, self._committed)
        else:
            writer.submit(change, self._committed, insist=True, may_block=may_block)

    def _is_awaited(self, change: Change) -> bool:
        """Return whether a caller, or anything to be dispatched, waits for this commit."""
        return bool(
            change.messages
            or change.timers
            or change.tasks
            or change.status != Status.ACTIVE
            or any(ticket.waiter is not None for ticket in self.tickets)
        )

    # The writer's thread.

    def _committed(self, change: Change, error: Exception | None) -> None:
        live = self.live
        if error is not None or not change.committed:
            live.loaded = False
            live.displaced[:0] = self.displaced
            if error is None:  # somebody else has written: run again on the newer state
                live.port.submit(self)
            elif live.engine.closed:  # it is all still in the store
                self._fail(WorkerStopped(f"the engine was closed before the commit: {error}"))
            else:
                self._fail(error)
            return
        failpoint("dispatch.before")
        for ticket, fate in self.displaced:
            ticket.consume(fate)
        if not self.ran:
            ended = Cancelled(f"execution {live.id!r} has ended ({live.status})")
            for ticket in self.tickets:
                ticket.consume(ended)
            self._done()
            return
        live.revision += 1
        live.state = self.state
        live.status = Status(change.status)
        count = change.ahead
        live.engine.dispatch(change, list(change.rows[count:]))
        for ticket in self.tickets:
            ticket.consume()
        over = live.engine.closed or live.status in {Status.DONE, Status.CANCELLED}
        if count and not over:
            self._go_on(change, count)
            return
        self._done()
        live.engine.host.settle(live)

    def _go_on(self, change: Change, count: int) -> None:
        """Run what the budget left over: next in this execution, but after other executions."""
        from actorflow.engine.execution.host import Stored  # noqa: PLC0415 - the two know each other

        left = change.rows[:count]
        self.batch = [bodies.decode(row.body) for row in left]
        self.tickets = [
            Stored(self.live, row.id, body) for row, body in zip(left, self.batch, strict=True)
        ]
        self.second = True
        self.live.port.submit(self)
