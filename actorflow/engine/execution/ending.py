"""Ending executions from outside: cancelled by a user, or by their parent; and reopened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.errors import ExecutionEnded, StoreRefused
from actorflow.engine.execution.door import nudge
from actorflow.engine.execution.run import message_to_parent
from actorflow.engine.execution.writing.writer import AGAIN
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import Change, NewMessage
from actorflow.runtime.errors import BadOption
from actorflow.runtime.log import log
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.core import Core
    from actorflow.engine.execution.live import Live
    from actorflow.engine.stores.protocol import ExecutionRow, MessageRow

__all__ = ["Ending"]


class _Said:
    """Tells the caller of a cancel that the message is stored."""

    __slots__ = ("_done",)

    def __init__(self, done: Any) -> None:
        self._done = done

    def resolve(self, error: BaseException | None = None, _answer: Any = None) -> None:
        """Pass it on. An execution that has ended meanwhile is not there any more."""
        ended = isinstance(error, ExecutionEnded)
        self._done.resolve(None if ended else error, error is None)


class _Again:
    """Makes a call again that the store has refused, because nobody waits who could."""

    __slots__ = ("_call", "_core")

    def __init__(self, core: Core, call: Callable[[], None]) -> None:
        self._core = core
        self._call = call

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Schedule the call, if need be. Thread-safe."""
        core = self._core
        if isinstance(error, (StoreRefused, OSError)) and not core.closed:
            log.error("a cancel is refused; trying again", error=str(error))
            core.clock.call_at(core.clock.now() + AGAIN, self._call)


class Ending:
    """Ends executions. Thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def cancel(self, execution: str, target: Any, done: Any) -> None:
        """Ask an execution to end, or end it; `done` learns whether it was still there."""
        core = self._core
        row = core.row(execution)
        if row.status in ENDED or not self._has_part(row, target):
            done.resolve(answer=False)
            return
        body = self._wish(row, target)
        if body is not None:
            core.append(execution, None, (body,), stored=_Said(done))
            return
        self._end(row, done)

    def end(self, execution: str, done: Any) -> None:
        """End an execution without asking its kind; `done` learns whether it was still there."""
        row = self._core.row(execution)
        if row.status in ENDED:
            done.resolve(answer=False)
        else:
            self._end(row, done)

    def cancel_later(self, execution: str, rows: Sequence[MessageRow]) -> None:
        """Cancel an execution as its parent asked for, in a lane. In the writer's thread.

        `rows` are the messages that ask for it.
        """
        core = self._core
        asked = [row.id for row in rows]

        def delivered(change: Change, _error: Exception | None) -> None:
            core.host.deliver_rows(change.rows)

        def ask() -> None:
            try:
                row = core.row(execution)
            except (StoreRefused, OSError) as error:
                again.resolve(error)
                return
            change = Change(execution, at=core.clock.now(), consumed=asked)
            if row.status not in ENDED:
                body = self._wish(row, None)
                if body is None:
                    self._end(row, again, asked)
                    return
                change.messages = (NewMessage(execution, "message", bodies.encode(body)),)
            core.writer.submit(change, delivered, insist=True)

        again = _Again(core, partial(core.in_lane, "a cancel", ask))
        core.in_lane("a cancel", ask)

    def _has_part(self, row: ExecutionRow, target: Any) -> bool:
        """Return whether there is what to cancel, as far as the kind can tell."""
        has_part = getattr(self._core.kinds.get(row.kind), "has_part", None)
        return target is None or has_part is None or has_part(row, target)

    def _wish(self, row: ExecutionRow, target: Any) -> Any:
        """Return the message by which the kind wants to be asked; `None` to end it at once."""
        kind = self._core.kinds.get(row.kind)
        ask = getattr(kind, "cancel", None)
        if ask is None:
            if target is not None:
                msg = f"an execution of kind {row.kind!r} can only be cancelled as a whole"
                raise BadOption(msg)
            return None
        return ask(target)

    def _end(self, row: ExecutionRow, done: Any, asked: Sequence[Any] = ()) -> None:
        """End an execution whatever it does: a run that is under way is thrown away."""
        core = self._core
        name = row.id
        change = _rewritten(core, row, Status.CANCELLED)
        change.clear = True
        change.consumed = asked
        if row.parent is not None:
            change.messages = (message_to_parent(row.parent, name, Status.CANCELLED),)

        def committed(change: Change, error: Exception | None) -> None:
            if error is None and change.refusal is not None:
                again = core.store.execution(name)
                if again is not None and again.status not in ENDED:
                    self._end(again, done, asked)
                    return
                done.resolve(answer=False)
                return
            if error is None:
                live = core.host.find(name)
                if live is not None:
                    live.loaded = False
                    live.status = Status.CANCELLED
                core.board.cancel_all(name)
                core.watches.forget(name)
                core.host.deliver_rows(change.rows)
                core.watchers.tell(name)
                if live is not None:
                    core.host.settle(live)
                    self._tell_kind(live)
            done.resolve(error, answer=True)

        core.writer.submit(change, committed, waiter=done)

    def _tell_kind(self, live: Live) -> None:
        """Call the hook of a kind that was not asked; what its inbox holds then leaves it."""
        ended: Any = getattr(live.kind, "ended", None)

        def tell() -> None:
            ended(live.id)
            if live.held:
                nudge(live)

        if ended is not None:
            self._core.in_lane("the end of an execution", tell)

    def reopen(self, execution: str, kind: str) -> None:
        """Make an execution active again that has ended, if there is one of that kind."""
        core = self._core
        row = core.store.execution(execution)
        if row is None or row.kind != kind or row.status not in ENDED:
            return
        done = ThreadTicket()

        def committed(change: Change, error: Exception | None) -> None:
            live = core.host.find(execution)
            if live is not None and change.committed:
                live.loaded = False
                live.status = Status.ACTIVE
            done.resolve(error)

        core.refuse_if_closed()
        core.writer.submit(_rewritten(core, row, Status.ACTIVE), committed, waiter=done)
        core.wait_for(done, None, execution)


def _rewritten(core: Core, row: ExecutionRow, status: Status) -> Change:
    """Return the change that gives an execution another status, and leaves its state."""
    return Change(
        row.id,
        kind=row.kind,
        expected=row.revision,
        state=row.state,
        version=row.version,
        status=status,
        at=core.clock.now(),
    )
