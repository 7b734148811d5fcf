"""The short way out for a pair that is idle, and that nobody watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.exits import Normal
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.registry import ROSTER
from actorflow.runtime.worker.pair.machine import DEAD, IDLE
from actorflow.runtime.worker.pair.tasks import Nobody

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["SPARE", "retire"]

NORMAL = Normal()

SPARE = 64
"""Tokens of a pair that takes no more messages. See `Accumulator._bar`."""

_DEAD_TOKENS: list[Any] = [Nobody()] * SPARE


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
