"""How messages get in where a plain push is not enough: a verdict, a ticket, a wait for room.

A part of the accumulator, made when first needed: it shares the accumulator's lock and its private
names. Nothing here runs in the main thread except through the shelter (see `accumulator.py`).
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import (
    Full,
    LoopBlocked,
    WorkerCrashed,
    WouldBlock,
    WouldDeadlock,
)
from actorflow.runtime.lanes.shelter import SHELTER, in_main_thread
from actorflow.runtime.lanes.token import in_one_go
from actorflow.runtime.log import log
from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.accumulation import NEVER, fold_at
from actorflow.runtime.worker.pair.machine import DUE, IDLE, PUSHED, WAITING
from actorflow.runtime.worker.pair.stopping import SPARE
from actorflow.runtime.worker.pair.transitions import (
    Effects,
    calm,
    catch_up,
    fail,
    fill,
    free_seat,
    leave,
    schedule,
)
from actorflow.runtime.worker.tickets import ThreadTicket
from behaviours.base import Item
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.runtime.worker.pair.accumulator import Accumulator
    from actorflow.runtime.worker.pair.batch import Ticket

__all__ = ["Intake", "offer_line", "refuse_late", "take_back"]


class Intake:
    """Takes messages in for one accumulator."""

    __slots__ = ("_blocked", "_pair", "_warned")

    def __init__(self, pair: Accumulator) -> None:
        self._pair = pair
        self._blocked: deque[tuple[Any, Ticket | None, Any]] | None = None
        self._warned = False

    @property
    def is_blocking(self) -> bool:
        """Whether pushers wait for room."""
        return bool(self._blocked)

    def offer(
        self, message: Any, ticket: Ticket | None = None, timeout: float | None = None
    ) -> float | None:
        """Accumulate one message; return once that is done, with what is left of `timeout`.

        Raises:
            Rejected: the behaviour refuses it.
            WorkerStopped: the worker has ended or is stopping.
            WouldDeadlock: it would wait for room that only this caller can make.
            LoopBlocked: it would have to wait for room, and an event loop with it.

        """
        pair = self._pair
        waiter = SHELTER.run(self.try_offer, message, ticket, ThreadTicket, pair.is_current())
        if waiter is None:
            return timeout
        clock = pair.settings.clock
        begin = clock.now()
        try:
            if _in_event_loop():
                msg = (
                    f"{pair!r} is full, and waiting for room here would block the event loop; "
                    "write `await worker.apush(message)`"
                )
                raise LoopBlocked(msg)  # noqa: TRY301 - leaves the line like any other error
            in_time = pair.settings.lane.wait(waiter, timeout)
        except BaseException:
            self.forget_blocked(waiter)
            raise
        if not in_time and self.forget_blocked(waiter):
            raise Full(len(pair.core.behaviour))
        if waiter.error is not None:
            raise waiter.error
        return None if timeout is None else max(timeout - (clock.now() - begin), 0.0)

    def try_offer(
        self,
        message: Any,
        ticket: Ticket | None,
        make: Callable[[], Any],
        own: bool = False,  # noqa: FBT001, FBT002 - passed on by the shelter
    ) -> Any | None:
        """Accumulate one message, or return what to wait for until it has been.

        A pusher that has to wait stands in line, in order of arrival: whoever makes room adds
        its message for it. Not in the main thread. `own`: the pair's own job pushes.
        """
        pair = self._pair
        pair._refuse_own_functions()
        effects = Effects()
        try:
            with pair.lock:
                pair._refuse_if_closed()
                effects = catch_up(pair)
                now = pair._now()
                failure = _fold_for_producer(pair, now, effects)
                if failure is None:
                    try:
                        return self._add(message, ticket, make, now, own=own)
                    finally:  # also where it is refused: others have been folded with it
                        _look(pair, effects)
        finally:
            pair.conclude(effects)
        msg = f"{pair!r} did not take the message, because its behaviour failed"
        raise WorkerCrashed(msg) from failure

    def _add(
        self, message: Any, ticket: Ticket | None, make: Callable[[], Any], now: float, *, own: bool
    ) -> Any | None:
        """Add one message, or put it in line and return what to wait for. Under the lock."""
        pair, core = self._pair, self._pair.core
        if not self._blocked:
            try:
                core.offer(message, ticket, now)
            except WouldBlock:
                core.unoffer()
                self._blocked = deque()
            else:
                return None
        if own:
            msg = "it is full, and its own job waits for room that nobody else makes"
            raise WouldDeadlock(f"{pair!r} would wait for itself: {msg}")
        waiter = make()
        self._blocked.append((message, ticket, waiter))
        return waiter

    def offer_many(self, pairs: Sequence[tuple[Any, Ticket]]) -> list[tuple[Ticket, Exception]]:
        """Accumulate messages with their tickets together; return those that are refused.

        An idle worker gets them as one batch. Never waits for room: a behaviour that asks for
        that refuses instead. Not in the main thread.

        Raises:
            WorkerStopped: the worker has ended or is stopping; none was taken.

        """
        pair = self._pair
        if pair._line and offer_line(pair, pairs):
            return []
        pair._refuse_own_functions()
        effects = Effects()
        try:
            with pair.lock:
                pair._refuse_if_closed()
                effects = catch_up(pair)
                now = pair._now()
                try:
                    pair.core.fold(now)
                    return pair.core.offer_many(pairs, now)
                finally:
                    _look(pair, effects)
        finally:
            pair.conclude(effects)

    def forget_blocked(self, waiter: Any) -> bool:
        """Leave the line of pushers that wait for room; return whether it was still in line."""
        return bool(SHELTER.run(self._forget_blocked, waiter))

    def _forget_blocked(self, waiter: Any) -> bool:
        pair = self._pair
        with pair.lock:
            for entry in self._blocked or ():
                if entry[2] is waiter:
                    self._blocked.remove(entry)  # type: ignore[union-attr]
                    return True
        return False

    def admit(self, now: float) -> None:
        """Add the messages of blocked pushers, in order, as long as there is room."""
        pair = self._pair
        blocked = self._blocked
        while blocked:
            message, ticket, waiter = blocked[0]
            error: Exception | None = None
            try:
                pair.core.offer(message, ticket, now)
            except WouldBlock:
                pair.core.unoffer()
                return
            except Exception as refusal:  # noqa: BLE001 - the pusher is told
                error = refusal
            blocked.popleft()
            waiter.resolve(error)

    def take_blocked(self) -> list[Any]:
        """Remove and return the pushers that wait for room. Under the lock."""
        blocked, self._blocked = self._blocked, None
        return [waiter for _, _, waiter in blocked or ()]

    def fold_early(self) -> None:
        """Fold on behalf of a producer, so that what shrinks stays small. Thread-safe.

        One producer folds at a time and the others go on appending. Waiting for the lock would
        make a convoy: each waiter that is woken holds it while it waits for the interpreter.
        """
        pair = self._pair
        pair._refuse_own_functions()
        shape = pair.core.shape
        long = 3 * fold_at(shape)
        if in_main_thread():
            put = SHELTER.door()
            if put is None or pair.core.raw_count() >= long:
                SHELTER.run(self._fold_blocking)
            else:  # one look for all who push meanwhile; both or neither, wherever a signal strikes
                later = partial(setattr, pair, "_ring_at", long * shape.width)
                in_one_go(later, partial(put, self._fold_blocking))
            return
        self._fold_now()
        while pair.core.raw_count() > long and pair.exit_reason is None:
            runner.pause()
            self._fold_now()

    def _fold_now(self) -> None:
        """Fold, unless somebody else has the lock."""
        if self._pair.lock.acquire(blocking=False):
            self._fold_locked()

    def _fold_blocking(self) -> None:
        self._pair.lock.acquire()
        self._fold_locked()

    def _fold_locked(self) -> None:
        """Fold, and release the lock. Others only append meanwhile."""
        pair = self._pair
        effects = None
        shape = pair.core.shape
        pair._ring_at = 3 * fold_at(shape) * shape.width
        try:
            if pair.mode is None and pair.exit_reason is None:
                effects = catch_up(pair)
                failure = _fold_for_producer(pair, pair._now(), effects)
                if pair.state is WAITING and failure is None:
                    schedule(pair, DUE, effects)  # what was folded may have filled the batch
        finally:
            if pair.state is not WAITING:
                calm(pair)
            pair.lock.release()
        if effects is not None:
            pair.conclude(effects)

    def ring(self) -> None:
        """Let a waiting batch leave if enough has arrived; fold what is long. Thread-safe."""
        pair = self._pair
        if pair.state is WAITING:
            pair._refuse_own_functions()
            put = SHELTER.door() if pair.settings.is_real and in_main_thread() else None
            if put is None:
                SHELTER.run(self._ring)
            else:  # one look for all who push meanwhile
                in_one_go(pair._counting.clear, partial(put, self._ring))
        elif pair.core.shape.folds:
            self.fold_early()

    def _ring(self) -> None:
        """Let a waiting batch leave if it is full. Not in the main thread."""
        pair = self._pair
        pair._counting.clear()  # one look for all who push meanwhile
        with pair.lock:
            effects = Effects()
            schedule(pair, DUE, effects)
            if pair.state is not WAITING:
                calm(pair)
        pair.conclude(effects)

    def refused(self, message: Any, error: Exception) -> None:
        """Log a message that was refused and for which nobody waits."""
        pair = self._pair
        pair.core.note_refusal((message,), error)
        self.report()

    def report(self) -> None:
        """Log messages that were refused and for which nobody waits. Outside the lock."""
        pair = self._pair
        for messages, error in pair.core.take_refusals():
            if not messages:
                log.error("behaviour failed", worker=repr(pair), exc_info=error)
            elif isinstance(error, Full) or self._warned:
                if log.enabled(logging.DEBUG):
                    log.debug(
                        "rejected", worker=repr(pair), count=len(messages), error=brief(error)
                    )
            else:
                self._warned = True
                log.warning(
                    "message rejected; further ones are only counted",
                    worker=repr(pair), count=len(messages), error=brief(error),
                )  # fmt: skip


def offer_line(pair: Accumulator, pairs: Sequence[tuple[Any, Ticket]]) -> bool:
    """Like `Intake.offer_many`, for a line that is at rest or busy; return whether it is.

    It refuses nothing, and folding can wait. Not in the main thread.
    """
    core = pair.core
    effects = None
    with pair.lock:
        if pair.mode is not None or pair.exit_reason is not None:
            raise pair.life.dead_error()
        seats = pair._seats
        if not pair.idle:
            if pair.state is IDLE or seats:
                return False  # it was woken, and has not begun
            core.mark(len(pairs))
            core.raw.extend([Item(message, (ticket,)) for message, ticket in pairs])
            return True
        if core.raw or pair.mail or len(core.behaviour) or not 0 < len(pairs) <= core.portion:
            return False
        now = pair.settings.clock.now()
        if pair.state is IDLE:
            pair._since = now
        batch = pair._batch(*_as_payload(pairs, turned=bool(core.shape.turns)))
        seat = pair if seats is None else seats.pop()
        pair._begin_line(seat, batch, now)
        seat.first = batch
        if seats is None:
            pair.idle.clear()
        elif pair._keep_room():
            effects = Effects()
            fill(pair, effects)
    pair.settings.lane.submit(seat)
    if effects is not None:
        pair.conclude(effects)
    return True


def _as_payload(
    pairs: Sequence[tuple[Any, Ticket]], *, turned: bool
) -> tuple[list[Any], list[tuple[int, Ticket]]]:
    """Return messages and their tickets as a `Batch` takes them."""
    if len(pairs) == 1:
        message, ticket = pairs[0]
        return [message], [(0, ticket)]
    if turned:
        pairs = pairs[::-1]
    tickets = [(at, ticket) for at, (_, ticket) in enumerate(pairs)]
    tickets.reverse()
    return [message for message, _ in pairs], tickets


def _in_event_loop() -> bool:
    """Return whether this thread is running an event loop."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def refuse_late(pair: Accumulator, pushed: Sequence[Any]) -> bool:
    """Take messages back that came after the stop; return whether they did.

    The token is in place for good by then.
    """
    with pair.lock:
        if len(pair.idle) < SPARE:
            pair.idle.append(pair)
        return take_back(pair, pushed)


