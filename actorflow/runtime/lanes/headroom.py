"""Refuse a change in a thread that has too few frames left to complete it.

RecursionError can strike at any call of a thread that is close to the recursion limit. A change of
shared state that it cuts in half leaves a worker that nobody runs. So functions that change such
state first claim the frames that they need: RecursionError comes before the change, or not at all.

A thread that could do the work of another one, such as a commit or a batch, does so only if it has
the frames for that. Else it leaves the work to the other one, which has a stack of its own.
"""

from __future__ import annotations

import sys
from functools import partial, reduce
from typing import Any

__all__ = ["FRAMES", "FRAMES_TO_HELP", "require_headroom", "require_headroom_to_help"]

FRAMES = 50
"""Nested calls that the longest change of a worker's state needs, with a reserve."""

FRAMES_TO_HELP = 200
"""Nested calls that a commit or a short job may need, with a reserve."""


def _descend(left: int) -> None:
    if left:
        _descend(left - 1)


def _nested(depth: int) -> Any:
    """Return a tuple of a tuple of ... of nothing."""
    nothing: tuple[Any, ...] = ()
    return reduce(lambda inner, _: (inner,), range(depth), nothing)


def _look_down() -> None:
    # Only calls of Python count, and this takes no more time than there are frames.
    try:
        sys._getframe(max(sys.getrecursionlimit() - FRAMES_TO_HELP, 0))  # noqa: SLF001 - in C
    except ValueError:  # the stack is not that deep
        return
    msg = "too few frames are left to do the work of another thread"
    raise RecursionError(msg)


if sys.version_info < (3, 12):
    # One limit counts calls of Python and of C functions. `isinstance` makes one nested C call for
    # each nested tuple, and so finds out in a tenth of the time.
    require_headroom = partial(isinstance, None, _nested(FRAMES))
    require_headroom_to_help = partial(isinstance, None, _nested(FRAMES_TO_HELP))
else:
    require_headroom = partial(_descend, FRAMES)
    require_headroom_to_help = _look_down
