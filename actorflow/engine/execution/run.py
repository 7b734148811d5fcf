"""One run of an execution: fetch, run, commit, dispatch.

A run that loses the race (the execution was written meanwhile) is discarded and repeated on the
newer state. Each step says in which thread it happens; no thread waits for another.
"""

from __future__ import annotations

import inspect
from functools import partial
from math import inf, isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from actorflow.engine import bodies
from actorflow.engine.envelopes import ChildEnded, ChildResumed, Message, encode_failure, pack
from actorflow.engine.errors import CodeElsewhere, ExecutionEnded, KindMismatch, StoreRefused
from actorflow.engine.execution.failpoints import failpoint
from actorflow.engine.execution.ownership import MOVED
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.identifiers import check_id, check_task_id
from actorflow.engine.kind import ENDED, Addition, Context, Outcome, Status
from actorflow.engine.stores.protocol import (
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.runtime.errors import WorkerStopped
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.log import log
from actorflow.runtime.worker.job.deferred import Deferred

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.engine.execution.live import Live
    from actorflow.engine.execution.ticket import Ticket
    from actorflow.engine.kind import NewTask, SetTimer

__all__ = ["BUDGET", "AlreadyThere", "Run", "RunFailed", "answered", "change_of"]

BUDGET = 0.5
"""Seconds that one run may take before it has to leave the rest for the next."""


class RunFailed(Exception):
    """What a run raised, kept apart from what the runtime itself raises.

    A user's code may raise anything, also the errors by which the runtime says that a message was
    dropped or a worker stopped.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(type(cause).__name__))
        self.cause = cause


class AlreadyThere(Exception):
    """There is an execution of the id that was to be created."""


def answered(tickets: Iterable[Ticket]) -> list[str]:
    """Return the ids of the tasks that unstored messages answer."""
    return [ticket.task.id for ticket in tickets if ticket.task is not None]


def change_of(live: Live, outcome: Outcome) -> Change:
    """Return the one change that an outcome amounts to.

    Raises:
        TypeError, NotStorable: an id or a body cannot be stored.

    """
    encode = bodies.encode
    name, kind = live.id, live.kind
    state = kind.encode(outcome.state)
    change = Change(
        name,
        kind=kind.name,
        expected=live.revision,
        state=state.data if isinstance(state, Addition) else state,
        appends=isinstance(state, Addition),
        version=getattr(kind, "version", 1),
        status=outcome.status if type(outcome.status) is Status else Status(outcome.status),
        result=None if outcome.result is None else encode(outcome.result),
        error=None if outcome.error is None else encode_failure(outcome.error),
    )
    # Only what there is gets a list of its own: thousands of these may wait for one commit.
    if outcome.messages or outcome.children or outcome.cancelled_children:
        _add_messages(live, outcome, change)
    if outcome.timers:
        change.timers = [
            TimerRow(name, check_id(timer.id, "a timer"), _moment(timer), encode(timer.body))
            for timer in outcome.timers
        ]
    if outcome.tasks:
        change.tasks = [_task_row(name, task) for task in outcome.tasks]
    if outcome.watches:
        change.watches = [
            WatchRow(name, check_id(watch.id, "a watch"), kind.name, encode(watch.body))
            for watch in outcome.watches
        ]
    change.withdrawn_tasks = outcome.withdrawn_tasks
    if outcome.cancelled_timers or outcome.cancelled_tasks or outcome.cancelled_watches:
        _add_cancellations(name, outcome, change)
    if outcome.tags is not None:
        change.tags = outcome.tags
    if outcome.history:
        change.history = [encode(entry) for entry in outcome.history]
    if change.status in ENDED:
        change.clear = True
        change.timers, change.tasks, change.watches = (), (), ()
    if live.parent is not None:
        change.messages = [*change.messages, *_to_parent(live, live.parent, outcome)]
    return change


def _to_parent(live: Live, parent: str, outcome: Outcome) -> list[NewMessage]:
    """Return what a parent has to know of its child: that it has ended, failed, or goes on."""
    if outcome.status != Status.ACTIVE:
        return [message_to_parent(parent, live.id, outcome.status, outcome.result, outcome.error)]
    if live.status == Status.FAILED and live.failure is None:
        return [NewMessage(parent, *pack(ChildResumed(None, 0.0, live.id)))]
    return []


def _moment(timer: SetTimer) -> float:
    if not _is_moment(timer.at):
        msg = f"timer {timer.id!r} has at={timer.at!r:.40}: give a moment, as in context.now + 60"
        raise ValueError(msg)
    return float(timer.at)


def _task_row(execution: str, task: NewTask) -> TaskRow:
    if not _is_moment(task.due):
        raise _misfit(task, "due", "context.now")
    if task.timeout is not None and not _is_span(task.timeout):
        raise _misfit(task, "timeout", "60.0, or None")
    if task.retries is not None and not _is_count(task.retries):
        raise _misfit(task, "retries", "3, or None")
    if not isinstance(task.priority, int):
        raise _misfit(task, "priority", "0")
    return TaskRow(
        check_task_id(task.id),
        execution,
        check_id(task.tasker, "a tasker"),
        bodies.encode(task.body),
        0,
        float(task.due),
        task.timeout,
        task.retries,
        task.priority,
        task.tell_start,
    )


def _misfit(task: NewTask, name: str, example: str) -> ValueError:
    value = getattr(task, name)
    return ValueError(f"task {task.id!r} has {name}={value!r:.40}: give a number, as in {example}")


def _is_moment(value: Any) -> bool:
    return isinstance(value, (int, float)) and isfinite(value)


def _is_span(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value < inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _add_cancellations(name: str, outcome: Outcome, change: Change) -> None:
    change.cancelled_timers = [
        (name, check_id(timer, "a timer")) for timer in outcome.cancelled_timers
    ]
    change.finished_tasks = [check_id(task, "a task") for task in outcome.cancelled_tasks]
    change.cancelled_watches = [
        (name, check_id(watch, "a watch")) for watch in outcome.cancelled_watches
    ]


def _add_messages(live: Live, outcome: Outcome, change: Change) -> None:
    encode = bodies.encode
    change.messages = [
        *(
            NewMessage(check_id(out.to, "an execution"), "message", encode(out.body), out.key)
            for out in outcome.messages
        ),
        *(
            NewMessage(check_id(child.id, "a child"), "message", encode(child.body))
            for child in outcome.children
        ),
        *(
            NewMessage(check_id(child, "a child"), "cancel", b"\xc0")
            for child in outcome.cancelled_children
        ),
    ]
    change.creates = [
        *(
            NewExecution(out.to, check_id(out.kind, "a kind"))
            for out in outcome.messages
            if out.kind is not None
        ),
        *(
            NewExecution(child.id, check_id(child.kind, "a kind"), live.id)
            for child in outcome.children
        ),
    ]


def message_to_parent(
    parent: str, child: str, status: str, result: Any = None, error: Any = None
) -> NewMessage:
    """Return the message by which a parent learns that a child has ended."""
    return NewMessage(parent, *pack(ChildEnded(None, 0.0, child, str(status), result, error)))


class Run:
    """A batch on its way into the state."""

    __slots__ = ("batch", "deferred", "displaced", "live", "ran", "state", "tickets")

    def __init__(self, live: Live, batch: Any, tickets: list[Ticket]) -> None:
        self.live = live
        self.batch = batch
        self.tickets = tickets
        self.deferred = Deferred()
        """Resolved when all of it is committed and dispatched."""
        self.displaced: list[Any] = []
        self.ran = False
        self.state: Any = None
        """The new state, if it ran; the rest of the outcome is in the change."""

    def _done(self, error: BaseException | None = None) -> None:
        self.deferred.resolve(error, self.live)

    # The lane's thread.

    def start(self) -> None:
        """Run the kind. What it raises goes to the failure policy of the execution.

        Raises:
            RunFailed: with what the kind raised.

        """
        live = self.live
        self.ran = False  # it may have, before it lost a race
        if live.has_ended or not live.core.ownership.keeps(live):
            # The engine was closed, and does not wait any longer; or another one has it now.
            self._give_away()
            return
        failpoint("run.fetch")
        try:
            live.load()
        except StoreRefused as error:  # it is there, and is read again
            self._start_later(error)
            return
        except Exception as error:  # noqa: BLE001 - this execution has failed, others go on
            live.core.host.break_off(live, error)
            for ticket in self.tickets:
                ticket.leave(error)
            self._done()
            return
        if live.status in ENDED:
            self._submit(Change(live.id, dead=self._unwanted()))
            return
        end = perf_counter() + BUDGET
        core = live.core
        context = Context(
            live.id,
            core.clock.now(),
            lambda: perf_counter() < end,
            seed=live.revision,
            parent=live.parent,
            watches=core.watches.of(live.kind.name) if core.watches else (),
        )
        begin = live.pace.begin()
        try:
            outcome = live.kind.run(context, live.state, self.batch)
            if type(outcome) is not Outcome and inspect.isawaitable(outcome):
                LOOP.call_soon(partial(LOOP.spawn, lambda: self._await(outcome)))
                return
            if type(outcome) is Deferred:
                outcome.then(self._resume)
                return
            live.pace.end(begin)
            self._conclude(outcome)
        except CodeElsewhere as error:
            live.loaded = False
            self._set_aside(error)
        except BaseException as error:
            live.loaded = False  # it may have changed the state in place
            raise RunFailed(error) from error

    def _start_later(self, error: StoreRefused) -> None:
        """Start again when the store can perhaps be read."""
        live = self.live
        core = live.core
        log.error("the state cannot be read; trying again", execution=live.id, error=str(error))

        def again() -> None:
            if live.port is not None:
                live.port.submit(self)

        core.clock.call_at(core.clock.now() + AGAIN, again)

    def run(self) -> None:
        """Run again, after a lost race."""
        try:
            self.start()
        except RunFailed as error:
            self._done(error)

    async def _await(self, outcome: Any) -> None:
        """Wait for a kind that is asynchronous. On the event loop."""
        try:
            self._conclude(await outcome, may_block=False)
        except BaseException as error:  # noqa: BLE001 - goes to the executor
            self.live.loaded = False
            self._done(RunFailed(error))

    def _resume(self, error: BaseException | None, outcome: Any) -> None:
        """Go on with what a kind has deferred. In the thread that resolves it."""
        try:
            if error is None:
                self._conclude(outcome, may_block=False)
        except BaseException as failure:  # noqa: BLE001 - goes to the executor
            error = failure
        if error is not None:
            self.live.loaded = False
            self._done(RunFailed(error))

    def _conclude(self, outcome: Outcome, *, may_block: bool = True) -> None:
        failpoint("run.after")
        if type(outcome) is not Outcome:
            msg = f"kind {self.live.kind.name!r} returned {outcome!r:.100}; return an Outcome"
            raise TypeError(msg)
        change = change_of(self.live, outcome)
        if self.live.failure is not None and change.status == Status.ACTIVE:
            change.status, change.error = Status.FAILED, self.live.failure
        self.live.add_creation(change)
        self.ran, self.state = True, outcome.state
        self._submit(change, may_block=may_block)

    def _submit(self, change: Change, *, may_block: bool = True) -> None:
        live = self.live
        if live.has_ended:  # it may be running elsewhere by now
            self._done()
            return
        self.displaced = live.take_displaced() if live.displaced else []
        tickets = self.tickets
        if self.displaced:
            tickets = [*tickets, *(ticket for ticket, _ in self.displaced)]
        change.consumed = [ticket.id for ticket in tickets if ticket.id is not None]
        if done := answered(tickets):
            change.finished_tasks = [*change.finished_tasks, *done]
        change.at = live.core.clock.now()
        change.epoch = live.epoch
        writer = live.core.writer
        if live.creates is not None:  # whoever starts it is told if there is no room
            writer.submit_start(change, self._committed, may_block=may_block)
            return
        if self._is_awaited() or not self._waits_for_company(change):
            writer.submit(change, self._committed, insist=True, may_block=may_block)

    def _waits_for_company(self, change: Change) -> bool:
        """Let a change go with a commit of others, if one is about to come; return whether so."""
        live = self.live
        writer = live.core.writer
        if getattr(live.kind, "unhurried", False):
            if not writer.expects_more or _leads_on(change):
                return False
            writer.submit_unawaited(change, self._committed)
            return True
        return writer.submit_with_start(change, self._committed)

    def _is_awaited(self) -> bool:
        """Return whether a caller waits for this commit, or for the end of the execution."""
        for ticket in self.tickets:
            if ticket.waiter is not None:
                return True
        live = self.live
        return live.id in live.core.watchers or live.id in getattr(live.kind, "waiters", ())

    # The writer's thread.

    def _committed(self, change: Change, error: Exception | None) -> None:
        live = self.live
        core = live.core
        if error is not None or not change.committed:
            self._refused(change, error)
            return
        failpoint("dispatch.before")
        for ticket, fate in self.displaced:
            ticket.consume(fate)
        if not self.ran:
            self._give_back()
            return
        if live.creates is not None:
            live.creates, live.created = None, change.at
            core.writer.started()
        live.revision = change.revision
        live.first = None
        live.state = self.state
        live.status = cast("Status", change.status)  # see `change_of`
        core.dispatch(change, live)
        for ticket in self.tickets:
            ticket.consume()
        self._done()
        core.host.settle(live)

    def _refused(self, change: Change, error: Exception | None) -> None:
        """React to a commit that did not happen."""
        live, refusal = self.live, change.refusal
        live.loaded = False
        live.displaced[:0] = self.displaced
        if error is not None and live.core.closed:  # it is all still in the store
            self._done(WorkerStopped(f"the engine was closed before the commit: {error}"))
        elif live.creates is not None and isinstance(error, StoreRefused):
            self._give_back_creation(error)
        elif error is not None:
            self._done(RunFailed(error))
        elif refusal is not None and refusal.reason == "exists":
            self._give_back_creation(AlreadyThere(live.id))
        elif refusal is not None and refusal.reason == "fenced":
            self._give_away()
        elif refusal is not None and refusal.reason == "clash":
            self._done(RunFailed(_mismatch(refusal.execution)))
        elif live.port is not None:  # somebody else has written: run on the newer state
            live.port.submit(self)

    def _give_back_creation(self, why: Exception) -> None:
        """Say why an execution was not created to whoever started it."""
        live = self.live
        live.core.host.forget(live, why)  # what has arrived meanwhile goes to the one that is there
        for ticket in self.tickets:
            ticket.consume(why)
        self._done()

    def _set_aside(self, error: CodeElsewhere) -> None:
        """Leave everything to code that knows the execution. Thread-safe."""
        live = self.live
        for ticket in self.tickets:
            live.lost(ticket, WorkerStopped(str(error)))
        live.core.writer.call(partial(live.core.host.set_aside, live, error))
        self._done()

    def _give_away(self) -> None:
        """Leave everything to the engine that has the execution now. Thread-safe."""
        live = self.live
        if not live.has_ended:
            for ticket in self.tickets:
                live.lost(ticket, WorkerStopped(MOVED))
            live.core.writer.call(partial(live.core.ownership.let_go, live))
        self._done()

    def _unwanted(self) -> list[NewDead]:
        """Return the messages of users to an execution that has ended, if nobody waits for them."""
        error = f"ExecutionEnded: the execution has ended ({self.live.status})"
        return [
            NewDead(ticket.id, self.live.id, *ticket.packed(), error)
            for ticket in self.tickets
            if ticket.waiter is None and ticket.task is None and _is_users(ticket.item)
        ]

    def _give_back(self) -> None:
        """Refuse the batch, because the execution has ended."""
        live = self.live
        ended = ExecutionEnded(f"execution {live.id!r} has ended ({live.status})")
        for ticket in self.tickets:
            ticket.consume(ended)
        self._done()
        live.core.host.settle(live)


def _leads_on(change: Change) -> bool:
    """Return whether anything waits to be dispatched by the commit of a change."""
    return bool(change.messages or change.timers or change.tasks) or change.status != Status.ACTIVE


def _is_users(item: Any) -> bool:
    """Return whether a message was sent by a user, rather than by the engine itself."""
    return type(item) is Message or not hasattr(item, "__struct_fields__")


def _mismatch(execution: str) -> KindMismatch:
    return KindMismatch(f"there is an execution {execution!r} of another kind; choose another id")
