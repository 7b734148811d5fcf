"""How a pair is asked to end, and how a supervisor ends the executor alone.

Thread-safe: what changes the state runs under the pair's lock, and never in the main thread. What
follows from that, and who is told, is in `life.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import WorkerStopped
from actorflow.runtime.exits import ExitReason, Killed, Normal, Shutdown
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.registry import ROSTER
from actorflow.runtime.worker.pair.machine import (
    ABANDON,
    ALONE,
    DEAD,
    ENDED,
    IDLE,
    STOP,
    SUSPEND,
    Event,
    StopMode,
)
from actorflow.runtime.worker.pair.transitions import (
    Effects,
    apply,
    catch_up,
    close,
    cut_off,
    schedule,
)

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = [
    "SPARE",
    "abandon_executor",
    "ended",
    "kill",
    "request_stop",
    "retire",
    "shut_down",
    "stop_from_within",
    "suspend",
]

NORMAL = Normal()

SPARE = 64
"""Tokens of a pair that takes no more messages. See `Accumulator._bar`."""


class _Nobody:
    """The token of a pair that has ended: true like any other, and does nothing if it is run."""

    __slots__ = ()

    def run(self) -> None:
        """Do nothing."""


_DEAD_TOKENS: list[Any] = [_Nobody()] * SPARE


# The executor alone.


def suspend(pair: Accumulator) -> None:
    """End the executor after what it is doing; the accumulator goes on alone."""
    SHELTER.run(_schedule, pair, SUSPEND, Shutdown())


def abandon_executor(pair: Accumulator) -> None:
    """Cut the executor off, whatever it does; the accumulator goes on alone.

    A thread cannot be killed: a job that hangs keeps its thread, but nobody waits for it. A
    process is killed.
    """
    busy = bool(pair.active) and not pair.settings.kills
    SHELTER.run(_schedule, pair, ABANDON, Killed(abandoned=busy))


def _schedule(
    pair: Accumulator, event: Event, reason: ExitReason, generation: int | None = None
) -> None:
    life, settings = pair.life, pair.settings
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


def stop_from_within(
    pair: Accumulator, generation: int, reason: ExitReason, mode: StopMode = StopMode.FINISH
) -> None:
    """End after this batch, because the job or a hook asked for it.

    Supervised, it is the executor that ends; what that means is the supervisor's business.
    """
    if generation != pair.generation:
        return
    if pair.life.supervised:
        SHELTER.run(_schedule, pair, SUSPEND, reason, generation)
    else:
        request_stop(pair, mode, reason)


def request_stop(pair: Accumulator, mode: StopMode, reason: ExitReason | None = None) -> bool:
    """Begin to stop, or stop harder; return whether the pair was still there."""
    pair._refuse_own_functions()
    return bool(SHELTER.run(_request_stop, pair, mode, reason))


def _request_stop(pair: Accumulator, mode: StopMode, reason: ExitReason | None) -> bool:
    """Stop in this order: the mode is set, the token goes in for good, what is raw is folded.

    So a message pushed before is taken in, and whoever pushes later finds the token and is
    refused: no message vanishes in between.
    """
    life = pair.life
    with pair.lock:
        if pair.exit_reason is not None:
            return False
        effects = catch_up(pair)
        if mode.stronger_than(pair.mode):
            first = pair.mode is None
            pair.mode = mode
            life.reason = reason or life.reason or Normal()
            if first:
                pair._bar()
                close(pair)
        if not effects.seats:
            schedule(pair, STOP, effects)
        else:
            apply(pair, STOP, effects)
    pair.conclude(effects)
    return True


def shut_down(pair: Accumulator, reason: ExitReason) -> None:
    """End for good because a supervisor says so: drain, unless told otherwise."""
    request_stop(pair, pair.life.final_mode, reason)


def kill(pair: Accumulator) -> None:
    """End at once, whatever is going on."""
    busy = bool(pair.active) and not pair.settings.kills
    request_stop(pair, StopMode.NOW, Killed(abandoned=busy))


def ended(pair: Accumulator, generation: int) -> None:
    """Note that `on_stop` has returned. In the lane's thread."""
    with pair.lock:
        if generation != pair.generation:
            return
        effects = Effects()
        cut_off(pair, effects)
        apply(pair, ENDED, effects)
    pair.conclude(effects)


# The short way out for a pair that is idle, and that nobody watches.


def retire(pair: Accumulator) -> bool:
    """End at once, in this thread, if nothing is going on and there is nobody to tell.

    Return whether that was so. An interrupt leaves it either alive or dead.
    """
    pair._refuse_own_functions()
    if pair.settings.has_on_stop or pair.settings.name is not None:
        return False
    try:
        with pair.lock:
            life = pair._life
            if not pair.idle or pair.state is not IDLE or pair.mode is not None:
                return False
            if pair.core.raw or pair.mail or pair.active or len(pair.core.behaviour):
                return False
            if (pair._intake is not None and pair._intake.is_blocking) or (
                life is not None and (life.is_watched or (life.supervised and not life.durable))
            ):
                return False
            pair.exit_reason = NORMAL
            if not pair.idle:  # a producer took the token before it could know
                pair.exit_reason = None
                return False
            pair.state = DEAD
        _finish(pair)
    except BaseException:
        if pair.exit_reason is NORMAL:
            SHELTER.run(_finish, pair)
        raise
    return True


def _finish(pair: Accumulator) -> None:
    """Do what is left once the reason is set. Idempotent."""
    pair.state = DEAD
    ROSTER.discard(pair)
    pair.settings.lane.release()
    pair.idle[:] = _DEAD_TOKENS
    life = pair._life  # one that is made from now on knows that the pair has ended
    if life is not None:
        life.over()