def take_back(pair: Accumulator, pushed: Sequence[Any]) -> bool:
    """Remove what was pushed from `raw`; return whether it was all there. Under the lock.

    What is still raw after a stop came after it: what came before has been folded. The very
    same object may have been pushed by others too, so each pusher removes as many as it has
    pushed. Producers only append, so places hold under the lock.
    """
    raw = pair.core.raw
    width = pair.core.shape.width
    wanted: dict[int, int] = {}
    for message in pushed:
        wanted[id(message)] = wanted.get(id(message), 0) + 1
    places = []
    for at in range(len(raw) - 1, -1, -width):
        one = raw[at]
        if wanted.get(id(one)):
            wanted[id(one)] -= 1
            places.append(at)
    if not pushed or len(places) < len(pushed):
        return False
    for at in places:
        del raw[at - width + 1 : at + 1]
    return True


def _look(pair: Accumulator, effects: Effects) -> None:
    """Do what messages that were just accumulated make possible. Under the lock."""
    pair._lead = NEVER
    if pair.state is IDLE:
        if not pair.core.shape.timed:
            pair._since = pair.settings.clock.now()
        schedule(pair, PUSHED, effects)
    elif pair.state is WAITING:
        schedule(pair, DUE, effects)
    elif pair._seats:
        fill(pair, effects)
    pair._lead = 1


def _fold_for_producer(pair: Accumulator, now: float, effects: Effects) -> Exception | None:
    """Fold what is raw on behalf of a producer; if the behaviour raises, the pair crashes.

    Return what it raised: the producer has nothing to do with it. Under the lock.
    """
    try:
        pair.core.fold(now)
        pair.core.note_time(now)
    except Exception as error:  # noqa: BLE001 - of a behaviour
        seat = free_seat(pair)
        fail(pair, seat, error)
        if seat is not None and seat.first is not None:
            effects.seats.append(seat)
        elif seat is not None:
            leave(pair, seat)
        return error
    return None
