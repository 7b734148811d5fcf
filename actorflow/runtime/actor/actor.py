"""pykka actors on our lanes: many of them on few threads, and a death that everyone hears of.

`Actor` is a `pykka.Actor`: refs, the registry, `tell`, `ask` and proxies work as there. What
differs is under pykka's own hooks:

* The inbox is a plain list and `_idle` a list with one token. Whoever pops the token submits the
  actor to its lane; everyone else has nothing to do. Going idle puts the token back and *then*
  looks at the inbox again, so no wake-up is lost.
* `start` returns when `on_start` is through, and raises `StartFailed` if it failed.
* An actor ends exactly once, with an `ExitReason`, and tells whoever watches it. Then the token
  stays in place for ever, so that everyone who puts something in takes the slow path and finds
  the actor dead. An `ask` cannot hang.
* `SystemExit` or `KeyboardInterrupt` in one actor ends that actor, not all of them.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import uuid
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pykka
from pykka import messages
from pykka._envelope import Envelope
from pykka._threading import ThreadingFuture

from actorflow.runtime.errors import StartFailed, WorkerCrashed, WorkerStopped, WouldDeadlock
from actorflow.runtime.exits import Crash, ExitReason, Killed, Normal, Shutdown
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.log import log
from actorflow.runtime.registry import ROSTER
from actorflow.runtime.worker.tickets import ThreadTicket
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from types import TracebackType

    from actorflow.runtime.lanes.lane import Lane

__all__ = ["CURRENT", "Actor", "Ref", "Stop", "reply", "reply_error"]

_ROUNDS = 32  # messages that an actor handles before it lets others run

CURRENT: ContextVar[Actor | None] = ContextVar("actorflow_current", default=None)
"""The actor whose code is running in this thread or task."""

A = TypeVar("A", bound="Actor")


class Stop(Exception):
    """Return or raise this from a hook or a job to end the actor.

    >>> Stop().reason, Stop("enough").reason
    (Normal(), Shutdown(detail='enough'))
    """

    def __init__(self, reason: object = None) -> None:
        super().__init__(reason)
        self.reason: ExitReason = (
            Normal()
            if reason is None
            else reason
            if isinstance(reason, ExitReason)
            else Shutdown(reason)
        )


class Ref(pykka.ActorRef[A], Generic[A]):
    """A pykka ref to one of our actors. It keeps the actor alive, as pykka's threads do."""

    actor: A

    def __init__(self, actor: A) -> None:
        self.actor = actor
        self.actor_class = type(actor)

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`; it is made when first asked for."""
        return self.actor.actor_urn

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_inbox`."""
        return self.actor.actor_inbox

    @property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return self.actor.actor_stopped

    def _actor_weakref(self) -> A:  # type: ignore[override]
        return self.actor

    def is_alive(self) -> bool:
        """Tell whether the actor has not ended."""
        return self.actor.exit_reason is None

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and wait for the answer, or give a future of it if not `block`.

        Raises:
            WorkerStopped: the actor has ended; from `get` if not `block`.
            pykka.Timeout: no answer in time.
            Exception: what the actor raised.

        """
        future = self.actor._create_future()  # noqa: SLF001 - as pykka does
        if self.actor.exit_reason is None:
            self.actor_inbox.put(Envelope(message, reply_to=future))
        else:
            reply_error(future, self.actor.dead_error())
        return future.get(timeout=timeout) if block else future

    def tell(self, message: Any) -> None:
        """Send a message without waiting for an answer.

        Raises:
            WorkerStopped: the actor has ended. It is a `pykka.ActorDeadError`.

        """
        self.actor.put(Envelope(message))

    def __repr__(self) -> str:
        return f"<{self.actor.title}>"


class _Inbox:
    """pykka's view of an inbox of ours."""

    __slots__ = ("_actor",)

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def put(self, envelope: Envelope[Any], /) -> None:
        """Put an envelope in. One with a caller who waits never raises: the caller is told."""
        try:
            self._actor.put(envelope)
        except WorkerStopped as error:
            if envelope.reply_to is None:
                raise
            reply_error(envelope.reply_to, error)

    def get(self) -> Envelope[Any]:
        """Take the oldest envelope out."""
        return self._actor._inbox.popleft()  # noqa: SLF001

    def empty(self) -> bool:
        """Tell whether there is none."""
        return not self._actor._inbox  # noqa: SLF001


