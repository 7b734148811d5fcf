"""One run of an execution: fetch, run, commit, dispatch.

A run that loses the race (the execution was written meanwhile) is discarded and repeated on the
newer state. Each step says in which thread it happens; no thread waits for another.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.envelopes import Message
from actorflow.engine.errors import (
    CodeElsewhere,
    ExecutionEnded,
    KindMismatch,
    OutcomeUnknown,
    StoreRefused,
)
from actorflow.engine.executions.dead_lettering import failure_left
from actorflow.engine.executions.inbox_state import with_saved
from actorflow.engine.executions.loaded import SLOW
from actorflow.engine.executions.outcomes import AlreadyThere, RunRaised, add_context, change_of
from actorflow.engine.executions.ownership import MOVED
from actorflow.engine.failpoints import FAILPOINTS, failpoint
from actorflow.engine.kind import ENDED, Context, Outcome, Status, decode_state, is_cancel
from actorflow.engine.stores.protocol import NEVER_RUN, Change, NewDead
from actorflow.runtime import tracing
from actorflow.runtime.errors import WorkerStopped, kind_and_text
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.telemetry.outages import outage_of
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.pair.runner import current_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.loaded import LoadedExecution, MessageTicket
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.quarantine import Quarantine
    from actorflow.engine.executions.waiters import Waiters, Watches
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import Store
    from actorflow.runtime.environment import Environment

__all__ = ["BUDGET", "Run", "RunListener", "Runner"]

BUDGET = 0.5
"""Seconds that one run may take before it has to leave the rest for the next."""


class RunListener(Protocol):
    """What hears of the ends of runs: the table of executions."""

    def dispatch(self, change: Change, live: LoadedExecution) -> None:
        """Send out what a committed change says. In the writer's thread."""

    def after_commit(self, live: LoadedExecution) -> None:
        """Evict an execution that has nothing to do, or read on. In the writer's thread."""

    def break_off(
        self, live: LoadedExecution, error: Exception, tickets: Sequence[MessageTicket] = ()
    ) -> None:
        """Mark an execution as stuck whose state cannot be read."""

    def forget(self, live: LoadedExecution, why: Exception) -> None:
        """Discard an execution that was not created."""

    def leave_to_other_code(self, live: LoadedExecution, error: CodeElsewhere) -> None:
        """Evict an execution that other engines have the code for."""

    def leave_to_owner(self, live: LoadedExecution) -> None:
        """Evict an execution that another engine owns now."""


