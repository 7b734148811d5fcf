"""What happens in a forked child: threads are gone, locks may be held by threads that are gone.

Whatever owns a thread or a lock registers a callback here that makes it usable in the child, or
marks it as dead. Callbacks run in the child, in its only thread, before `os.fork()` returns.
"""

from __future__ import annotations

import itertools
import os
from types import MethodType
from typing import TYPE_CHECKING
from weakref import WeakMethod

from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["after_fork"]

_number = itertools.count()
_early: dict[int, Callable[[], Callable[[], object] | None]] = {}
_late: dict[int, Callable[[], Callable[[], object] | None]] = {}


def after_fork(callback: Callable[[], object], *, last: bool = False) -> None:
    """Call `callback()` in every forked child, in the order of registration. Thread-safe.

    A bound method is held weakly, so that an object may register itself: it is forgotten together
    with its object. Callbacks registered with `last=True` run after all others: they may rely on
    lanes and clocks being fresh. What a callback raises is logged, and the others still run.
    """
    callbacks = _late if last else _early
    number = next(_number)
    if isinstance(callback, MethodType):
        # `pop` is bound as a default because a weak reference may die during interpreter shutdown.
        def forget(
            _: object, number: int = number, pop: Callable[..., object] = callbacks.pop
        ) -> None:
            pop(number, None)

        callbacks[number] = WeakMethod(callback, forget)
    else:
        callbacks[number] = lambda: callback


def _run_callbacks() -> None:
    for callbacks in (_early, _late):
        for find in list(callbacks.values()):
            callback = find()
            if callback is None:
                continue
            try:
                callback()
            except Exception:  # noqa: BLE001 - the other parts of the child must still work
                log.error("callback after fork failed", callback=brief(callback), exc_info=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_callbacks)
