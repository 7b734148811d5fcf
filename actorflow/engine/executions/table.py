"""The table of executions: those in memory, loaded when messages arrive and evicted when idle.

Problem
    Messages come to an execution in two ways: straight from the commit that stored them, and by
    reading the store (after a start, an eviction, a full inbox, or a message of another engine).
    Each message must be delivered exactly once, and in order.

Approach
    Only the writer's thread loads, delivers and evicts, in the order of the commits. An execution
    with older messages in the store has `has_unread`: new messages are then left in the store, and
    the backlog reads all of them in order. Once it has caught up, messages are delivered directly.

Invariants
    1. At most one `LoadedExecution` of an id is in memory.
    2. While `has_unread` is set, no message is delivered directly, so none overtakes a stored one.
    3. At most `WINDOW` messages of an execution are in memory unprocessed. Further ones stay in the
       store and are read on when fewer than `LOW` are left.
    4. An execution is evicted only if it has no message, no run and no commit under way.
    5. On a shared store, messages are delivered only in partitions that this engine owns and whose
       gain the writer has followed; others are left to their owner.

Threads
    Methods run in the writer's thread, unless their docstring says that they are thread-safe.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.envelopes import failure_of
from actorflow.engine.errors import EngineClosed, StoreRefused, UnknownKind
from actorflow.engine.executions.admission_lane import InboxAdmission
from actorflow.engine.executions.change_dispatcher import ChangeDispatcher, Listeners
from actorflow.engine.executions.dead_lettering import DeadLettering, add_failure
from actorflow.engine.executions.loaded import WINDOW, LoadedExecution, RunPace, answered
from actorflow.engine.executions.lost_messages import LostMessages
from actorflow.engine.executions.outcomes import AlreadyThere, RunRaised
from actorflow.engine.executions.ownership import refusal_of
from actorflow.engine.executions.quarantine import Quarantine
from actorflow.engine.executions.run import Runner
from actorflow.engine.executions.stored_backlog import LOW, StoredBacklog
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import NEVER_RUN, Change, DuplicateKey
from actorflow.runtime.errors import StopTimeout, near
from actorflow.runtime.exits import Crash
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.entries import Append
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.envelopes import Envelope
    from actorflow.engine.executions.loaded import MessageTicket
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.waiters import Waiters, Watches
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import (
        ExecutionRow,
        MessageRow,
        Store,
        TaskRow,
    )
    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.environment import Environment
    from actorflow.runtime.exits import ExitReason

__all__ = ["ExecutionTable"]

_SWEEP = 0.1  # seconds between looks for executions that can be evicted
_SWEPT = 500  # executions that are looked at each time


class _Arrival:
    """What arrived for one execution in one commit."""

    __slots__ = ("acks", "kind", "rows", "waiters")

    def __init__(self, kind: str | None = None, rows: list[MessageRow] | None = None) -> None:
        self.kind = kind
        self.rows = [] if rows is None else rows
        self.waiters: dict[Any, Any] = {}
        self.acks: list[tuple[Any, Any]] = []


class ExecutionTable:
    """The executions of an engine that are in memory.

    Args:
        store: has the others.
        clock: of the engine.
        worker_clock: by which workers accumulate.
        writer: commits, and is the thread in which this changes.
        state: of the engine.
        environment: lanes, and a steady clock.
        kinds: of executions, by name.
        ownership: which executions may run here.
        waiters: callers that wait for the end of an execution.
        watches: the executions to notify when another one changes its status.
        loaded: the dictionary of executions, which the writer reads as well.
        max_live: executions that stay in memory although they are idle.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        environment: Environment,
        worker_clock: Clock,
        kinds: dict[str, Kind],
        ownership: Ownership,
        waiters: Waiters,
        watches: Watches,
        loaded: dict[str, LoadedExecution],
        max_live: int,
    ) -> None:
        self._store = store
        self.clock = clock
        self.worker_clock = worker_clock
        self._writer = writer
        self.state = state
        self.environment = environment
        self._kinds = kinds
        self._ownership = ownership
        self._waiters = waiters
        self._watches = watches
        self._live = loaded
        self.find = loaded.get
        """Return an execution that is in memory, or `None`. Thread-safe."""
        self._max_live = max_live
        self._noted: deque[LoadedExecution] = deque()
        self._sweep: Timer | None = None
        self._unknown: set[str] = set()
        # Like `LoadedExecution.waiters_of_unread`, of executions that are not in memory.
        self._late: dict[str, dict[Any, Any]] = {}
        self._paces: dict[str, RunPace] = {}
        self.listeners = Listeners()
        self.letters = DeadLettering(store, clock, writer, waiters, self)
        self._lost = LostMessages(
            writer, state,
            letters=self.letters, listeners=self.listeners, look_again_at=self.look_again_at,
        )  # fmt: skip
        self.on_lost = self._lost.lost
        dispatcher = ChangeDispatcher(
            environment,
            waiters=waiters, watches=watches, listeners=self.listeners,
            deliver_rows=self.deliver_rows,
        )  # fmt: skip
        self.dispatch = dispatcher.dispatch
        self.admission = InboxAdmission(self.letters, environment.pool)
        quarantine = Quarantine(store, clock, writer, self.all)
        runner = Runner(
            store, clock, writer, state, environment,
            ownership=ownership, waiters=waiters, watches=watches,
            quarantine=quarantine, listener=self,
        )  # fmt: skip
        self.run_batch = runner.run_batch
        self.backlog = StoredBacklog(
            store, clock, writer, state,
            environment=environment, kinds=kinds, ownership=ownership, letters=self.letters,
            quarantine=quarantine, target=self,
        )  # fmt: skip
        writer.deliver = self.deliver

    def __len__(self) -> int:
        return len(self._live)

    @property
    def is_crowded(self) -> bool:
        """Whether more executions are in memory than should stay there without work."""
        return len(self._live) > self._max_live

    def all(self) -> list[LoadedExecution]:
        """Return all executions in memory. Thread-safe."""
        return list(self._live.values())

    # Messages that were just stored. The writer's thread.

    def deliver(
        self, appends: list[Append], rows: Sequence[Any], fetched: dict[str, ExecutionRow]
    ) -> list[tuple[Any, Exception | None]]:
        """Deliver messages that were just stored; return the callers to resolve now."""
        if len(appends) == 1 and appends[0].keys is None:
            return self._deliver_one(appends[0], list(rows), fetched)
        return self._deliver_many(appends, rows, fetched)

    def _deliver_many(
        self, appends: list[Append], rows: Sequence[Any], fetched: dict[str, ExecutionRow]
    ) -> list[tuple[Any, Exception | None]]:
        told: list[tuple[Any, Exception | None]] = []
        repeated: list[tuple[Append, Any]] = []
        arrived: dict[str, _Arrival] = {}
        at = 0
        for append in appends:
            arrival = arrived.get(append.execution)
            if arrival is None:
                arrival = arrived[append.execution] = _Arrival(append.kind)
            count = len(append.bodies)
            some = rows[at : at + count]
            at += count
            if append.keys is not None:
                duplicate = next((row for row in some if type(row) is DuplicateKey), None)
                if duplicate is not None:
                    repeated.append((append, duplicate.id))
                    continue
            arrival.rows += some
            if append.processed is not None:
                arrival.waiters[some[-1].id] = append.processed
            if append.stored is not None:
                arrival.acks.append((append.stored, some[-1].id))
        for execution, arrival in arrived.items():
            if arrival.rows:
                told += self._hand_over(execution, arrival, fetched.get(execution))
        for append, number in repeated:
            told += self._ask_outcome(append, number)
        return told

    def _deliver_one(
        self, append: Append, rows: list[MessageRow], fetched: dict[str, ExecutionRow]
    ) -> list[tuple[Any, Exception | None]]:
        arrival = _Arrival(append.kind, rows)
        if append.processed is not None:
            arrival.waiters[rows[-1].id] = append.processed
        if append.stored is not None:
            arrival.acks.append((append.stored, rows[-1].id))
        return self._hand_over(append.execution, arrival, fetched.get(append.execution))

    def _ask_outcome(self, append: Append, number: Any) -> list[tuple[Any, Exception | None]]:
        """Resolve the tickets of senders that sent a message twice, once its outcome is known."""
        live = self._live.get(append.execution)
        try:
            if live is not None:
                self.admission.tell_outcome(live, append.waiting, number)
                return []
            refusal = refusal_of(self._store, number)
        except Exception as error:  # noqa: BLE001 - the callers', the others are stored
            refusal = error
        return [(each, refusal) for each in append.waiting]

    def deliver_rows(
        self, rows: Iterable[Any], fetched: dict[str, ExecutionRow] | None = None
    ) -> None:
        """Deliver stored messages to their executions, which `fetched` says were just created."""
        fresh = fetched is not None
        arrived: dict[str, _Arrival] = {}
        for row in rows:
            if type(row) is not DuplicateKey:
                arrived.setdefault(row.execution, _Arrival()).rows.append(row)
        if fetched is None:
            asleep = [each for each in arrived if each not in self._live]
            try:
                fetched = self._store.executions(asleep) if asleep else {}
            except Exception as error:  # noqa: BLE001 - they are stored, and read again
                self.backlog.read_later(arrived, error)
                return
        for execution, arrival in arrived.items():
            self._hand_over(execution, arrival, fetched.get(execution), fresh=fresh)

    def _hand_over(
        self,
        execution: str,
        arrival: _Arrival,
        row: ExecutionRow | None,
        *,
        fresh: bool = False,
    ) -> list[tuple[Any, Exception | None]]:
        """Accumulate stored messages, or leave them in the store for later."""
        live = self._live.get(execution)
        if not self.state.resumed or self.state.closed:
            self._leave(live, arrival)
            return [(each, None) for each, _ in arrival.acks]
        if not self._ownership.delivers(execution):
            self._ownership.await_processed(execution, arrival.waiters)
            return [(each, None) for each, _ in arrival.acks]
        if live is None or live.has_ended:
            ended, woken = live is not None, self.load(execution, arrival.kind, row)
            live = woken or self._live.get(execution)
            if live is None:
                self._keep_waiters(execution, arrival.waiters)
                return [(each, None) for each, _ in arrival.acks]
            # Stored messages may have been left to an execution that has ended meanwhile.
            first = self.backlog.comes_first(execution) or self._writer.repeats
            if row is not None and row.revision == NEVER_RUN and not fresh:
                # Another engine may have stored what begins it, and its notice may be under way.
                first = first or self._ownership.shared
            if woken is not None and not first and not ended:
                told = self.deliver_stored(live, arrival.rows, arrival.waiters, arrival.acks)
                live.has_unread = False
                return told
        # One that is being created gets nothing that is stored: perhaps it is there already.
        late = live.has_unread or self._writer.repeats
        if live.creates is not None or late or live.unconsumed >= WINDOW:
            live.has_unread = True
            live.waiters_of_unread.update(arrival.waiters)
            if live.unconsumed < LOW:
                self.backlog.read_on_soon(live)
            return [(each, None) for each, _ in arrival.acks]
        return self.deliver_stored(live, arrival.rows, arrival.waiters, arrival.acks)

    def _leave(self, live: LoadedExecution | None, arrival: _Arrival) -> None:
        """Leave messages in the store, because nothing runs yet, or any more."""
        if self._ownership.shared and not self.state.closed and arrival.rows:
            self._ownership.await_processed(arrival.rows[0].execution, arrival.waiters)
            return
        error = None  # where nothing ever runs, to be stored is all that they wait for
        if self.state.closed:
            error = EngineClosed("the engine has been closed; the message is stored")
        if live is not None:
            live.has_unread = True  # nothing may overtake these
        for waiter in arrival.waiters.values():
            waiter.resolve(error)

    def deliver_stored(
        self,
        live: LoadedExecution,
        rows: list[MessageRow],
        waiters: dict[Any, Any],
        acks: Sequence[Any],
        *,
        accepted: bool = False,
    ) -> list[tuple[Any, Exception | None]]:
        """Deliver stored messages to an execution in memory; return the callers to resolve now."""
        cancels = [row for row in rows if row.type == "cancel"]
        if cancels:
            rows = [row for row in rows if row.type != "cancel"]
            live.last = cancels[-1].id
            if live.seen_ids is not None:
                live.seen_ids.update(row.id for row in cancels)
            self.listeners.cancel(live.id, cancels)
            if not rows:
                return [(each, None) for each, _ in acks]
        return self.admission.accumulate(live, rows, waiters, acks, accepted=accepted)

    def load(
        self, execution: str, kind: str | None, row: ExecutionRow | None
    ) -> LoadedExecution | None:
        """Load an execution; return `None` if that is not possible now.

        It `has_unread` messages until the stored ones are delivered: nothing may overtake these.
        One that is just being created under this id will find that it exists; then it reads them.
        """
        try:
            if row is None:
                row = self._store.execution(execution)
            found = self._kind(execution, kind, row)
            live = self._new(execution, found, row)
        except UnknownKind as error:
            self._leave_waiting(execution, error)
            return None
        except Exception as error:  # noqa: BLE001 - the others go on; this one is tried again
            self.backlog.read_later((execution,), error)
            return None
        live.has_unread = True
        there = self._live.setdefault(execution, live)  # from now on, others find it
        if there is not live:
            if not there.has_ended:
                return None
            self._live[execution] = live
        self._end_if_closed(live)
        if self._late:
            live.waiters_of_unread.update(self._late.pop(execution, ()))
        return live

    def _new(self, execution: str, kind: Kind, row: ExecutionRow | None) -> LoadedExecution:
        live = LoadedExecution(
            self, execution, kind, row,
            pace=self.pace_of(kind.name),
            epoch=self._ownership.epoch_of(execution),
            shared=self._ownership.shared,
        )  # fmt: skip
        self.admission.prepare(live)
        return live

    def _end_if_closed(self, live: LoadedExecution) -> None:
        """Stop one that was loaded after `close` has stopped the others."""
        if self.state.closed:
            live.finish()

    def _leave_waiting(self, execution: str, error: UnknownKind) -> None:
        """Leave messages in the store until there is code for them."""
        self.backlog.add(execution)
        if str(error) not in self._unknown:
            self._unknown.add(str(error))
            log.warning("messages wait for their kind", error=str(error))

    def _kind(self, execution: str, kind: str | None, row: ExecutionRow | None) -> Any:
        name = (kind or "") if row is None else row.kind
        found = self._kinds.get(name)
        if found is None:
            msg = f"kind {name!r} is not registered{near(name, self._kinds)}"
            raise UnknownKind(msg)
        knows = getattr(found, "knows", None)
        if knows is not None and not knows(execution):
            msg = f"{name} {execution!r} is not registered"
            raise UnknownKind(msg)
        return found

    # Executions that end, or have nothing to do.

    def break_off(
        self, live: LoadedExecution, error: Exception, tickets: Sequence[MessageTicket] = ()
    ) -> None:
        """Mark an execution as stuck whose state cannot be read. Thread-safe.

        Its state and messages stay in the store, for code that can read them. `tickets` are those
        of the run that could not begin.
        """
        log.error("execution cannot be read", execution=live.id, exc_info=error)
        live.broken = error
        for ticket in tickets:
            if ticket.task is not None:  # only the task is stored
                self.listeners.tasks.store_answer(ticket.task, *ticket.packed())
            if ticket.waiter is not None:
                ticket.waiter.resolve(error)
                ticket.waiter = None
        self._writer.call(partial(self._break_off, live, error))

    def _break_off(self, live: LoadedExecution, error: Exception) -> None:
        if self._live.get(live.id) is live:
            del self._live[live.id]
            self.backlog.add(live.id)
        live.finish()
        for waiter in live.waiters_of_unread.values():
            waiter.resolve(error)
        live.waiters_of_unread = {}
        try:
            row = self._store.execution(live.id)
        except StoreRefused as unread:  # callers that wait for its end would wait forever
            outage_of(self._store).failed(unread, "the store cannot be read; trying again")
            if not self.state.closed:
                again = partial(self._writer.call, partial(self._break_off, live, error))
                self.clock.call_at(self.clock.now() + AGAIN, again)
            return
        if row is None or row.status != Status.ACTIVE:
            self._waiters.tell(live.id)
            return

        def committed(change: Change, error: Exception | None) -> None:
            if error is None:  # else the engine is being closed, which its waiters hear
                self.deliver_rows(change.rows)
                self._waiters.tell(live.id)

        change = Change(live.id, at=self.clock.now())
        add_failure(change, row, failure_of(error))
        self._writer.submit(change, committed, insist=True)

    def leave_to_other_code(self, live: LoadedExecution, error: UnknownKind) -> None:
        """Evict an execution that other engines have the code for. Thread-safe."""

        def leave() -> None:  # in the writer's thread
            self.evict(live)
            self._leave_waiting(live.id, error)

        self._writer.call(leave)

    def leave_to_owner(self, live: LoadedExecution) -> None:
        """Evict an execution that another engine owns now. Thread-safe."""
        self._writer.call(partial(self.listeners.moved, live))

    def evict(self, live: LoadedExecution) -> None:
        """Stop an execution after the run that is under way: it goes on elsewhere."""
        if self._live.get(live.id) is live:
            del self._live[live.id]
        live.finish()
        self._ownership.await_processed(live.id, live.waiters_of_unread)
        live.waiters_of_unread = {}

    def after_commit(self, live: LoadedExecution) -> None:
        """Evict an execution that has nothing to do, or read on. In the writer's thread."""
        if self.backlog.quarantine.current is live or live.id in self._ownership.waiting:
            self._end_waits(live)
        if self._live.get(live.id) is not live:
            return
        if live.lane is not None:
            live.lane.look()
        if live.outdated:
            self._replace_soon(live)
            return
        if live.has_unread and live.unconsumed < LOW and not self.state.closed:
            self.backlog.read_on_soon(live)
            return
        over = live.status in ENDED
        if not over and len(self._live) <= self._max_live:
            return
        if over and not live.displaced and self._evict_if_idle(live):
            return
        if over or self.is_crowded:
            self.look_again_at(live)
            if len(self._noted) > _SWEPT:  # or more would come than go
                self._sweep_some(2)

    def _end_waits(self, live: LoadedExecution) -> None:
        """End its trial alone, and the waits of callers from before it was replaced."""
        if self.backlog.quarantine.current is live:
            self.backlog.quarantine.end(live)
        if live.id in self._ownership.waiting:
            self._ownership.tell_processed(live.id)

    def _evict_if_idle(self, live: LoadedExecution) -> bool:
        """Evict an execution that has nothing to do; return whether it was idle."""
        if live.has_unread or not live.is_at_rest or live.port is None or not live.port.retire():
            return False
        if self._live.get(live.id) is live:
            del self._live[live.id]
        return True

    def evict_ended(self, executions: Iterable[str]) -> bool:
        """Evict ended executions; return whether all of them were idle. In the writer's thread.

        The store says that they have ended. In memory, one may still be active: its run began with
        an older row, and would bring it back if it was committed after its deletion.
        """
        found = [live for each in executions if (live := self._live.get(each)) is not None]
        return all(self._evict_if_idle(live) for live in found)

    def renew(self, execution: str) -> None:
        """Make an execution use the inbox that its kind has for it now. In the writer's thread.

        Messages that it has are processed as they are; later ones go into the new inbox.
        """
        live = self._live.get(execution)
        if live is not None and live.creates is None:
            live.outdated = live.has_unread = True
            self._replace_soon(live)

    def _replace_soon(self, live: LoadedExecution) -> None:
        """Replace it by a new one, now or when it is at rest."""
        if self._live.get(live.id) is not live:
            return
        if live.displaced or not live.is_at_rest or live.port is None or not live.port.retire():
            self.look_again_at(live)
            return
        del self._live[live.id]
        self.backlog.add(live.id)
        self._pass_on(live)

    def _on_sweep(self) -> None:
        """Evict idle executions, a limited number at a time, because commits wait meanwhile."""
        self._sweep = None
        self._sweep_some(min(len(self._noted), _SWEPT))
        if self._noted:
            self._set_sweep()

    def _sweep_some(self, count: int) -> None:
        """Evict the idle ones among the `count` oldest candidates."""
        for _ in range(count):
            live = self._noted.popleft()
            live.is_noted = False
            if live.has_ended:
                continue
            if live.displaced:
                self._consume_displaced(live)
            if live.outdated:
                self._replace_soon(live)
                continue
            if live.has_unread or not live.is_at_rest:  # its lane may come to rest after the commit
                self.look_again_at(live)
                continue
            if (live.status in ENDED or self.is_crowded) and not self._evict_if_idle(live):
                self.look_again_at(live)

    # Any thread.

    def pace_of(self, kind: str) -> RunPace:
        """Return how long the runs of a kind take."""
        return self._paces.get(kind) or self._paces.setdefault(kind, RunPace())

    def look_again_at(self, live: LoadedExecution) -> None:
        """Schedule a look at an execution that can perhaps be evicted."""
        if not live.is_noted:
            live.is_noted = True
            self._noted.append(live)
        self._set_sweep()

    def _set_sweep(self) -> None:
        if self._sweep is None and not self.state.closed:
            self._sweep = self.clock.call_at(
                self.clock.now() + _SWEEP, partial(self._writer.call, self._on_sweep)
            )

    def offer(
        self, execution: str, envelope: Envelope, waiter: Any = None, task: TaskRow | None = None
    ) -> bool:
        """Deliver a message that is not stored; return whether an execution in memory took it."""
        live = self._live.get(execution)
        if live is None or live.creates is not None:
            # One that is about to be created may turn out to be there already, with a state.
            return False
        return self.admission.offer_unstored(live, envelope, waiter, task)

    def prepare(self, execution: str, kind: Kind, row: ExecutionRow) -> LoadedExecution:
        """Return an execution that is to be created, for `begin`."""
        return self._new(execution, kind, row)

    def begin(self, live: LoadedExecution, envelope: Envelope, waiter: Any) -> bool:
        """Run a new execution before it is stored: its first commit creates it. Thread-safe.

        Returns whether that was possible; else it has to be stored first.
        """
        if self._live.setdefault(live.id, live) is not live:
            return False
        self._end_if_closed(live)
        if self.admission.offer_unstored(live, envelope, waiter, None):
            return True
        self.forget(live, AlreadyThere(live.id))
        return False

    def forget(self, live: LoadedExecution, why: Exception) -> None:
        """Discard an execution that was not created: perhaps one of that id exists.

        Messages that it got meanwhile are stored, and go to that one.
        """
        live.broken = why
        live.finish()
        if self._live.get(live.id) is live:
            del self._live[live.id]
            self.backlog.add(live.id)
            self._writer.call(partial(self._pass_on, live))

    def _pass_on(self, live: LoadedExecution) -> None:
        """Hand stored messages to the one that takes its place. In the writer's thread."""
        there = self._live.get(live.id)
        if there is None:
            self._keep_waiters(live.id, live.waiters_of_unread)
        else:
            there.waiters_of_unread.update(live.waiters_of_unread)
        live.waiters_of_unread = {}
        self.backlog.read_again([live.id])

    def _keep_waiters(self, execution: str, waiters: dict[Any, Any]) -> None:
        """Keep the waiters of an execution that is not in memory, until it is."""
        if self._ownership.shared:  # perhaps it runs elsewhere by then
            self._ownership.await_processed(execution, waiters)
        elif waiters:
            self._late.setdefault(execution, {}).update(waiters)

    def take_waiters(self, execution: str) -> dict[Any, Any]:
        """Return the waiters of an execution that is not in memory, and forget them."""
        return self._late.pop(execution, {})

    # What loaded executions report.

    def on_crash(self, live: LoadedExecution, reason: ExitReason) -> None:
        """Start another executor, in the writer's thread."""
        error = reason.exception if isinstance(reason, Crash) else None
        if not isinstance(error, RunRaised):  # those are logged with their messages
            log.error("execution crashed", execution=live.id, exc_info=error)
        if live.port is not None:
            self._writer.call(live.port.revive)

    def _consume_displaced(self, live: LoadedExecution) -> None:
        """Consume displaced messages where no run does so. In the writer's thread."""
        displaced = live.take_displaced()
        tickets = [ticket for ticket, _ in displaced]

        def committed(_change: Change, error: Exception | None) -> None:
            for ticket, fate in displaced:
                ticket.consume(error or fate)
            self.after_commit(live)

        change = Change(
            live.id,
            consumed=[ticket.id for ticket in tickets if ticket.id is not None],
            finished_tasks=answered(tickets),
            epoch=live.epoch,
        )
        self._writer.submit(change, committed, insist=True)

    # The end.

    def resolve_waiters(self) -> None:
        """Resolve the remaining waiters: the engine was closed. After the last commit."""
        self._lost.resolve()
        error = EngineClosed("the engine was closed before the message was processed")
        late = [live.waiters_of_unread for live in self.all()]
        for waiters in [*late, *self._late.values()]:
            for waiter in waiters.values():
                waiter.resolve(error)

    def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until all executions have finished their batch.

        Later outcomes are discarded, so the messages stay in the store and the next engine runs
        them again.
        """
        if self._sweep is not None:
            self._sweep.cancel()
        self.backlog.quarantine.close()
        lives = self.all()
        for live in lives:
            live.finish()
        ports = [(live.id, live.port) for live in lives if live.port is not None]
        now = self.environment.clock.now
        end = now() + timeout
        for name, port in ports:
            try:
                port.worker.stop(drain=False, timeout=max(end - now(), 0.0))
            except StopTimeout:
                log.warning(
                    "execution did not end in time; it runs again with the next engine",
                    execution=name, timeout=timeout,
                )  # fmt: skip
