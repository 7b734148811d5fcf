"""Requests to a running pair: to pause, to end a batch, to take another behaviour, and to end.

Users, its supervisor (for the executor alone) and the idle timeout ask it to end; the consequences
and callbacks are in `lifecycle.py`. Thread-safe: code that changes the state runs under the pair's
lock, and never in the main thread.

A paused pair accumulates, and takes no batch before it is resumed or asked to stop. Its fast paths
are closed meanwhile, so each batch goes through the table, which finds nothing ready.

Another behaviour gets the held messages in their order, with their callers. It is filled before the
old one is touched: if it refuses or loses one of them, nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import adapt, release
from actorflow.behaviours.behaviour import Behaviour, Fate, Item, MessageOutcome
from actorflow.behaviours.errors import brief
from actorflow.behaviours.timing.arrival_times import bare
from actorflow.runtime.errors import BadOption, ProcessCancelled, WorkerStopped
from actorflow.runtime.exits import ExitReason, Killed, Normal, Shutdown
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.log import log
from actorflow.runtime.registry import ACTORS
from actorflow.runtime.worker.job.preemption import Preempted
from actorflow.runtime.worker.latency import without_probes
from actorflow.runtime.worker.pair.interface import Effects, Pair, SlotTask
from actorflow.runtime.worker.pair.states import (
    ABANDON,
    ALONE,
    DEAD,
    DUE,
    ENDED,
    IDLE,
    IDLE_LONG,
    PUSHED,
    STOP,
    SUSPEND,
    PairEvent,
    StopMode,
)
from actorflow.runtime.worker.pair.transitions import (
    after,
    apply,
    close,
    cut_off,
    reset_threshold,
    schedule,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.clock import Timer
    from actorflow.runtime.worker.job.batch import Batch

__all__ = [
    "SPARE",
    "Idleness",
    "abandon_executor",
    "change",
    "ended",
    "kill",
    "pause",
    "preempted",
    "request_stop",
    "retire",
    "shut_down",
    "start_pending",
    "stop_from_within",
    "suspend",
    "unpause",
]

NORMAL = Normal()

SPARE = 64
"""Tokens of a pair that takes no more messages. See `Accumulator.reject_all_pushes`."""


class _Nobody:
    """The token of a pair that has ended: true like any other, and does nothing if it is run."""

    __slots__ = ()

    def run(self) -> None:
        """Do nothing."""


_DEAD_TOKENS: list[Any] = [_Nobody()] * SPARE


# A batch alone.


def preempted(
    pair: Pair, slot: Any, generation: int, batch: Batch, error: BaseException
) -> SlotTask | None:
    """Give the messages of a preempted batch to the behaviour; return the next task."""
    core = pair.core
    with pair.lock:
        if generation != pair.generation:
            return None
        parts, slot.parts = slot.parts, None
        for part in (batch, *reversed(parts or ())):
            if core.shape.observed:
                took = pair.settings.clock.now() - slot.span[2]
                core.report(part, took, MessageOutcome.ABANDONED)
            core.in_flight -= part.size
            core.handed -= part.size
            core.take_back(part)
        task, effects = after(pair, slot)
    pair.conclude(effects)
    if isinstance(error, Exception) and not isinstance(error, (Preempted, ProcessCancelled)):
        log.warning("preempted job raised", worker=repr(pair), error=brief(error), exc_info=error)
    return task


# The executor alone.


def suspend(pair: Pair) -> None:
    """End the executor after what it is doing; the accumulator goes on alone."""
    UNINTERRUPTIBLE.run(_schedule, pair, SUSPEND, Shutdown())


def abandon_executor(pair: Pair) -> None:
    """Cut the executor off, whatever it does; the accumulator goes on alone.

    A thread cannot be killed: a job that hangs keeps its thread, but nobody waits for it. A
    process is killed.
    """
    busy = bool(pair.active) and not pair.settings.kills
    UNINTERRUPTIBLE.run(_schedule, pair, ABANDON, Killed(abandoned=busy))


def _schedule(
    pair: Pair, event: PairEvent, reason: ExitReason, generation: int | None = None
) -> None:
    life, settings = pair.lifecycle, pair.settings
    with pair.lock:
        if generation not in (None, pair.generation):
            return
        effects = Effects()
        if event is ABANDON and pair.active and settings.owns_lane:
            settings.renew_lane()
        if event is ABANDON and pair.state is ALONE:  # maybe a hook hangs after a crash
            effects.executor_gone = True
            effects.incarnation = life.restarts
        if pair.state not in (ALONE, DEAD):
            life.executor_reason = life.executor_reason or reason
        if event is ABANDON and pair.state is not DEAD and life.executor_exit is None:
            life.executor_reason = reason
        schedule(pair, event, effects)
    effects.error = WorkerStopped(f"{pair!r} was killed while it processed this batch")
    pair.conclude(effects)


# The pair.


def start_pending(pair: Pair) -> Effects:
    """Begin for an executor that was woken but has not begun. Under the lock.

    The messages that woke it count as in flight for all later readers, as they do for their
    producer.
    """
    effects = Effects()
    if pair.state is IDLE and not pair.idle and not pair.active:
        schedule(pair, PUSHED, effects)
        if pair.free_slots is None:
            effects.slots.clear()  # it is in its lane already
    return effects


def stop_from_within(
    pair: Pair, generation: int, reason: ExitReason, mode: StopMode = StopMode.FINISH
) -> None:
    """End after this batch, because the job or a hook asked for it.

    Supervised, it is the executor that ends; what that means is the supervisor's business.
    """
    if generation != pair.generation:
        return
    if pair.lifecycle.supervised:
        UNINTERRUPTIBLE.run(_schedule, pair, SUSPEND, reason, generation)
    else:
        request_stop(pair, mode, reason)


def request_stop(pair: Pair, mode: StopMode, reason: ExitReason | None = None) -> bool:
    """Begin to stop, or stop harder; return whether the pair was still there."""
    pair.refuse_own_functions()
    return bool(UNINTERRUPTIBLE.run(_request_stop, pair, mode, reason))


def _request_stop(pair: Pair, mode: StopMode, reason: ExitReason | None) -> bool:
    """Stop in this order: set the mode, put the token in for good, fold raw messages.

    So a message pushed before is taken in, and a later push finds the token and is
    refused: no message vanishes in between.
    """
    life = pair.lifecycle
    with pair.lock:
        if pair.exit_reason is not None:
            return False
        effects = start_pending(pair)
        if mode.stronger_than(pair.mode):
            first = pair.mode is None
            pair.mode = mode
            life.reason = reason or life.reason or Normal()
            if first:
                pair.reject_all_pushes()
                close(pair)
        if not effects.slots:
            schedule(pair, STOP, effects)
        else:
            apply(pair, STOP, effects)
    pair.conclude(effects)
    return True


def shut_down(pair: Pair, reason: ExitReason) -> None:
    """End for good because a supervisor says so: drain, unless told otherwise."""
    request_stop(pair, pair.lifecycle.final_mode, reason)


def kill(pair: Pair) -> None:
    """End at once, whatever is going on."""
    busy = bool(pair.active) and not pair.settings.kills
    request_stop(pair, StopMode.NOW, Killed(abandoned=busy))


def ended(pair: Pair, generation: int) -> None:
    """Note that `on_stop` has returned. In the lane's thread."""
    with pair.lock:
        if generation != pair.generation:
            return
        effects = Effects()
        cut_off(pair, effects)
        apply(pair, ENDED, effects)
    pair.conclude(effects)


