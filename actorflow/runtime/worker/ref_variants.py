"""What a push does, by what the behaviour needs: no more than that.

A plain push appends and looks at the token (`WorkerRef`). The refs here add the one thing that
their behaviours need: folding a long list, the time of arrival, or a wait for room.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import Item
from actorflow.runtime.errors import LoopBlocked, WorkerStopped, WouldDeadlock
from actorflow.runtime.worker.ref import WorkerRef
from actorflow.runtime.worker.shape import Pushes, pushes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.behaviours.behaviour import Behaviour
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["ref_class"]

_LOOKS = 16  # how often pushes look at the length of a list until it is long enough to fold


class FoldingWorkerRef(WorkerRef):
    """A worker whose behaviour stays small: producers fold a raw list that has grown long.

    How long it is, a push finds out only now and then: the length of a list is a new object, and
    takes longer to get than a message to append.
    """

    __slots__ = ("_passes",)

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__(accumulator)
        self._passes = repeat(None, 0)

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`."""
        self._raw.append(message)
        if self._idle:
            self.actor.wake((message,))
            return
        for _ in self._passes:  # takes one pass; faster than `next`, which is a call
            return
        self._look()

    def push_many(self, messages: Iterable[Any]) -> None:
        """See `WorkerRef.push_many`."""
        super().push_many(messages)
        self._look()

    def _look(self) -> None:
        ring_at = self.actor.threshold
        self._passes = repeat(None, ring_at // _LOOKS)
        if len(self._raw) >= ring_at:
            self.actor.offers.fold_early()


class TimedWorkerRef(WorkerRef):
    """A worker whose behaviour involves time, so that a push may have to end a wait."""

    __slots__ = ("_now", "counting")

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__(accumulator)
        self.counting = accumulator.counting
        self._now = accumulator.settings.clock.now

    def push_many(self, messages: Iterable[Any]) -> None:
        """See `WorkerRef.push_many`."""
        super().push_many(messages)
        self._look()

    def _look(self) -> None:
        if self.counting and len(self._raw) >= self.actor.threshold:
            self.actor.offers.ring()


class LingeringWorkerRef(TimedWorkerRef):
    """A worker whose behaviour must know when the first message of a batch arrived."""

    __slots__ = ()

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`."""
        raw = self._raw
        if not raw:
            self.actor.core.first_at = self._now()
        raw.append(message)
        if self._idle:
            self.actor.wake((message,))
        elif self.counting:
            self._look()

    def push_many(self, messages: Iterable[Any]) -> None:
        """See `WorkerRef.push_many`."""
        if not self._raw:
            self.actor.core.first_at = self._now()
        super().push_many(messages)

    def _append(self, message: Any, ticket: Any) -> None:
        if not self._raw:
            self.actor.core.first_at = self._now()
        super()._append(message, ticket)


class StampingWorkerRef(TimedWorkerRef):
    """A worker whose behaviour must know when each message arrived.

    The raw list holds each message after its time. Both are added by one C call; the pair of them
    is gone at once, so that a long list is nothing for the garbage collector to walk.
    """

    __slots__ = ()

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`."""
        now = self._now  # apart: calling what a slot holds looks it up as a method, in vain
        self._raw.extend((now(), message))
        if self._idle:
            self.actor.wake((message,))
        elif self.counting:
            self._look()

    def _append(self, message: Any, ticket: Any) -> None:
        item = Item(message, (ticket,))
        self.actor.core.mark()
        self._raw.extend((self._now(), item))
        if self._idle:
            self.actor.wake((item,))
        else:
            self._look()

    def _stamped(self, messages: list[Any]) -> list[Any]:
        stamped = [self._now()] * (2 * len(messages))
        stamped[1::2] = messages
        return stamped


class PatientWorkerRef(StampingWorkerRef):
    """The same, where no number of messages makes a batch leave, so that a push need not look."""

    __slots__ = ()

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`."""
        now = self._now
        self._raw.extend((now(), message))
        if self._idle:
            self.actor.wake((message,))


class BlockingWorkerRef(WorkerRef):
    """A worker whose behaviour may make a pusher wait for room."""

    __slots__ = ()

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`; but where the worker is full, wait for room."""
        pair = self.actor
        try:
            pair.offers.offer(message)
        except (WorkerStopped, WouldDeadlock, LoopBlocked, RecursionError):
            raise  # not the behaviour's: what a key function raises is a refusal
        except Exception as error:  # noqa: BLE001 - a push is a cast: counted and logged
            pair.offers.refused(message, error)

    def push_many(self, messages: Iterable[Any]) -> None:
        """See `WorkerRef.push_many`."""
        for message in messages:
            self.push(message)


def ref_class(behaviour: Behaviour) -> type[WorkerRef]:
    """Return the class whose `push` does what a behaviour needs, and no more."""
    return _CLASSES[pushes_of(behaviour.traits)]


_CLASSES: dict[Pushes, type[WorkerRef]] = {
    Pushes.PLAIN: WorkerRef,
    Pushes.FOLDING: FoldingWorkerRef,
    Pushes.LINGERING: LingeringWorkerRef,
    Pushes.STAMPING: StampingWorkerRef,
    Pushes.PATIENT: PatientWorkerRef,
    Pushes.BLOCKING: BlockingWorkerRef,
}
