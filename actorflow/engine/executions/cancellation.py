"""Executions that are ended from outside, by a user or by their parent; and reopened ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.commit.entries import Append
from actorflow.engine.commit.writer import AGAIN
from actorflow.engine.errors import ExecutionEnded, OutcomeUnknown, StoreRefused
from actorflow.engine.executions.outcomes import message_to_parent
from actorflow.engine.ids import execution_row
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import Change, NewMessage
from actorflow.runtime.errors import BadOption
from actorflow.runtime.lanes.lane import call_in
from actorflow.runtime.telemetry.outages import outage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.clock import EngineClock
    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.loaded import LoadedExecution
    from actorflow.engine.executions.table import ExecutionTable
    from actorflow.engine.executions.waiters import Waiters, Watches
    from actorflow.engine.kind import Kind
    from actorflow.engine.state import EngineState
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow, Store
    from actorflow.runtime.lanes.lane import RuntimeLane

__all__ = ["Cancellation"]


class _Stored:
    """Resolves the caller of a cancel once its message is stored: whether it had a target."""

    __slots__ = ("_done", "_there")

    def __init__(self, done: Any, *, there: bool) -> None:
        self._done = done
        self._there = there

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Pass it on. An execution that has ended meanwhile is not there any more."""
        ended = isinstance(error, ExecutionEnded)
        self._done.resolve(None if ended else error, error is None and self._there)


