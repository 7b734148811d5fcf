"""Find actors and workers that wait for each other, for tests and for debugging."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from actorflow.runtime.actor.answers import AnswerFuture
from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.registry import CURRENT
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pair.executor_actor import ExecutorActor
from actorflow.runtime.worker.pair.interface import Slot
from actorflow.runtime.worker.ref import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WaitGraph", "detect_deadlocks"]


class WaitGraph:
    """Which actor waits for which others. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[Any, list[Any]] = {}
        self.found: list[str] = []
        """The deadlocks that were found, as text."""

    def begin(self, waiter: Any, target: Any) -> None:
        """Note that an actor waits for another one.

        Raises:
            WouldDeadlock: that one waits for the first, directly or through others.

        """
        with self._lock:
            cycle = self.path(target, waiter)
            if not cycle:
                self._waits.setdefault(waiter, []).append(target)
                return
            steps = [waiter, *cycle]
            asks = [f"{_title(one)} waits for {_title(other)}" for one, other in pairwise(steps)]
            msg = (
                f"deadlock: {', '.join(asks)}; let one of them go on without the answer: use push, "
                "tell or ask(block=False)"
            )
            self.found.append(msg)
        raise WouldDeadlock(msg)

    def end(self, waiter: Any, target: Any) -> None:
        """Note that it waits no longer."""
        with self._lock:
            targets = self._waits[waiter]
            targets.remove(target)
            if not targets:
                del self._waits[waiter]

    def path(self, start: Any, goal: Any) -> list[Any]:
        """Return the actors from one to another, each waiting for the next; empty if none."""
        paths = [[start]]
        seen = {start}
        while paths:
            path = paths.pop()
            if path[-1] is goal:
                return path
            for target in self._waits.get(path[-1], ()):
                if target not in seen:
                    seen.add(target)
                    paths.append([*path, target])
        return []


def _title(node: Any) -> str:
    return repr(node) if isinstance(node, Accumulator) else str(node.title)


def _actor_of(something: Any) -> Any:
    """Return the actor or pair that an entry of `CURRENT`, or a future, stands for."""
    if isinstance(something, (Slot, ExecutorActor)):
        return something.pair
    return something


@contextmanager
def _waiting(target: Any) -> Iterator[None]:
    """Note a wait for an actor, in all active detectors, for as long as it takes."""
    waiter, target = _actor_of(CURRENT.get()), _actor_of(target)
    noted = []
    if waiter is not None and target is not None and waiter is not target:
        several = isinstance(waiter, Accumulator) and waiter.settings.concurrency > 1
        noted = [] if several else list(_active)  # else its other batches may go on
    begun = []
    try:
        for waits in noted:
            waits.begin(waiter, target)
            begun.append(waits)
        yield
    finally:
        for waits in begun:
            waits.end(waiter, target)


_active: list[WaitGraph] = []
_INSTALLING = threading.Lock()
_get, _ask, _push_block = AnswerFuture.get, WorkerRef.ask, WorkerRef.push_block
_ask_actor = Ref.ask
_aask, _apush_block = WorkerRef.aask, WorkerRef.apush_block


def _detecting_get(self: AnswerFuture, **options: Any) -> Any:
    with _waiting(self.asked):
        return _get(self, **options)


def _detecting_ask_actor(self: Ref[Any], message: Any, **options: Any) -> Any:
    """Like `Ref.ask`; a call that is refused has not sent its message."""
    if not options.get("block", True):
        return _ask_actor(self, message, **options)
    with _waiting(self.lifespan):
        return _ask_actor(self, message, **options)


def _detecting_ask(self: WorkerRef, message: Any, **options: Any) -> Any:
    if not options.get("block", True):
        return _ask(self, message, **options)
    with _waiting(self.actor):
        return _ask(self, message, **options)


def _detecting_push_block(self: WorkerRef, *arguments: Any, **options: Any) -> None:
    with _waiting(self.actor):
        _push_block(self, *arguments, **options)


async def _detecting_aask(self: WorkerRef, message: Any, **options: Any) -> Any:
    with _waiting(self.actor):
        return await _aask(self, message, **options)


async def _detecting_apush_block(self: WorkerRef, *arguments: Any, **options: Any) -> None:
    with _waiting(self.actor):
        await _apush_block(self, *arguments, **options)


@contextmanager
def detect_deadlocks() -> Iterator[WaitGraph]:
    """Raise `WouldDeadlock` where actors or workers would wait for each other.

    The call that would complete the circle raises, with the whole circle in its message. It covers
    `ask` and proxies of actors, and `ask`, `push_block` and their asyncio versions of workers, with
    or without a timeout. A worker with `concurrency` above 1 is taken to go on with other batches.
    Each wait takes a few microseconds longer. `found` lists the deadlocks, also if a handler has
    caught the error.

    >>> import actorflow as af
    >>> class Asker(af.Actor):
    ...     def on_receive(self, other):
    ...         return other.ask(self.actor_ref)
    >>> with detect_deadlocks() as waits:
    ...     one, two = Asker.start(), Asker.start()
    ...     try:
    ...         one.ask(two)
    ...     except af.WouldDeadlock as error:
    ...         print(str(error)[:9])
    ...     stopped = one.stop(), two.stop()
    deadlock:
    >>> len(waits.found)
    1

    """
    waits = WaitGraph()
    with _INSTALLING:
        _active.append(waits)
        _install(_detecting_get, _detecting_ask, _detecting_push_block)
        Ref.ask = _detecting_ask_actor  # type: ignore[method-assign]
        WorkerRef.aask = _detecting_aask  # type: ignore[method-assign]
        WorkerRef.apush_block = _detecting_apush_block  # type: ignore[method-assign]
    try:
        yield waits
    finally:
        with _INSTALLING:
            _active.remove(waits)
            if not _active:
                _install(_get, _ask, _push_block)
                Ref.ask = _ask_actor  # type: ignore[method-assign]
                WorkerRef.aask, WorkerRef.apush_block = _aask, _apush_block  # type: ignore[method-assign]


def _install(get: Any, ask: Any, push_block: Any) -> None:
    AnswerFuture.get = get  # type: ignore[method-assign]
    WorkerRef.ask, WorkerRef.push_block = ask, push_block  # type: ignore[method-assign]
