"""The workers among a supervisor's children.

A worker is a pair. Its *incarnation*, for the family, is the executor; the accumulator, with all
it holds, stays when the executor is started again, and so does the `WorkerRef`. It ends when the
family has no more use for the child.

All of this runs in the supervisor's turn, except `find`, `outward` and `end_all`: any thread.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import UnknownWorker
from actorflow.runtime.exits import ExitReason, Killed, Normal, Shutdown
from actorflow.runtime.supervision.actions import ChildState
from actorflow.runtime.worker.executor import Executor
from actorflow.runtime.worker.orders import StopMode
from actorflow.runtime.worker.ref import Worker, WorkerRef, launch, make
from behaviours.base import Base, Behaviour

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from actorflow.runtime.actor.actor import Actor
    from actorflow.runtime.supervision.family import Family
    from actorflow.runtime.worker.accumulator import Accumulator

__all__ = ["Pair", "Pairs", "successor"]

_KEEPS = frozenset({ChildState.EXITED, ChildState.RESTARTING, ChildState.STARTING})
"""A child in one of these states may still get a new executor."""


@dataclass(slots=True, eq=False)
class Pair:
    """One worker, over all incarnations of its executor."""

    key: Hashable
    id: Hashable
    worker: WorkerRef
    incarnation: Any = None
    """The ref by which the family knows it: of the last executor that started."""


class Pairs:
    """Keeps the accumulators of one supervisor's workers. All O(1), unless they say so.

    Args:
        supervisor: whose children they are.
        ended: called, in any thread, with a pair whose accumulator has ended and the reason.

    """

    def __init__(self, supervisor: Actor, ended: Callable[[Pair, ExitReason], None]) -> None:
        self._supervisor = supervisor
        self._ended = ended
        self._by_key: dict[Hashable, Pair] = {}
        self._keys: dict[Hashable, Hashable] = {}  # by the ids of their children, the newest
        self._loose: set[Hashable] = set()  # keys of those whose executors have ended

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def is_loose(self) -> bool:
        """Whether there may be accumulators that nobody needs any more."""
        return bool(self._loose)

    # Starting.

    def start(self, key: Hashable, child_id: Hashable, spec: Worker) -> Any:
        """Start a worker, or give one whose executor has ended a new one; give its incarnation."""
        pair = self._by_key.get(key)
        if pair is None or pair.worker.exit_reason is not None:
            pair = self._make(Pair(key, child_id, _make(spec)), before=pair)
            executor = pair.worker.actor.executor
        else:
            executor = pair.worker.actor.revive()
        pair.incarnation = executor.actor_ref
        self._loose.discard(key)
        return pair.incarnation

    def _make(self, pair: Pair, before: Pair | None) -> Pair:
        accumulator = pair.worker.actor
        accumulator.supervise()
        accumulator.__dict__.update(supervisor=self._supervisor, child_id=pair.id, pair=pair)
        launch(pair.worker)
        self._by_key[pair.key] = pair
        self._keys[pair.id] = pair.key
        if before is not None:
            before.worker.actor.__dict__["successor"] = pair.worker
        accumulator.watch(partial(self._notice, pair))
        return pair

    def _notice(self, pair: Pair, _accumulator: Actor, reason: ExitReason) -> None:
        """Hear that an accumulator has ended. If its job hangs, the executor's end never comes."""
        if not pair.worker.actor.executor_follows:
            self._ended(pair, reason)

    # Stopping.

    def stop(self, ref: Any, *, final: bool) -> bool:
        """Tell a worker to stop, for good or to make way for a restart; False: it is none."""
        pair = self._of(ref)
        if pair is None:
            return False
        if final:
            pair.worker.actor.shut_down(Shutdown())
        else:
            pair.worker.actor.suspend()
        return True

    def kill(self, ref: Any) -> bool:
        """Cut a worker's executor off; False: it is none."""
        pair = self._of(ref)
        if pair is None:
            return False
        if pair.worker.actor.executor is ref.actor:
            pair.worker.actor.abandon_executor()
        ref.actor.die(Killed())
        return True

    def exited(self, ref: Any) -> None:
        """Note that an executor has ended: unless it is replaced, its accumulator is let go."""
        pair = self._of(ref)
        if pair is not None and pair.incarnation is ref:
            self._loose.add(pair.key)

    def settle(self, family: Family) -> None:
        """End the accumulators of workers that will not be started again. O(those that ended)."""
        loose, self._loose = self._loose, set()
        for key in loose:
            state = family.state_of(key)
            if state in _KEEPS:
                self._loose.add(key)
            elif state in {None, ChildState.STOPPED}:
                self._let_go(key)

    def _let_go(self, key: Hashable) -> None:
        pair = self._by_key.pop(key, None)
        if pair is None:
            return
        if self._keys.get(pair.id) == key:
            del self._keys[pair.id]
        accumulator = pair.worker.actor
        accumulator.request_stop(StopMode.NOW, accumulator.executor.exit_reason or Normal())

    def end_all(self, reason: ExitReason) -> None:
        """End all accumulators that are left: the supervisor has ended. O(n)."""
        for pair in list(self._by_key.values()):
            accumulator = pair.worker.actor
            accumulator.request_stop(StopMode.NOW, accumulator.executor.exit_reason or reason)

    # Finding.

    def find(self, child_id: Hashable) -> WorkerRef:
        """Give the worker that is the child of that id.

        Raises:
            UnknownWorker: there is none.

        """
        try:
            return self._by_key[self._keys[child_id]].worker
        except KeyError:
            raise UnknownWorker(child_id, list(self._keys)) from None

    def inward(self, ref: Any) -> Any:
        """Give what the family knows a child by, if `ref` is that of a worker."""
        if not isinstance(ref, WorkerRef):
            return ref
        pair: Pair | None = ref.actor.__dict__.get("pair")
        known = pair is not None and self._by_key.get(pair.key) is pair
        return pair.incarnation if pair is not None and known else ref

    def outward(self, ref: Any) -> Any:
        """Give what users know a child by, if `ref` is that of an executor."""
        accumulator = _accumulator_of(ref)
        known = accumulator is not None and "pair" in accumulator.__dict__
        return accumulator.actor_ref if accumulator is not None and known else ref

    def _of(self, ref: Any) -> Pair | None:
        accumulator = _accumulator_of(ref)
        if accumulator is None:
            return None
        pair: Pair | None = accumulator.__dict__.get("pair")
        return pair if pair is not None and self._by_key.get(pair.key) is pair else None


def successor(worker: WorkerRef) -> WorkerRef:
    """Give the worker that its supervisor has started in the place of one that has ended."""
    while (after := worker.actor.__dict__.get("successor")) is not None:
        worker = after
    return worker


def _accumulator_of(ref: Any) -> Accumulator | None:
    actor = getattr(ref, "actor", None)
    return actor._accumulator if isinstance(actor, Executor) else None  # noqa: SLF001


def _make(spec: Worker) -> WorkerRef:
    """Make a worker with a behaviour of its own, so that the specification can be used again."""
    options = spec.options()
    behaviour = options["behaviour"]
    if isinstance(behaviour, (Behaviour, Base)) or hasattr(behaviour, "take"):
        try:
            options["behaviour"] = copy.deepcopy(behaviour)
        except Exception:  # noqa: BLE001 - then it serves one worker, and a second is refused
            options["behaviour"] = behaviour
    return make(spec.job, **options)
