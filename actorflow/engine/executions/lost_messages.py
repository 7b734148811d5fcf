"""Messages that an execution will not process: given up, displaced, or kept for another one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from actorflow.engine.commit.entries import Append
from actorflow.engine.errors import EngineClosed
from actorflow.engine.executions.outcomes import AlreadyThere, RunRaised
from actorflow.runtime.errors import Displaced, WorkerStopped
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.commit.writer import Writer
    from actorflow.engine.executions.change_dispatcher import Listeners
    from actorflow.engine.executions.dead_lettering import DeadLettering
    from actorflow.engine.executions.loaded import LoadedExecution, MessageTicket
    from actorflow.engine.state import EngineState

__all__ = ["LostMessages"]


class LostMessages:
    """Decides what happens to messages that their execution will not process. Thread-safe."""

    def __init__(
        self,
        writer: Writer,
        state: EngineState,
        *,
        letters: DeadLettering,
        listeners: Listeners,
        look_again_at: Callable[[LoadedExecution], None],
    ) -> None:
        self._writer = writer
        self._state = state
        self._letters = letters
        self._listeners = listeners
        self._look_again_at = look_again_at
        self._cut_off: deque[MessageTicket] = deque()
        self._is_over = False

    def lost(self, live: LoadedExecution, ticket: MessageTicket, error: BaseException) -> None:
        """React to a message that will not be processed here. Thread-safe."""
        if isinstance(error, RunRaised):
            log.error("message dead-lettered", execution=live.id, exc_info=error.cause)
            self._letters.give_up(live, ticket, error.cause)
        elif isinstance(error, Displaced):
            live.displaced.append((ticket, error))
            self._look_again_at(live)
        elif isinstance(error, WorkerStopped):
            self._keep(live, ticket, error)
        else:
            self._letters.give_up(live, ticket, error)

    def _keep(self, live: LoadedExecution, ticket: MessageTicket, error: WorkerStopped) -> None:
        """Keep a message whose execution has stopped, wherever it is not stored yet."""
        if self._state.closed:
            # Its run may have been cut off while it was being committed, so its waiter is
            # resolved after the last commit.
            self._cut_off.append(ticket)
            if self._is_over:
                self.resolve()
        elif ticket.task is not None:
            self._listeners.tasks.store_answer(ticket.task, *ticket.packed())
        elif ticket.id is None and isinstance(live.broken, AlreadyThere):
            ticket.consume(live.broken)  # it was to begin an execution that another call has begun
        elif ticket.id is None:
            _, body = ticket.packed()
            try:
                self._state.require_open()
                self._writer.append(
                    Append(live.id, live.kind.name, (body,), processed=ticket.waiter)
                )
            except EngineClosed as closed:
                if ticket.waiter is not None:
                    ticket.waiter.resolve(closed)
        elif ticket.waiter is not None:  # it is stored, and waits for code that can read it
            ticket.waiter.resolve(live.broken or error)

    def resolve(self) -> None:
        """Resolve the waiters of messages that were cut off: the engine was closed."""
        self._is_over = True
        error = EngineClosed("the engine was closed before the message was processed")
        while self._cut_off:
            self._cut_off.popleft().consume(error)
