"""Preemption: running batches that a message ends, as `Preempt` asks for."""

from __future__ import annotations

from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from actorflow.runtime.exits import Stop
from actorflow.runtime.registry import CURRENT
from actorflow.runtime.worker.job.deferred import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from actorflow.runtime.worker.job.batch import Batch

__all__ = ["Preempted", "watch"]


class Preempted(Exception):
    """Stands for the outcome of a job whose batch was preempted. Users never see it."""


def watch(pair: Any) -> None:
    """Let a `Preempt` of a pair end the batches that run. Under the lock, unless it is new."""
    if pair.handle is not None and type(pair.handle) is not _EndableJob:
        pair.handle = _EndableJob(pair, pair.handle)
    pair.core.behaviour.watch(partial(_preempt, pair))


def _preempt(pair: Any) -> None:
    """End the batches that run. Under the lock, before the new message can leave."""
    for slot in pair.all_slots or (pair,):
        batch = slot.batch
        if batch is None or batch.cancelled:
            continue
        for part in (batch, *(slot.parts or ())):
            part.cancelled = True  # first, because a call that begins looks at it
        end = pair.handle.calls.get(id(batch)) if type(pair.handle) is _EndableJob else None
        if end is not None:
            end()


class _EndableJob:
    """Calls a job such that the call can be ended.

    A call that has returned before it was ended counts. Otherwise `Preempted` is its outcome,
    whatever it returns.
    """

    __slots__ = ("_handle", "_pair", "calls")

    def __init__(self, pair: Any, handle: Callable[[Any, Any], Any]) -> None:
        self._pair = pair
        self._handle = handle
        self.calls: dict[int, Callable[[], object]] = {}
        """How to end each call that does not end by itself, by the identity of its batch."""

    def __call__(self, payload: Any, state: Any) -> Any:
        """Call the job with a batch that the current slot runs."""
        batch: Batch = CURRENT.get().batch
        if batch.cancelled:
            raise Preempted
        settings = self._pair.settings
        if settings.remote is not None:
            return self._call_elsewhere(batch, payload, state)
        if type(payload) is list:
            payload = payload[:]  # the messages may come back, and a job may empty its list
        outcome = self._handle(payload, state)
        if type(outcome) is CoroutineType and settings.asynchronous:
            return self._awaited(batch, outcome)
        return _outcome(batch, outcome)

    def _call_elsewhere(self, batch: Batch, payload: Any, state: Any) -> Deferred:
        """Call the job in a process, which is killed to end the call."""
        remote = self._pair.settings.remote
        assert remote is not None  # noqa: S101 - only then it is called
        number = remote.number()
        place: Deferred = remote.call(payload, state, number)
        self.calls[id(batch)] = partial(remote.cancel, number)
        place.then(partial(self._ended, batch))
        if batch.cancelled:  # meanwhile
            remote.cancel(number)
        return place

    def _ended(self, batch: Batch, _error: BaseException | None, _result: Any) -> None:
        self.calls.pop(id(batch), None)

    async def _awaited(self, batch: Batch, outcome: Coroutine[Any, Any, Any]) -> Any:
        """Await the job in its task, which is cancelled to end the call."""
        import asyncio  # noqa: PLC0415 - slow to import, and loaded where a coroutine runs

        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - the event loop runs it
        loop = asyncio.get_running_loop()
        self.calls[id(batch)] = partial(loop.call_soon_threadsafe, task.cancel)
        try:
            if batch.cancelled:  # before it began
                outcome.close()
                raise Preempted
            result = await outcome
        finally:
            self.calls.pop(id(batch), None)
        return _outcome(batch, result)


def _outcome(batch: Batch, outcome: Any) -> Any:
    """Return the outcome of a call, unless it was ended. A job may always stop its worker."""
    if batch.cancelled and not isinstance(outcome, (Stop, Deferred)):
        raise Preempted
    return outcome
