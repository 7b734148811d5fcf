"""The host: executions come to life when messages arrive, and retire when they are idle.

Only the writer's thread wakes executions, hands messages to them and retires them. An execution
that is woken while older messages of it may be in the store reads them first; one with a long
backlog holds a window of it in memory and reads on as it goes.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import EngineClosed, UnknownKind
from actorflow.engine.execution.live import WINDOW, Live, failure_of
from actorflow.engine.execution.run import message_to_parent
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import Change, Duplicate, NewDead
from actorflow.runtime.errors import Rejected, StopTimeout, near
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.envelopes import Envelope
    from actorflow.engine.execution.live import Ticket
    from actorflow.engine.execution.writer import Append, Writer
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, TaskRow
    from actorflow.runtime.clock import Timer

__all__ = ["CRASHES", "Host"]

CRASHES = 3
"""How often a message may have ended the process before it is a dead letter."""

_SWEEP = 0.1  # seconds between looking for executions that can retire
_SWEPT = 2_000  # executions that are looked at each time
_PAGE = 2_000  # messages that are read together after a restart
_LOW = WINDOW // 2  # messages in memory below which more are read
_AGAIN = 1.0  # seconds after which the store is read again if it could not be


class _Later:
    """Makes the writer call a function once the pool has started all earlier submissions."""

    __slots__ = ("_call", "_writer")

    def __init__(self, writer: Writer, call: Callable[[], None]) -> None:
        self._writer = writer
        self._call = call

    def run(self) -> None:
        """Pass it on. Only the pool calls this."""
        self._writer.call(self._call)


class _Arrival:
    """What arrived for one execution in one commit."""

    __slots__ = ("acks", "kind", "rows", "waiters")

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind
        self.rows: list[MessageRow] = []
        self.waiters: dict[Any, Any] = {}
        self.acks: list[tuple[Any, Any]] = []


class Host:
    """The live executions of an engine."""

    def __init__(self, core: Core, max_live: int) -> None:
        self._core = core
        self._max_live = max_live
        self._live: dict[str, Live] = {}
        self._noted: deque[Live] = deque()
        self._sweep: Timer | None = None
        self._unknown: set[str] = set()
        self._waiting: deque[Ticket] = deque()
        self._told = False
        self._scans = 0  # passes through the store for messages that were left there
        self.refusals: dict[Any, BaseException] = {}
        """Messages that were given up, until their dead letters are stored."""
        self._unread: set[str] = set()
        """Executions that are not live although the store has messages for them."""

    def __len__(self) -> int:
        return len(self._live)

    @property
    def is_crowded(self) -> bool:
        """Whether more executions are live than should stay so without work."""
        return len(self._live) > self._max_live

    def find(self, execution: str) -> Live | None:
        """Return a live execution. Any thread."""
        return self._live.get(execution)

    # Messages that were just stored. The writer's thread.

    def deliver(
        self, appends: list[Append], rows: Sequence[Any], fetched: dict[str, ExecutionRow]
    ) -> list[tuple[Any, Exception | None]]:
        """Hand messages from outside to their executions; return the callers to tell now."""
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

    def _ask_outcome(self, append: Append, number: Any) -> list[tuple[Any, Exception | None]]:
        """Have those told what became of a message who have sent it once more."""
        live = self._live.get(append.execution)
        if live is not None:
            live.tell_outcome(append.waiting, number)
            return []
        return [(each, self.refusal_of(number)) for each in append.waiting]

    def refusal_of(self, number: Any) -> Exception | None:
        """Return why a message became a dead letter, if it did. Any thread."""
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
                self._read_later(arrived, error)
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
        if live is None or live.has_ended:
            live = self._wake(execution, arrival.kind, row)
            if live is None:
                return [(each, None) for each, _ in arrival.acks]
            if self._scans or execution in self._unread:
                self._unread.discard(execution)
                live.behind = True
        if live.behind or live.held >= WINDOW:
            live.behind = True
            live.late.update(arrival.waiters)
            if live.held < _LOW:
                self._catch_up_soon(live)
            return [(each, None) for each, _ in arrival.acks]
        return self._let_in(live, arrival.rows, arrival.waiters, arrival.acks)

    def _leave(self, live: Live | None, arrival: _Arrival) -> None:
        """Leave messages in the store, because nothing runs yet, or any more."""
        error = None  # where nothing ever runs, to be stored is all that they wait for
        if self._core.closed:
            error = EngineClosed("the engine has been closed; the message is stored")
        if live is not None:
            live.behind = True  # nothing may overtake these
        for waiter in arrival.waiters.values():
            waiter.resolve(error)

    def _let_in(
        self, live: Live, rows: list[MessageRow], waiters: dict[Any, Any], acks: Sequence[Any]
    ) -> list[tuple[Any, Exception | None]]:
        cancels = [row for row in rows if row.type == "cancel"]
        if cancels:
            rows = [row for row in rows if row.type != "cancel"]
            live.last = cancels[-1].id
            self._core.cancel_later(live.id, cancels)
            if not rows:
                return [(each, None) for each, _ in acks]
        try:
            return live.take(rows, waiters, acks)
        except Exception as error:  # noqa: BLE001 - a stored message that cannot be read
            log.error("messages cannot be read", execution=live.id, exc_info=error)
            self.break_off(live, error)
            return [(each, None) for each, _ in acks]

    def _wake(self, execution: str, kind: str | None, row: ExecutionRow | None) -> Live | None:
        """Return an execution that comes to life; `None` if that is not possible now."""
        core = self._core
        try:
            if row is None:
                row = core.store.execution(execution)
            found = self._kind(execution, kind, row)
            live = self._live[execution] = Live(core, execution, found, row)
        except UnknownKind as error:
            self._unread.add(execution)
            if str(error) not in self._unknown:
                self._unknown.add(str(error))
                log.warning("messages wait for their kind", error=str(error))
            return None
        except Exception as error:  # noqa: BLE001 - the others go on; this one is tried again
            self._read_later((execution,), error)
            return None
        return live

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

    def read_now(self, execution: str) -> None:
        """Hand over what is stored for an execution that could not be woken before."""
        if execution in self._live or self._core.closed:
            return
        row = self._core.store.execution(execution)
        live = None if row is None or row.status in ENDED else self._wake(execution, None, row)
        if live is not None:
            self._unread.discard(execution)
            live.behind = True
            self.catch_up(live)

    # Messages that are in the store and not in memory. The writer's thread.

    def recover(self, kind: str | None = None) -> None:
        """Hand over what is in the store, page by page: all of it, or that of one kind."""
        self._scans += 1
        self._scan(kind, None)

    def _scan(self, kind: str | None, cursor: Any) -> None:
        """Wake some executions; the next ones when the pool has started these.

        Otherwise many would occupy memory before their turn, and delay those that run.
        """
        core = self._core
        if core.closed:
            return
        try:
            page = core.store.pending(kind=kind, after=cursor, limit=_PAGE)
            found: dict[str, list[MessageRow]] = {}
            for row in page.rows:
                found.setdefault(row.execution, []).append(row)
            asleep = [each for each in found if each not in self._live]
            fetched = core.store.executions(asleep)
        except Exception as error:  # noqa: BLE001 - it is all in the store: try again
            log.error("the store cannot be read; trying again", exc_info=error)
            core.clock.call_at(
                core.clock.now() + _AGAIN,
                lambda: core.writer.call(partial(self._scan, kind, cursor)),
            )
            return
        last = page.rows[-1].execution if page.rows else None
        self._mark(found, asleep)
        for execution in asleep:
            rows, stored = found[execution], fetched.get(execution)
            if stored is None or stored.status in ENDED:
                self._drop(rows)
                continue
            live = self._wake(execution, None, stored)
            if live is not None:
                self._unread.discard(execution)
                self._feed(live, rows, more=execution == last and page.after is not None)
        if page.after is None:
            self._scans -= 1
        else:
            POOL.submit(_Later(core.writer, partial(self._scan, kind, page.after)))

    def _mark(self, found: dict[str, list[MessageRow]], asleep: Sequence[str]) -> None:
        """Note that a run with these begins, which perhaps ends the process: see `CRASHES`."""
        if not self._core.store.left_open:
            return
        changes = [
            Change(name, attempted=[row.id for row in found[name] if not row.attempts])
            for name in asleep
        ]
        self._core.writer.commit([change for change in changes if change.attempted])

    def _drop(self, rows: list[MessageRow]) -> None:
        """Make dead letters of messages to an execution that is gone or has ended."""
        error = "ExecutionEnded: the execution has ended"
        dead = [
            NewDead(row.id, row.execution, row.type, row.body, error)
            for row in rows
            if row.type == "message"
        ]
        change = Change(
            rows[0].execution,
            at=self._core.clock.now(),
            consumed=[row.id for row in rows],
            dead=dead,
        )
        self._core.writer.submit(change, None, insist=True)

    def _catch_up_soon(self, live: Live) -> None:
        """Read on in the store once all that the last commit has stored is delivered.

        Otherwise what was stored by that commit would be read, and then delivered once more.
        """
        if not live.reading:
            live.reading = True
            self._core.writer.call(partial(self.catch_up, live))

    def catch_up(self, live: Live) -> None:
        """Read on in the store, where an execution has more there than in memory."""
        core = self._core
        live.reading = False
        if core.closed or live.has_ended or not live.behind:
            return
        try:
            page = core.store.pending(execution=live.id, after=live.last, limit=WINDOW)
        except Exception as error:  # noqa: BLE001 - they are stored, and read again
            self._read_later((live.id,), error)
            return
        self._feed(live, page.rows, more=page.after is not None)

    def _feed(self, live: Live, rows: list[MessageRow], *, more: bool) -> None:
        """Let stored messages in; one that may have ended the process before goes alone."""
        chosen: list[MessageRow] = []
        live.behind = more
        for at, row in enumerate(rows):
            if row.attempts >= CRASHES:
                self._bury_crasher(live, row)
                continue
            if row.attempts:
                if chosen:
                    live.behind = True
                    break
                if not self._count_attempt(live, row):
                    live.behind = True
                    self._read_later((live.id,), None)
                    return
                chosen = [row]
                live.behind = more or at + 1 < len(rows)
                break
            chosen.append(row)
        if chosen:
            told = self._let_in(live, chosen, live.late, ())
            for waiter, error in told:
                waiter.resolve(error)
        elif live.behind:
            self._core.writer.call(partial(self.catch_up, live))

    def _count_attempt(self, live: Live, row: MessageRow) -> bool:
        """Note that a run begins again after a crash; return whether that is stored."""
        if not self._core.store.left_open:  # it was closed meanwhile: that was no crash
            return True
        return self._core.writer.commit([Change(live.id, attempted=(row.id,))]) is None

    def _bury_crasher(self, live: Live, row: MessageRow) -> None:
        live.last = row.id
        text = f"ProcessEnded: the process ended {row.attempts + 1} times while this was processed"
        log.error("message given up: it ends the process", execution=live.id, attempts=row.attempts)
        change = Change(
            live.id,
            at=self._core.clock.now(),
            consumed=(row.id,),
            dead=(NewDead(row.id, live.id, row.type, row.body, text),),
        )
        live.submit_letter(change, RuntimeError(text))

    def _read_later(self, executions: Iterable[str], error: Exception | None) -> None:
        """Read messages again that are stored and could not be handed over."""
        names = list(executions)
        if error is not None:
            log.error(
                "the store cannot be read; trying again", executions=names[:10], exc_info=error
            )
        core = self._core
        for name in names:
            live = self._live.get(name)
            if live is None:
                self._unread.add(name)
            else:
                live.behind = True
        core.clock.call_at(
            core.clock.now() + _AGAIN, lambda: core.writer.call(partial(self._read_again, names))
        )

    def _read_again(self, names: list[str]) -> None:
        if self._core.closed:
            return
        for name in names:
            live = self._live.get(name)
            if live is None and name in self._unread:
                live = self._wake(name, None, None)
                if live is not None:
                    self._unread.discard(name)
                    live.behind = True
            if live is not None and live.behind and live.held < _LOW:
                self.catch_up(live)

    # Executions that end, or have nothing to do.

    def break_off(self, live: Live, error: Exception) -> None:
        """Mark an execution as failed whose state or messages cannot be read. Any thread.

        What is stored of it stays, for code that can read it.
        """
        core = self._core
        log.error("execution cannot be read", execution=live.id, exc_info=error)

        live.broken = error

        def leave() -> None:  # in the writer's thread
            if self._live.get(live.id) is live:
                del self._live[live.id]
                self._unread.add(live.id)
            if live.port is not None:
                live.port.finish()
            for waiter in live.late.values():
                waiter.resolve(error)
            try:
                row = core.store.execution(live.id)
            except Exception as unread:  # noqa: BLE001 - it stays as it is
                log.error("the store cannot be read", exc_info=unread)
                return
            if row is None or row.status != Status.ACTIVE:
                core.watchers.tell(live.id)
                return
            failure = failure_of(error)
            change = Change(
                live.id,
                kind=row.kind,
                expected=row.revision,
                state=row.state,
                version=row.version,
                status=Status.FAILED,
                error=core.encode_failure(failure),
                at=core.clock.now(),
            )
            if row.parent is not None:
                change.messages = (
                    message_to_parent(row.parent, live.id, Status.FAILED, error=failure),
                )
            core.writer.submit(change, left)

        def left(change: Change, _error: Exception | None) -> None:
            self.deliver_rows(change.rows)
            core.watchers.tell(live.id)

        core.writer.call(leave)

    def settle(self, live: Live) -> None:
        """Retire an execution that has ended, or read on; note one that may retire soon."""
        if live.behind and live.held < _LOW and not self._core.closed:
            self._catch_up_soon(live)
            return
        over = live.status in ENDED
        if over and not live.displaced and self._retire(live):
            return
        if over or self.is_crowded:
            self.note(live)

    def _retire(self, live: Live) -> bool:
        """Release an execution that has nothing to do; return whether that was so."""
        if live.held or live.behind or live.port is None or not live.is_idle:
            return False
        if not live.port.retire():
            return False
        if self._live.get(live.id) is live:
            del self._live[live.id]
        return True

    def _on_sweep(self) -> None:
        """Retire executions that are idle."""
        self._sweep = None
        for _ in range(min(len(self._noted), _SWEPT)):
            live = self._noted.popleft()
            live.noted = False
            if live.has_ended:
                continue
            if live.displaced:
                live.mark_displaced()
            if not live.is_idle:  # it has committed, but its lane may not have come to rest yet
                self.note(live)
                continue
            if (live.status in ENDED or self.is_crowded) and not self._retire(live):
                self.note(live)
        if self._noted:
            self._set_sweep()

    # Any thread.

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
        return live is not None and live.offer_unstored(envelope, waiter, task)

    def begin(self, live: Live, envelope: Envelope, waiter: Any) -> bool:
        """Let a new execution run before it is stored: its first commit creates it. Any thread.

        Returns whether that was possible; else it has to be stored first.
        """
        if self._live.setdefault(live.id, live) is not live:
            return False
        if live.offer_unstored(envelope, waiter, None):
            return True
        self.forget(live)
        return False

    def forget(self, live: Live) -> None:
        """Let go of an execution that came to nothing: there is one of that id already.

        What was handed to it meanwhile is stored, and goes to the other one.
        """
        if live.port is not None:
            live.port.finish()
        if self._live.get(live.id) is live:
            del self._live[live.id]
            self._unread.add(live.id)
            self._core.writer.call(partial(self._read_again, [live.id]))

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
        for live in list(self._live.values()):
            for waiter in live.late.values():
                waiter.resolve(error)

    def close(self, timeout: float) -> None:
        """Let all executions finish the batch they are running, for `timeout` seconds.

        Those that do not are cut off: their outcome is not committed any more, so their messages
        stay in the store and run again with the next engine.
        """
        if self._sweep is not None:
            self._sweep.cancel()
        ports = [
            (live.id, live.port) for live in list(self._live.values()) if live.port is not None
        ]
        for _, port in ports:
            port.finish()
        end = monotonic() + timeout
        for name, port in ports:
            try:
                port.worker.stop(drain=False, timeout=max(end - monotonic(), 0.0))
            except StopTimeout:
                log.warning(
                    "execution did not end in time; it runs again with the next engine",
                    execution=name, timeout=timeout,
                )  # fmt: skip
