"""What a system that is built on workers may use of one, besides its ref.

The engine keeps thousands of executions as workers, starts and retires them itself, and hands
them messages with tickets of its own. Whatever it needs is here, and nothing else of a pair is
its business. Not for the main thread, unless a method says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.shelter import SHELTER, in_main_thread
from actorflow.runtime.worker.pair.helping import help_out
from actorflow.runtime.worker.pair.intake import offer_line
from actorflow.runtime.worker.pair.machine import (
    ALONE,
    IDLE,
    StopMode,
)
from actorflow.runtime.worker.pair.stopping import request_stop, retire
from actorflow.runtime.worker.spec import launch, make

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.lanes.lane import Runnable
    from actorflow.runtime.worker.options import WorkerOptions
    from actorflow.runtime.worker.pair.batch import Ticket
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["Port"]


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
        `revive` starts another, with the same state object. What is left at the end is not
        reported as lost.
        """
        worker = make(job, options)
        life = worker.actor.life
        life.durable = True
        life.supervise(executor_ended)
        launch(worker)
        return cls(worker)

    def revive(self) -> None:
        """Start another executor, if the last one has ended and the worker has not."""
        pair = self._pair
        if pair.exit_reason is None and pair.state is ALONE:
            pair.life.revive()

    def offer(self, pairs: Sequence[tuple[Any, Ticket]]) -> list[tuple[Ticket, Exception]]:
        """Accumulate messages with their tickets together; return those that are refused.

        An idle worker gets them as one batch. Never waits for room.

        Raises:
            WorkerStopped: the worker has ended or is stopping; none was taken.

        """
        pair = self._pair
        if in_main_thread():
            return SHELTER.run(pair.intake.offer_many, pairs)  # type: ignore[no-any-return]
        if pair._line and offer_line(pair, pairs):
            return []
        return pair.intake.offer_many(pairs)

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
        pair._unlink()
        return True

    def finish(self) -> None:
        """Begin to stop after the current batch; what is accumulated is not processed.

        It is not reported as lost: its owner has it.
        """
        self._pair.life.durable = True
        request_stop(self._pair, StopMode.FINISH)

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
