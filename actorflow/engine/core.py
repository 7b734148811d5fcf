"""What the parts of an engine share: the store, the clocks, the kinds, and the parts themselves.

The engine that users see forwards to this; whoever builds a kind of execution with verbs of its own
(flows, workflows, plans) uses it directly.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from actorflow.engine import bodies
from actorflow.engine.clock import WALL, EngineClock, StoreClock
from actorflow.engine.envelopes import Message
from actorflow.engine.errors import (
    EngineClosed,
    KindMismatch,
    StoreFull,
    StoreRefused,
)
from actorflow.engine.execution.ending import Ending
from actorflow.engine.execution.failpoints import failpoint
from actorflow.engine.execution.host import Host
from actorflow.engine.execution.joining import Joining
from actorflow.engine.execution.live import Live
from actorflow.engine.execution.ownership import Ownership
from actorflow.engine.execution.run import AlreadyThere
from actorflow.engine.execution.timers import Timers
from actorflow.engine.execution.watching import Waiters, Watches, row_of
from actorflow.engine.execution.writing.entries import Append
from actorflow.engine.execution.writing.waking import ChainedTicket
from actorflow.engine.execution.writing.writer import AGAIN, Writer
from actorflow.engine.identifiers import check_id, unknown_execution
from actorflow.engine.kind import Status
from actorflow.engine.operations.retention import Retention
from actorflow.engine.stores.abandoned import AbandonedStore
from actorflow.engine.stores.protocol import (
    Change,
    NewExecution,
    NewMessage,
    new_row,
)
from actorflow.engine.tasks.board import Board
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.relay import RELAY
from actorflow.runtime.lanes.shelter import in_main_thread
from actorflow.runtime.log import log
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.execution.ticket import Ticket
    from actorflow.engine.kind import Kind
    from actorflow.engine.stores.protocol import ExecutionRow, SharedStore, Store

__all__ = ["LAST_COMMIT", "Core"]

LAST_COMMIT = 5.0
"""Seconds that the last commit of an engine may take, however short its time to close is."""

T = TypeVar("T")

_NEEDED = ("name", "options", "decode", "encode", "run")  # what a kind cannot do without
_LEAST = 0.1  # seconds that a run has to end, however long the tasks have taken before


class _Call:
    """Something to be done in a lane."""

    __slots__ = ("_call", "_what")

    def __init__(self, what: str, call: Callable[[], Any]) -> None:
        self._what = what
        self._call = call

    def run(self) -> None:
        """Do it. Only the pool calls this."""
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - a user's code must not end a lane
            log.error(f"{self._what} failed", exc_info=error)


class Core:
    """The inside of an engine. Thread-safe."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Any = WALL,
        max_live: int = 1_000,
        retention: float | None = None,
        keys_for: float = 7 * 86_400.0,
    ) -> None:
        self.store = store
        shared = clock is WALL and store.traits.shared
        self.clock = EngineClock(StoreClock(cast("SharedStore", store).time) if shared else clock)
        self.worker_clock = SYSTEM if clock is WALL else clock
        self.kinds: dict[str, Kind] = {}
        self._reserving: list[Any] = []  # those of them that reserve ids
        self.closed = False
        self.abandoned = False
        """Whether this is a copy in the child of a fork."""
        self.resumed = False
        """Whether what is stored runs. Nothing does before somebody asks for it."""
        self.before_resume: list[Callable[[], object]] = []
        """Called in the writer's thread before it does; a kind may register what it needs then."""
        self.passive = False
        """Only store what comes; run nothing. For tools that work on a store without an engine."""
        self._why_closed = "the engine has been closed"
        self._lock = threading.Lock()
        self._resuming = threading.Lock()
        self.watchers = Waiters()
        """Callers that wait until an execution is done, failed or cancelled."""
        self.watches = Watches()
        self.ownership = Ownership(self)
        self.host = Host(self, max_live)
        self.timers = Timers(self)
        self.board = Board(self)
        self.writer = Writer(self)
        self.ending = Ending(self)
        self.joining = Joining(self)
        self.retention = Retention(self, retention, keys_for)
        self._unsubscribe = store.subscribe(self.ownership.woken)

    # Beginning.

    def register(self, kind: Kind) -> None:
        """Make a kind known; once the engine has begun, what was kept for it goes on.

        Raises:
            BadOption: there is one of that name.

        """
        missing = [each for each in _NEEDED if not hasattr(kind, each)]
        if missing or isinstance(kind, type):
            why = f"it has no {missing[0]}" if missing else "it is a class: write register(Kind())"
            raise BadOption(f"{kind!r:.80} is not a kind of execution: {why}")
        check_id(kind.name, "a kind")
        with self._lock:
            self.refuse_if_closed()
            if kind.name in self.kinds:
                msg = f"there is a kind {kind.name!r} already; give this one another name"
                raise BadOption(msg)
            self.kinds[kind.name] = kind
            if hasattr(kind, "reserves"):
                self._reserving.append(kind)
        if self.resumed:
            self.in_writer(lambda: self.host.backlog.recover(kind.name))

    def resume(self) -> None:
        """Go on with everything that is stored. Does nothing the second time.

        Raises:
            Exception: the store cannot be read; the next call tries again.

        """
        if self.resumed or self.passive:
            return
        with self._resuming:
            if not self.resumed:
                self.in_writer(self._begin)

    def _begin(self) -> None:
        """Begin, in the writer's thread, so that nothing is delivered twice."""
        if self.resumed:
            return
        for call in self.before_resume:
            call()
        self.ownership.join()
        self.watches.reload(self.store)
        self.resumed = True
        try:
            self.host.backlog.recover()
            self.timers.start()
        except BaseException:
            self.resumed = False
            raise
        self.board.resume()
        self.retention.begin()

    def _unfinished(self) -> dict[str, Any]:
        """Return how many messages, timers and tasks wait in the store, and for which executions.

        At most 100 of each are counted, and three executions named.
        """
        found: dict[str, Sequence[Any]] = {
            "messages": self.store.pending(limit=100).rows,
            "timers": self.store.due(100),
            "tasks": self.store.open(limit=100).rows,
        }
        waiting: dict[str, Any] = {name: len(rows) for name, rows in found.items() if rows}
        if waiting:
            names = dict.fromkeys(row.execution for rows in found.values() for row in rows)
            waiting["executions"] = ", ".join([*names][:3]) + (", ..." if len(names) > 3 else "")  # noqa: PLR2004
        return waiting

    # States.

    def decode(self, kind: Kind, row: ExecutionRow | None) -> Any:
        """Return the state of an execution; an older version is upgraded.

        Raises:
            Exception: it cannot be decoded, or is of a newer version.

        """
        if row is None or row.state is None:
            return kind.decode(None)
        version = getattr(kind, "version", 1)
        data = row.state
        if row.version != version:
            upgrade = getattr(kind, "upgrade", None)
            if row.version > version or upgrade is None:
                msg = (
                    f"the state of {row.id!r} has version {row.version}, but kind {kind.name!r} "
                    f"knows version {version}: run the code that wrote it, or give it an upgrade()"
                )
                raise ValueError(msg)
            data = upgrade(data, row.version)
        return kind.decode(data)

    def row(self, execution: str) -> ExecutionRow:
        """Return an execution as it is stored.

        Raises:
            UnknownExecution: there is none of that id.

        """
        row = self.read(self.store.execution, check_id(execution, "an execution"))
        if row is None:
            raise self.read(unknown_execution, self.store, execution)
        return row

    def read(self, look: Callable[..., T], *args: Any, **options: Any) -> T:
        """Return what is found in the store; who looks while it is being closed hears of that.

        Raises:
            EngineClosed: instead of `StoreRefused`, because the store is closed.

        """
        try:
            return look(*args, **options)
        except StoreRefused:
            self.refuse_if_closed()
            raise

    # Messages from outside.

    def check_message(self, execution: str, kind: str | None, body: Any) -> None:
        """Ask the kind of an execution whether it takes a message, before that is stored.

        Args:
            execution: whose message it is.
            kind: of which the execution is to be if it is not there.
            body: of the message.

        """
        if kind is not None:
            self._refuse_reserved(execution, kind)
        live = self.host.find(execution)
        name = kind if live is None else live.kind.name
        if name is None:
            row = self.read(self.store.execution, execution)
            name = None if row is None else row.kind
        check = None if name is None else getattr(self.kinds.get(name), "check_message", None)
        if check is not None:
            check(body)

    def _refuse_reserved(self, execution: str, kind: str) -> None:
        """Refuse to create what another kind has a name for, although nothing is stored yet."""
        for other in self._reserving:
            if other.name != kind and other.reserves(execution):
                raise KindMismatch(
                    f"execution {execution!r} is of kind {other.name!r}, not {kind!r:.80}: choose "
                    "another id"
                )

    def append(
        self,
        execution: str,
        kind: str | None,
        messages: Sequence[Any],
        *,
        stored: Any = None,
        processed: Any = None,
        key: str | None = None,
        patience: float = 0.0,
    ) -> None:
        """Store messages and deliver them; resolve `stored` and `processed` when they are.

        A thread that would wait anyway may make the commit itself: `patience` says for how many
        seconds it would.

        Raises:
            NotStorable: a message is not plain data.
            StoreFull: nobody waits, and the store has just refused others.

        """
        if self.closed:
            self.refuse_if_closed()
        encode = bodies.encode
        if len(messages) == 1:
            data = [encode(messages[0])]
        else:
            data = [encode(message) for message in messages]
        writer = self.writer
        if writer.refusal is not None and stored is None and processed is None:
            since, why = writer.refusal
            if self.clock.now() - since < AGAIN:  # nobody would hear of it otherwise
                raise StoreFull(str(why)) if isinstance(why, StoreFull) else why
        if not self.resumed:
            self.resume()
        if processed is not None:
            self.ownership.follow(execution)
        keys = None if key is None else (check_id(key, "a key"),)
        if patience and type(stored) is not ChainedTicket:
            patience = 0.0  # the main thread: an interrupt must not strike a commit
        writer.append(Append(execution, kind, data, stored, processed, keys=keys), patience)

    def append_waiting(self, execution: str, kind: str, message: Any, processed: Any) -> None:
        """Deliver for a caller who waits; stored first only if the execution is not live."""
        self.refuse_if_closed()
        if self.writer.quiet and self.resumed and self.writer.refusal is None:
            body = bodies.decode(bodies.encode(message))
            if type(processed) is ThreadTicket and in_main_thread():
                # The lane that delivers it also runs it. The shelter would be one thread more.
                deliver = partial(self._deliver, execution, kind, body, processed)
                self.in_lane("push_block", deliver)
                return
            if self.host.offer(execution, Message(None, self.clock.now(), body), processed):
                return
        self.append(execution, kind, (message,), processed=processed)

    def _deliver(self, execution: str, kind: str, body: Any, processed: ThreadTicket) -> None:
        """Deliver for a caller in the main thread, who waits. In a lane."""
        RELAY.free()  # so that this thread goes on with the run
        try:
            if not self.host.offer(execution, Message(None, self.clock.now(), body), processed):
                self.append(execution, kind, (body,), processed=processed)
        except Exception as error:  # noqa: BLE001 - the caller's
            processed.resolve(error)

    def append_late(self, execution: str, kind: str, ticket: Ticket) -> None:
        """Store a message after all that was to be processed without. Thread-safe."""
        _, body = ticket.packed()
        try:
            self.refuse_if_closed()
            self.writer.append(Append(execution, kind, (body,), processed=ticket.waiter))
        except EngineClosed as error:
            if ticket.waiter is not None:
                ticket.waiter.resolve(error)

    def create(
        self,
        execution: str,
        kind: str,
        message: Any,
        done: Any,
    ) -> None:
        """Create an execution with its first message; `done` gets True, or False if it is there.

        Where no code of a user is in the way, it runs at once: one commit creates it and has its
        first state.
        """
        self.refuse_if_closed()
        self._refuse_reserved(check_id(execution, "an execution"), kind)
        found = self.kinds.get(kind)
        quick = getattr(found, "quick", None)
        body = bodies.encode(message)
        self.resume()
        here = self.resumed and self.ownership.runs(execution)
        if found is not None and quick is not None and quick(execution) and here:
            now = self.clock.now()
            live = Live(self, execution, found, new_row(execution, kind, now))
            live.creates = NewExecution(execution, kind)
            envelope = Message(None, now, bodies.decode(body))
            if in_main_thread():  # the lane that begins it also runs it: see `append_waiting`
                self.in_lane("create", partial(self._begin_one, live, envelope, message, done))
                return
            if self.host.begin(live, envelope, _Created(self, live, done)):
                return
        self.create_many([(execution, message)], kind, done)

    def _begin_one(self, live: Live, envelope: Message, message: Any, done: Any) -> None:
        """Begin an execution for a caller in the main thread. In a lane."""
        RELAY.free()  # so that this thread goes on with the run
        try:
            if not self.host.begin(live, envelope, _Created(self, live, done)):
                self.create_many([(live.id, message)], live.kind.name, done)
        except Exception as error:  # noqa: BLE001 - the caller's
            done.resolve(error)

    def create_many(
        self,
        launches: Sequence[tuple[str, Any]],
        kind: str,
        done: Any,
    ) -> None:
        """Create executions in one commit, unless the first of them is there already."""
        self.refuse_if_closed()
        now = self.clock.now()
        change = Change(
            at=now,
            creates=[NewExecution(check_id(name, "an execution"), kind) for name, _ in launches],
            new_only=True,
            messages=[
                NewMessage(name, "message", bodies.encode(message)) for name, message in launches
            ],
        )
        self.resume()

        def committed(change: Change, error: Exception | None) -> None:
            if error is not None:
                done.resolve(error)
            elif change.refusal is None:
                self.host.deliver_rows(
                    change.rows, {name: new_row(name, kind, now) for name, _ in launches}
                )
                done.resolve(answer=True)
            else:
                self.resolve_existing(change.refusal.execution, kind, done)

        may_block = type(done) is ThreadTicket and not in_main_thread()
        self.writer.submit(change, committed, may_block=may_block, waiter=done)

    def resolve_existing(self, execution: str, kind: str, done: Any) -> None:
        """Resolve the ticket of a creator who found an execution of that id."""
        try:
            row = self.read(self.store.execution, execution)
        except Exception as error:  # noqa: BLE001 - the creator's, who would wait for ever
            done.resolve(error)
            return
        if row is None or row.kind == kind:
            done.resolve(answer=False)
            return
        msg = f"execution {execution!r} is of kind {row.kind!r}, not {kind!r}: choose another id"
        done.resolve(KindMismatch(msg))

    def wait_for(self, ticket: ThreadTicket, timeout: float | None, message: Any) -> Any:
        """Wait for a ticket; return its answer, or raise what it was resolved with."""
        if not ticket.wait(timeout):
            raise self.writer.late(timeout, message)
        error, answer = ticket.outcomes[0]
        if error is not None:
            raise error
        return answer

    async def await_for(self, ticket: Any, timeout: float | None, message: Any) -> Any:
        """Like `wait_for`, from a task of any event loop."""
        if not await ticket.wait(timeout):
            raise self.writer.late(timeout, message)
        return ticket.answer

    # What the parts use.

    def in_lane(self, what: str, call: Callable[[], Any]) -> None:
        """Call a user's code in a thread of the pool, never in the writer's."""
        POOL.submit(_Call(what, call))

    def refuse_if_closed(self) -> None:
        """Raise `EngineClosed` once it is."""
        if self.closed:
            raise EngineClosed(self._why_closed)

    def refuse_if_abandoned(self) -> None:
        """Raise `EngineClosed` in the child of a fork, where threads that are gone hold locks."""
        if self.abandoned:
            raise EngineClosed(self._why_closed)

    def in_writer(self, function: Callable[[], Any]) -> Any:
        """Call a function in the writer's thread; return what it returns, or raise."""
        done = ThreadTicket()

        def call() -> None:
            try:
                answer = function()
            except Exception as error:  # noqa: BLE001 - the caller's
                done.resolve(error)
            else:
                done.resolve(None, answer)

        self.refuse_if_closed()
        self.writer.awaited[done] = None
        try:
            if not self.writer.call(call):
                raise EngineClosed(self._why_closed)
            return self.wait_for(done, None, function)
        finally:
            self.writer.awaited.pop(done, None)

    def dispatch(self, change: Change, live: Live) -> None:
        """Send out what a committed change says. In the writer's thread."""
        name = change.execution
        if change.timers:
            self.timers.added(change.timers)
        if change.finished_tasks:
            self.board.finished(change.finished_tasks)
        if change.clear:
            self.board.cancel_all(name)
            self.watches.forget(name)
        if change.watches or change.cancelled_watches:
            self.watches.change(change)
        if change.tasks:
            self.board.hand_out(change.tasks)
        if change.withdrawn_tasks:
            self.board.withdraw(change.withdrawn_tasks)
        failpoint("dispatch.inside")
        if change.rows:
            self.host.deliver_rows(change.rows)
        if change.status != Status.ACTIVE:
            self.watchers.tell(name, None if change.appends else row_of(change, live))
        hook = getattr(live.kind, "committed", None)
        if hook is not None:
            self.in_lane("committed()", lambda: hook(change))

    # Ending.

    def abandon(self) -> None:
        """Refuse every use from now on: in the child of a fork all belongs to the parent."""
        self.closed = self.abandoned = True
        self._why_closed = (
            f"this engine was opened before a fork and belongs to process {os.getppid()}: "
            "open another one in this process"
        )
        self.store = cast("Store", AbandonedStore(self.store, self._why_closed))

    def close(self, timeout: float) -> None:
        """Finish what is running, commit it, and close the store."""
        end = monotonic() + timeout
        with self._lock:
            if self.closed:
                return
            if not self.resumed and not self.passive:
                self._warn_of_unfinished()
            self.closed = True
        self._unsubscribe()
        self.timers.close()
        self.board.close(timeout)
        self.writer.stop_insisting()  # or an execution would wait for room for ever
        self.host.close(max(end - monotonic(), _LEAST))
        ended = self.writer.close(max(end - monotonic(), LAST_COMMIT))
        self.host.tell_waiting()
        self.ownership.close(EngineClosed("the engine was closed before that was processed"))
        if ended:
            self.store.close()
        else:
            log.error("a commit hangs; the store is closed when it ends", store=repr(self.store))
            late = partial(self.writer.when_idle, self.store.close)
            threading.Thread(target=late, name="actorflow-closing", daemon=True).start()
        self.watchers.close(EngineClosed("the engine was closed before the execution ended"))
        self.clock.close()

    def _warn_of_unfinished(self) -> None:
        try:
            waiting = self._unfinished()
        except StoreRefused:
            return
        if waiting:
            log.warning(
                "the store has unfinished work, which never began to run: call engine.resume()",
                **waiting,
            )


class _Created:
    """Passes the first commit of an execution on to its creator."""

    __slots__ = ("_core", "_done", "_live")

    def __init__(self, core: Core, live: Live, done: Any) -> None:
        self._core = core
        self._live = live
        self._done = done

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Pass it on. An error of the run is the execution's: it has failed, but it is there."""
        if isinstance(error, (StoreRefused, EngineClosed)):
            self._done.resolve(error)
        elif isinstance(error, AlreadyThere):
            live = self._live
            self._core.resolve_existing(live.id, live.kind.name, self._done)
        else:
            self._done.resolve(answer=True)