class Cancellation:
    """Ends executions. Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: EngineClock,
        writer: Writer,
        state: EngineState,
        *,
        pool: RuntimeLane,
        kinds: dict[str, Kind],
        table: ExecutionTable,
        waiters: Waiters,
        watches: Watches,
    ) -> None:
        self._store = store
        self._clock = clock
        self._writer = writer
        self._state = state
        self._pool = pool
        self._kinds = kinds
        self._table = table
        self._waiters = waiters
        self._watches = watches
        table.listeners.cancel = self.cancel_later

    def cancel(self, execution: str, target: Any, done: Any) -> None:
        """Ask an execution to end, or end it; `done` gets whether it was still there."""
        row = execution_row(self._store, self._state, execution)
        if row.status in ENDED:
            done.resolve(answer=False)
            return
        body = self._wish(row, target)
        if body is not None:
            # Sent even if there is no such part, so that the history shows who asked for what.
            stored = _Stored(done, there=self._has_part(row, target))
            self._writer.append(Append(execution, None, (bodies.encode(body),), stored))
            return
        self._end(row, done)

    def end(self, execution: str, done: Any) -> None:
        """End an execution without asking its kind; `done` gets whether it was still there."""
        row = execution_row(self._store, self._state, execution)
        if row.status in ENDED:
            done.resolve(answer=False)
        else:
            self._end(row, done)

    def cancel_later(self, execution: str, rows: Sequence[MessageRow]) -> None:
        """Cancel an execution as its parent asked for, in a lane. In the writer's thread.

        `rows` are the messages that ask for it.
        """
        asked = [row.id for row in rows]

        def delivered(change: Change, _error: Exception | None) -> None:
            self._table.deliver_rows(change.rows)

        def ask() -> None:
            try:
                row = execution_row(self._store, self._state, execution)
            except (StoreRefused, OSError) as error:
                again.resolve(error)
                return
            change = Change(execution, at=self._clock.now(), consumed=asked)
            if row.status not in ENDED:
                body = self._wish(row, None)
                if body is None:
                    self._end(row, again, asked)
                    return
                change.messages = (NewMessage(execution, "message", bodies.encode(body)),)
            self._writer.submit(change, delivered, insist=True)

        repeat = partial(call_in, self._pool, "a cancel", ask)
        again = _Again(self._store, self._clock, self._state, repeat)
        call_in(self._pool, "a cancel", ask)

    def _has_part(self, row: ExecutionRow, target: Any) -> bool:
        """Return whether there is what to cancel, as far as the kind can tell."""
        has_part = getattr(self._kinds.get(row.kind), "has_part", None)
        return target is None or has_part is None or has_part(row, target)

    def _wish(self, row: ExecutionRow, target: Any) -> Any:
        """Return the message by which the kind wants to be asked; `None` to end it at once."""
        kind = self._kinds.get(row.kind)
        ask = getattr(kind, "cancel", None)
        if ask is None:
            if target is not None:
                msg = f"an execution of kind {row.kind!r} can only be cancelled as a whole"
                raise BadOption(msg)
            return None
        return ask(target)

    def _end(self, row: ExecutionRow, done: Any, asked: Sequence[Any] = ()) -> None:
        """End an execution at once: a run that is under way is discarded."""
        name = row.id
        change = _rewritten(row, Status.CANCELLED, self._clock.now())
        change.clear = True
        change.consumed = asked
        if row.parent is not None:
            change.messages = (message_to_parent(row.parent, name, Status.CANCELLED),)
        farewell = getattr(self._kinds.get(row.kind), "farewell", None)
        if farewell is not None:
            sent = [
                NewMessage(each.to, "message", bodies.encode(each.body))
                for each in farewell(row.state)
            ]
            change.messages = (*change.messages, *sent)

        def committed(change: Change, error: Exception | None) -> None:
            if error is None and change.refusal is not None:
                again = self._store.execution(name)
                if again is not None and again.status not in ENDED:
                    self._end(again, done, asked)
                    return
                done.resolve(answer=False)
                return
            if error is None:
                self._ended(name, change)
            done.resolve(error, answer=True)

        self._writer.submit(change, committed, waiter=done)

    def _ended(self, name: str, change: Change) -> None:
        """Release everything that an execution had. In the writer's thread."""
        table = self._table
        live = table.find(name)
        if live is not None:
            live.has_state = False
            live.status = Status.CANCELLED
        table.listeners.tasks.cancel_all(name)
        self._watches.forget(name)
        table.deliver_rows(change.rows)
        self._waiters.tell(name)
        if live is not None:
            table.after_commit(live)
            self._tell_kind(live)

    def _tell_kind(self, live: LoadedExecution) -> None:
        """Call the hook of a kind that was not asked; then empty the inbox."""
        ended: Any = getattr(live.kind, "ended", None)

        def tell() -> None:
            if self._table.find(live.id) is live:  # else it was deleted, and perhaps made again
                ended(live.id)
            if live.unconsumed:
                self._table.admission.nudge(live)

        if ended is not None:
            call_in(self._pool, "the end of an execution", tell)

    def reopen(self, execution: str, kind: str, done: Any) -> None:
        """Make an execution active again that has ended, if there is one of that kind."""
        row = self._store.execution(execution)
        if row is None or row.kind != kind or row.status not in ENDED:
            done.resolve()
            return

        def committed(change: Change, error: Exception | None) -> None:
            live = self._table.find(execution)
            if live is not None and change.committed:
                live.has_state = False
                live.status = Status.ACTIVE
            done.resolve(error)

        self._state.require_open()
        change = _rewritten(row, Status.ACTIVE, self._clock.now())
        self._writer.submit(change, committed, waiter=done)


class _Again:
    """Repeats a call that the store has refused and for which no caller waits."""

    __slots__ = ("_call", "_clock", "_state", "_store")

    def __init__(
        self, store: Store, clock: EngineClock, state: EngineState, call: Callable[[], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._call = call

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Schedule the call, if it was refused. Thread-safe."""
        if isinstance(error, (StoreRefused, OutcomeUnknown, OSError)) and not self._state.closed:
            outage_of(self._store).failed(error, "a cancel is refused; trying again")
            self._clock.call_at(self._clock.now() + AGAIN, self._call)


def _rewritten(row: ExecutionRow, status: Status, now: float) -> Change:
    """Return the change that gives an execution another status, and leaves its state."""
    return Change(
        row.id,
        kind=row.kind,
        expected=row.revision,
        state=row.state,
        version=row.version,
        status=status,
        at=now,
    )
