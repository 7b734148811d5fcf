"""Messages and new executions from outside: checked, encoded, and stored or run at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import Rejected
from actorflow.engine import bodies
from actorflow.engine.commit.entries import Append
from actorflow.engine.commit.wake_chain import ChainedTicket
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.envelopes import Message
from actorflow.engine.errors import KindMismatch, StoreFull
from actorflow.engine.executions.creation import PATIENCE, CreationTicket
from actorflow.engine.ids import check_id, read
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage, new_row
from actorflow.runtime import tracing
from actorflow.runtime.lanes.lane import call_in
from actorflow.runtime.lanes.uninterruptible import in_main_thread
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.ownership import Ownership
    from actorflow.engine.executions.table import ExecutionTable
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import ExecutionRow, Store
    from actorflow.runtime.environment import Environment

__all__ = ["Confirmation", "Sender", "creation"]


def _encode(message: Any) -> bytes:
    return bodies.with_context(bodies.encode(message))


def creation(
    launches: Sequence[tuple[str, Any]],
    kind: str,
    at: float,
    parent: NewExecution | None = None,
    to_parent: Sequence[Any] = (),
) -> Change:
    """Return the change that creates executions with their first messages.

    It is refused if the first of them exists.

    Args:
        launches: their ids and first messages.
        kind: of all of them.
        at: when.
        parent: hears of their ends; it is created if need be.
        to_parent: messages that it gets in the same change.

    """
    encode = bodies.encode if tracing.TRACER is None else _encode
    above = () if parent is None else (parent,)
    name = None if parent is None else parent.id
    return Change(
        at=at,
        creates=[
            *(NewExecution(check_id(each, "an execution"), kind, name) for each, _ in launches),
            *above,
        ],
        new_only=True,
        messages=[
            *(NewMessage(each, "message", encode(message)) for each, message in launches),
            *(
                NewMessage(each.id, "message", encode(message))
                for each in above
                for message in to_parent
            ),
        ],
    )


class Sender:
    """Takes messages from outside. Thread-safe.

    Args:
        store: where executions are that are not in memory.
        clock: of the engine.
        writer: stores messages.
        state: of the engine.
        environment: its lanes.
        kinds: of executions, by name.
        ownership: which executions may run here.
        table: the executions in memory.
        resume: starts to run stored work, unless it has started already.

    """

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        environment: Environment,
        *,
        kinds: dict[str, Kind],
        ownership: Ownership,
        table: ExecutionTable,
        resume: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._writer = writer
        self._state = state
        self._pool = environment.pool
        self._serial_lane = environment.serial_lane
        self._kinds = kinds
        self._ownership = ownership
        self._table = table
        self._resume = resume
        self._begun: dict[Any, CreationTicket] = {}  # by the tickets of their creators

    # Messages.

    def check_message(self, execution: str, kind: str | None, body: Any) -> Any:
        """Ask the kind of an execution whether it takes a message; return the body to store.

        If that is another one, the sender has to wait until it is processed: see `Confirmation`.

        Args:
            execution: the receiver.
            kind: the kind of which the execution is created if it does not exist.
            body: of the message.

        """
        if kind is not None:
            self._refuse_reserved(execution, kind)
        live = self._table.find(execution)
        name = kind if live is None else live.kind.name
        row = None
        if name is None:
            row = read(self._state, self._store.execution, execution)
            name = None if row is None else row.kind
        found = None if name is None else self._kinds.get(name)
        check = getattr(found, "check_message", None)
        if check is not None:
            check(execution, body)
        bounded = getattr(found, "bounded", None)
        if found is None or bounded is None or not self._ownership.runs(execution):
            return body
        if live is not None and live.has_state:
            state, unread = live.state, live.unconsumed
        elif live is not None:
            state, unread = _read_state(found, live.fetched), live.unconsumed
        else:
            state, unread = _read_state(found, row), 0
        changed = bounded(execution, state, unread, body)
        return body if changed is None else changed

    def _refuse_reserved(self, execution: str, kind: str) -> None:
        """Refuse to create an execution whose id is a name of another kind."""
        for other in list(self._kinds.values()):
            reserves = getattr(other, "reserves", None)
            if reserves is not None and other.name != kind and reserves(execution):
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
        """Store messages and deliver them; resolve `stored` and `processed` then.

        A thread that would wait anyway may make the commit itself: `patience` says for how many
        seconds it would.

        Raises:
            NotStorable: a message is not plain data.
            StoreFull: there is no waiter, and the store has just refused other messages.

        """
        if self._state.closed:
            self._state.require_open()
        encode = bodies.encode if tracing.TRACER is None else _encode
        if len(messages) == 1:
            data = [encode(messages[0])]
        else:
            data = [encode(message) for message in messages]
        writer = self._writer
        if writer.refusal is not None and stored is None and processed is None:
            since, why = writer.refusal
            if self._clock.now() - since < AGAIN:  # there is no waiter that could hear of it
                raise StoreFull(str(why)) if isinstance(why, StoreFull) else why
        if not self._state.resumed:
            self._resume()
        if processed is not None:
            self._ownership.follow(execution)
        keys = None if key is None else (check_id(key, "a key"),)
        if patience and type(stored) is not ChainedTicket:
            patience = 0.0  # the main thread: an interrupt must not strike a commit
        writer.append(Append(execution, kind, data, stored, processed, keys=keys), patience)

    def append_waiting(
        self, execution: str, kind: str, message: Any, processed: Any, key: str | None
    ) -> None:
        """Deliver on behalf of a blocked caller; stored first only if that is necessary."""
        state, writer = self._state, self._writer
        if state.closed:
            state.require_open()
        # With spans, every message is stored: its context is stored with it.
        stored_only = key is not None or tracing.TRACER is not None
        if not stored_only and writer.quiet and state.resumed and writer.refusal is None:
            body = bodies.decode(bodies.encode(message))
            if type(processed) is ThreadTicket and in_main_thread():
                # The lane that delivers it also runs it. The helper would be one thread more.
                deliver = partial(self._deliver, execution, kind, body, processed)
                call_in(self._pool, "push_block", deliver)
                return
            if self._table.offer(execution, Message(None, self._clock.now(), body), processed):
                return
        self.append(execution, kind, (message,), processed=processed, key=key)

    def _deliver(self, execution: str, kind: str, body: Any, processed: ThreadTicket) -> None:
        """Deliver on behalf of the main thread, which is blocked. In a lane."""
        self._serial_lane.free()  # so that this thread goes on with the run
        try:
            message = Message(None, self._clock.now(), body)
            if not self._table.offer(execution, message, processed):
                self.append(execution, kind, (body,), processed=processed)
        except Exception as error:  # noqa: BLE001 - the caller's
            processed.resolve(error)

    # New executions.

    def create(self, execution: str, kind: str, message: Any, done: Any) -> None:
        """Create an execution with its first message; `done` gets False if it exists, else True.

        A thread waits for `done` by `wait_created`.

        Unless the last run of that kind was slow, it runs at once: one commit creates it and has
        its first state. The creator waits for that within limits: see `creation`.
        """
        self._state.require_open()
        self._refuse_reserved(check_id(execution, "an execution"), kind)
        found = self._kinds.get(kind)
        quick = getattr(found, "quick", None)
        body = bodies.encode(message)
        self._resume()
        here = self._state.resumed and self._ownership.runs(execution) and tracing.TRACER is None
        here = here and self._table.pace_of(kind).is_swift
        if found is not None and quick is not None and quick(execution) and here:
            now = self._clock.now()
            live = self._table.prepare(execution, found, new_row(execution, kind, now))
            live.creates = NewExecution(execution, kind)
            envelope = Message(None, now, bodies.decode(body))
            created = CreationTicket(self, live, body, done)
            if type(done) is AsyncTicket:
                done.loop.call_later(PATIENCE, created.store_apart)
            else:
                self._begun[done] = created
            if in_main_thread():  # the lane that begins it also runs it: see `append_waiting`
                call_in(self._pool, "create", partial(self._begin_in_lane, created, envelope))
            else:
                self._begin(created, envelope)
            return
        self.create_many([(execution, message)], kind, done)

    def _begin(self, created: CreationTicket, envelope: Message) -> None:
        """Run a new execution, or store it first if that is not possible."""
        live = created.live
        if not self._table.begin(live, envelope, created):
            created.settle()
            self.create_many([(live.id, bodies.decode(created.body))], live.kind.name, created.done)

    def _begin_in_lane(self, created: CreationTicket, envelope: Message) -> None:
        """Begin an execution on behalf of the main thread, which is blocked. In a lane."""
        self._serial_lane.free()  # so that this thread goes on with the run
        try:
            self._begin(created, envelope)
        except Exception as error:  # noqa: BLE001 - the caller's
            created.done.resolve(error)

    def wait_created(self, done: ThreadTicket) -> Any:
        """Wait for the ticket of `create`; return its answer, or raise its error."""
        try:
            if not done.wait(PATIENCE):
                created = self._begun.get(done)
                if created is not None:
                    created.store_apart()
                done.wait(None)
        finally:
            self._begun.pop(done, None)
        error, answer = done.outcomes[0]
        if error is not None:
            raise error
        return answer

    def store_apart(self, created: CreationTicket) -> None:
        """Store an execution whose first run is still under way. Thread-safe."""
        live, now = created.live, self._clock.now()
        name, kind = live.id, live.kind.name

        def committed(change: Change, error: Exception | None) -> None:
            if error is not None:
                created.refuse(error)
            elif change.refusal is None:
                self._table.deliver_rows(change.rows, {name: new_row(name, kind, now)})
                created.resolve()
            else:
                self.resolve_existing(name, kind, created.done)

        self._writer.submit(creation([(name, bodies.decode(created.body))], kind, now), committed)

    def create_many(
        self,
        launches: Sequence[tuple[str, Any]],
        kind: str,
        done: Any,
        parent: NewExecution | None = None,
        to_parent: Sequence[Any] = (),
    ) -> None:
        """Create executions in one commit, unless the first of them exists: see `creation`."""
        self._state.require_open()
        now = self._clock.now()
        change = creation(launches, kind, now, parent, to_parent)
        self._resume()

        def committed(change: Change, error: Exception | None) -> None:
            if error is not None:
                done.resolve(error)
            elif change.refusal is None:
                rows = {name: new_row(name, kind, now) for name, _ in launches}
                # A parent may have been there before.
                self._table.deliver_rows(change.rows, rows if parent is None else None)
                done.resolve(answer=True)
            else:
                self.resolve_existing(change.refusal.execution, kind, done)

        may_block = type(done) is ThreadTicket and not in_main_thread()
        self._writer.submit(change, committed, may_block=may_block, waiter=done)

    def resolve_existing(self, execution: str, kind: str, done: Any) -> None:
        """Resolve the ticket of a creator who found an execution of that id."""
        try:
            row = read(self._state, self._store.execution, execution)
        except Exception as error:  # noqa: BLE001 - the creator's, who would wait forever
            done.resolve(error)
            return
        if row is None or row.kind == kind:
            done.resolve(answer=False)
            return
        msg = f"execution {execution!r} is of kind {row.kind!r}, not {kind!r}: choose another id"
        done.resolve(KindMismatch(msg))


def _read_state(kind: Kind, row: ExecutionRow | None) -> Any:
    return kind.decode(None if row is None else row.state)


class Confirmation:
    """Tells a sender that its message is stored, unless the run refuses it."""

    __slots__ = ("_sender",)

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    def not_stored(self) -> _NotStored:
        """Return a waiter that passes on why the message could not be stored."""
        return _NotStored(self._sender)

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Pass on a refusal. Whatever else happens to it, it is stored."""
        self._sender.resolve(error if isinstance(error, Rejected) else None)


class _NotStored:
    """Passes on that a message could not be stored."""

    __slots__ = ("_sender",)

    def __init__(self, sender: Any) -> None:
        self._sender = sender

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Pass on an error."""
        if error is not None:
            self._sender.resolve(error)
