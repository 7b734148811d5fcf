"""How messages get in where a plain push is not enough: a verdict, a ticket, a wait for room.

A part of the accumulator, made when first needed: it shares the accumulator's lock and its private
names. Nothing here runs in the main thread except through `UNINTERRUPTIBLE` (see `accumulator.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import Item, Reason
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import (
    Full,
    WorkerCrashed,
    WouldBlock,
    WouldDeadlock,
)
from actorflow.runtime.lanes.headroom import require_headroom, require_headroom_to_help
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, call_together, in_main_thread
from actorflow.runtime.log import log
from actorflow.runtime.tickets import ThreadTicket, refuse_in_event_loop
from actorflow.runtime.worker.job.batch import Batch
from actorflow.runtime.worker.latency import Timing
from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.accumulation import NEVER
from actorflow.runtime.worker.pair.interface import Effects, SlotTask
from actorflow.runtime.worker.pair.requests import SPARE, start_pending
from actorflow.runtime.worker.pair.states import DONE, DUE, IDLE, PUSHED, READY, RUNNING, WAITING
from actorflow.runtime.worker.pair.transitions import (
    apply,
    fail,
    fill,
    free_slot,
    release_slot,
    reset_threshold,
    schedule,
)
from actorflow.runtime.worker.shape import fold_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.runtime.worker.job.batch import Ticket
    from actorflow.runtime.worker.pair.interface import Pair

__all__ = ["Offers", "help_out", "offer_fifo", "refuse_late", "take_back"]


class Offers:
    """Takes messages in for one accumulator."""

    __slots__ = ("_blocked", "_pair", "_warned")

    def __init__(self, pair: Pair) -> None:
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
        """Accumulate one message; return once that is done, with the rest of `timeout`.

        Raises:
            Rejected: the behaviour refuses it.
            WorkerStopped: the worker has ended or is stopping.
            WouldDeadlock: it would wait for room that only this caller can make.
            LoopBlocked: it would have to wait for room, and an event loop with it.

        """
        pair = self._pair
        waiter = UNINTERRUPTIBLE.run(
            self.try_offer, message, ticket, ThreadTicket, pair.is_current()
        )
        if waiter is None:
            return timeout
        clock = pair.settings.clock
        begin = clock.now()
        try:
            refuse_in_event_loop(pair, "worker.apush(message)")
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
        own: bool = False,  # noqa: FBT001, FBT002 - passed on by the hand_over_to_helper
    ) -> Any | None:
        """Accumulate one message, or return what to wait for until it has been.

        A pusher that has to wait is queued, in order of arrival: the thread that makes room
        adds the message for it. Not in the main thread. `own`: the pair's own job pushes.
        """
        require_headroom()
        pair = self._pair
        pair.refuse_own_functions()
        effects = Effects()
        try:
            with pair.lock:
                pair.refuse_if_closed()
                effects = start_pending(pair)
                now = pair.timed_now()
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
        """Accumulate messages with their tickets together; return the refused ones.

        An idle worker gets them as one batch. Never waits for room: a behaviour that asks for
        that refuses instead. Not in the main thread.

        Raises:
            WorkerStopped: the worker has ended or is stopping; none was taken.

        """
        require_headroom()
        pair = self._pair
        if pair.is_fifo and offer_fifo(pair, pairs):
            return []
        pair.refuse_own_functions()
        effects = Effects()
        try:
            with pair.lock:
                pair.refuse_if_closed()
                effects = start_pending(pair)
                now = pair.timed_now()
                try:
                    pair.core.fold(now)
                    return pair.core.offer_many(pairs, now)
                finally:
                    _look(pair, effects)
        finally:
            pair.conclude(effects)

    def forget_blocked(self, waiter: Any) -> bool:
        """Leave the line of pushers that wait for room; return whether it was still in line."""
        return bool(UNINTERRUPTIBLE.run(self._forget_blocked, waiter))

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
            except Exception as refusal:  # noqa: BLE001 - the pusher gets it
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
        require_headroom()
        pair = self._pair
        pair.refuse_own_functions()
        shape = pair.core.shape
        long = 3 * fold_at(shape)
        if in_main_thread():
            put = UNINTERRUPTIBLE.poster()
            if put is None or pair.core.raw_count() >= long:
                UNINTERRUPTIBLE.run(self._fold_blocking)
            else:  # one look for all who push meanwhile; both or neither, wherever a signal strikes
                later = partial(setattr, pair, "threshold", long * shape.width)
                call_together(later, partial(put, self._fold_blocking))
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
        pair.threshold = 3 * fold_at(shape) * shape.width
        try:
            if pair.mode is None and pair.exit_reason is None:
                effects = start_pending(pair)
                failure = _fold_for_producer(pair, pair.timed_now(), effects)
                if pair.state is WAITING and failure is None:
                    schedule(pair, DUE, effects)  # folding may have filled the batch
        finally:
            if pair.state is not WAITING:
                reset_threshold(pair)
            pair.lock.release()
        if effects is not None:
            pair.conclude(effects)

    def ring(self) -> None:
        """Let a waiting batch leave if enough has arrived; fold a long `raw`. Thread-safe."""
        pair = self._pair
        if pair.state is WAITING:
            require_headroom()
            pair.refuse_own_functions()
            put = UNINTERRUPTIBLE.poster() if pair.settings.is_real and in_main_thread() else None
            if put is None:
                UNINTERRUPTIBLE.run(self._ring)
            else:  # one look for all who push meanwhile
                call_together(pair.counting.clear, partial(put, self._ring))
        elif pair.core.shape.folds:
            self.fold_early()

    def _ring(self) -> None:
        """Let a waiting batch leave if it is full. Not in the main thread."""
        pair = self._pair
        pair.counting.clear()  # one look for all who push meanwhile
        with pair.lock:
            effects = Effects()
            schedule(pair, DUE, effects)
            if pair.state is not WAITING:
                reset_threshold(pair)
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


def offer_fifo(pair: Pair, pairs: Sequence[tuple[Any, Ticket]]) -> bool:
    """Like `Offers.offer_many`, for a line that is at rest or busy; return whether it is.

    It refuses nothing, and folding can wait. Not in the main thread.
    """
    core = pair.core
    effects = None
    with pair.lock:
        if pair.mode is not None or pair.exit_reason is not None:
            raise pair.lifecycle.dead_error()
        slots = pair.free_slots
        if not pair.idle:
            if pair.state is IDLE or slots:
                return False  # it was woken, and has not begun
            core.mark(len(pairs))
            core.raw.extend([Item(message, (ticket,)) for message, ticket in pairs])
            return True
        if core.raw or pair.mail or len(core.behaviour) or not 0 < len(pairs) <= core.portion:
            return False
        now = pair.settings.clock.now()
        if pair.state is IDLE:
            pair.waiting_since = now
        batch = _count_batch(pair, *_as_payload(pairs, turned=bool(core.shape.turns)))
        slot = pair if slots is None else slots.pop()
        pair.begin_fifo(slot, batch, now)
        slot.first = batch
        if slots is None:
            pair.idle.clear()
        elif pair.keep_room():
            effects = Effects()
            fill(pair, effects)
    pair.settings.lane.submit(slot)
    if effects is not None:
        pair.conclude(effects)
    return True


def _count_batch(pair: Pair, payload: list[Any], tickets: list[tuple[int, Ticket]] | None) -> Batch:
    """Count messages that leave a line, and return them as a batch. Under the lock."""
    core = pair.core
    size = len(payload)
    core.folded += size
    core.in_flight += size
    core.batches += 1
    return Batch(payload, size, tickets, Reason.SIZE if size == core.portion else Reason.IDLE)


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


def refuse_late(pair: Pair, pushed: Sequence[Any]) -> bool:
    """Take messages back that came after the stop; return whether they did.

    The token is in place for good by then.
    """
    with pair.lock:
        if len(pair.idle) < SPARE:
            pair.idle.append(pair)
        return take_back(pair, pushed)


def take_back(pair: Pair, pushed: Sequence[Any]) -> bool:
    """Remove `pushed` from `raw`; return whether it was all there. Under the lock.

    Messages that are raw after a stop came after it: earlier ones have been folded. The very
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


