"""The writer: group commit by a worker whose batch is one transaction.

Problem
    A synced commit takes as long for one change as for many. Callers that commit one by one would
    wait for each other's syncs.

Approach
    The writer is a worker. While it commits, further changes accumulate in its inbox, and the next
    commit takes all of them; an idle engine commits at once. So latency is that of one or two
    commits, and throughput grows with the load.

    Three refinements save switches between threads and commits. Each is a matter of speed only.

    - *Helping*: a caller that waits anyway, and can afford it, performs the commit itself if the
      writer is idle (`append` with patience, `submit` with `may_block`).
    - *Gathering*: after a commit, the writer waits a moment for the callers that it has just
      resolved, because many of them send again at once. It waits no longer than the commit took.
    - *Deferring*: changes without a waiting caller join the next commit (`deferred_changes`).

Invariants
    1. The thread that runs the batch is "the writer's thread". It alone delivers messages, loads
       and evicts executions and fires timers, in the order of the commits. So these need no lock,
       and no message can slip between "stored" and "delivered".
    2. Each change is settled exactly once, in the order of the commits: `then(change, error)` is
       called after the commit. A refused change with `insist` is not settled but repeated.
    3. If a group is not acceptable as a whole, its changes are committed one by one, so a change
       that can never be stored does not affect the others.
    4. A store may have several commits in flight. They are settled in their order, and before any
       function that `call` has put behind them.
    5. User code never runs in the writer's thread.
    6. Closing resolves every waiting caller, even if the store never answers.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from actorflow.engine.commit.admission import Admission
from actorflow.engine.commit.deferred_changes import DeferredChanges, StartPredictor
from actorflow.engine.commit.entries import Append, Request, group, undelivered
from actorflow.engine.commit.unknown_outcomes import UnknownOutcomes
from actorflow.engine.commit.wake_chain import WakeChain
from actorflow.engine.errors import EngineClosed, OutcomeUnknown, StoreRefused
from actorflow.engine.stores.protocol import Change, NewDead
from actorflow.runtime.errors import PushTimeout, StopTimeout, WorkerStopped, kind_and_text
from actorflow.runtime.lanes.serial_lane import SlowCallDetector
from actorflow.runtime.log import log
from actorflow.runtime.telemetry.outages import outage_of
from actorflow.runtime.tickets import ThreadTicket, resolve_many
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.spec import spawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.admission import Find
    from actorflow.engine.commit.entries import Deliver, Entry, Group
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import ExecutionRow, Store
    from actorflow.runtime.environment import Environment

__all__ = ["AGAIN", "Writer"]

AGAIN = 1.0
"""Seconds after which a commit or a read that the store refused is tried again."""

_LARGEST = 10_000  # entries in one transaction
_LONG_ENOUGH = 1.0  # seconds that a caller must have who makes a commit itself
_MUCH_LESS = 10  # times that the last commit must have been shorter
_SLOW = 0.001  # seconds that a commit takes during which others had better run
_GATHER = 0.001  # seconds that a commit waits at most for callers who may have more
_ALONE = 0.006  # seconds after which states of workers that nobody waits for are committed alone
_UNSTARTED = 0.002  # the same for other changes, if the start that they wait for does not come
_REFUSALS = (StoreRefused, OutcomeUnknown)
_COSTLY = 0.0001  # seconds from which on a commit is worth sharing with the next start


class _Gatherer:
    """Commits changes of several runs together, after these runs.

    With it, 32 tasks with workflows of two steps got 1.5 to 1.8 times as much done in a second, and
    a loop that launches flows 1.1 to 3.2 times (SQLite, four pairs of short runs, busy machine).
    """

    __slots__ = ("_writer",)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def run(self) -> None:
        """Commit the collected changes. Only the serial lane calls this."""
        self._writer.gather(self)


class Writer:
    """Commits changes and notifies the owner of each.

    Args:
        store: to commit to.
        clock: schedules another try after a refusal.
        state: of the engine.
        environment: lanes, and a steady clock.
        find: returns an execution that is in memory, or `None`.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        state: EngineState,
        environment: Environment,
        find: Find,
    ) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._environment = environment
        self._serial_lane = environment.serial_lane
        self._now = environment.clock.now
        self._find = find
        self.deliver: Deliver = undelivered
        """Hands messages from outside that were just stored to their executions, and returns the
        callers to notify now. The table of executions sets it."""
        self._afterwards: list[Callable[[], None]] = []
        self._again: list[Request] = []
        self._alarm: Any = None
        self._missing: list[None] = []  # one for each caller that was just told, until it is back
        self._took = 0.0  # seconds that the last batch took
        self._bell = allocate_lock()
        self._bell.acquire()
        self.expects_more = False
        """Callers that were just told that their messages are stored may send others."""
        self.repeats = False
        """Whether the commit being settled had failed before. The store may have kept it despite
        the error, and its messages may have been read meanwhile: so they are read again."""
        self._closing = False
        self._unstored: dict[Append, None] = {}  # messages from outside, not stored yet
        self.outcomes = UnknownOutcomes(decides=store.traits.decides)
        """What became of messages whose callers could not wait for it."""
        self.awaited: dict[Any, None] = {}
        """Tickets of callers that wait for a change or a call."""
        self.wakes = WakeChain()
        self._busy = allocate_lock()
        self._starts = StartPredictor()
        self._deferred = DeferredChanges(
            self._busy.locked, self._commit_deferred, environment.clock
        )
        self._pace = SlowCallDetector(_SLOW)
        self._together: list[Request] = []  # of runs in the serial lane, to commit at once
        self._gatherer: list[_Gatherer] = [_Gatherer(self)]  # until there is something to gather
        self._flight: deque[tuple[Future[None], list[Group], dict[str, ExecutionRow]]] = deque()
        self.refusal: tuple[float, Exception] | None = None
        """When and why the store last refused a commit, if it has not taken one since."""
        self.commits = 0
        self.changes = 0
        self.messages = 0
        self.refused = 0
        self.lost = 0
        self._worker = spawn(self._write, executor=environment.own, clock=environment.clock)
        self._port = Port(self._worker)

    # Thread-safe.

    def append(self, entry: Append, patience: float = 0.0) -> None:
        """Store messages from outside and deliver them. O(1).

        A caller that has `patience`, seconds that it would wait, makes the commit itself if the
        writer is idle and a commit takes much less: no other thread has to be woken.
        """
        self._unstored[entry] = None
        try:
            if (
                patience >= _LONG_ENOUGH
                and self._worker.is_idle
                and self._took * _MUCH_LESS < patience
            ):
                self._port.help(entry)
            else:
                self._worker.push(entry)
        except WorkerStopped:
            self._unstored.pop(entry, None)
            msg = "the engine has been closed"
            raise EngineClosed(msg) from None
        if self._missing:
            self._check_in()

    def _check_in(self) -> None:
        """Count an entry that the writer may be waiting for; wake the writer after the last one."""
        with suppress(IndexError):  # another producer was the last
            self._missing.pop()
        if not self._missing:
            with suppress(RuntimeError):  # another producer has rung
                self._bell.release()

    def submit(
        self,
        change: Change,
        then: Callable[[Change, Exception | None], None] | None = None,
        *,
        insist: bool = False,
        may_block: bool = False,
        waiter: Any = None,
    ) -> None:
        """Commit a change; `then(change, error)` is called in the writer's thread.

        If it raises, the `waiter` gets the error, so that no caller waits forever.

        With `insist`, a change that the store refuses is tried again until it succeeds or the
        engine is closed; once it is closed, `then` is called at once. With `may_block`, this
        thread acts as the writer if that is idle, at once or after what else it has to run: for
        lane threads only, which no signal interrupts.
        """
        request = Request(change, then, insist=insist, waiter=waiter)
        if waiter is not None:
            self.awaited[waiter] = None
        try:
            if may_block and self._serial_lane.ready and self._serial_lane.is_here:
                self._together.append(request)
                self._serial_lane.claim(self._gatherer)
            elif may_block and self._worker.is_idle:
                self._port.help(request)
            else:
                self._worker.push(request)
        except WorkerStopped:
            self._end([request])

    def _end(self, requests: list[Request]) -> None:
        """Notify owners that the engine is closed."""
        for request in requests:
            self.awaited.pop(request.waiter, None)
            if request.then is not None:
                request.then(request.change, EngineClosed("the engine has been closed"))

    def gather(self, gatherer: _Gatherer) -> None:
        """Commit the changes that several runs have left together. In the serial lane."""
        self._serial_lane.free()
        requests = self._together[:]
        del self._together[: len(requests)]
        self._gatherer.append(gatherer)
        if self._together:  # they came in between
            self._serial_lane.claim(self._gatherer)
        try:
            if self._worker.is_idle:
                self._port.help(requests)
            else:
                self._worker.push(requests)
        except WorkerStopped:
            self._end(requests)

    def submit_deferred(
        self, change: Change, then: Callable[[Change, Exception | None], None]
    ) -> None:
        """Commit a change without a waiting caller: with the next commit, or soon. Insists."""
        self._deferred.add(Request(change, then, insist=True), _ALONE)

    def submit_start(
        self,
        change: Change,
        then: Callable[[Change, Exception | None], None],
        *,
        may_block: bool,
    ) -> None:
        """Commit the first change of an execution. Call `started` when its caller is resolved."""
        self._starts.arrived(self._now(), 2 * self._took if self._took > _COSTLY else 0.0)
        self.submit(change, then, may_block=may_block)

    def started(self) -> None:
        """Record that a start is committed, and that its caller may have more."""
        self._starts.answered(self._now())

    def submit_with_start(
        self, change: Change, then: Callable[[Change, Exception | None], None]
    ) -> bool:
        """Commit a change with the next start, if one is about to come; return whether so. Insists.

        It must be a change that no caller waits for.
        """
        if not self._starts.expected(self._now()):
            return False
        self._deferred.add(Request(change, then, insist=True), _UNSTARTED)
        return True

    def _commit_deferred(self) -> None:
        """Commit changes that waited in vain for others to join. In the clock's thread."""
        self._starts.missed()
        self.call(_nothing)

    def call(self, function: Callable[[], None]) -> bool:
        """Call a function in the writer's thread, after the commit that is under way.

        Returns whether it will be called: not once the writer has ended.
        """
        try:
            self._worker.push(function)
        except WorkerStopped:
            return False
        return True

    def call_after(self, function: Callable[[], None]) -> None:
        """Call a function when all changes of this commit are dispatched. In the writer."""
        self._afterwards.append(function)

    @property
    def quiet(self) -> bool:
        """Whether everything from outside that was appended so far is stored and delivered."""
        return not self._unstored

    def call_and_wait(self, function: Callable[[], Any]) -> Any:
        """Call a function in the writer's thread; return what it returns, or raise."""
        done = ThreadTicket()

        def call() -> None:
            try:
                answer = function()
            except Exception as error:  # noqa: BLE001 - the caller's
                done.resolve(error)
            else:
                done.resolve(None, answer)

        self._state.require_open()
        self.awaited[done] = None
        try:
            if not self.call(call):
                msg = "the engine has been closed"
                raise EngineClosed(msg)
            return self.wait_for(done, None, function)
        finally:
            self.awaited.pop(done, None)

    def wait_for(self, ticket: ThreadTicket, timeout: float | None, message: Any) -> Any:
        """Wait for a ticket; return its answer, or raise the error that it was resolved with."""
        if not ticket.wait(timeout):
            raise self.too_late(timeout, message, ticket)
        error, answer = ticket.outcomes[0]
        if error is not None:
            raise error
        return answer

    async def await_for(self, ticket: Any, timeout: float | None, message: Any) -> Any:
        """Like `wait_for`, from a task of any event loop."""
        if not await ticket.wait(timeout):
            raise self.too_late(timeout, message, ticket)
        return ticket.answer

    def too_late(self, timeout: float | None, message: Any, ticket: Any) -> Exception:
        """Return the error for a caller whose time is up."""
        refusal = self.refusal
        if refusal is not None:
            _, error = refusal  # its text says that nothing is stored, which may change
            why = (
                f"{message!r:.200} was not done within {timeout} s; the engine repeats the commit "
                "until it succeeds or the engine is closed "
                f"({type(error).__name__}: {error.__cause__ or error})"
            )
            return self.outcomes.note_ticket(why, ticket)
        return PushTimeout(f"{message!r:.200} was not done within {timeout} s; it may be yet")

    @property
    def waiting(self) -> int:
        """Entries that are not being committed yet."""
        held = len(self._again) + len(self._deferred) + len(self._together)
        return len(self._worker) + held

    def stop_insisting(self) -> None:
        """Try failed commits once more, then notify their owners."""
        self._closing = True
        self.call(_nothing)

    def close(self, timeout: float) -> bool:
        """Commit what there is, then end; return whether that took no more than `timeout` seconds.

        A commit that hangs is abandoned, and its waiters are resolved: see `when_idle`.
        """
        self.call(_nothing)
        try:
            self._worker.stop(timeout=timeout)
        except StopTimeout:
            error = EngineClosed(
                "the engine was closed while the store did not answer: whether this was stored is "
                "not known"
            )
            waiting = [each for append in list(self._unstored) for each in append.waiting]
            resolve_many([(each, error) for each in (*waiting, *list(self.awaited))])
            return False
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
        return True

    def when_idle(self, call: Callable[[], object]) -> None:
        """Call a function once no commit is under way. Blocks. What it raises is logged."""
        self._environment.acquire(self._busy, -1)
        try:
            self._call(call)
        finally:
            self._busy.release()

    # The writer's thread.

    def _write(self, batch: list[Entry], _state: None) -> None:
        with self._busy:
            try:
                self._write_all(batch)
            finally:
                if self.wakes.waiting:
                    self.wakes.finish()

    def _write_all(self, batch: list[Entry]) -> None:
        self.repeats = bool(self._again)
        if self._again:
            batch = [*self._again, *batch]
            self._again = []
        if self._deferred.kept:
            batch = [*self._deferred.take(all_of_them=not _is_appends(batch)), *batch]
        self._missing = []
        begin = self._now()
        part: list[Append | Request] = []
        single = len(batch) == 1 and type(batch[0]) is not list
        for entry in batch if single else _singly(batch):
            if type(entry) is Append or type(entry) is Request:
                part.append(entry)
                if len(part) >= _LARGEST:
                    self._write_part(part)
                    part = []
                continue
            # A call sees everything before it in the store and delivered, and nothing after it.
            if part:
                self._write_part(part)
                part = []
            self._settle_flight()
            self._call(entry)
        if part:
            self._write_part(part)
        if self._flight:
            self._settle_flight(self._store.traits.in_flight - 1)
        self._took = self._now() - begin
        if self._missing:
            self._gather(self._took)

    def _call(self, function: Any) -> None:
        try:
            function()
        except Exception as failure:  # noqa: BLE001 - the writer goes on
            log.error("a call of the writer failed", call=repr(function), exc_info=failure)

    def _gather(self, patience: float) -> None:
        """Wait a moment for the callers that were just told: many of them have more to store.

        Otherwise the next commit would hold only the first of them, and the others would wait for
        the one after. No longer than the last commit took, so that no wait is more than doubled.
        """
        # With it, 8 threads that `push_ack` got 1.4 to 3.5 times as much done in a second (SQLite,
        # four pairs of short runs on a busy machine), 32 tasks with workflows 0.9 to 1.5 times. For
        # 8 threads that `push_block` it was 0.3 to 3.0 times, in three of four runs less than 1.
        self._serial_lane.pass_on()
        prompt = self._environment.acquire(self._bell, min(patience, _GATHER))
        self.wakes.note(prompt=prompt)

    def _write_part(self, entries: list[Append | Request]) -> None:
        """Commit entries together, and settle each."""
        if len(entries) == 1:
            request = entries[0]
            if type(request) is Request:
                change = request.change
                if not change.messages and not change.creates:
                    # It needs no admission and no group. Most changes of an engine that is not
                    # busy are such.
                    self._write_groups([(change, request)], {})
                    return
        now = self._clock.now()
        made: dict[str, str] = {}
        for _, groups, _ in self._flight:
            made.update((new.id, new.kind) for change, _ in groups for new in change.creates)
        try:
            admission = Admission(self._store, self._find, entries, made, now)
        except Exception as error:  # noqa: BLE001 - the store cannot be read now
            refusal = error if isinstance(error, StoreRefused) else StoreRefused(str(error))
            self._refuse(group(entries, now), refusal)
            return
        for append, why in admission.rejected:
            self._reject(append, why, admission.accepted)
        groups = group(admission.accepted, now, creates=not admission.all_live)
        largest = self._store.traits.max_batch
        if len(groups) <= largest:
            self._write_groups(groups, admission.fetched)
            return
        for at in range(0, len(groups), largest):
            self._write_groups(groups[at : at + largest], admission.fetched)

    def _write_groups(self, groups: list[Group], fetched: dict[str, ExecutionRow]) -> None:
        changes = []
        for change, _ in groups:
            changes.append(change)
        begin = self._pace.expect()
        try:
            future = self._store.commit(changes)
        except Exception as error:  # noqa: BLE001 - each owner is notified
            self._decided(groups, fetched, self._failed(error, changes))
            return
        self._pace.note(begin)
        if future is None:
            self._succeeded(changes)
            self._decided(groups, fetched, None)
            return
        self._flight.append((future, groups, fetched))
        future.add_done_callback(lambda _: self.call(_nothing))

    def _decided(
        self, groups: list[Group], fetched: dict[str, ExecutionRow], error: Exception | None
    ) -> None:
        """Settle the changes of a commit, which was refused with `error`."""
        if error is None:
            for change, owner in groups:
                self._settle(change, owner, None, fetched)
        elif isinstance(error, _REFUSALS):
            self._refuse(groups, error)
        elif len(groups) == 1:
            self._settle(*groups[0], error)
        else:  # one of them is not acceptable: find out which
            for change, owner in groups:
                self._settle(change, owner, self.commit([change]), fetched)
        while self._afterwards:
            self._call(self._afterwards.pop())

    def _settle_flight(self, most: int = 0) -> None:
        """Settle the commits that are decided; wait until at most so many are not."""
        while self._flight and (len(self._flight) > most or self._flight[0][0].done()):
            future, groups, fetched = self._flight.popleft()
            if not future.done():
                self._serial_lane.pass_on()
            changes = [change for change, _ in groups]
            try:
                future.result()
            except Exception as error:  # noqa: BLE001 - each owner is notified
                self._decided(groups, fetched, self._failed(error, changes))
            else:
                self._succeeded(changes)
                self._decided(groups, fetched, None)

    def commit(self, changes: list[Change]) -> Exception | None:
        """Commit now, in the writer's thread; return what the store raised."""
        if not changes:
            return None
        self._settle_flight()
        try:
            future = self._store.commit(changes)
            if future is not None:
                future.result()
        except Exception as error:  # noqa: BLE001 - the caller decides
            return self._failed(error, changes)
        self._succeeded(changes)
        return None

    def _failed(self, error: Exception, changes: list[Change]) -> Exception:
        if isinstance(error, OSError):  # the connection failed, not the data
            refusal = StoreRefused(kind_and_text(error))
            refusal.__cause__ = error
            error = refusal
        if isinstance(error, _REFUSALS):
            outage_of(self._store).failed(error, "commit failed")
        if isinstance(error, OutcomeUnknown):  # later changes are refused
            self.refusal = (self._clock.now(), StoreRefused(f"an earlier commit failed: {error}"))
        elif isinstance(error, StoreRefused):
            self.refusal = (self._clock.now(), error)
        else:
            log.error("commit failed", changes=len(changes), error=str(error))
        self.refused += 1
        return error

    def _succeeded(self, changes: list[Change]) -> None:
        if self.refusal is not None:
            outage_of(self._store).ended()
            self.refusal = None
            self.outcomes.committed()
        self.commits += 1
        self.changes += len(changes)

    def _reject(
        self, append: Append, error: Exception | None, accepted: list[Append | Request]
    ) -> None:
        """Resolve the waiting callers; dead-letter a message without one, unless it is a repeat."""
        self._unstored.pop(append, None)
        waiting = append.waiting
        if waiting or error is None:
            resolve_many([(each, error) for each in waiting])
            return
        text = kind_and_text(error)
        log.warning("messages refused", execution=append.execution, error=str(error))
        dead = [NewDead(None, append.execution, "message", body, text) for body in append.bodies]
        change = Change(append.execution, at=self._clock.now(), dead=dead)
        accepted.append(Request(change, None, insist=True))

    def _refuse(self, groups: list[Group], error: Exception) -> None:
        """Notify owners that do not insist; try the others once more alone, then keep them."""
        insisting: list[Request] = []
        for change, owner in groups:
            if type(owner) is Request and owner.insist:
                insisting.append(owner)
            else:
                self._settle(change, owner, error)
        if not insisting:
            return
        failure = error
        if len(insisting) < len(groups):
            again = self.commit([request.change for request in insisting])
            if again is None or not isinstance(again, _REFUSALS) or self._closing:
                self.repeats = True
                for request in insisting:
                    self._settle(request.change, request, again)
                return
            failure = again
        if self._closing:
            for request in insisting:
                self._settle(request.change, request, failure)
            return
        self._again += insisting
        if self._alarm is None:
            self._alarm = self._clock.call_at(self._clock.now() + AGAIN, self._on_alarm)

    def _on_alarm(self) -> None:
        """Try again. In the clock's thread."""
        self._alarm = None
        self.call(_nothing)

    def _settle(
        self,
        change: Change,
        owner: Any,
        error: Exception | None,
        fetched: dict[str, ExecutionRow] | None = None,
    ) -> None:
        error = error and self.outcomes.identified(error, change)
        try:
            if type(owner) is Request:
                self.awaited.pop(owner.waiter, None)
                if owner.then is not None:
                    owner.then(change, error)
            elif change.refusal is not None:  # an execution was created elsewhere meanwhile
                for append in owner:
                    self._worker.push(append)
            elif error is None:
                self.messages += len(change.rows)
                told = self.deliver(owner, change.rows, fetched or {})
                self._stored(owner)
                self.expects_more = bool(told)
                if len(told) > 1:
                    self._bell.acquire(blocking=False)  # it may have rung for earlier ones
                    self._missing = [None] * len(told)
                    told = self.wakes.begin(told)
                resolve_many(told)
            else:
                self._stored(owner)
                self._tell_lost(owner, error)
        except Exception as failure:  # noqa: BLE001 - go on with the others
            log.error("owner of a change failed", owner=repr(owner), exc_info=failure)
            if type(owner) is Request and owner.waiter is not None:
                owner.waiter.resolve(failure)
            elif type(owner) is list:
                resolve_many([(each, failure) for append in owner for each in append.waiting])

    def _stored(self, appends: list[Append]) -> None:
        for append in appends:
            self._unstored.pop(append, None)

    def _tell_lost(self, appends: list[Append], error: Exception) -> None:
        told = []
        for append in appends:
            waiting = append.waiting
            if not waiting:
                self.lost += len(append.bodies)
            told += [(each, error) for each in waiting]
        resolve_many(told)


def _singly(batch: list[Entry]) -> list[Any]:
    """Return the entries of a batch, each for itself."""
    if len(batch) == 1:  # as most are
        return batch[0] if type(batch[0]) is list else batch
    entries: list[Any] = []
    for entry in batch:
        if type(entry) is list:
            entries += entry
        else:
            entries.append(entry)
    return entries


def _is_appends(entries: list[Entry]) -> bool:
    for entry in entries:  # noqa: SIM110 - `all` would make a call for each
        if type(entry) is not Append:
            return False
    return True


def _nothing() -> None:
    """Do nothing: the call makes the writer look at what it keeps."""
