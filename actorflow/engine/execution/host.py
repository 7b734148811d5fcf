"""The host: executions come to life when messages arrive, and retire when they are idle.

Only the writer's thread wakes executions, hands messages to them and retires them. An execution
that is woken while older messages of it may be in the store reads them first (the backlog).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.engine.envelopes import failure_of
from actorflow.engine.errors import EngineClosed, StoreRefused, UnknownKind
from actorflow.engine.execution.backlog import LOW, Backlog
from actorflow.engine.execution.door import tell_outcome
from actorflow.engine.execution.letters import add_failure
from actorflow.engine.execution.live import WINDOW, Live
from actorflow.engine.execution.run import AlreadyThere
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import Change, Duplicate
from actorflow.runtime.errors import Rejected, StopTimeout, near
from actorflow.runtime.lanes.relay import Pace
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.envelopes import Envelope
    from actorflow.engine.execution.ticket import Ticket
    from actorflow.engine.execution.writing.entries import Append
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, TaskRow
    from actorflow.runtime.clock import Timer

__all__ = ["Host"]

_SWEEP = 0.1  # seconds between looking for executions that can retire
_SLOW = 0.005  # seconds that a run takes during which others had better run
_SWEPT = 500  # executions that are looked at each time


class _Arrival:
    """What arrived for one execution in one commit."""

    __slots__ = ("acks", "kind", "rows", "waiters")

    def __init__(self, kind: str | None = None, rows: list[MessageRow] | None = None) -> None:
        self.kind = kind
        self.rows = [] if rows is None else rows
        self.waiters: dict[Any, Any] = {}
        self.acks: list[tuple[Any, Any]] = []


class Host:
    """The live executions of an engine."""

    def __init__(self, core: Core, max_live: int) -> None:
        self._core = core
        self._max_live = max_live
        self._live: dict[str, Live] = {}
        self.find = self._live.get
        """Return a live execution, or `None`. Thread-safe."""
        self._noted: deque[Live] = deque()
        self._sweep: Timer | None = None
        self._unknown: set[str] = set()
        self._waiting: deque[Ticket] = deque()
        self._told = False
        self._late: dict[str, dict[Any, Any]] = {}  # like `Live.late`, of those not in memory
        self._paces: dict[str, Pace] = {}
        self.backlog = Backlog(core, self)
        self.refusals: dict[Any, BaseException] = {}
        """Messages that were given up, until their dead letters are stored."""

    def __len__(self) -> int:
        return len(self._live)

    @property
    def is_crowded(self) -> bool:
        """Whether more executions are live than should stay so without work."""
        return len(self._live) > self._max_live

    def all(self) -> list[Live]:
        """Return all live executions. Thread-safe."""
        return list(self._live.values())

    # Messages that were just stored. The writer's thread.

    def deliver(
        self, appends: list[Append], rows: Sequence[Any], fetched: dict[str, ExecutionRow]
    ) -> list[tuple[Any, Exception | None]]:
        """Hand messages from outside to their executions; return the callers to tell now."""
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
                duplicate = next((row for row in some if type(row) is Duplicate), None)
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
                tell_outcome(live, append.waiting, number)
                return []
            refusal = self.refusal_of(number)
        except Exception as error:  # noqa: BLE001 - theirs; the others of this commit are stored
            refusal = error
        return [(each, refusal) for each in append.waiting]

    def refusal_of(self, number: Any) -> Exception | None:
        """Return why a message became a dead letter, if it did. Thread-safe."""
        letter = self._core.store.dead_letter(number)
        return None if letter is None else Rejected(letter.error)

    def deliver_rows(
        self, rows: Iterable[Any], fetched: dict[str, ExecutionRow] | None = None
    ) -> None:
        """Hand stored messages to their executions."""
        arrived: dict[str, _Arrival] = {}
        for row in rows:
            if type(row) is not Duplicate:
                arrived.setdefault(row.execution, _Arrival()).rows.append(row)
        if fetched is None:
            asleep = [each for each in arrived if each not in self._live]
            try:
                fetched = self._core.store.executions(asleep) if asleep else {}
            except Exception as error:  # noqa: BLE001 - they are stored, and read again
                self.backlog.read_later(arrived, error)
                return
        for execution, arrival in arrived.items():
            self._hand_over(execution, arrival, fetched.get(execution))

    def _hand_over(
        self, execution: str, arrival: _Arrival, row: ExecutionRow | None
    ) -> list[tuple[Any, Exception | None]]:
        """Accumulate stored messages, or leave them in the store for later."""
        live = self._live.get(execution)
        if not self._core.resumed or self._core.closed:
            self._leave(live, arrival)
            return [(each, None) for each, _ in arrival.acks]
        if not self._core.ownership.runs(execution):
            self._core.ownership.await_processed(execution, arrival.waiters)
            return [(each, None) for each, _ in arrival.acks]
        if live is None or live.has_ended:
            ended, woken = live is not None, self.wake(execution, arrival.kind, row)
            live = woken or self._live.get(execution)
            if live is None:
                self._keep_late(execution, arrival.waiters)
                return [(each, None) for each, _ in arrival.acks]
            # While one that has ended was here, what is stored may have been left to it.
            if woken is not None and not self.backlog.comes_first(execution) and not ended:
                told = self.let_in(live, arrival.rows, arrival.waiters, arrival.acks)
                live.behind = False
                return told
        # One that is being created gets nothing that is stored: perhaps it is there already.
        if live.creates is not None or live.behind or live.held >= WINDOW:
            live.behind = True
            live.late.update(arrival.waiters)
            if live.held < LOW:
                self.backlog.catch_up_soon(live)
            return [(each, None) for each, _ in arrival.acks]
        return self.let_in(live, arrival.rows, arrival.waiters, arrival.acks)

    def _leave(self, live: Live | None, arrival: _Arrival) -> None:
        """Leave messages in the store, because nothing runs yet, or any more."""
        if self._core.ownership.shared and not self._core.closed and arrival.rows:
            self._core.ownership.await_processed(arrival.rows[0].execution, arrival.waiters)
            return
        error = None  # where nothing ever runs, to be stored is all that they wait for
        if self._core.closed:
            error = EngineClosed("the engine has been closed; the message is stored")
        if live is not None:
            live.behind = True  # nothing may overtake these
        for waiter in arrival.waiters.values():
            waiter.resolve(error)

    def let_in(
        self,
        live: Live,
        rows: list[MessageRow],
        waiters: dict[Any, Any],
        acks: Sequence[Any],
        *,
        accepted: bool = False,
    ) -> list[tuple[Any, Exception | None]]:
        """Deliver stored messages to a live execution; return the callers to resolve now."""
        cancels = [row for row in rows if row.type == "cancel"]
        if cancels:
            rows = [row for row in rows if row.type != "cancel"]
            live.last = cancels[-1].id
            if live.known is not None:
                live.known.update(row.id for row in cancels)
            self._core.ending.cancel_later(live.id, cancels)
            if not rows:
                return [(each, None) for each, _ in acks]
        try:
            return live.take(rows, waiters, acks, accepted=accepted)
        except Exception as error:  # noqa: BLE001 - a stored message that cannot be read
            log.error("messages cannot be read", execution=live.id, exc_info=error)
            self.break_off(live, error)
            return [(each, None) for each, _ in acks]

    def wake(self, execution: str, kind: str | None, row: ExecutionRow | None) -> Live | None:
        """Return an execution that comes to life; `None` if that is not possible now.

        It is `behind` until it has been given what is stored: nothing may overtake that. One that
        is just being created under this id will find that it exists; what is stored is read then.
        """
        core = self._core
        try:
            if row is None:
                row = core.store.execution(execution)
            found = self._kind(execution, kind, row)
            live = Live(core, execution, found, row)
        except UnknownKind as error:
            self._leave_waiting(execution, error)
            return None
        except Exception as error:  # noqa: BLE001 - the others go on; this one is tried again
            self.backlog.read_later((execution,), error)
            return None
        live.behind = True
        there = self._live.setdefault(execution, live)  # from now on, others find it
        if there is not live:
            if not there.has_ended:
                return None
            self._live[execution] = live
        self._end_if_closed(live)
        if self._late:
            live.late.update(self._late.pop(execution, ()))
        return live

    def _end_if_closed(self, live: Live) -> None:
        """End one that has come to life after `close` has ended the others."""
        if self._core.closed:
            live.finish()

    def _leave_waiting(self, execution: str, error: UnknownKind) -> None:
        """Leave messages in the store until there is code for them."""
        self.backlog.add(execution)
        if str(error) not in self._unknown:
            self._unknown.add(str(error))
            log.warning("messages wait for their kind", error=str(error))

    def _kind(self, execution: str, kind: str | None, row: ExecutionRow | None) -> Any:
        name = (kind or "") if row is None else row.kind
        found = self._core.kinds.get(name)
        if found is None:
            msg = f"kind {name!r} is not registered{near(name, self._core.kinds)}"
            raise UnknownKind(msg)
        knows = getattr(found, "knows", None)
        if knows is not None and not knows(execution):
            msg = f"{name} {execution!r} is not registered"
            raise UnknownKind(msg)
        return found

    # Executions that end, or have nothing to do.

    def break_off(self, live: Live, error: Exception) -> None:
        """Mark an execution as failed whose state or messages cannot be read. Thread-safe.

        What is stored of it stays, for code that can read it.
        """
        core = self._core
        log.error("execution cannot be read", execution=live.id, exc_info=error)

        live.broken = error

        def leave() -> None:  # in the writer's thread
            if self._live.get(live.id) is live:
                del self._live[live.id]
                self.backlog.add(live.id)
            live.finish()
            for waiter in live.late.values():
                waiter.resolve(error)
            try:
                row = core.store.execution(live.id)
            except StoreRefused as unread:  # whoever waits for its end would wait for ever
                log.error("the store cannot be read; trying again", error=str(unread))
                if not core.closed:
                    core.clock.call_at(core.clock.now() + AGAIN, lambda: core.writer.call(leave))
                return
            if row is None or row.status != Status.ACTIVE:
                core.watchers.tell(live.id)
                return
            change = Change(live.id, at=core.clock.now())
            add_failure(change, row, failure_of(error))
            core.writer.submit(change, left, insist=True)

        def left(change: Change, error: Exception | None) -> None:
            if error is None:  # else the engine is being closed, which its watchers learn
                self.deliver_rows(change.rows)
                core.watchers.tell(live.id)

        core.writer.call(leave)

    def set_aside(self, live: Live, error: UnknownKind) -> None:
        """End an execution here whose code turned out to be elsewhere. In the writer's thread."""
        self.let_go(live, error)
        self._leave_waiting(live.id, error)

    def let_go(self, live: Live, error: Exception) -> None:
        """End an execution after the run that is under way, because another engine has it now."""
        if self._live.get(live.id) is live:
            del self._live[live.id]
        live.finish()
        self._core.ownership.await_processed(live.id, live.late)
        live.late = {}

    def settle(self, live: Live) -> None:
        """Retire an execution that has ended, or read on; note one that may retire soon."""
        if self.backlog.trials.current is live:
            self.backlog.trials.end(live)
        if self._live.get(live.id) is not live:
            return
        if live.door is not None:
            live.door.look()
        if live.outdated:
            self._replace_soon(live)
            return
        if live.behind and live.held < LOW and not self._core.closed:
            self.backlog.catch_up_soon(live)
            return
        over = live.status in ENDED
        if over and not live.displaced and self._retire(live):
            return
        if over or self.is_crowded:
            self.note(live)
            if len(self._noted) > _SWEPT:  # or more would come than go
                self._sweep_some(2)

    def _retire(self, live: Live) -> bool:
        """Release an execution that has nothing to do; return whether that was so."""
        if live.behind or not live.is_at_rest or live.port is None or not live.port.retire():
            return False
        if self._live.get(live.id) is live:
            del self._live[live.id]
        return True

    def renew(self, execution: str) -> None:
        """Make an execution use the inbox that its kind has for it now. In the writer's thread.

        What it holds is processed as it is; what comes after that goes into the new inbox.
        """
        live = self._live.get(execution)
        if live is not None and live.creates is None:
            live.outdated = live.behind = True
            self._replace_soon(live)

    def _replace_soon(self, live: Live) -> None:
        """Let another one take its place, now or when it has come to rest."""
        if self._live.get(live.id) is not live:
            return
        if live.displaced or not live.is_at_rest or live.port is None or not live.port.retire():
            self.note(live)
            return
        del self._live[live.id]
        self.backlog.add(live.id)
        self._pass_on(live)

    def _on_sweep(self) -> None:
        """Retire idle executions, a limited number at a time, because commits wait meanwhile."""
        self._sweep = None
        self._sweep_some(min(len(self._noted), _SWEPT))
        if self._noted:
            self._set_sweep()

    def _sweep_some(self, count: int) -> None:
        """Retire those that are idle among the ones that were noted first."""
        for _ in range(count):
            live = self._noted.popleft()
            live.noted = False
            if live.has_ended:
                continue
            if live.displaced:
                live.mark_displaced()
            if live.outdated:
                self._replace_soon(live)
                continue
            if live.behind or not live.is_at_rest:  # its lane may come to rest after the commit
                self.note(live)
                continue
            if (live.status in ENDED or self.is_crowded) and not self._retire(live):
                self.note(live)

    # Any thread.

    def pace_of(self, kind: str) -> Pace:
        """Return how long runs of a kind take, as far as that is known."""
        return self._paces.get(kind) or self._paces.setdefault(kind, Pace(_SLOW))

    def note(self, live: Live) -> None:
        """Schedule a look at an execution that may be able to retire."""
        if not live.noted:
            live.noted = True
            self._noted.append(live)
        self._set_sweep()

    def _set_sweep(self) -> None:
        core = self._core
        if self._sweep is None and not core.closed:
            self._sweep = core.clock.call_at(
                core.clock.now() + _SWEEP, lambda: core.writer.call(self._on_sweep)
            )

    def offer(
        self, execution: str, envelope: Envelope, waiter: Any = None, task: TaskRow | None = None
    ) -> bool:
        """Deliver a message that is not stored; return whether a live execution took it."""
        live = self._live.get(execution)
        if live is None or live.creates is not None:
            # One that is about to be created may turn out to be there already, with a state.
            return False
        return live.offer_unstored(envelope, waiter, task)

    def begin(self, live: Live, envelope: Envelope, waiter: Any) -> bool:
        """Run a new execution before it is stored: its first commit creates it. Thread-safe.

        Returns whether that was possible; else it has to be stored first.
        """
        if self._live.setdefault(live.id, live) is not live:
            return False
        self._end_if_closed(live)
        if live.offer_unstored(envelope, waiter, None):
            return True
        self.forget(live, AlreadyThere(live.id))
        return False

    def forget(self, live: Live, why: Exception) -> None:
        """Discard an execution that was not created: perhaps there is one of that id already.

        What was handed to it meanwhile is stored, and goes to the other one.
        """
        live.broken = why
        live.finish()
        if self._live.get(live.id) is live:
            del self._live[live.id]
            self.backlog.add(live.id)
            self._core.writer.call(partial(self._pass_on, live))

    def _pass_on(self, live: Live) -> None:
        """Hand what is stored to the one that is there. In the writer's thread."""
        there = self._live.get(live.id)
        if there is None:
            self._keep_late(live.id, live.late)
        else:
            there.late.update(live.late)
        live.late = {}
        self.backlog.read_again([live.id])

    def _keep_late(self, execution: str, waiters: dict[Any, Any]) -> None:
        """Keep the waiters of an execution that is not in memory, until it is."""
        if self._core.ownership.shared:  # perhaps it runs elsewhere by then
            self._core.ownership.await_processed(execution, waiters)
        elif waiters:
            self._late.setdefault(execution, {}).update(waiters)

    def take_late(self, execution: str) -> dict[Any, Any]:
        """Return the waiters of an execution that is not in memory, and forget them."""
        return self._late.pop(execution, {})

    def keep_waiting(self, ticket: Ticket) -> None:
        """Keep a message that is not processed because the engine is being closed.

        Its run may have been cut off while it was being committed, so its waiter is resolved after
        the last commit.
        """
        self._waiting.append(ticket)
        if self._told:
            self.tell_waiting()

    def tell_waiting(self) -> None:
        """Resolve the remaining waiters: the engine was closed. After the last commit."""
        self._told = True
        error = EngineClosed("the engine was closed before the message was processed")
        while self._waiting:
            self._waiting.popleft().consume(error)
        late = [live.late for live in self.all()]
        for waiters in [*late, *self._late.values()]:
            for waiter in waiters.values():
                waiter.resolve(error)

    def close(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until all executions have finished their batch.

        Those that do not are cut off: their outcome is not committed any more, so their messages
        stay in the store and run again with the next engine.
        """
        if self._sweep is not None:
            self._sweep.cancel()
        lives = self.all()
        for live in lives:
            live.finish()
        ports = [(live.id, live.port) for live in lives if live.port is not None]
        end = monotonic() + timeout
        for name, port in ports:
            try:
                port.worker.stop(drain=False, timeout=max(end - monotonic(), 0.0))
            except StopTimeout:
                log.warning(
                    "execution did not end in time; it runs again with the next engine",
                    execution=name, timeout=timeout,
                )  # fmt: skip
