"""What systems that are built on workers use of one, besides its ref.

A supervisor sees a worker as a `WorkerHandle`. The engine sees it as a `Port`: it keeps thousands
of executions as workers, starts and retires them itself, and hands them messages with tickets of
its own. Whatever they need is here, and nothing else of a pair is their business. Not for the main
thread, unless a method says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.headroom import require_headroom
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, in_main_thread
from actorflow.runtime.worker.pair.offers import help_out, offer_fifo
from actorflow.runtime.worker.pair.requests import (
    abandon_executor,
    request_stop,
    retire,
    shut_down,
    suspend,
)
from actorflow.runtime.worker.pair.states import (
    ALONE,
    IDLE,
    StopMode,
)
from actorflow.runtime.worker.spec import launch, make

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.runtime.exits import ExitReason, Notice
    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.worker.job.batch import Ticket
    from actorflow.runtime.worker.options import WorkerOptions
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["Port", "WorkerHandle"]


class Port:
    """One worker, seen by the system that owns it. Thread-safe."""

    __slots__ = ("_pair", "worker")

    def __init__(self, worker: WorkerRef) -> None:
        self.worker = worker
        self._pair = worker.actor

    @classmethod
    def launch(
        cls, job: Any, options: WorkerOptions, executor_ended: Callable[[ExitReason], object]
    ) -> Port:
        """Start a worker whose owner is its supervisor, and which keeps nothing of its own.

        `executor_ended(reason)` is called when an executor has ended and the worker has not; then
        `revive` starts another, with the same state object. Messages left at the end are not
        reported as lost.
        """
        worker = make(job, options)
        life = worker.actor.lifecycle
        life.durable = True
        worker.actor.set_paths()
        life.supervise(executor_ended)
        launch(worker)
        return cls(worker)

    def revive(self) -> None:
        """Start another executor, if the last one has ended and the worker has not."""
        pair = self._pair
        if pair.exit_reason is None and pair.state is ALONE:
            pair.lifecycle.revive()

    def offer(self, pairs: Sequence[tuple[Any, Ticket]]) -> list[tuple[Ticket, Exception]]:
        """Accumulate messages with their tickets together; return the refused ones.

        An idle worker gets them as one batch. Never waits for room.

        Raises:
            WorkerStopped: the worker has ended or is stopping; none was taken.

        """
        pair = self._pair
        if in_main_thread():
            return UNINTERRUPTIBLE.run(pair.offers.offer_many, pairs)  # type: ignore[no-any-return]
        require_headroom()
        if pair.is_fifo and offer_fifo(pair, pairs):
            return []
        return pair.offers.offer_many(pairs)

    def help(self, message: Any) -> None:
        """Push a message; if the worker is idle, process it in this very thread.

        Raises:
            WorkerStopped: the worker has ended or is stopping.

        """
        if not help_out(self._pair, message, None):
            self.worker.push(message)

    def submit(self, runnable: Runnable) -> None:
        """Schedule something else in the worker's lane."""
        self._pair.settings.lane.submit(runnable)

    def retire(self) -> bool:
        """End at once if there is nothing to do; return whether it did.

        For workers without an `on_stop`, which would have to run in the lane. The halves forget
        each other: they go at once, not with the garbage collector.
        """
        pair = self._pair
        if not retire(pair):
            return False
        pair.unlink()
        return True

    def finish(self) -> None:
        """Begin to stop after the current batch; accumulated messages are not processed.

        It is not reported as lost: its owner has it.
        """
        self._pair.lifecycle.durable = True
        request_stop(self._pair, StopMode.FINISH)

    def saved(self) -> Any:
        """Return what the behaviour saves, after the batch that runs was taken from it."""
        pair = self._pair
        with pair.lock:
            return pair.core.behaviour.save()

    @property
    def depth(self) -> int:
        """About how many messages are accumulated, without the lock."""
        return len(self._pair.core)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is accumulated or running."""
        pair = self._pair
        return pair.status() is IDLE and not len(pair.core)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker takes no more messages: it has ended, or was asked to."""
        return self._pair.mode is not None or self._pair.exit_reason is not None

    @property
    def has_ended(self) -> bool:
        """Whether the worker has ended."""
        return self._pair.exit_reason is not None


class WorkerHandle:
    """A supervised worker over all its incarnations, each of which is an executor.

    It is the `ChildHandle` of supervision: see there what each method must do. `launch` makes and
    starts a new pair for a child, and passes the end of its executors on.
    """

    __slots__ = ("_launch", "_notice", "_pair", "ref")

    def __init__(self, launch: Callable[[Any, Callable[[ExitReason], None]], WorkerRef]) -> None:
        self._launch = launch
        self._notice: Notice | None = None
        self._pair: Any = None
        self.ref: Any = None

    def __repr__(self) -> str:
        return f"<{self._pair!r}>"

    def start(self, child: Any) -> None:
        """Start the pair, or only its executor, if the accumulator is alone."""
        self._notice = None
        if self._pair is not None and self._pair.exit_reason is None:
            self._pair.lifecycle.revive()
            return
        worker = self._launch(child, self._executor_ended)
        before, self.ref, self._pair = self.ref, worker, worker.actor
        if before is not None:
            before.actor.__dict__["successor"] = worker
        worker.watch(self._pair_ended)  # if its job hangs, the executor's end never comes

    def stop(self, reason: ExitReason, *, final: bool) -> None:
        """End the executor after its current batch; if `final`, the pair, which drains first."""
        if not final:
            suspend(self._pair)
        elif self._pair.lifecycle.executor_exit is None:
            shut_down(self._pair, reason)
        else:
            request_stop(self._pair, StopMode.NOW, reason)  # without an executor nothing drains

    def kill(self) -> None:
        """End the executor at once. Settles the batch in flight; the accumulator stays."""
        abandon_executor(self._pair)

    def watch(self, notice: Notice) -> None:
        """Call `notice(ref, reason)` when the executor has ended."""
        self._notice = notice
        reason = self._pair.exit_reason or self._pair.lifecycle.executor_exit
        if reason is not None:  # it ended before `_notice` was set
            notice(self.ref, reason)

    def _executor_ended(self, reason: ExitReason) -> None:
        notice = self._notice  # first: that of the next executor is set after `executor_exit`
        if notice is not None and self._pair.lifecycle.executor_exit is reason:
            notice(self.ref, reason)

    def _pair_ended(self, worker: WorkerRef, reason: ExitReason) -> None:
        notice = self._notice
        if notice is not None and worker is self.ref:
            notice(worker, reason)
