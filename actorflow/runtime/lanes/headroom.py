"""Refuse a change in a thread that has too few frames left to complete it.

RecursionError can strike at any call of a thread that is close to the recursion limit. A change of
shared state that it cuts in half leaves a worker that nobody runs. So functions that change such
state first claim the frames that they need: RecursionError comes before the change, or not at all.
"""

from __future__ import annotations

import sys
from functools import partial, reduce
from typing import Any

__all__ = ["FRAMES", "require_headroom"]

FRAMES = 50
"""Nested calls that the longest change of a worker's state needs, with a reserve."""


def _descend(left: int) -> None:
    if left:
        _descend(left - 1)


def _nested(depth: int) -> Any:
    """Return a tuple of a tuple of ... of nothing."""
    nothing: tuple[Any, ...] = ()
    return reduce(lambda inner, _: (inner,), range(depth), nothing)


if sys.version_info < (3, 12):
    # One limit counts calls of Python and of C functions. `isinstance` makes one nested C call for
    # each nested tuple, and so finds out in a tenth of the time.
    require_headroom = partial(isinstance, None, _nested(FRAMES))
else:
    require_headroom = partial(_descend, FRAMES)
