"""The start of an actor: `on_start` runs in the lane while the caller of `start` waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import StartFailed
from actorflow.runtime.exits import Crash, ExitReason, Stop
from actorflow.runtime.registry import CURRENT
from actorflow.runtime.tickets import ThreadTicket

if TYPE_CHECKING:
    from actorflow.runtime.actor.lifespan import Lifespan

__all__ = ["ActorStart"]


class ActorStart:
    """Runs the `on_start` of one actor and releases its caller, once."""

    __slots__ = ("_lifespan", "_waiting")

    def __init__(self, lifespan: Lifespan) -> None:
        self._lifespan = lifespan
        self._waiting: list[ThreadTicket] = []  # atomic: the thread that pops it resolves it

    def wait(self) -> None:
        """Submit the start to the lane and wait until it is over.

        Raises:
            StartFailed: `on_start` raised or asked to stop.

        """
        lifespan = self._lifespan
        ticket = ThreadTicket()
        self._waiting.append(ticket)
        with lifespan.being_started():
            lifespan.lane.submit(self)
            lifespan.lane.wait(ticket, None)
        if ticket.error is not None:
            raise ticket.error

    def run(self) -> None:
        """Run `on_start`, release the caller, then handle messages. Only the lane calls this."""
        lifespan = self._lifespan
        if lifespan.exit_reason is not None:  # killed before the lane ran it
            return
        reason = self._call_hook()
        if reason is None:
            self.release()
            lifespan.open()
            return
        waiting, self._waiting = self._waiting, []
        lifespan.die(reason)
        failure = StartFailed(lifespan.title, lifespan.exit_text)
        failure.__cause__ = reason.exception if isinstance(reason, Crash) else None
        _release(waiting, failure)

    def _call_hook(self) -> ExitReason | None:
        """Call `on_start`; return why the actor must end, if it must."""
        before = CURRENT.set(self._lifespan)
        try:
            outcome: Any = self._lifespan.actor.on_start()  # type: ignore[func-returns-value]
        except Stop as stop:
            return stop.reason
        except BaseException as error:  # noqa: BLE001 - raised in the caller of `start`
            return Crash(error)
        finally:
            CURRENT.reset(before)
        return outcome.reason if isinstance(outcome, Stop) else None

    def release(self) -> None:
        """Let the caller of `start` go on. One that was killed has started, and has ended."""
        _release(self._waiting, None)


def _release(waiting: list[ThreadTicket], failure: StartFailed | None) -> None:
    try:
        ticket = waiting.pop()
    except IndexError:
        return
    ticket.resolve(failure)
