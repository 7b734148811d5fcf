"""The mailbox: envelopes in order of arrival, and the token that says that nobody reads them.

A sender appends its envelope and, if the token is in place, submits the actor to its lane. The
token itself is taken by the lane's thread only, so a sender that is interrupted (Ctrl-C strikes
between any two bytecodes of the main thread) leaves the mailbox as it was: the next sender finds
the token and submits the actor again. Going idle puts the token back and *then* looks at the
envelopes again, so no wake-up is lost.

Once the actor has ended, the token stays in place for good: each later sender takes the slow path
and finds the actor dead.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from typing import TYPE_CHECKING, Any

from pykka import messages

from actorflow.runtime.actor.answers import reply, reply_error
from actorflow.runtime.errors import WorkerStopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka._envelope import Envelope

    from actorflow.runtime.actor.lifespan import Lifespan
    from actorflow.runtime.lanes.lane import Lane, Runnable

__all__ = ["Inbox", "Mailbox", "is_stop", "refuse"]


class Mailbox:
    """Envelopes and the idle token. Thread-safe without a lock: each step is one C call.

    The token is out until `open`, so that nothing is handled before the actor has started.
    """

    __slots__ = ("_called", "_turns", "envelopes", "idle")

    def __init__(self) -> None:
        self.envelopes: deque[Envelope[Any]] = deque()
        self.idle: list[None] = []
        self._turns = 0  # how often the token was taken
        self._called = -1  # the turn before which the actor was last submitted

    @property
    def is_idle(self) -> bool:
        """Whether the actor does nothing and has nothing to do."""
        return bool(self.idle) and not self.envelopes

    def wake(self, lane: Lane, actor: Runnable) -> None:
        """Submit the actor, unless that has been done since its last turn. Thread-safe.

        `_called` is set last: a sender that is interrupted before has not been relied on. Two
        senders may both submit; the second `take_turn` then finds no token.
        """
        turns = self._turns
        if self._called != turns:
            lane.submit(actor)
            self._called = turns

    def take_turn(self) -> bool:
        """Take the token; return whether it was there. Only the lane's thread calls this."""
        try:
            self.idle.pop()
        except IndexError:
            return False
        self._turns += 1
        return True

    def next(self) -> Envelope[Any] | None:
        """Remove and return the oldest envelope, if there is one."""
        try:
            return self.envelopes.popleft()
        except IndexError:
            return None

    def rest(self) -> bool:
        """Put the token back; return whether there is work after all and the token was retaken."""
        self.idle.append(None)
        return bool(self.envelopes) and self.take_turn()

    def yield_turn(self, lane: Lane, actor: Runnable) -> None:
        """Put the token back and go on in another turn, behind what else waits for the lane."""
        self._called = self._turns  # so that nobody else submits it meanwhile
        self.idle.append(None)
        lane.submit(actor)

    def open(self) -> None:
        """Put the token in place: the actor has started, or has ended for good."""
        if not self.idle:
            self.idle.append(None)


class Inbox:
    """A mailbox as pykka's code sees it: the `actor_inbox` of an actor and its ref."""

    __slots__ = ("_lifespan",)

    def __init__(self, lifespan: Lifespan) -> None:
        self._lifespan = lifespan

    def put(self, envelope: Envelope[Any], /) -> None:
        """Append an envelope. If the actor has ended, a waiting caller gets the error.

        Raises:
            WorkerStopped: the actor has ended, and nobody waits for an answer.

        """
        try:
            self._lifespan.put(envelope)
        except WorkerStopped as error:
            if envelope.reply_to is None:
                raise
            reply_error(envelope.reply_to, error)

    def get(self) -> Envelope[Any]:
        """Remove and return the oldest envelope: a handler may look ahead.

        Raises:
            queue.Empty: there is none. Unlike pykka's this never blocks: the thread belongs to
                the lane, and the actor is run again when something arrives.

        """
        envelope = self._lifespan.mailbox.next()
        if envelope is None:
            raise queue.Empty
        return envelope

    def empty(self) -> bool:
        """Return whether there are no envelopes."""
        return not self._lifespan.mailbox.envelopes


def is_stop(envelope: Envelope[Any]) -> bool:
    """Return whether this is pykka's stop message. Runs no code of the message's class."""
    return type(envelope.message) is messages._ActorStop  # noqa: SLF001


def refuse(envelopes: deque[Envelope[Any]], dead: Callable[[], WorkerStopped]) -> None:
    """Remove all envelopes and answer their callers with the error; a stop is granted.

    Several threads may do this at once, and each may be interrupted: an envelope is removed after
    it was answered, and a second answer does nothing.
    """
    while True:
        try:
            envelope = envelopes[0]
        except IndexError:
            return
        if envelope.reply_to is not None:
            if is_stop(envelope):
                reply(envelope.reply_to, None)
            else:
                reply_error(envelope.reply_to, dead())
        with contextlib.suppress(ValueError):  # another thread was faster
            envelopes.remove(envelope)
