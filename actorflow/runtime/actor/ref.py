"""Refs: what callers hold instead of an actor, and its inbox as pykka's code sees it."""

from __future__ import annotations

import queue
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import pykka
from pykka._envelope import Envelope

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.answers import AnswerFuture, reply_error
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption, WorkerStopped
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Self

    from actorflow.runtime.actor.lifespan import Lifespan
    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.exits import ExitReason

__all__ = ["Inbox", "Ref", "UrgentRef"]

A = TypeVar("A", bound=pykka.Actor)


class Ref(pykka.ActorRef[A], Generic[A]):
    """A `pykka.ActorRef` of one of our actors, with `watch`, `kill` and `exit_reason`.

    Thread-safe. It keeps the actor alive, as pykka's threads do. Copies are the ref itself.
    """

    actor: A
    """The actor; touching it from outside is as unsafe as any shared object."""

    def __init__(self, actor: A) -> None:
        self.actor = actor
        self.actor_class = type(actor)

    @property
    def lifespan(self) -> Lifespan:
        """The framework's side of the actor. Internal."""
        lifespan: Lifespan = self.actor._actorflow  # type: ignore[attr-defined] # noqa: SLF001
        return lifespan

    # What pykka's own code looks at, made only when it does.

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`."""
        return self.lifespan.actor_urn

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_inbox`."""
        return self.lifespan.actor_inbox

    @property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return self.lifespan.actor_stopped

    def _actor_weakref(self) -> A:  # type: ignore[override]
        return self.actor

    # Messages.

    def tell(self, message: Any) -> None:
        """Send a message without waiting for an answer.

        Raises:
            WorkerStopped: the actor has ended. It is a `pykka.ActorDeadError`.

        """
        self.lifespan.put(Envelope(message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and return the answer, or a future of it if not `block`.

        Raises:
            WorkerStopped: the actor has ended; from the future's `get` if not `block`.
            pykka.Timeout: no answer in time.
            WouldDeadlock: the actor asks itself and would wait without a timeout.
            Exception: what the actor raised.

        """
        lifespan = self.lifespan
        future = AnswerFuture(lifespan)
        if lifespan.exit_reason is None:
            lifespan.actor_inbox.put(Envelope(message, reply_to=future))
        else:
            reply_error(future, lifespan.dead_error())
        return future.get(timeout=timeout) if block else future

    def send_after(self, delay: float, message: Any, *, clock: Clock = SYSTEM) -> Timer:
        """Send a message in `delay` seconds; return a handle with `cancel()`. O(log n).

        Cancelling does nothing once the message was sent. If the actor has ended by then, that is
        logged.

        Raises:
            BadOption: the delay is no number of seconds, zero or more.

        """
        delay = seconds(delay, "delay", "ref.send_after(5.0, message)", error=BadOption)
        late = _LateMessage(self, message)
        return clock.call_at(clock.now() + delay, partial(POOL.submit, late))

    def urgent(self) -> UrgentRef[A]:
        """Return a ref of the same actor whose messages are handled before all others.

        Urgent messages keep their own order, and do not interrupt a message that is being handled.
        Give it to callers that may overtake others: a supervisor that asks for the state, or code
        that cancels work.
        """
        return UrgentRef(self)

    # Life and death. `stop` is pykka's.

    def is_alive(self) -> bool:
        """Return whether the actor has not ended."""
        return self.lifespan.exit_reason is None

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why the actor ended; `None` while it lives."""
        return self.lifespan.exit_reason

    def watch(self, notice: Callable[[Any, ExitReason], object]) -> None:
        """Call `notice(ref, reason)` once when the actor has ended, or now if it has.

        It runs in the thread in which the actor ends, so it must be short. What it raises is
        logged.
        """
        self.lifespan.watch(notice)

    def unwatch(self, notice: Callable[[Any, ExitReason], object]) -> None:
        """Withdraw a `watch`. Harmless if `notice` is unknown or has been called."""
        self.lifespan.unwatch(notice)

    def kill(self) -> None:
        """End the actor at once, whatever it is doing: no `on_stop`, callers are refused.

        A thread cannot be killed: a handler that hangs keeps its thread, but is cut off.
        """
        self.lifespan.kill()

    # As a value.

    def __repr__(self) -> str:
        return f"<ActorRef for {self.lifespan.title}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        msg = (
            f"{self!r} cannot be pickled: its actor lives in this process only; "
            "send a name or an id, and look the actor up on the other side"
        )
        raise TypeError(msg)


class UrgentRef(Ref[A]):
    """A ref whose messages are handled before those of other refs. See `Ref.urgent`."""

    def __init__(self, ref: Ref[A]) -> None:
        super().__init__(ref.actor)
        self._ref = ref

    @property
    def lifespan(self) -> Lifespan:
        """The framework's side of the actor. Internal."""
        return self._ref.lifespan

    def tell(self, message: Any) -> None:
        """Like `Ref.tell`, ahead of all messages that are not urgent."""
        self.lifespan.put_urgent(Envelope(message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Like `Ref.ask`, ahead of all messages that are not urgent."""
        lifespan = self.lifespan
        future = AnswerFuture(lifespan)
        try:
            lifespan.put_urgent(Envelope(message, reply_to=future))
        except WorkerStopped as error:
            reply_error(future, error)
        return future.get(timeout=timeout) if block else future


class _LateMessage:
    """A message that is due, on its way through the pool: `tell` may run functions of users."""

    __slots__ = ("_message", "_ref")

    def __init__(self, ref: Ref[Any], message: Any) -> None:
        self._ref = ref
        self._message = message

    def run(self) -> None:
        """Send the message."""
        try:
            self._ref.tell(self._message)
        except WorkerStopped as error:
            log.warning("late message not sent", message=brief(self._message), error=str(error))


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
            queue.Empty: the inbox is empty. Unlike pykka's this never blocks: the thread belongs to
                the lane, and the actor is run again when something arrives.

        """
        envelope = self._lifespan.mailbox.next()
        if envelope is None:
            raise queue.Empty
        return envelope

    def empty(self) -> bool:
        """Return whether there are no envelopes."""
        return not self._lifespan.mailbox.envelopes
