"""Hand a token over in one C call, so that no interrupt can strike half-way.

A token is the right to run an actor. Whoever takes it out of a list must put it into a lane's
queue; KeyboardInterrupt between the two would leave an actor that nobody runs. Signal handlers run
between bytecodes, never inside a C call: so both steps are made by one, an iterator over C
functions that another C function exhausts.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.shelter import SHELTER

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["exhaust", "hand_over", "in_one_go", "shelter"]

exhaust = deque[Any](maxlen=0).extend
"""Run an iterator to its end, in C."""


def hand_over(tokens: list[Any], put: Callable[[Any], object]) -> bool:
    """Pop a token and put it; return whether there was one. Atomic if `put` is a C function."""
    try:
        exhaust(map(put, map(list.pop, (tokens,))))
    except IndexError:
        return False
    return True


def in_one_go(*functions: Callable[[], object]) -> None:
    """Call C functions one after the other. No signal strikes between two of them."""
    exhaust(map(call, functions))


def shelter(tokens: list[Any], function: Callable[[Any], object]) -> bool:
    """Pop a token and have the shelter call `function(token)`; return whether there was one."""
    put = SHELTER.door()
    if put is None:  # no thread can be started, so this is all that can be done
        return hand_over(tokens, function)
    try:
        exhaust(map(put, map(partial(partial, function), map(list.pop, (tokens,)))))
    except IndexError:
        return False
    return True
