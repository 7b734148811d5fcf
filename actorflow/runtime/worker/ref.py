"""The ref of a worker: push messages and ask. Looking at it and ending it is in `control`."""

from __future__ import annotations

import sys
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, overload

import pykka
from pykka import messages

from actorflow.behaviours.arguments import seconds
from actorflow.behaviours.behaviour import Item
from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.answers import ActorStop
from actorflow.runtime.errors import (
    AnswerTimeout,
    BadOption,
    Full,
    PushTimeout,
    WorkerStopped,
    WouldDeadlock,
)
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.log import log
from actorflow.runtime.registry import CURRENT
from actorflow.runtime.tickets import (
    AsyncTicket,
    FutureTicket,
    ThreadTicket,
    check_timeout,
    refuse_in_event_loop,
)
from actorflow.runtime.worker.control import WorkerControl
from actorflow.runtime.worker.job.split import Split, part_tickets
from actorflow.runtime.worker.pair.offers import help_out

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from typing_extensions import TypeVar

    from actorflow.runtime.clock import Timer

    # With a default, a bare `WorkerRef` is one of any messages and answers.
    Message_contra = TypeVar("Message_contra", contravariant=True, default=Any)
    Answer_co = TypeVar("Answer_co", covariant=True, default=Any)
    Joined = TypeVar("Joined")
else:
    from typing import TypeVar

    Message_contra = TypeVar("Message_contra", contravariant=True)
    Answer_co = TypeVar("Answer_co", covariant=True)

__all__ = ["DEFAULT_TIMEOUT", "WorkerRef"]


class _LatePush:
    """A push that is due, on its way through the pool: it may run functions of the user."""

    __slots__ = ("_message", "_worker")

    def __init__(self, worker: WorkerRef, message: Any) -> None:
        self._worker = worker
        self._message = message

    def run(self) -> None:
        """Push the message."""
        try:
            self._worker.push(self._message)
        except WorkerStopped as error:
            log.warning("late message not pushed", message=brief(self._message), error=str(error))


_PROXY = (messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr)
_MODULES = sys.modules  # a look at it is faster than a call
_TIMEOUT = 5.0  # seconds that a caller waits unless it says otherwise
DEFAULT_TIMEOUT: Any = object()
"""Says that a caller of `push_block` gave no timeout: what that means depends on the worker."""