# The short way out for a pair that is idle, and that nobody watches.


def retire(pair: Pair) -> bool:
    """End at once, in this thread, if nothing is going on and there is nobody to tell.

    Return whether that was so. An interrupt leaves it either alive or dead.
    """
    pair.refuse_own_functions()
    if pair.settings.has_on_stop or pair.settings.name is not None:
        return False
    try:
        with pair.lock:
            life = pair.existing_lifecycle
            if not pair.idle or pair.state is not IDLE or pair.mode is not None:
                return False
            if pair.core.raw or pair.mail or pair.active or len(pair.core.behaviour):
                return False
            if (pair.existing_offers is not None and pair.existing_offers.is_blocking) or (
                life is not None and (life.is_watched or (life.supervised and not life.durable))
            ):
                return False
            pair.exit_reason = NORMAL
            if not pair.idle:  # a producer took the token before it could know
                pair.exit_reason = None
                return False
            pair.enter(DEAD, STOP)
        _finish(pair)
    except BaseException:
        if pair.exit_reason is NORMAL:
            UNINTERRUPTIBLE.run(_finish, pair)
        raise
    return True


def _finish(pair: Pair) -> None:
    """Finish the stop once the reason is set. Idempotent."""
    if pair.state is not DEAD:
        pair.enter(DEAD, STOP)
    ACTORS.discard(pair)
    pair.settings.lane.release()
    pair.idle[:] = _DEAD_TOKENS
    life = pair.existing_lifecycle  # one that is made from now on knows that the pair has ended
    if life is not None:
        life.over()


# The idle timeout: `on_idle`, which by default stops the worker, is called once for each stretch
# without work.


