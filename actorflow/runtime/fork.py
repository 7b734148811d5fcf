"""What happens in a forked child: threads are gone, locks may be held by threads that are gone.

Whatever owns a thread or a lock registers a callback here that makes it usable in the child, or
marks it as dead. Callbacks run in the child, in its only thread, before `os.fork()` returns.
"""

from __future__ import annotations

import os
from types import MethodType
from typing import TYPE_CHECKING, Any
from weakref import ref

from actorflow.behaviours.errors import brief
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["after_fork"]


class _Owner(ref[Any]):
    """A weak reference to the owner of a callback, told apart by identity."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


_early: dict[object, Callable[..., object]] = {}
_late: dict[object, Callable[..., object]] = {}


def after_fork(callback: Callable[[], object], *, last: bool = False) -> None:
    """Call `callback()` in every forked child, in the order of registration. Thread-safe.

    A bound method is held weakly, so that an object may register itself: it is forgotten together
    with its object. Callbacks registered with `last=True` run after all others: they may rely on
    lanes and clocks being fresh. What a callback raises is logged, and the others still run.
    """
    callbacks = _late if last else _early
    if isinstance(callback, MethodType):
        # A C function forgets it: an interrupt in one of Python's would vanish, because nothing
        # that is called for a dead reference can raise.
        callbacks[_Owner(callback.__self__, callbacks.pop)] = callback.__func__
    else:
        callbacks[object()] = callback


def _run_callbacks() -> None:
    for callbacks in (_early, _late):
        for key, function in list(callbacks.items()):
            owners = (key(),) if type(key) is _Owner else ()
            if owners == (None,):
                continue
            try:
                function(*owners)
            except Exception:  # noqa: BLE001 - the other parts of the child must still work
                log.error("callback after fork failed", callback=brief(function), exc_info=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_callbacks)