def _look(pair: Pair, effects: Effects) -> None:
    """Do what messages that were just accumulated make possible. Under the lock."""
    pair.first_batch_size = NEVER
    if pair.state is IDLE:
        if not pair.core.shape.timed:
            pair.waiting_since = pair.settings.clock.now()
        schedule(pair, PUSHED, effects)
    elif pair.state is WAITING:
        schedule(pair, DUE, effects)
    elif pair.free_slots:
        fill(pair, effects)
    pair.first_batch_size = 1


def _fold_for_producer(pair: Pair, now: float, effects: Effects) -> Exception | None:
    """Fold raw messages on behalf of a producer; if the behaviour raises, the pair crashes.

    Return what it raised: the producer has nothing to do with it. Under the lock.
    """
    try:
        pair.core.fold(now)
        pair.core.note_time(now)
    except Exception as error:  # noqa: BLE001 - of a behaviour
        slot = free_slot(pair)
        fail(pair, slot, error)
        if slot is not None and slot.first is not None:
            effects.slots.append(slot)
        elif slot is not None:
            release_slot(pair, slot)
        return error
    return None


# Caller-runs (`help=True`, and commits of the engine): a thread that waits for an idle worker runs
# the batch. A round trip takes 2 us instead of 17, also in the main thread (the rows
# "push_block, help" of benchmarks/workers.py). KeyboardInterrupt can strike the main thread between
# any two bytecodes; the helper thread then finishes what it began.