class Actor(pykka.Actor):
    """A pykka actor that runs on a lane (by default the elastic pool) instead of a thread.

    Hooks run one at a time, in some thread of the lane. What happens when one raises:

    * `on_start`: the actor ends, `start` raises `StartFailed`.
    * `on_receive` for a `tell`: the actor crashes, `on_failure` is called.
    * `on_receive` for an `ask`, or a proxy call: the caller gets the exception and the actor goes
      on, as in pykka, unless the class says `ask_failures = "crash"`. Anything that is not an
      `Exception` (`SystemExit`, ...) crashes the actor in any case.
    * `on_stop`, `on_failure`: logged; the actor ends all the same.
    """

    ask_failures: str = "reply"
    """`"reply"`: a caller's exception is the caller's. `"crash"`: it ends the actor too."""

    _stopped_event: threading.Event | None = None
    _ref: Any = None
    _watchers: list[Callable[[Actor, ExitReason], None]] | None = None
    _stopping: ExitReason | None = None
    _over: bool = False  # it has ended, and everyone who waited has been told
    _asked: Any = None  # the future of whoever waits for what is being handled
    exit_reason: ExitReason | None = None
    """Why the actor ended; `None` while it lives."""
    supervisor: Actor | None = None
    """Whose child it is."""
    child_id: Hashable | None = None
    """Its id as a child of that supervisor."""
    starter: Actor | None = None
    """The actor that waits for its start, while it is being started."""

    def __init__(self, *, lane: Lane | None = None) -> None:
        self._inbox: deque[Envelope[Any]] = deque()
        self._idle: list[None] = []  # the token is out until the actor has started
        self._life: list[None] = [None]  # who pops this ends the actor
        self._lane: Lane = POOL if lane is None else lane

    # What pykka's own code looks at, made only when it does.

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """A name that no other actor has."""
        urn: str | None = self.__dict__.get("_urn")
        return urn or self.__dict__.setdefault("_urn", uuid.uuid4().urn)

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """The inbox as pykka sees it."""
        return _Inbox(self)

    @property
    def actor_ref(self) -> Any:
        """The actor's ref."""
        return self._ref or self.__dict__.setdefault("_ref", Ref(self))

    @property
    def actor_stopped(self) -> threading.Event:  # type: ignore[override]
        """An event that is set when the actor has ended."""
        event: threading.Event = self.__dict__.setdefault("_stopped_event", threading.Event())
        if self.exit_reason is not None:
            event.set()
        return event

    @staticmethod
    def _create_actor_inbox() -> Any:  # pragma: no cover - replaced by the list above
        return None

    @staticmethod
    def _create_future() -> ThreadingFuture[Any]:
        return ThreadingFuture()

    def _start_actor_loop(self) -> None:  # pragma: no cover - `start` does it
        self._launch()

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.actor_urn}"

    __str__ = __repr__

    @property
    def title(self) -> str:
        """Its `repr`. Actors are named while they die, so one that cannot be printed must do."""
        try:
            return repr(self)
        except Exception:  # noqa: BLE001 - a subclass of the user's
            return f"{type(self).__name__} {self.actor_urn}"

    # Starting.

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the actor, run its `on_start`, and return its ref once that is through.

        Raises:
            StartFailed: `on_start` raised or asked to stop.

        """
        actor = cls(*args, **kwargs)
        actor._launch()
        return actor.actor_ref

    def _launch(self) -> None:
        ROSTER.add(self)
        if type(self).on_start is pykka.Actor.on_start:
            if self._go_idle():  # somebody has found it in the registry already
                self._lane.submit(self)
            return
        if CURRENT.get() is self:  # pragma: no cover - cannot happen through the API
            raise WouldDeadlock
        started = ThreadTicket()
        with self.being_started():
            self._lane.submit(_Starter(self, started))
            self._lane.wait(started, None)
        if started.error is not None:
            raise started.error

    @contextlib.contextmanager
    def being_started(self) -> Iterator[None]:
        """Note who waits for the start, so that a call that would wait for that one is refused."""
        self.starter = CURRENT.get()
        try:
            yield
        finally:
            self.starter = None

    def _run_start(self) -> StartFailed | None:
        """Run `on_start`; give the error if the actor has not survived it. In the lane's thread."""
        before = CURRENT.set(self)
        try:
            outcome: Any = self.on_start()  # type: ignore[func-returns-value]
            if isinstance(outcome, Stop):
                raise outcome  # noqa: TRY301 - returned or raised, it means the same
        except Stop as stop:
            reason: ExitReason = stop.reason
        except BaseException as error:  # noqa: BLE001 - given to whoever starts it
            reason = Crash(error)
        else:
            return None
        finally:
            CURRENT.reset(before)
        self.die(reason)
        failure = StartFailed(self.title, reason.describe())
        failure.__cause__ = reason.exception if isinstance(reason, Crash) else None
        return failure

    # The inbox.

    def put(self, envelope: Envelope[Any]) -> None:
        """Put an envelope into the inbox and see to it that the actor runs. Any thread. O(1).

        Raises:
            WorkerStopped: the actor has ended.

        """
        self._inbox.append(envelope)
        if self._idle:
            self._wake()

    def _wake(self) -> None:
        try:
            self._idle.pop()
        except IndexError:
            return
        if self.exit_reason is not None:
            self._idle.append(None)
            self._refuse_inbox()
            raise self.dead_error()
        self._lane.submit(self)

    def _go_idle(self) -> bool:
        """Give the token back; tell whether there is something to do after all."""
        self._idle.append(None)
        if not self._inbox:
            return False
        try:
            self._idle.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Handle what is in the inbox, for a while. Only the lane calls this."""
        before = CURRENT.set(self)
        try:
            for _ in range(_ROUNDS):
                if self.exit_reason is not None:
                    self._refuse_inbox()
                    return
                if not self._inbox and not self._go_idle():
                    return
                try:
                    envelope = self._inbox.popleft()
                except IndexError:  # somebody killed it just now, and has told who waits
                    continue
                self._handle(envelope)
        finally:
            CURRENT.reset(before)
        self._lane.submit(self)

    def _handle(self, envelope: Envelope[Any]) -> None:
        reply_to = envelope.reply_to
        if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001
            self._stopping = self._stopping or Normal()
            self._finish_stop()
            if reply_to is not None:
                reply_to.set(None)
            return
        self._asked = reply_to
        try:
            answer = self._handle_receive(envelope.message)
            if isinstance(answer, Stop):
                raise answer  # noqa: TRY301 - returned or raised, it means the same
        except Stop as stop:
            self._asked = None
            self._stopping = stop.reason
            self._finish_stop()
            if reply_to is not None:
                reply(reply_to, None)
        except BaseException as error:  # noqa: BLE001 - given to the caller, or ends the actor
            self._asked = None
            self._answer_with(reply_to, error)
        else:
            self._asked = None
            if reply_to is not None:
                reply(reply_to, answer)

    def _answer_with(self, reply_to: Any, error: BaseException) -> None:
        """Give an exception to whoever asked; it ends the actor if nobody did, or as told."""
        if reply_to is not None:
            reply_error(reply_to, error)
            if isinstance(error, Exception) and self.ask_failures == "reply":
                return
        self._crash(error)

    # Ending.

    def stop(self) -> None:
        """Ask the actor to stop, from within or without; returns at once."""
        if self.exit_reason is None:
            self.actor_ref.tell(messages._ActorStop())  # noqa: SLF001

    def shut_down(self, reason: ExitReason) -> None:
        """Ask the actor to end with this reason, after what is in its inbox. Any thread."""
        if self.exit_reason is None:
            self._stopping = reason
            with contextlib.suppress(WorkerStopped):
                self.put(Envelope(messages._ActorStop()))  # noqa: SLF001

    def kill(self) -> None:
        """End the actor at once, whatever it is doing. Any thread.

        A thread cannot be killed: a handler that hangs keeps its thread, but is cut off.
        """
        running = not self._idle
        if running:
            log.warning("actor abandoned", actor=self.title)
        self.die(Killed(abandoned=running))

    def _finish_stop(self) -> None:
        reason = self._stopping or Normal()
        try:
            self.on_stop()
        except BaseException as error:  # noqa: BLE001 - the actor ends all the same
            log.error("on_stop failed", actor=self.title, error=brief(error), exc_info=error)
        self.die(reason)

    def _crash(self, error: BaseException) -> None:
        try:
            log.error("actor crashed", actor=self.title, error=brief(error), exc_info=error)
            self.on_failure(type(error), error, error.__traceback__)
        except BaseException as second:  # noqa: BLE001 - the actor ends all the same
            log.error("on_failure failed", actor=self.title, exc_info=second)
        finally:
            self.die(Crash(error))

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception_value is not None:
            self._crash(exception_value)

    def die(self, reason: ExitReason) -> bool:
        """End the actor, once: later calls do nothing. Tells whether this call did it.

        In this order: the reason is set, the token goes back for good, the inbox is refused. So
        whoever puts something in either is refused here or finds the actor dead.
        """
        if not self._claim_death(reason):
            return False
        self._cut_off()
        ROSTER.discard(self)
        self._over = True
        if self._stopped_event is not None:
            self._stopped_event.set()
        self._notify()
        return True

    def _claim_death(self, reason: ExitReason) -> bool:
        """Set the reason, if nobody else has."""
        try:
            self._life.pop()
        except IndexError:
            return False
        self.exit_reason = reason
        return True

    def _cut_off(self) -> None:
        """Refuse what is in the inbox and whatever may still come."""
        if not self._idle:
            self._idle.append(None)
        self._refuse_asked()
        self._refuse_inbox()
        self._lane.release()

    def _refuse_asked(self) -> None:
        """Tell who waits for an answer that is being worked on: it was killed meanwhile."""
        asked = self._asked
        if asked is not None:
            reply_error(asked, self.dead_error())

    def dead_error(self) -> WorkerStopped:
        """Make the error for those who come too late."""
        reason = self.exit_reason or Normal()
        text = f"{self.title} has ended: {reason.describe()}"
        if isinstance(reason, Crash):
            error: WorkerStopped = WorkerCrashed(text)
            error.__cause__ = reason.exception
            return error
        return WorkerStopped(text)

    def _refuse_inbox(self) -> None:
        while True:
            try:
                envelope = self._inbox.popleft()
            except IndexError:
                return
            if envelope.reply_to is None:
                continue
            if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001
                envelope.reply_to.set(None)
            else:
                reply_error(envelope.reply_to, self.dead_error())

    # Exit notices.

    def watch(self, notice: Callable[[Actor, ExitReason], None]) -> None:
        """Have `notice(actor, reason)` called once, when the actor has ended or at once if it has.

        It is called in the thread in which the actor ends, so it must be short and not raise.
        """
        self.__dict__.setdefault("_watchers", []).append(notice)
        if self._over:
            self._notify()

    def unwatch(self, notice: Callable[[Actor, ExitReason], None]) -> None:
        """Take a `watch` back. Harmless if the notice was given already."""
        try:
            (self._watchers or []).remove(notice)
        except ValueError:
            return

    def _notify(self) -> None:
        watchers = self._watchers
        while watchers:
            try:
                notice = watchers.pop(0)
            except IndexError:
                return
            try:
                notice(self, self.exit_reason or Normal())
            except Exception as error:  # noqa: BLE001 - the others are told all the same
                log.error("exit notice failed", actor=self.title, exc_info=error)


class _Starter:
    """Runs an actor's `on_start` in its lane, lets the starter go on, then runs the actor."""

    __slots__ = ("_actor", "_started")

    def __init__(self, actor: Actor, started: ThreadTicket) -> None:
        self._actor = actor
        self._started = started

    def run(self) -> None:
        """See above. Only the lane calls this."""
        failure = self._actor._run_start()  # noqa: SLF001
        self._started.resolve(failure)
        if failure is None and self._actor._go_idle():  # noqa: SLF001
            self._actor.run()


def reply(future: Any, answer: Any) -> None:
    """Answer an `ask`, unless it has been answered already: the actor was killed meanwhile."""
    with contextlib.suppress(queue.Full):  # what pykka raises then
        future.set(answer)


def reply_error(future: Any, error: BaseException) -> None:
    """Answer an `ask` with an exception, unless it has been answered already."""
    with contextlib.suppress(queue.Full):  # what pykka raises then
        future.set_exception((type(error), error, error.__traceback__))
