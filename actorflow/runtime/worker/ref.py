"""The ref of a worker: push messages, ask, stop it, look at it."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

import pykka
from pykka import messages

from actorflow.runtime.actor.current import CURRENT
from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.errors import (
    Full,
    PushTimeout,
    StopTimeout,
    WorkerCrashed,
    WouldDeadlock,
)
from actorflow.runtime.exits import Crash
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.worker.metrics import statistics
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pair.helping import help_out
from actorflow.runtime.worker.pair.machine import PairState, StopMode
from actorflow.runtime.worker.pair.stopping import kill, request_stop, retire
from actorflow.runtime.worker.tickets import (
    AsyncTicket,
    FutureTicket,
    ThreadTicket,
    check_timeout,
)
from behaviours.base import Item
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.job.dead_letters import DeadLetters
    from actorflow.runtime.worker.job.executor import ExecutorRef
    from actorflow.runtime.worker.metrics import WorkerStatistics

__all__ = ["DEFAULT_TIMEOUT", "WorkerRef"]

_PROXY = (messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr)
_TIMEOUT = 5.0  # seconds that a caller waits unless it says otherwise
DEFAULT_TIMEOUT: Any = object()
"""Says that a caller of `push_block` gave no timeout: what that means depends on the worker."""


class WorkerRef(Ref[Any]):
    """The ref of a running worker. Thread-safe. Get one from `spawn`.

    It is a `pykka.ActorRef` of the accumulator; `executor` is the ref of the other half.
    """

    __slots__ = ("_idle", "_raw", "actor")

    actor: Accumulator
    actor_class = Accumulator

    def __init__(self, accumulator: Accumulator) -> None:
        self.actor = accumulator
        self._raw = accumulator.core.raw
        self._idle = accumulator.idle

    @property
    def lifespan(self) -> Any:
        """The accumulator. Internal."""
        return self.actor

    # Messages.

    def push(self, message: Any) -> None:
        """Send a message and return: it is processed some time, or counted as rejected. O(1).

        An idle worker takes it at once, alone. A busy one accumulates it.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        self._raw.append(message)
        if self._idle:
            self.actor.wake((message,))

    def push_many(self, messages: Iterable[Any]) -> None:
        """Send many messages at once; an idle worker gets them as one batch.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        messages = list(messages)
        if not messages:
            return
        self._raw.extend(self._stamped(messages))
        if self._idle:
            self.actor._lead = len(messages)
            self.actor.wake(messages)

    def _stamped(self, messages: list[Any]) -> list[Any]:
        """Return messages as the raw list holds them."""
        return messages

    def push_ack(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Send a message and return once it is accumulated.

        The timeout matters only for a behaviour that makes pushers wait (`when_full="block"`).

        Raises:
            Rejected: the behaviour refuses it: bound reached, or malformed.
            WorkerStopped: the worker has ended, or is stopping.

        """
        if timeout is not None:
            check_timeout(timeout)
        if self.actor.core.shape.accepts_all:
            self.push(message)
        else:
            self.actor.intake.offer(message, None, timeout)

    def push_block(self, message: Any, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Send a message and return once the batch that holds it was processed.

        The default timeout is 5 seconds, or none where the worker was spawned with `help=True`.

        Raises:
            Exception: what the job raised on that batch, or answered to that message.
            Displaced: the message was replaced, dropped or has expired, so it never will be.
            Rejected: the behaviour refuses it.
            PushTimeout: not in time; the message stays accumulated and will be processed.
            WorkerStopped: the worker ended before it processed the message.
            WouldDeadlock: called from the worker's own job.

        """
        pair = self.actor
        if timeout is DEFAULT_TIMEOUT:
            timeout = None if pair.settings.help else _TIMEOUT
        elif timeout is not None:
            check_timeout(timeout)
        ticket = ThreadTicket()
        if CURRENT.get() is not None and pair.is_current():
            raise self._self_wait("push_block")
        helped = pair.settings.help and timeout is None and help_out(pair, message, ticket)
        if helped:
            pass
        elif pair.core.shape.accepts_all:
            ticket.prepare()
            self._append(message, ticket)
        else:
            timeout = pair.intake.offer(message, ticket, timeout)
        if not ((helped and ticket.outcomes) or pair.settings.lane.wait(ticket, timeout)):
            raise self._late(message, timeout)
        error, _ = ticket.outcomes[0]
        if error is not None:
            raise error

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and return the job's answer to it, `None` if it gives none.

        A job answers with `Answers(state, answers)`. If not `block`, return a `pykka.Future`.

        Raises:
            pykka.Timeout: no answer in time; the message stays accumulated.
            Exception: as `push_block`; if not `block`, from `get` of the future.

        """
        pair = self.actor
        if timeout is not None:
            check_timeout(timeout)
        if isinstance(message, _PROXY):
            future = self._proxied(message)
            return future.get(timeout=timeout) if block else future
        if not block:
            return self._ask_later(message)
        if CURRENT.get() is not None and pair.is_current():
            raise self._self_wait("ask")
        ticket = ThreadTicket()
        if pair.core.shape.accepts_all:
            ticket.prepare()
            self._append(message, ticket)
        else:
            try:
                timeout = pair.intake.offer(message, ticket, timeout)
            except Full:
                if timeout is not None and pair.core.behaviour.traits.blocks:
                    msg = f"there was no room in {pair!r} within {timeout} s"
                    raise pykka.Timeout(msg) from None
                raise
        if not pair.settings.lane.wait(ticket, timeout):
            msg = f"{pair!r} did not answer {brief(message)} in time; it stays accumulated"
            raise pykka.Timeout(msg)
        error, answer = ticket.outcomes[0]
        if error is not None:
            raise error
        return answer

    def _ask_later(self, message: Any) -> Any:
        ticket = FutureTicket()
        try:
            if self.actor.core.shape.accepts_all:
                self._append(message, ticket)
            else:
                SHELTER.run(self.actor.intake.try_offer, message, ticket, partial(_InLine, ticket))
        except Exception as error:  # noqa: BLE001 - raised by the future
            ticket.resolve(error)
        return ticket.future

    def _proxied(self, message: Any) -> Any:
        """Return a future of what a proxy means: it sees the accumulator, not the job."""
        ticket = FutureTicket()
        try:
            answer = pykka.Actor._handle_receive(self.actor, message)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - raised by the future
            ticket.resolve(error)
        else:
            ticket.resolve(None, answer)
        return ticket.future

    def tell(self, message: Any) -> None:
        """Send a message like `push`: pykka's word for it."""
        if isinstance(message, _PROXY):
            self._proxied(message)
        elif type(message) is messages._ActorStop:
            self.stop(block=False)
        else:
            self.push(message)

    def _append(self, message: Any, ticket: Any) -> None:
        """Push a message that somebody waits for, to a behaviour that refuses nothing."""
        pair = self.actor
        item = Item(message, (ticket,))
        if type(pair.core.marks) is list:  # `mark`, inlined: callers wait for every call made here
            pair.core.marks.append(None)
        else:
            pair.core.mark()
        self._raw.append(item)
        if self._idle:
            pair.wake((item,))
        else:
            self._look()

    def _look(self) -> None:
        """Do what a push does after it has appended to a busy worker's list."""

    # The same for asyncio.

    async def apush(self, message: Any, timeout: float | None = None) -> None:
        """Like `push`, but where the worker makes pushers wait for room, wait without blocking.

        Raises:
            Rejected: a bound that is reached, after `timeout` seconds; a malformed message.
            WorkerStopped: the worker has ended, or is stopping.

        """
        if timeout is not None:
            check_timeout(timeout)
        if self.actor.core.shape.accepts_all:
            self.push(message)
        else:
            await self._aoffer(message, None, timeout)

    async def apush_ack(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_ack`, from a task of any event loop."""
        await self.apush(message, timeout)

    async def apush_block(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_block`, from a task of any event loop."""
        if self.actor.is_current():
            raise self._self_wait("apush_block")
        ticket = AsyncTicket()
        left = await self._asend(message, ticket, timeout)
        if not await ticket.wait(left):
            raise self._late(message, timeout)

    async def aask(self, message: Any, *, timeout: float | None = None) -> Any:
        """Like `ask`, from a task of any event loop."""
        if self.actor.is_current():
            raise self._self_wait("aask")
        ticket = AsyncTicket()
        left = await self._asend(message, ticket, timeout)
        if not await ticket.wait(left):
            msg = f"{self.actor!r} did not answer {brief(message)} in time; it stays accumulated"
            raise pykka.Timeout(msg)
        return ticket.answer

    async def _asend(self, message: Any, ticket: Any, timeout: float | None) -> float | None:
        if timeout is not None:
            check_timeout(timeout)
        if self.actor.core.shape.accepts_all:
            self._append(message, ticket)
            return timeout
        return await self._aoffer(message, ticket, timeout)

    async def _aoffer(self, message: Any, ticket: Any, timeout: float | None) -> float | None:
        """Like `Accumulator.offer`, for a task."""
        pair = self.actor
        begin = monotonic()
        waiter: Any = SHELTER.run(
            pair.intake.try_offer, message, ticket, _async_ticket(), pair.is_current()
        )
        if waiter is None:
            return timeout
        try:
            in_time = await waiter.wait(timeout)
        except BaseException:
            pair.intake.forget_blocked(waiter)
            raise
        if not in_time and pair.intake.forget_blocked(waiter):
            raise Full(len(pair.core.behaviour))
        return None if timeout is None else max(timeout - (monotonic() - begin), 0.0)

    def _self_wait(self, verb: str) -> WouldDeadlock:
        msg = f"{self.actor!r} would wait for itself: its own job calls {verb}"
        return WouldDeadlock(msg)

    def _late(self, message: Any, timeout: float | None) -> PushTimeout:
        msg = (
            f"{self.actor!r} did not process {brief(message)} in time ({timeout} s left at the "
            "beginning); it stays accumulated"
        )
        return PushTimeout(msg)

    # Looking at it.

    @property
    def name(self) -> Hashable | None:
        """The name it was spawned under."""
        return self.actor.settings.name

    @property
    def executor(self) -> ExecutorRef:
        """The ref of the executor: `tell`, `ask` and `proxy()` reach it between two batches."""
        ref: ExecutorRef = self.actor.life.executor.actor_ref
        return ref

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` while it lives."""
        return self.actor.exit_reason

    def is_alive(self) -> bool:
        """Return whether the worker has not ended."""
        return self.actor.exit_reason is None

    def statistics(self) -> WorkerStatistics:
        """Return a picture of the worker: counts, batch sizes, depth, times. O(1)."""
        return statistics(self.actor)

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that `Isolate` found to be poison: read, retry or purge them."""
        return self.actor.life.dead_letters

    @property
    def status(self) -> PairState:
        """What the worker is doing."""
        return self.actor.status()

    def resume(self) -> None:
        """Start a parked worker's executor again.

        Raises:
            NotParked: the worker is not parked.

        """
        self.actor.life.resume()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do at this very moment. O(1), without a lock."""
        return bool(self._idle)

    def __len__(self) -> int:
        """Return how many messages are accumulated now."""
        self.actor._refuse_own_functions()
        with self.actor.lock:
            ahead = self.actor._ahead()  # first: messages may arrive meanwhile, but none leaves
            return len(self.actor.core) - ahead

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        reason = self.actor.exit_reason
        return f"<{self.actor!r}{'' if reason is None else ', ended: ' + reason.describe()}>"

    def __reduce__(self) -> NoReturn:
        msg = (
            f"{self!r} cannot be pickled: it lives in this process only; "
            "give it a name and use af.whereis(name), or push from here"
        )
        raise TypeError(msg)

    # What pykka's own code looks at.

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`."""
        return self.actor.life.urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return self.actor.life.stopped

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_inbox`: what is put in is pushed."""
        return _Inbox(self)

    def watch(self, notice: Any) -> None:
        """Call `notice(ref, reason)` once when the worker has ended, or now if it has."""
        self.actor.life.watch(notice)

    def unwatch(self, notice: Any) -> None:
        """Withdraw a `watch`. Harmless if there is none or the notice has been given."""
        self.actor.life.unwatch(notice)

    def kill(self) -> None:
        """End the worker at once, like `stop(now=True)`, with the reason `Killed`."""
        kill(self.actor)

    # Ending.

    def stop(  # type: ignore[override]
        self,
        *,
        drain: bool | None = None,
        now: bool = False,
        timeout: float | None = None,
        block: bool = True,
    ) -> bool:
        """Stop the worker; return whether it was still there.

        Args:
            drain: process what is accumulated first (the default); `False` finishes the current
                batch only and drops the rest.
            now: do not even wait for the current batch: callers are told, the job runs to its
                end in its thread, cut off.
            timeout: seconds to wait; when they are up, it is stopped now.
            block: `False` returns at once and the worker stops by itself.

        Raises:
            StopTimeout: it did not end in time, so it was cut off.

        """
        pair = self.actor
        mode = StopMode.asked_for(drain=drain, now=now)
        if timeout is not None:
            check_timeout(timeout)
        if retire(pair):
            return True
        there = request_stop(pair, mode)
        if not block or pair.is_current():
            return there
        ended = ThreadTicket()
        pair.life.watch(partial(_resolve, ended))
        if not pair.settings.lane.wait(ended, timeout):
            raise self._cut_off(timeout)
        return there

    async def astop(
        self, *, drain: bool | None = None, now: bool = False, timeout: float | None = None
    ) -> bool:
        """Like `stop`, from a task of any event loop."""
        pair = self.actor
        mode = StopMode.asked_for(drain=drain, now=now)
        if timeout is not None:
            check_timeout(timeout)
        there = request_stop(pair, mode)
        if pair.is_current():
            return there
        ended = AsyncTicket()
        notice = partial(_resolve, ended)
        pair.life.watch(notice)
        try:
            in_time = await ended.wait(timeout)
        except BaseException:
            pair.life.unwatch(notice)
            raise
        if not in_time:
            raise self._cut_off(timeout)
        return there

    def _cut_off(self, timeout: float | None) -> StopTimeout:
        left = len(self.actor.core)
        request_stop(self.actor, StopMode.NOW)
        msg = f"{self.actor!r} did not stop within {timeout} s; cut off with {left} messages"
        return StopTimeout(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain and stop. If the worker has crashed, raise that, unless something else is."""
        self.stop()
        self._raise_crash(kind)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Like `__exit__`, without blocking the event loop."""
        await self.astop()
        self._raise_crash(kind)

    def _raise_crash(self, kind: type[BaseException] | None) -> None:
        reason = self.actor.exit_reason
        if kind is None and isinstance(reason, Crash):
            crashed = WorkerCrashed(f"{self.actor!r} has ended: {reason.describe()}")
            raise crashed from reason.exception


class _Inbox:
    """A worker's inbox as pykka's code sees it."""

    __slots__ = ("_worker",)

    def __init__(self, worker: WorkerRef) -> None:
        self._worker = worker

    def put(self, envelope: Any, /) -> None:
        """Push what is in the envelope; an answer goes to whoever waits for it."""
        if envelope.reply_to is None:
            self._worker.tell(envelope.message)
        elif type(envelope.message) is messages._ActorStop:
            self._worker.watch(lambda _ref, _reason: envelope.reply_to.set(None))
            self._worker.stop(block=False)
        else:
            envelope.reply_to.set(self._worker.ask(envelope.message, block=False))

    def empty(self) -> bool:
        """Return whether nothing is accumulated."""
        return not len(self._worker)


class _InLine:
    """Stands in line for room, for a caller that does not wait: an error is its answer."""

    __slots__ = ("_ticket",)

    def __init__(self, ticket: FutureTicket) -> None:
        self._ticket = ticket

    def resolve(self, error: BaseException | None = None) -> None:
        """Pass the error on, if there is no room after all."""
        if error is not None:
            self._ticket.resolve(error)


def _resolve(ticket: Any, _ref: Any, _reason: Any) -> None:
    ticket.resolve()


def _async_ticket() -> Any:
    """Return what makes the ticket of the running task, from whatever thread it is called."""
    ticket = AsyncTicket()
    return lambda: ticket