def help_out(pair: Pair, message: Any, ticket: Ticket | None) -> bool:
    """Process a message in this thread, if the executor is idle; return whether it did."""
    if pair.lock._is_owned():  # noqa: SLF001 - as `Condition` does
        raise pair.deadlock()
    try:
        require_headroom_to_help()
    except RecursionError:
        return False
    if in_main_thread():
        return pair.is_single_fifo and _help_in_main_thread(pair, message, ticket)
    effects = None
    with pair.lock:
        if pair.mode is not None or pair.exit_reason is not None:
            raise pair.lifecycle.dead_error()
        at_rest = pair.state is IDLE and pair.idle and not (pair.core.raw or pair.mail)
        if not at_rest or pair.free_slots is not None:
            return False
        task: SlotTask | None
        if pair.is_single_fifo:
            core = pair.core
            task = Batch([message], 1, None if ticket is None else [(0, ticket)])
            _begin_help(pair, task, core.folded + 1, core.batches + 1)
        elif pair.is_fifo:
            now = pair.waiting_since = pair.settings.clock.now()
            task = _count_batch(pair, [message], None if ticket is None else [(0, ticket)])
            pair.begin_fifo(pair, task, now)
            pair.idle.clear()
        else:
            pair.waiting_since = pair.settings.clock.now()
            pair.core.offer(message, ticket, pair.timed_now())
            pair.idle.clear()
            effects = Effects()
            apply(pair, PUSHED, effects, pair)
            task, pair.first = pair.first, None
        generation = pair.generation
    if task is not None:
        runner.help_with(pair, generation, task)
    if effects is not None:
        pair.conclude(effects)
    return True


def _help_in_main_thread(  # noqa: C901 - steps that an interrupt can strike between
    pair: Pair, message: Any, ticket: Ticket | None
) -> bool:
    """Like `help`, for a plain line, in steps that an interrupt can strike between.

    While the batch is in flight no other thread changes these attributes, so the helper can set
    it once more. An interrupt in the job itself is a failure of the job.
    """
    core = pair.core
    batch = Batch([message], 1, None if ticket is None else [(0, ticket)])
    generation = pair.generation
    folded, processed, batches = core.folded + 1, core.processed + 1, core.batches + 1
    outcome: Any = runner.UNKNOWN
    try:
        with pair.lock:
            if pair.state is not IDLE or pair.mode is not None or not pair.idle:
                return False
            if core.raw or pair.mail or pair.active or core.folded + 1 != folded:
                return False
            if generation != pair.generation:
                return False
            try:
                begun = _begin_help(pair, batch, folded, batches)
            except BaseException:  # the job has not been called: as if nothing had happened
                _end_help(pair)
                core.folded, core.batches = folded - 1, batches - 1
                raise
        outcome = copy_context().run(runner.call_helped, pair, batch)
        clock = pair.settings.now
        end = clock()
        plain = batch.size == 1 and (outcome is None or runner.is_plain(outcome))
        if plain and not pair.settings.checks:
            with pair.lock:
                if generation == pair.generation and pair.mode is None:
                    pair.value = outcome
                    core.processed, core.in_flight = processed, 0
                    if not (core.raw or pair.mail):
                        try:
                            _end_help(pair)
                        except BaseException:
                            _end_help(pair)
                            raise
                        # Last: an interrupt costs this measurement, and nothing else.
                        if pair.timing is None:
                            pair.timing = Timing()
                        pair.timing.finished(batches, 1, (begun, begun, begun), end)
        if pair.batch is batch or core.raw or pair.mail:
            UNINTERRUPTIBLE.run(_finish_help, pair, batch, generation, outcome, processed)
    except BaseException:  # not `finally`, which an interrupt could strike before it begins
        UNINTERRUPTIBLE.run(_finish_help, pair, batch, generation, outcome, processed)
        raise
    batch.resolve()
    return True


def _begin_help(pair: Pair, batch: Batch, folded: int, batches: int) -> float:
    """Note that a helping caller runs a batch, and return the time. Under the lock."""
    pair.batch = batch
    pair.enter(RUNNING, PUSHED, READY)
    pair.active, pair.core.in_flight = 1, 1
    pair.core.folded, pair.core.batches = folded, batches
    clock = pair.settings.now
    now = pair.waiting_since = clock()
    pair.span = (now, now, now)
    pair.idle.clear()
    return now


def _end_help(pair: Pair) -> None:
    """Go idle after a helping caller. Under the lock; idempotent."""
    pair.batch, pair.active, pair.core.in_flight = None, 0, 0
    if pair.state is RUNNING:
        pair.enter(IDLE, DONE)
    pair.idle[:] = (pair,)


def _finish_help(pair: Pair, batch: Batch, generation: int, outcome: Any, processed: int) -> None:
    """Finish what `_help_in_main_thread` has begun. In the helper thread."""
    with pair.lock:
        effects = Effects()
        unfinished = pair.batch is batch and generation == pair.generation
        if not unfinished:
            if pair.state is IDLE and pair.idle and (pair.core.raw or pair.mail):
                pair.idle.clear()
                schedule(pair, PUSHED, effects)
        else:  # set once more, whatever was set before the interrupt
            if pair.state is IDLE:
                pair.enter(RUNNING, PUSHED, READY)
            pair.active, pair.core.in_flight = 1, batch.size
            pair.core.processed = processed - 1
            pair.idle.clear()
            now = pair.settings.clock.now()
            pair.span = pair.span or (now, now, now)
    if unfinished:
        runner.conclude_help(pair, generation, batch, outcome)
    else:
        pair.conclude(effects)