class Runner:
    """Runs batches of executions and commits their outcomes.

    Args:
        store: where states are.
        clock: tells the time to runs.
        writer: commits.
        state: of the engine.
        environment: measures how long a run takes.
        ownership: whether an execution may run here.
        waiters: callers that wait for the end of an execution.
        watches: what runs get to see of others.
        quarantine: defers runs while one that may end the process runs alone.
        listener: hears of the ends of runs.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        environment: Environment,
        *,
        ownership: Ownership,
        waiters: Waiters,
        watches: Watches,
        quarantine: Quarantine,
        listener: RunListener,
    ) -> None:
        self.store = store
        self.clock = clock
        self.writer = writer
        self.state = state
        self.steady = environment.clock.now
        self.ownership = ownership
        self.waiters = waiters
        self.watches = watches
        self.quarantine = quarantine
        self.listener = listener

    def run_batch(self, batch: Any, live: LoadedExecution) -> Any:
        """Run a batch of an execution and submit the outcome; done when that is committed.

        The job of every loaded execution; its state is the `LoadedExecution` itself. Returns it, if
        this thread has made the commit.
        """
        current = current_batch()
        tickets: list[Any] = []
        placed: Sequence[tuple[int, Any]] = ()
        if current is not None and current.tickets is not None:
            placed = current.tickets
            for _, ticket in placed:
                tickets.append(ticket)
            tickets.reverse()
        run = Run(self, live, batch, tickets, placed)
        run.start()
        return live if run.is_done and run.error is None else run.later()

    def load(self, live: LoadedExecution) -> None:
        """Fetch the state from the store, or why an execution is stuck. In the lane's thread.

        Raises:
            StoreRefused: it cannot be read now.
            Exception: it cannot be decoded.

        """
        if not live.has_state:
            self._load(live)
        if live.status == Status.STUCK:
            with _reading():
                live.failure = failure_left(self.store, live.id)

    def _load(self, live: LoadedExecution) -> None:
        row, live.fetched = live.fetched, None
        if row is None:
            with _reading():
                row = self.store.execution(live.id)
        live.revision = NEVER_RUN if row is None else row.revision
        live.state = decode_state(live.kind, row)
        live.status = Status.ACTIVE if row is None else Status(row.status)
        live.parent = None if row is None else row.parent
        live.created = 0.0 if row is None else row.created
        if row is not None and row.state is not None:
            live.first = None  # it has run before
        live.has_state = True


@contextmanager
def _reading() -> Iterator[None]:
    """Turn errors on the way to the store into refusals: see `Store.commit`."""
    try:
        yield
    except OSError as error:
        raise StoreRefused(kind_and_text(error)) from error


class Run:
    """A batch on its way into the state."""

    __slots__ = (
        "_deferred", "_unfinished", "batch", "displaced", "error", "is_done", "live", "placed",
        "ran", "runner", "span", "state", "tickets",
    )  # fmt: skip

    def __init__(
        self,
        runner: Runner,
        live: LoadedExecution,
        batch: Any,
        tickets: list[MessageTicket],
        placed: Sequence[tuple[int, MessageTicket]],
    ) -> None:
        self.runner = runner
        self.live = live
        self.batch = batch
        self.tickets = tickets
        self.placed = placed
        """The tickets with the places of their messages in the batch."""
        self.is_done = False
        """Whether all of it is committed and dispatched, or has failed with `error`."""
        self.error: BaseException | None = None
        self._deferred: Deferred | None = None
        self._unfinished = [None]  # atomic flag: the second of `_done` and `later` resolves
        self.displaced: list[Any] = []
        self.ran = False
        self.span: tracing.Span | None = None
        self.state: Any = None
        """The new state, if it ran; the rest of the outcome is in the change."""

    def later(self) -> Deferred:
        """Return a `Deferred` that is resolved when it is done."""
        deferred = self._deferred = Deferred()
        try:
            self._unfinished.pop()
        except IndexError:
            deferred.resolve(self.error, self.live)
        return deferred

    def _done(self, error: BaseException | None = None) -> None:
        if self.is_done:
            return
        self.error = error
        self.is_done = True
        if self.span is not None:
            self.span.end(error.cause if isinstance(error, RunRaised) else error)
        try:
            self._unfinished.pop()
        except IndexError:
            assert self._deferred is not None  # noqa: S101 - `later` was here before
            self._deferred.resolve(error, self.live)

    # The lane's thread.

    def start(self) -> None:  # noqa: C901 - the steps of a run, in their order
        """Run the kind. What it raises goes to the failure policy of the execution.

        Raises:
            RunFailed: with what the kind raised.

        """
        live, runner = self.live, self.runner
        self.ran = False  # it may have, before it lost a race
        if not self._may_begin():
            return
        try:
            if not live.has_state or live.status == Status.STUCK:
                runner.load(live)
        except StoreRefused as error:  # it is stored, and is read again
            self._start_later(error)
            return
        except Exception as error:  # noqa: BLE001 - this execution is stuck, others go on
            runner.listener.break_off(live, error, self.tickets)
            self._done()
            return
        if live.status in ENDED:
            self._submit(Change(live.id, dead=self._unwanted()))
            return
        steady, watches = runner.steady, runner.watches
        begun = steady()
        context = Context(
            live.id,
            runner.clock.now(),
            lambda: steady() < begun + BUDGET,
            seed=live.revision,
            parent=live.parent,
            watches=watches.of(live.kind.name) if watches.there_are_some else (),
        )
        begin = live.pace.begin()
        try:
            if tracing.TRACER is None:
                outcome = live.kind.run(context, live.state, self.batch)
            else:
                outcome = self._run_traced(tracing.TRACER, context)
            if type(outcome) is not Outcome and inspect.isawaitable(outcome):
                LOOP.call_soon(partial(LOOP.spawn, lambda: self._await(outcome)))
                return
            if type(outcome) is Deferred:
                outcome.then(self._resume)
                return
            live.pace.end(begin)
            live.pace.is_swift = steady() - begun < SLOW
            self._conclude(outcome)
        except CodeElsewhere as error:
            live.has_state = False
            self._leave_to_other_code(error)
        except BaseException as error:
            runner.quarantine.run_ended(live)
            live.has_state = False  # it may have changed the state in place
            raise RunRaised(error) from error

    def _run_traced(self, tracer: tracing.Tracer, context: Context) -> Any:
        """Run the kind in a span that continues the trace of its messages."""
        live = self.live
        if self.span is None:  # else it has lost a race, and runs again
            what = getattr(live.kind, "traced_as", "run")
            facts = {
                "actorflow.execution": live.id,
                "actorflow.kind": live.kind.name,
                "actorflow.revision": live.revision,
                "actorflow.batch.size": len(self.tickets),
            }
            carried = [getattr(each, "context", b"") for each in self.tickets]
            self.span = tracer.start(f"{what} {live.kind.name}", facts, carried[::-1])
        try:
            with self.span.current():
                return live.kind.run(context, live.state, self.batch)
        except BaseException as error:
            self.span.end(error)
            raise

    def _may_begin(self) -> bool:
        """Return whether it may begin; else it begins later, or elsewhere."""
        live, runner = self.live, self.runner
        ownership = runner.ownership
        if live.has_ended or (ownership.shared and not ownership.keeps(live.id, live.epoch)):
            # The engine was closed, and waits no longer; or another one has the execution now.
            self._leave_to_owner()
            return False
        quarantine = runner.quarantine
        if quarantine.current is not None and not quarantine.admits_run(self):
            return False
        if FAILPOINTS:
            failpoint("run.fetch")
        return True

    def _start_later(self, error: StoreRefused) -> None:
        """Start again when the store can perhaps be read."""
        live, clock = self.live, self.runner.clock
        outage_of(self.runner.store).failed(error, "the state cannot be read; trying again")

        def again() -> None:
            if live.port is not None:
                live.port.submit(self)

        clock.call_at(clock.now() + AGAIN, again)

    def run(self) -> None:
        """Run again, after a lost race."""
        try:
            self.start()
        except RunRaised as error:
            self._done(error)

    async def _await(self, outcome: Any) -> None:
        """Wait for a kind that is asynchronous. On the event loop."""
        try:
            self._conclude(await outcome, may_block=False)
        except BaseException as error:  # noqa: BLE001 - goes to the executor
            self.live.has_state = False
            self._done(RunRaised(error))

    def _resume(self, error: BaseException | None, outcome: Any) -> None:
        """Continue with the deferred outcome of a kind. In the thread that resolves it."""
        try:
            if error is None:
                self._conclude(outcome, may_block=False)
        except BaseException as failure:  # noqa: BLE001 - goes to the executor
            error = failure
        if error is not None:
            self.live.has_state = False
            self._done(RunRaised(error))

    def _conclude(self, outcome: Outcome, *, may_block: bool = True) -> None:
        quarantine = self.runner.quarantine
        if quarantine.current is not None:
            quarantine.run_ended(self.live)
        if FAILPOINTS:
            failpoint("run.after")
        if type(outcome) is not Outcome:
            msg = f"kind {self.live.kind.name!r} returned {outcome!r:.100}; return an Outcome"
            raise TypeError(msg)
        change = change_of(self.live, outcome)
        if self.span is not None:
            with self.span.current():
                add_context(change)
        if self.live.saves and self.live.port is not None:
            saved = self.live.port.saved()
            change.state = with_saved(saved, self.runner.clock.now(), change.state or b"")
        if self.live.failure is not None and change.status == Status.ACTIVE:
            change.status, change.error = Status.STUCK, self.live.failure
        if self.live.creates is not None:
            self.live.add_creation(change)
        if outcome.answers is not None:
            change.dead = [*change.dead, *self._answer(outcome.answers)]
        self.ran, self.state = True, outcome.state
        self._submit(change, may_block=may_block)

    def _answer(self, answers: list[Any]) -> Iterator[NewDead]:
        """Record the answers for the callers; yield messages that failed and have no caller."""
        for place, ticket in self.placed:
            answer = ticket.answer = answers[place]
            if ticket.waiter is None and isinstance(answer, BaseException):
                yield NewDead(ticket.id, self.live.id, *ticket.packed(), kind_and_text(answer))

    def _submit(self, change: Change, *, may_block: bool = True) -> None:
        live = self.live
        if live.has_ended:  # it may be running elsewhere by now
            self._done()
            return
        self.displaced = live.take_displaced() if live.displaced else []
        tickets = self.tickets
        if self.displaced:
            tickets = [*tickets, *(ticket for ticket, _ in self.displaced)]
        consumed: list[Any] = []
        answered: list[str] = []
        for ticket in tickets:
            if ticket.id is not None:
                consumed.append(ticket.id)
            elif ticket.task is not None:
                answered.append(ticket.task.id)
        change.consumed = consumed
        if answered:
            change.finished_tasks = [*change.finished_tasks, *answered]
        change.at = self.runner.clock.now()
        change.epoch = live.epoch
        writer = self.runner.writer
        if live.creates is not None:  # its creator hears if there is no room
            writer.submit_start(change, self._committed, may_block=may_block)
            return
        if self._is_awaited() or not self._waits_for_company(change):
            writer.submit(change, self._committed, insist=True, may_block=may_block)

    def _waits_for_company(self, change: Change) -> bool:
        """Let a change join the next commit, if one is expected; return whether it does."""
        live, writer = self.live, self.runner.writer
        if getattr(live.kind, "unhurried", False):
            if not writer.expects_more or _leads_on(change):
                return False
            writer.submit_deferred(change, self._committed)
            return True
        return writer.submit_with_start(change, self._committed)

    def _is_awaited(self) -> bool:
        """Return whether a caller waits for this commit, or for the end of the execution."""
        for ticket in self.tickets:
            if ticket.waiter is not None:
                return True
        live = self.live
        return live.id in self.runner.waiters or live.id in getattr(live.kind, "waiters", ())

    # The writer's thread.

    def _committed(self, change: Change, error: Exception | None) -> None:
        live, listener = self.live, self.runner.listener
        if error is not None or not change.committed:
            self._refused(change, error)
            return
        if FAILPOINTS:
            failpoint("dispatch.before")
        for ticket, fate in self.displaced:
            ticket.consume(fate)
        if not self.ran:
            self._give_back()
            return
        if live.creates is not None:
            live.creates, live.created = None, change.at
            self.runner.writer.started()
        live.revision = change.revision
        live.first = None
        live.state = self.state
        live.status = cast("Status", change.status)  # see `change_of`
        listener.dispatch(change, live)
        for ticket in self.tickets:
            ticket.consume()
        self._done()
        listener.after_commit(live)

    def _refused(self, change: Change, error: Exception | None) -> None:
        """React to a commit that did not happen."""
        live, refusal = self.live, change.refusal
        live.has_state = False
        live.displaced[:0] = self.displaced
        if error is not None and self.runner.state.closed:
            # Stored messages stay in the store. Nothing of the batch runs again here: an
            # unknown commit may have stored it, and another engine owns it soon.
            if isinstance(error, OutcomeUnknown):
                self._tell_unknown(error)
            stopped = WorkerStopped(f"the engine was closed before the commit: {error}")
            for ticket in self.tickets:
                live.lost(ticket, stopped)
            self._done()
        elif live.creates is not None and isinstance(error, (StoreRefused, OutcomeUnknown)):
            self._give_back_creation(error)
        elif error is not None:
            self._done(RunRaised(error))
        elif refusal is not None and refusal.reason == "exists":
            self._give_back_creation(AlreadyThere(live.id))
        elif refusal is not None and refusal.reason == "fenced":
            self._leave_to_owner()
        elif refusal is not None and refusal.reason == "clash":
            self._done(RunRaised(_mismatch(refusal.execution)))
        elif live.port is not None:  # it was written meanwhile: run on the newer state
            live.port.submit(self)

    def _tell_unknown(self, error: OutcomeUnknown) -> None:
        """Resolve the waiters of messages that were to be stored by this commit."""
        for ticket in self.tickets:
            if ticket.id is None and ticket.waiter is not None:
                ticket.waiter.resolve(error)
                ticket.waiter = None

    def _give_back_creation(self, why: Exception) -> None:
        """Tell the creator why an execution was not created."""
        # The messages that have arrived meanwhile go to the execution that is there.
        self.runner.listener.forget(self.live, why)
        for ticket in self.tickets:
            ticket.consume(why)
        self._done()

    def _leave_to_other_code(self, error: CodeElsewhere) -> None:
        """Leave everything to an engine whose code knows the execution. Thread-safe."""
        for ticket in self.tickets:
            self.live.lost(ticket, WorkerStopped(str(error)))
        self.runner.listener.leave_to_other_code(self.live, error)
        self._done()

    def _leave_to_owner(self) -> None:
        """Leave everything to the engine that owns the execution now. Thread-safe."""
        if not self.live.has_ended:
            for ticket in self.tickets:
                self.live.lost(ticket, WorkerStopped(MOVED))
            self.runner.listener.leave_to_owner(self.live)
        self._done()

    def _unwanted(self) -> list[NewDead]:
        """Return the messages of users to an execution that has ended, if they have no waiter.

        Messages that ask it to end are left out, and the one that was to begin it: who ends an
        execution before its first run wants nothing of it.
        """
        error = f"ExecutionEnded: the execution has ended ({self.live.status})"
        kind = self.live.kind
        begins = None if self.live.options.bodies else self.live.first
        return [
            NewDead(ticket.id, self.live.id, *ticket.packed(), error)
            for ticket in self.tickets
            if ticket.waiter is None
            and ticket.task is None
            and ticket is not begins
            and _is_users(ticket.item)
            and not is_cancel(kind, getattr(ticket.item, "body", ticket.item))
        ]

    def _give_back(self) -> None:
        """Refuse the batch, because the execution has ended."""
        live = self.live
        ended = ExecutionEnded(f"execution {live.id!r} has ended ({live.status})")
        for ticket in self.tickets:
            ticket.consume(ended)
        self._done()
        self.runner.listener.after_commit(live)


def _leads_on(change: Change) -> bool:
    """Return whether the commit of a change dispatches anything."""
    return bool(change.messages or change.timers or change.tasks) or change.status != Status.ACTIVE


def _is_users(item: Any) -> bool:
    """Return whether a message was sent by a user, rather than by the engine itself."""
    return type(item) is Message or not hasattr(item, "__struct_fields__")


def _mismatch(execution: str) -> KindMismatch:
    return KindMismatch(f"there is an execution {execution!r} of another kind; choose another id")
