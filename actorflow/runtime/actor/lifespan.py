"""The framework's side of an actor: how it starts, takes turns, and ends exactly once.

A user's actor holds its `Lifespan` in one slot, so that all other names of the class are the
user's. A supervisor is both in one object. Messages wait for their turn in the `Mailbox`.

An actor ends in this order: the reason is set, the token goes back for good, callers are refused,
watchers are notified. So a sender is either refused here or finds the actor dead, and an `ask`
cannot hang.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka
from pykka._envelope import Envelope

from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.actor_start import ActorStart
from actorflow.runtime.actor.answers import ActorStop, refuse, reply, reply_error
from actorflow.runtime.actor.ref import Inbox, Ref
from actorflow.runtime.errors import NotHandling, WorkerCrashed, WorkerStopped
from actorflow.runtime.exits import FORKED, Crash, ExitReason, Killed, Normal, Notices, Stop
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log
from actorflow.runtime.registry import ACTORS, CURRENT

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from actorflow.runtime.exits import Notice
    from actorflow.runtime.lanes.lane import Runnable, RuntimeLane

__all__ = ["Lifespan", "Mailbox"]

_ROUNDS = 32  # messages that an actor handles before it lets others run
_MARK: Envelope[Any] = Envelope(None)  # says that there is an urgent envelope
_MAKING = threading.Lock()


class Mailbox:
    """Envelopes in order of arrival, and the token that says that nobody reads them.

    A sender appends its envelope and, if the token is in place, submits the actor to its lane.
    The token itself is taken by the lane's thread only, so a sender that is interrupted (Ctrl-C
    strikes between any two bytecodes of the main thread) leaves the mailbox as it was: the next
    sender finds the token and submits the actor again. Going idle puts the token back and *then*
    looks at the envelopes again, so no wake-up is lost.

    Thread-safe without a lock: each step is one C call. The token is out until `open`, so that
    nothing is handled before the actor has started. Once the actor has ended, it stays in place
    for good: each later sender takes the slow path and finds the actor dead.
    """

    __slots__ = ("_called", "_turns", "envelopes", "handled", "idle", "stashed", "urgent")

    def __init__(self) -> None:
        self.envelopes: deque[Envelope[Any]] = deque()
        self.urgent: deque[Envelope[Any]] | tuple[()] = ()
        """Envelopes that are read before all others; each also has a mark in `envelopes`."""
        self.handled: Envelope[Any] | None = None
        """What the actor is handling, unless it has stashed it."""
        self.stashed: deque[Envelope[Any]] | None = None
        self.idle: list[None] = []
        self._turns = 0  # how often the token was taken
        self._called = -1  # the turn before which the actor was last submitted

    @property
    def is_idle(self) -> bool:
        """Whether the actor does nothing and has nothing to do."""
        return bool(self.idle) and not self.envelopes

    def wake(self, lane: RuntimeLane, actor: Runnable) -> None:
        """Submit the actor, unless that has been done since its last turn. Thread-safe.

        `_called` is set last: a sender that is interrupted before has not been relied on. Two
        senders may both submit; the second `take_turn` then finds no token.
        """
        turns = self._turns
        # Another thread may have taken the token since the sender saw it, and will check the
        # envelopes again. Submitted for that turn, the actor would find no token, and count as
        # submitted after it. So look in this order: a token that is here now is taken in a later
        # turn.
        if self.idle and self._called != turns:
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
        """Remove and return the oldest envelope, an urgent one before others, if there is one."""
        try:
            while True:
                if self.urgent:
                    return self.urgent.popleft()
                envelope = self.envelopes.popleft()
                if envelope is not _MARK:
                    return envelope
        except IndexError:
            return None

    def put_urgent(self, envelope: Envelope[Any]) -> None:
        """Append an envelope to the urgent ones. Thread-safe.

        The mark comes second: a sender that is interrupted in between has sent its message.
        """
        if type(self.urgent) is tuple:
            with _MAKING:
                if type(self.urgent) is tuple:
                    self.urgent = deque()
        self.urgent.append(envelope)  # type: ignore[union-attr] # made above
        self.envelopes.appendleft(_MARK)

    def stash(self) -> None:
        """Put the message that is being handled aside. In its handler.

        Raises:
            NotHandling: no message is being handled, or it was stashed already.

        """
        if self.handled is None:
            msg = "the actor handles no message that it could stash, or has stashed it already"
            raise NotHandling(msg)
        if self.stashed is None:
            self.stashed = deque()
        self.stashed.append(self.handled)
        self.handled = None

    def unstash_all(self) -> int:
        """Put stashed messages in front of all others, in their order; return how many."""
        stashed, self.stashed = self.stashed or (), None
        self.envelopes.extendleft([*stashed][::-1])
        return len(stashed)

    def rest(self) -> bool:
        """Put the token back; return whether there is work after all and the token was retaken."""
        self.idle.append(None)
        return bool(self.envelopes) and self.take_turn()

    def yield_turn(self, lane: RuntimeLane, actor: Runnable) -> None:
        """Put the token back and go on in another turn, behind what else waits for the lane."""
        self._called = self._turns  # so that nobody else submits it meanwhile
        self.idle.append(None)
        lane.submit(actor)

    def open(self) -> None:
        """Put the token in place: the actor has started, or has ended for good."""
        if not self.idle:
            self.idle.append(None)


class Lifespan:
    """Runs one actor on a lane and ends it once.

    The framework's own actors may override how they are ended: `_claim_death`, `_cut_off`,
    `_refuse_inbox`, `_finish_stop`, `_crash`, `shut_down` and `kill`. Each says what it must do.

    Args:
        actor: whose hooks (`on_start`, `on_receive`, `on_stop`, `on_failure`) are called.
        lane: where they run; by default the elastic pool.

    """

    # What most actors never need has a default in the class, and costs an instance nothing.
    exit_reason: ExitReason | None = None
    """Why the actor ended; `None` while it lives."""
    supervisor: Lifespan | None = None
    """Whose child it is."""
    child_id: Hashable | None = None
    """Its id as a child of that supervisor."""
    starter: Lifespan | None = None
    """The actor that waits for its start, while it is being started."""
    _starting: ActorStart | None = None
    _stopping: ExitReason | None = None
    _asked: Any = None  # the future of the caller whose message is being handled
    _over: bool = False  # it has ended, and all callers have been refused
    _watchers: Notices | None = None
    _stopped_event: threading.Event | None = None
    _ref: Any = None

    def __init__(self, actor: pykka.Actor, lane: RuntimeLane = POOL) -> None:
        self.actor = actor
        self.lane = lane
        self.mailbox = Mailbox()

    # What pykka's code looks at, made only when it does.

    @property
    def actor_urn(self) -> str:
        """The unique name of the actor."""
        urn: str | None = self.__dict__.get("_urn")
        return urn or self.__dict__.setdefault("_urn", uuid.uuid4().urn)

    @property
    def actor_inbox(self) -> Any:
        """The mailbox as pykka sees it."""
        return Inbox(self)

    @property
    def actor_ref(self) -> Any:
        """The actor's ref."""
        return self._ref or self.__dict__.setdefault("_ref", Ref(self.actor))

    @property
    def actor_stopped(self) -> threading.Event:
        """An event that is set once the actor has ended."""
        event: threading.Event = self.__dict__.setdefault("_stopped_event", threading.Event())
        if self.exit_reason is not None:
            event.set()
        return event

    @property
    def title(self) -> str:
        """The actor's `repr`, whatever a user's `__repr__` raises: it is used while things fail."""
        try:
            return repr(self.actor)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - user code may raise anything
            return f"{type(self.actor).__name__} ({self.actor_urn})"

    @property
    def exit_text(self) -> str:
        """Why the actor ended, in words."""
        return (self.exit_reason or Normal()).describe()

    # Starting.

    def launch(self) -> None:
        """Register the actor and run `on_start` in its lane; return when that has succeeded.

        Raises:
            StartFailed: `on_start` raised or asked to stop.

        """
        try:
            ACTORS.add(self)
            if getattr(self.actor.on_start, "__func__", None) is pykka.Actor.on_start:
                self.open()
            else:
                self._starting = ActorStart(self)
                self._starting.wait()
        except BaseException:  # Ctrl-C: the caller never gets a ref to stop it with
            self.kill()
            raise

    @contextlib.contextmanager
    def being_started(self) -> Iterator[None]:
        """Record which actor waits for the start: nothing in it may wait for that actor."""
        self.starter = CURRENT.get()
        try:
            yield
        finally:
            self.starter = None

    def open(self) -> None:
        """Begin to handle messages. Thread-safe."""
        if self.exit_reason is not None:
            return
        self.mailbox.open()
        if self.mailbox.envelopes:  # it can be found in the registry already
            self.mailbox.wake(self.lane, self)

    # Messages.

    def put(self, envelope: Envelope[Any]) -> None:
        """Append an envelope to the mailbox and make the actor run. Thread-safe. O(1).

        Raises:
            WorkerStopped: the actor has ended.

        """
        mailbox = self.mailbox
        mailbox.envelopes.append(envelope)
        if mailbox.idle:
            if self.exit_reason is not None:
                self._refuse_inbox()
                raise self.dead_error()
            mailbox.wake(self.lane, self)

    def put_urgent(self, envelope: Envelope[Any]) -> None:
        """Like `put`, ahead of all envelopes that are not urgent.

        Raises:
            WorkerStopped: the actor has ended.

        """
        mailbox = self.mailbox
        mailbox.put_urgent(envelope)
        if mailbox.idle:
            if self.exit_reason is not None:
                self._refuse_inbox()
                raise self.dead_error()
            mailbox.wake(self.lane, self)

    def run(self) -> None:
        """Handle messages for a while. Only the lane calls this; it never raises."""
        mailbox = self.mailbox
        if not mailbox.take_turn():
            return
        before = CURRENT.set(self)
        try:
            for _ in range(_ROUNDS):
                if self.exit_reason is not None:
                    mailbox.open()
                    self._refuse_inbox()
                    return
                envelope = mailbox.next()
                if envelope is not None:
                    self._handle(envelope)
                elif not mailbox.rest():
                    return
        except BaseException as error:  # noqa: BLE001 - a bug of ours; nobody must wait forever
            _report(log.error, "actor failed", self, error)
            self.die(Crash(error))
            return
        finally:
            CURRENT.reset(before)
        mailbox.yield_turn(self.lane, self)

    def _handle(self, envelope: Envelope[Any]) -> None:
        reply_to = envelope.reply_to
        if type(envelope.message) is ActorStop:
            self._stop_and_reply(self._stopping or Normal(), reply_to)
            return
        self._asked = reply_to
        self.mailbox.handled = envelope
        if self.exit_reason is not None:  # killed, maybe before it could be seen who is asking
            self._refuse_asked()
            return
        try:
            answer = self._receive(envelope.message)
            if isinstance(answer, Stop):
                raise answer  # noqa: TRY301 - returned or raised, it means the same
        except Stop as stop:
            self._asked = None
            self._stop_and_reply(stop.reason, self._unless_stashed(reply_to))
        except BaseException as error:  # noqa: BLE001 - the caller's, or the end of the actor
            self._asked = None
            self._answer_with(self._unless_stashed(reply_to), error)
        else:
            self._asked = None
            if reply_to is not None and self.mailbox.handled is not None:
                reply(reply_to, answer)
        self.mailbox.handled = None

    def _unless_stashed(self, reply_to: Any) -> Any:
        """Return whom to answer: nobody yet if the message was stashed."""
        return None if self.mailbox.handled is None else reply_to

    def _stop_and_reply(self, reason: ExitReason, reply_to: Any) -> None:
        self._stopping = reason
        if reply_to is not None:  # as a watcher: on_stop may hang until the actor is killed
            self.watch(lambda _ref, _reason: reply(reply_to, None))
        self._finish_stop()

    def _receive(self, message: Any) -> Any:
        """Let pykka's code call `on_receive`, or whatever a proxy means."""
        return pykka.Actor._handle_receive(self.actor, message)  # noqa: SLF001

    def _answer_with(self, reply_to: Any, error: BaseException) -> None:
        """Pass an exception to the caller, if there is one; else, or if so chosen, crash."""
        if reply_to is not None:
            reply_error(reply_to, error)
            contained = getattr(self.actor, "ask_failures", "reply") == "reply"
            if isinstance(error, Exception) and contained:
                _report(log.debug, "exception returned to caller", self, error)
                return
        self._crash(error)

    # Ending.

    def stop(self) -> None:
        """Ask the actor to stop after the messages in its mailbox; return at once. Thread-safe."""
        if self.exit_reason is None:
            with contextlib.suppress(WorkerStopped):
                self.put(Envelope(ActorStop()))

    def shut_down(self, reason: ExitReason) -> None:
        """Ask the actor to end with this reason, after the messages in its mailbox. Thread-safe."""
        self._stopping = reason
        self.stop()

    def kill(self) -> None:
        """End the actor at once, whatever it is doing. Thread-safe.

        A thread cannot be killed: a handler that hangs keeps its thread, but is cut off.
        """
        if self.exit_reason is not None:
            return
        running = not self.mailbox.is_idle
        if self.die(Killed(abandoned=running)) and running:
            _report(log.warning, "actor abandoned", self)

    def _finish_stop(self) -> None:
        """Run `on_stop`, then end. In the lane's thread."""
        reason = self._stopping or Normal()
        try:
            self.actor.on_stop()
        except BaseException as error:  # noqa: BLE001 - the actor ends regardless
            _report(log.error, "on_stop failed", self, error)
        self.die(reason)

    def _crash(self, error: BaseException) -> None:
        """Run `on_failure`, then end. In the lane's thread."""
        _report(log.error, "actor crashed", self, error)
        try:
            self.actor.on_failure(type(error), error, error.__traceback__)
        except BaseException as second:  # noqa: BLE001 - the actor ends regardless
            _report(log.error, "on_failure failed", self, second)
        self.die(Crash(error))

    def die(self, reason: ExitReason) -> bool:
        """End the actor, unless it has ended; return whether this call did it. Thread-safe."""
        try:
            if not self._claim_death(reason):
                return False
            self._finish_death()
        except BaseException:  # Ctrl-C in the thread that kills it; each step may be repeated
            if self.exit_reason is reason:
                self._finish_death()
            raise
        return True

    def forked(self) -> None:
        """Mark the actor as dead in a forked child, whose only thread calls this.

        Nobody there waits for it, and the parent notifies its watchers.
        """
        self.__dict__.setdefault("exit_reason", FORKED)
        self._over = True
        self._asked = None
        if "mailbox" in self.__dict__:  # that of an executor belongs to its worker
            self.mailbox.open()
        self.actor_stopped.set()

    def _finish_death(self) -> None:
        try:
            self._cut_off()
        finally:
            ACTORS.discard(self)
            self._over = True
            if self._stopped_event is not None:
                self._stopped_event.set()
            if self._starting is not None:
                self._starting.release()
            self._notify()

    def _claim_death(self, reason: ExitReason) -> bool:
        """Set `exit_reason` unless it is set; return whether this call did. Must be atomic."""
        if self.exit_reason is not None:
            return False
        return self.__dict__.setdefault("exit_reason", reason) is reason

    def _cut_off(self) -> None:
        """Refuse callers and release what the actor holds. Runs once, or again if it raised."""
        self.mailbox.open()
        self._refuse_asked()
        self._refuse_inbox()
        self.lane.release()

    def _refuse_asked(self) -> None:
        """Refuse the caller whose message is being handled: the actor was killed meanwhile."""
        asked = self._asked
        if asked is not None:
            reply_error(asked, self.dead_error())

    def _refuse_inbox(self) -> None:
        """Refuse the callers of messages that were not handled. Thread-safe."""
        refuse(self.mailbox.envelopes, self.dead_error)
        for others in (self.mailbox.urgent, self.mailbox.stashed):
            if others:
                refuse(others, self.dead_error)

    def dead_error(self) -> WorkerStopped:
        """Return the error for callers that come too late."""
        reason = self.exit_reason or Normal()
        text = f"{self.title} has ended: {self.exit_text}"
        if isinstance(reason, Crash):
            error: WorkerStopped = WorkerCrashed(text)
            error.__cause__ = reason.exception
            return error
        return WorkerStopped(text)

    # Watchers.

    def watch(self, notice: Notice) -> None:
        """Call `notice(ref, reason)` once: when the actor has ended, or now if it has."""
        self.__dict__.setdefault("_watchers", Notices()).add(notice)
        if self._over:
            self._notify()

    def unwatch(self, notice: Notice) -> None:
        """Withdraw a `watch`. Harmless if `notice` is unknown or has been called."""
        if self._watchers is not None:
            self._watchers.discard(notice)

    def _notify(self) -> None:
        if self._watchers:
            failed = partial(_report, log.error, "exit notice failed", self)
            self._watchers.notify(self.actor_ref, self.exit_reason or Normal(), failed)


def _after_fork() -> None:
    """Mark the parent's actors as dead in a forked child: their threads are not here."""
    for member in ACTORS.members():
        if isinstance(member, Lifespan):
            member.forked()
            ACTORS.discard(member)


after_fork(_after_fork, last=True)


def _report(
    write: Callable[..., None], event: str, lifespan: Lifespan, error: BaseException | None = None
) -> None:
    """Log an event. What a log handler or a user's `__repr__` raises must not matter."""
    try:
        facts = {} if error is None else {"error": brief(error), "exc_info": error}
        write(event, actor=lifespan.title, **facts)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001, S110 - there is nowhere left to report it
        pass
