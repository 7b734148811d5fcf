"""The rest of a ref: what users do with a worker besides sending it messages."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from actorflow.runtime.actor.ref import Ref
from actorflow.runtime.errors import BadOption, StopTimeout, WorkerCrashed
from actorflow.runtime.exits import Crash
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, check_timeout
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pair.requests import (
    change,
    kill,
    pause,
    request_stop,
    retire,
    unpause,
)
from actorflow.runtime.worker.pair.states import PairState, StopMode
from actorflow.runtime.worker.shape import Pushes, pushes_of
from actorflow.runtime.worker.statistics import statistics

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType
    from typing import Self

    from actorflow.behaviours.behaviour import Behaviour
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.job.dead_letters import DeadLetters
    from actorflow.runtime.worker.pair.executor_actor import ExecutorRef
    from actorflow.runtime.worker.statistics import WorkerStatistics

__all__ = ["WorkerControl"]


class WorkerControl(Ref[Any]):
    """The part of `WorkerRef` that is the same for all messages. Thread-safe."""

    __slots__ = ("_idle", "_raw", "actor")

    actor: Accumulator
    actor_class = Accumulator

    def __init__(self, accumulator: Accumulator) -> None:
        self.actor = accumulator
        self._raw = accumulator.core.raw
        self._idle = accumulator.idle

    @property
    def lifespan(self) -> Any:
        """The accumulator. Internal."""
        return self.actor

    # Looking at it.

    @property
    def name(self) -> Hashable | None:
        """The name it was spawned under."""
        return self.actor.settings.name

    @property
    def executor(self) -> ExecutorRef:
        """The ref of the executor: `tell`, `ask` and `proxy()` reach it between two batches."""
        ref: ExecutorRef = self.actor.lifecycle.executor.actor_ref
        return ref

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` while it lives."""
        return self.actor.exit_reason

    def is_alive(self) -> bool:
        """Return whether the worker has not ended."""
        return self.actor.exit_reason is None

    def statistics(self) -> WorkerStatistics:
        """Return a picture of the worker: counts, batch sizes, depth, times. O(1)."""
        return statistics(self.actor)

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that `Isolate` found to be poison: read, retry or purge them."""
        return self.actor.lifecycle.dead_letters

    @property
    def status(self) -> PairState:
        """What the worker is doing."""
        return self.actor.status()

    def pause(self) -> None:
        """Pause the worker: it accumulates, but takes no batch until `resume`. Thread-safe.

        Batches that are under way are finished. A worker that is stopped and drains goes on.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        self.actor.refuse_own_functions()
        UNINTERRUPTIBLE.run(pause, self.actor)

    def resume(self) -> None:
        """Resume a paused worker, or restart the executor of a parked one. Thread-safe.

        Raises:
            NotParked: the worker is neither paused nor parked.

        """
        self.actor.refuse_own_functions()
        if not UNINTERRUPTIBLE.run(unpause, self.actor):
            self.actor.lifecycle.resume()

    def change(self, behaviour: Any) -> None:
        """Replace the behaviour, and move the held messages to the new one. O(messages held).

        It gets the held messages in their order, with their callers, and nothing is lost: if it
        cannot hold all of them, nothing has changed. A worker that was spawned with a behaviour
        without a time cannot change to one with a time, nor the other way round.

        Raises:
            BadOption: it cannot hold the messages, or needs another kind of worker.
            WorkerStopped: the worker has ended, or is stopping.

        """
        self.actor.refuse_own_functions()
        UNINTERRUPTIBLE.run(change, self.actor, behaviour, self._fits)

    def _fits(self, behaviour: Behaviour) -> bool:
        """Return whether the pushes of this ref do what a behaviour needs."""
        present, other = pushes_of(self.actor.core.behaviour.traits), pushes_of(behaviour.traits)
        # A ref that does not fold early exceeds a bound a little, and that is all.
        return present == other or {present, other} == {Pushes.PLAIN, Pushes.FOLDING}

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do at this very moment. O(1), without a lock."""
        return bool(self._idle)

    def __len__(self) -> int:
        """Return how many messages are accumulated now."""
        self.actor.refuse_own_functions()
        self.actor.withdraw_abandoned()
        with self.actor.lock:
            ahead = self.actor.ahead()  # first: messages may arrive meanwhile, but none leaves
            return len(self.actor.core) - ahead

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        reason = self.actor.exit_reason
        return f"<{self.actor!r}{'' if reason is None else ', ended: ' + reason.describe()}>"

    def __reduce__(self) -> NoReturn:
        msg = (
            f"{self!r} cannot be pickled: it lives in this process only; "
            "give it a name and use af.whereis(name), or push from here"
        )
        raise TypeError(msg)

    # What pykka's own code looks at.

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """See `pykka.Actor.actor_urn`."""
        return self.actor.lifecycle.urn

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """See `pykka.Actor.actor_stopped`."""
        return self.actor.lifecycle.stopped

    def watch(self, notice: Any) -> None:
        """Call `notice(ref, reason)` once when the worker has ended, or now if it has."""
        self.actor.lifecycle.watch(notice)

    def unwatch(self, notice: Any) -> None:
        """Withdraw a `watch`. Harmless if `notice` is unknown or has been called."""
        self.actor.lifecycle.unwatch(notice)

    def kill(self) -> None:
        """End the worker at once, like `stop(now=True)`, with the reason `Killed`."""
        kill(self.actor)

    def urgent(self) -> NoReturn:
        """Refuse: the behaviour of a worker decides on the order of its messages."""
        msg = (
            f"{self.actor!r} has no urgent messages, because its behaviour orders them; spawn it "
            "with behaviour=Lanes(...) or Priority(key=...)"
        )
        raise BadOption(msg)

    # Ending.

    def stop(  # type: ignore[override]
        self,
        *,
        drain: bool | None = None,
        now: bool = False,
        timeout: float | None = None,
        block: bool = True,
    ) -> bool:
        """Stop the worker; return whether it was still there.

        Args:
            drain: process accumulated messages first (the default); `False` finishes the current
                batch only and drops the rest.
            now: do not even wait for the current batch: callers get an error, the job runs to its
                end in its thread, cut off.
            timeout: seconds to wait; when they are up, it is stopped now.
            block: `False` returns at once and the worker stops by itself.

        Raises:
            StopTimeout: it did not end in time, so it was cut off.

        """
        pair = self.actor
        mode = StopMode.asked_for(drain=drain, now=now)
        if timeout is not None:
            check_timeout(timeout)
        if retire(pair):
            return True
        there = request_stop(pair, mode)
        if not block or pair.is_current():
            return there
        ended = ThreadTicket()
        pair.lifecycle.watch(partial(_resolve, ended))
        if not pair.settings.lane.wait(ended, timeout):
            raise self._cut_off(timeout)
        return there

    async def astop(
        self, *, drain: bool | None = None, now: bool = False, timeout: float | None = None
    ) -> bool:
        """Like `stop`, from a task of any event loop."""
        pair = self.actor
        mode = StopMode.asked_for(drain=drain, now=now)
        if timeout is not None:
            check_timeout(timeout)
        there = request_stop(pair, mode)
        if pair.is_current():
            return there
        ended = AsyncTicket()
        notice = partial(_resolve, ended)
        pair.lifecycle.watch(notice)
        try:
            in_time = await ended.wait(timeout)
        except BaseException:
            pair.lifecycle.unwatch(notice)
            raise
        if not in_time:
            raise self._cut_off(timeout)
        return there

    def _cut_off(self, timeout: float | None) -> StopTimeout:
        left = len(self.actor.core)
        request_stop(self.actor, StopMode.NOW)
        msg = f"{self.actor!r} did not stop within {timeout} s; cut off with {left} messages"
        return StopTimeout(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain and stop. If the worker has crashed, raise that, unless something else is."""
        self.stop()
        self._raise_crash(kind)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Like `__exit__`, without blocking the event loop."""
        await self.astop()
        self._raise_crash(kind)

    def _raise_crash(self, kind: type[BaseException] | None) -> None:
        reason = self.actor.exit_reason
        if kind is None and isinstance(reason, Crash):
            crashed = WorkerCrashed(f"{self.actor!r} has ended: {reason.describe()}")
            raise crashed from reason.exception


def _resolve(ticket: Any, _ref: Any, _reason: Any) -> None:
    ticket.resolve()