class WorkerRef(WorkerControl, Generic[Message_contra, Answer_co]):
    """The ref of a running worker. Thread-safe. Get one from `spawn`.

    Type checkers know it as `WorkerRef[Message, Answer]`: what `push` takes, what `ask` returns.

    It is a `pykka.ActorRef` of the accumulator; `executor` is the ref of the other half.
    """

    __slots__ = ()

    # Messages.

    def push(self, message: Message_contra) -> None:
        """Send a message and return: it is processed some time, or counted as rejected. O(1).

        An idle worker takes it at once, alone. A busy one accumulates it.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        self._raw.append(message)
        if self._idle:
            self.actor.wake((message,))

    def push_many(self, messages: Iterable[Message_contra]) -> None:
        """Send many messages at once; an idle worker gets them as one batch.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        messages = list(messages)
        if not messages:
            return
        self._raw.extend(self._stamped(messages))
        if self._idle:
            self.actor.first_batch_size = len(messages)
            self.actor.wake(messages)

    def _stamped(self, messages: list[Any]) -> list[Any]:
        """Return messages as the raw list holds them."""
        return messages

    def push_after(self, delay: float, message: Message_contra) -> Timer:
        """Push a message in `delay` seconds; return a handle with `cancel()`. O(log n).

        Cancelling does nothing when the message was pushed. If the worker has stopped by then,
        the message is not pushed, and that is logged.

        Raises:
            BadOption: the delay is not a number of seconds, zero or more.
            WorkerStopped: the worker has ended, or is stopping.

        """
        delay = seconds(delay, "delay", "worker.push_after(5.0, message)", error=BadOption)
        self.actor.refuse_if_closed()
        clock = self.actor.settings.clock
        return clock.call_at(clock.now() + delay, partial(POOL.submit, _LatePush(self, message)))

    def push_ack(self, message: Message_contra, timeout: float | None = _TIMEOUT) -> None:
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
            self.actor.offers.offer(message, None, timeout)

    def push_block(self, message: Message_contra, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Send a message and return once the batch that holds it was processed.

        The default timeout is 5 seconds, or none where the worker was spawned with `help=True`.

        Raises:
            Exception: what the job raised on that batch, or answered to that message.
            Displaced: the message was replaced, dropped or has expired, so it never will be.
            Rejected: the behaviour refuses it.
            PushTimeout: not in time; the message stays accumulated and will be processed.
            WorkerStopped: the worker ended before it processed the message.
            WouldDeadlock: called from the worker's own job.
            LoopBlocked: called in a thread that runs an event loop: use `apush_block`.

        """
        pair = self.actor
        if timeout is DEFAULT_TIMEOUT:
            timeout = None if pair.settings.help else _TIMEOUT
        elif timeout is not None:
            check_timeout(timeout)
        ticket = ThreadTicket()
        self._refuse_to_wait("push_block")
        helped = pair.settings.help and timeout is None and help_out(pair, message, ticket)
        if helped:
            pass
        elif pair.core.shape.accepts_all:
            ticket.prepare()
            self._append(message, ticket)
        else:
            timeout = pair.offers.offer(message, ticket, timeout)
        if not ((helped and ticket.outcomes) or pair.settings.lane.wait(ticket, timeout)):
            raise self._late(message, timeout)
        error, _ = ticket.outcomes[0]
        if error is not None:
            raise error

    @overload  # type: ignore[override] # pykka's takes any message
    def ask(
        self,
        message: Split[Message_contra, Joined],
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
    ) -> Joined: ...
    @overload
    def ask(
        self,
        message: Split[Message_contra, Joined],
        *,
        block: Literal[False],
        timeout: float | None = None,
    ) -> pykka.Future[Joined]: ...
    @overload
    def ask(
        self, message: Message_contra, *, block: Literal[True] = True, timeout: float | None = None
    ) -> Answer_co: ...
    @overload
    def ask(
        self, message: Message_contra, *, block: Literal[False], timeout: float | None = None
    ) -> pykka.Future[Answer_co]: ...
    @overload
    def ask(self, message: Message_contra, *, block: bool, timeout: float | None = None) -> Any: ...
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and return the job's answer to it, `None` if it gives none.

        A job answers with `Answers(state, answers)`. If not `block`, return a `pykka.Future`.
        `Split(parts, join)` sends several messages, and joins their answers.

        Raises:
            AnswerTimeout: no answer in time; the message is withdrawn, unless its batch runs.
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
        self._refuse_to_wait("ask")
        ticket = ThreadTicket()
        is_split = type(message) is Split
        if is_split:
            self._send_parts(message, ticket)
        elif pair.core.shape.accepts_all:
            ticket.prepare()
            self._append(message, ticket)
        else:
            try:
                timeout = pair.offers.offer(message, ticket, timeout)
            except Full:
                if timeout is not None and pair.core.behaviour.traits.blocks:
                    msg = f"there was no room in {pair!r} within {timeout} s"
                    raise AnswerTimeout(msg) from None
                raise
        if not pair.settings.lane.wait(ticket, timeout):
            raise self._unanswered(message, ticket)
        error, answer = ticket.outcomes[0]
        if error is not None:
            raise error
        return answer if answer is not None or is_split else pair.unanswered()

    def _send_parts(self, split: Split, ticket: Any) -> None:
        """Send the parts of a question, whose answers resolve the ticket."""
        pairs = part_tickets(split, ticket)
        if pairs:
            refused = UNINTERRUPTIBLE.run(self.actor.offers.offer_many, pairs)
            for part, error in refused:
                part.resolve(error)

    def _ask_later(self, message: Any) -> Any:
        ticket = FutureTicket()
        try:
            if type(message) is Split:
                self._send_parts(message, ticket)
            elif self.actor.core.shape.accepts_all:
                self._append(message, ticket)
            else:
                UNINTERRUPTIBLE.run(
                    self.actor.offers.try_offer, message, ticket, partial(_InLine, ticket)
                )
        except Exception as error:  # noqa: BLE001 - raised by the future
            ticket.resolve(error)
        return ticket.future

    def _proxied(self, message: Any) -> Any:
        """Return a future of what a proxy means: it sees the accumulator, not the job."""
        ticket = FutureTicket()
        try:
            answer = pykka.Actor._handle_receive(self.actor, message)  # type: ignore[arg-type] # noqa: SLF001 - pykka's own
        except Exception as error:  # noqa: BLE001 - raised by the future
            ticket.resolve(error)
        else:
            ticket.resolve(None, answer)
        return ticket.future

    def tell(self, message: Message_contra) -> None:
        """Send a message like `push`: pykka's word for it."""
        if isinstance(message, _PROXY):
            self._proxied(message)
        elif type(message) is ActorStop:
            self.stop(block=False)
        else:
            self.push(message)

    def _append(self, message: Any, ticket: Any) -> None:
        """Push a message with a waiting caller to a behaviour that refuses nothing."""
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

    async def apush(self, message: Message_contra, timeout: float | None = None) -> None:
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

    async def apush_ack(self, message: Message_contra, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_ack`, from a task of any event loop."""
        await self.apush(message, timeout)

    async def apush_block(self, message: Message_contra, timeout: float | None = _TIMEOUT) -> None:
        """Like `push_block`, from a task of any event loop."""
        if self.actor.is_current():
            raise self._self_wait("apush_block")
        ticket = AsyncTicket()
        left = await self._asend(message, ticket, timeout)
        if not await ticket.wait(left):
            raise self._late(message, timeout)

    @overload
    async def aask(
        self, message: Split[Message_contra, Joined], *, timeout: float | None = None
    ) -> Joined: ...
    @overload
    async def aask(self, message: Message_contra, *, timeout: float | None = None) -> Answer_co: ...
    async def aask(self, message: Any, *, timeout: float | None = None) -> Any:
        """Like `ask`, from a task of any event loop."""
        if self.actor.is_current():
            raise self._self_wait("aask")
        return await self.answer(message, AsyncTicket(), timeout)

    async def answer(self, message: Any, ticket: AsyncTicket, timeout: float | None = None) -> Any:
        """Like `aask`, with a ticket of the caller, which the job finds in its batch."""
        left = await self._asend(message, ticket, timeout)
        try:
            in_time = await ticket.wait(left)
        except BaseException:
            self.actor.core.give_up(ticket)  # if cancelled; else it makes no difference
            raise
        if not in_time:
            raise self._unanswered(message, ticket)
        answer = ticket.answer
        return answer if answer is not None else self.actor.unanswered()

    async def _asend(self, message: Any, ticket: Any, timeout: float | None) -> float | None:
        if timeout is not None:
            check_timeout(timeout)
        if type(message) is Split:
            self._send_parts(message, ticket)
            return timeout
        if self.actor.core.shape.accepts_all:
            self._append(message, ticket)
            return timeout
        return await self._aoffer(message, ticket, timeout)

    async def _aoffer(self, message: Any, ticket: Any, timeout: float | None) -> float | None:
        """Like `Accumulator.offer`, for a task."""
        pair = self.actor
        begin = monotonic()
        waiter: Any = UNINTERRUPTIBLE.run(
            pair.offers.try_offer, message, ticket, _async_ticket(), pair.is_current()
        )
        if waiter is None:
            return timeout
        try:
            in_time = await waiter.wait(timeout)
        except BaseException:
            pair.offers.forget_blocked(waiter)
            raise
        if not in_time and pair.offers.forget_blocked(waiter):
            raise Full(len(pair.core.behaviour))
        return None if timeout is None else max(timeout - (monotonic() - begin), 0.0)

    def _refuse_to_wait(self, verb: str) -> None:
        """Refuse a call that would wait for itself or block an event loop."""
        if CURRENT.get() is not None and self.actor.is_current():
            raise self._self_wait(verb)
        asyncio = _MODULES.get("asyncio")
        if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - see there
            refuse_in_event_loop(self.actor, f"worker.a{verb}(message)")

    def _self_wait(self, verb: str) -> WouldDeadlock:
        msg = f"{self.actor!r} would wait for itself: its own job calls {verb}"
        return WouldDeadlock(msg)

    def _unanswered(self, message: Any, ticket: Any) -> AnswerTimeout:
        """Withdraw a message whose answer comes too late, and return the error for its caller."""
        self.actor.core.give_up(ticket)
        msg = f"{self.actor!r} did not answer {brief(message)} in time; withdrawn, unless it runs"
        return AnswerTimeout(msg)

    def _late(self, message: Any, timeout: float | None) -> PushTimeout:
        msg = (
            f"{self.actor!r} did not process {brief(message)} in time ({timeout} s left at the "
            "beginning); it stays accumulated"
        )
        return PushTimeout(msg)

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_inbox`: `put` pushes a message."""
        return _Inbox(self)


class _Inbox:
    """A worker's inbox as pykka's code sees it."""

    __slots__ = ("_worker",)

    def __init__(self, worker: WorkerRef) -> None:
        self._worker = worker

    def put(self, envelope: Any, /) -> None:
        """Push the message in the envelope; an answer goes to its waiting caller."""
        if envelope.reply_to is None:
            self._worker.tell(envelope.message)
        elif type(envelope.message) is ActorStop:
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


def _async_ticket() -> Any:
    """Return what makes the ticket of the running task, from whatever thread it is called."""
    ticket = AsyncTicket()
    return lambda: ticket