class Idleness:
    """Watches how long one pair has had nothing to do."""

    __slots__ = ("_called", "_due", "_pair", "timer")

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.timer: Timer | None = None
        self._due = 0.0
        self._called = -1  # the number of batches at the last call

    def cancel(self) -> None:
        """Forget the timer. Under the lock."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def watch(self) -> None:
        """Schedule `on_idle`, unless something happens before. Under the lock."""
        pair = self._pair
        if self._called == pair.core.batches:
            return  # once for each stretch
        clock = pair.settings.clock
        when = self._due = clock.now() + (pair.idle_timeout() or 0.0)
        timer = self.timer
        if timer is None or when < timer.when:  # an earlier one looks again when its time comes
            if timer is not None:
                timer.cancel()
            self.timer = clock.call_at(when, self._on_due)

    def _on_due(self) -> None:
        """Check whether the pair has been idle all the time. In the clock's thread."""
        pair = self._pair
        clock = pair.settings.clock
        with pair.lock:
            self.timer = None
            if pair.state is not IDLE or not pair.idle or pair.core.raw:
                return
            if clock.now() < self._due:  # it was busy meanwhile
                self.timer = clock.call_at(self._due, self._on_due)
                return
            self._called = pair.core.batches
            effects = Effects()
            schedule(pair, IDLE_LONG, effects)
        pair.conclude(effects)


# Pausing, and another behaviour.


def pause(pair: Pair) -> None:
    """Take no more batches. Thread-safe; does nothing if it is paused already."""
    with pair.lock:
        pair.refuse_if_closed()
        pair.is_paused = True
        pair.set_paths()


def unpause(pair: Pair) -> bool:
    """Take batches again; return whether the pair was paused. Thread-safe."""
    with pair.lock:
        if not pair.is_paused:
            return False
        pair.is_paused = False
        pair.set_paths()
        effects = Effects()
        if pair.mode is None and pair.exit_reason is None:
            schedule(pair, DUE, effects)
    pair.conclude(effects)
    return True


def change(pair: Pair, given: Any, fits: Callable[[Behaviour], bool]) -> None:
    """Let another behaviour take the place of the present one. Thread-safe.

    Raises:
        BadOption: it needs another kind of worker, or cannot hold the messages.
        BadBehaviour: it is not a behaviour.

    """
    behaviour = adapt(given)
    try:
        with pair.lock:
            effects = Effects()
            pair.refuse_if_closed()
            _exchange(pair, behaviour, fits)
            schedule(pair, DUE, effects)
    except BaseException:
        release(behaviour)
        raise
    pair.conclude(effects)


def _exchange(pair: Pair, behaviour: Behaviour, fits: Callable[[Behaviour], bool]) -> None:
    """Fill the new behaviour, and put it in place. Under the lock."""
    if not fits(behaviour):
        msg = (
            f"{behaviour!r} needs a worker that looks at the time of each push, or does not wait "
            "for it, and this one is of another kind; spawn another worker with it"
        )
        raise BadOption(msg)
    core = pair.core
    now = pair.settings.clock.now()
    core.fold(now)
    old = core.behaviour
    if core.shape.preempts and core.in_flight and not behaviour.traits.preempts:
        msg = (
            f"{old!r} may get messages back that are in flight; pause the worker, wait until "
            "nothing is in flight, and change the behaviour then"
        )
        raise BadOption(msg)
    if len(old) and not hasattr(old, "__iter__"):
        msg = f"{old!r} does not list the messages that it holds, so no other can take them over"
        raise BadOption(msg)
    if core.shape.observed and core.in_flight and behaviour.traits.observes:
        msg = (
            f"{old!r} and {behaviour!r} account for batches in flight, and there are some; pause "
            "the worker, wait until nothing is in flight, and change the behaviour then"
        )
        raise BadOption(msg)
    listed: Any = old if len(old) else ()
    held = [without_probes(bare(each)) for each in listed]
    gone: list[tuple[Item, Fate]] = []
    is_awaited = Item in map(type, held)
    if is_awaited or (core.tracks_tickets and behaviour.traits.trackable):
        if not behaviour.traits.trackable:
            msg = f"callers wait for messages, and {behaviour!r} takes only bare ones"
            raise BadOption(msg)
        behaviour.track(gone)
    behaviour.ready_at(now)
    before = behaviour.tally()
    refused = sum(len(some) for some, _ in behaviour.extend(list(held))) if held else 0
    lost = len(held) - len(behaviour)
    if refused or lost or behaviour.tally() != before:
        msg = (
            f"{behaviour!r} cannot hold the {len(held)} messages that wait: {max(refused, lost)} "
            "would be lost; process some first, or give it more room"
        )
        raise BadOption(msg)
    core.exchange(behaviour)
    pair.set_paths()
    reset_threshold(pair)
