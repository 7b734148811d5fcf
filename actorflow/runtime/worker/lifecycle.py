"""How a pair begins, fails, is started again and ends.

Unsupervised, a crash of the executor ends the accumulator with it. Supervised, the accumulator
stays, with all it holds, and is *alone* until its supervisor gives it a new executor. The batch
that was in flight is dealt with by the failure policy first.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from actorflow.runtime.actor.actor import FrameworkActor
from actorflow.runtime.errors import BadOption, NotParked, StartFailed, WorkerStopped
from actorflow.runtime.exits import Crash, ExitReason, Killed, Normal, Shutdown
from actorflow.runtime.lanes.thread import ThreadLane
from actorflow.runtime.log import log
from actorflow.runtime.registry import ROSTER, forget_name
from actorflow.runtime.worker.failure import DeadLetters
from actorflow.runtime.worker.orders import StopMode, WorkerStatus
from actorflow.runtime.worker.tickets import ThreadTicket
from behaviours.errors import brief

if TYPE_CHECKING:
    import threading
    from collections import deque
    from collections.abc import Callable, Hashable, Sequence

    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.lanes.lane import Lane
    from actorflow.runtime.supervision.strategies import RestartWindow
    from actorflow.runtime.worker.accumulation import Accumulation, Batch, Ticket
    from actorflow.runtime.worker.accumulator import Accumulator
    from actorflow.runtime.worker.executor import Executor
    from actorflow.runtime.worker.failure import Breaker, FailurePolicy

__all__ = ["Lifecycle"]


class Lifecycle(FrameworkActor):
    """The part of the accumulator that deals with beginnings and ends."""

    core: Accumulation
    lock: threading.Lock
    idle: list[None]
    lane: Lane
    clock: Clock
    name: Hashable | None
    executor: Executor
    maker: Callable[[Any], Executor]
    job: Any
    state: Any
    idle_timeout: float | None = None
    policy: FailurePolicy
    breaker: Breaker | None = None
    running: bool
    supervised: bool = False
    alone: bool = False
    suspending: bool = False
    stopping: StopMode | None
    stop_reason: ExitReason | None = None
    timer: Timer | None
    in_flight: Batch | None
    blocked: deque[Ticket] | None = None
    letters: DeadLetters | None = None
    crashes: RestartWindow | None = None
    discarded: int = 0
    durable: bool = False
    """What is left when it ends is stored elsewhere, and so is its state: neither is lost."""
    restarts: int = 0
    executor_follows: bool = False
    """The executor ends right after the accumulator, or has ended already."""
    final_mode: StopMode = StopMode.DRAIN
    """How it ends when its supervisor ends it."""
    _idle_timer: Timer | None = None
    unreported: Sequence[tuple[int, Exception]]
    report_refusals: Callable[[], None]
    _first: Any
    _lead: Callable[[], Executor | None]
    _cancel_timer: Callable[[], None]

    def __repr__(self) -> str:
        return (
            f"worker {self.name!r}" if self.name is not None else f"worker of {self.executor.title}"
        )

    # Beginning, and beginning again.

    def launch(self) -> None:
        """Make the first executor and start it; return when its `on_start` is through.

        Raises:
            StartFailed: `on_start` raised or asked to stop.

        """
        ROSTER.add(self)
        executor = self._new_executor()
        if not executor.needs_start:
            ROSTER.add(executor)
            if self.name is None and executor.idle_timeout is None:
                self.running = False
                self.idle.append(None)
                return
            with self.lock:
                awake = self._lead()  # a message may have come already, by the worker's name
            if awake is not None:
                self.lane.submit(awake)
            return
        try:
            self._start(executor)
        except StartFailed:
            self.die(executor.exit_reason or Normal())
            raise

    def supervise(self) -> None:
        """Say that a supervisor looks after the executor. Its first state is kept for later."""
        self.supervised = True
        if self.state is None:
            return
        try:
            self.state = copy.deepcopy(self.state)
        except Exception as error:
            msg = (
                f"state={self.state!r:.200} cannot be copied ({error}), and a supervised worker "
                "begins with a copy of it after each crash; make it in on_start of an Executor"
            )
            raise BadOption(msg) from error

    def _new_executor(self) -> Executor:
        executor = self.maker(self.job)
        state = self.state
        fresh = self.supervised and not self.durable and state is not None
        executor.state = copy.deepcopy(state) if fresh else state
        if self.idle_timeout is not None:
            executor.idle_timeout = self.idle_timeout
        self.executor = executor
        executor.bind(cast("Accumulator", self))
        return executor

    def _start(self, executor: Executor) -> None:
        started = ThreadTicket()
        with executor.being_started():
            executor.begin(started)
            self.lane.wait(started, None)
        if started.error is not None:
            reason = executor.exit_reason or Normal()
            raise StartFailed(repr(self), reason.describe()) from started.error.__cause__

    def revive(self) -> Executor:
        """Give the accumulator, which is alone, a new executor with the first state.

        Raises:
            StartFailed: its `on_start` raised or asked to stop; the accumulator is still alone.

        """
        executor = self._new_executor()
        self.restarts += 1
        self.executor_follows = False
        with self.lock:  # before it runs: it may crash at once, and leave the accumulator alone
            self.alone = False
            self.suspending = False
        if executor.needs_start:
            try:
                self._start(executor)
            except BaseException:
                with self.lock:
                    self.alone = True
                raise
        else:
            ROSTER.add(executor)
            self.lane.submit(executor)
        return executor

    # Failing.

    def executor_crashed(
        self, executor: Executor, batch: Batch | None, error: BaseException
    ) -> None:
        """Hear that the job, or a hook, raised, and that no policy helped. In the lane's thread.

        Those who wait for the batch get the exception itself. An executor that was left behind
        is not heard any more: another one may be at work in its place.
        """
        reason = Crash(error)
        in_flight = None
        with self.lock:
            left_behind = executor.is_cut_off
            final = not self.supervised or self.exit_reason is not None or self.stopping is not None
            if not left_behind:
                in_flight, self.in_flight = self.in_flight, None
                self.alone = not final
                self.executor_follows = True
        if not left_behind and self.exit_reason is None:
            log.error(
                "worker crashed", worker=repr(self), error=brief(error),
                dropped=0 if batch is None else batch.size, exc_info=error,
            )  # fmt: skip
        executor.report_failure(error)
        try:
            if left_behind:
                return
            if final:
                self._end_both(executor, reason)
            elif self._park(executor, reason):
                log.error("worker parked", worker=repr(self), error=brief(error))
            else:
                executor.die(reason)
        finally:  # told last: who hears of the crash finds the worker as the crash has left it
            for lost in (batch, in_flight):
                if lost is not None:
                    lost.resolve(error)

    def _park(self, executor: Executor, reason: Crash) -> bool:
        """Count a crash, and park the executor if the breaker says so and nobody wants its end."""
        if not self._trips():
            return False
        with self.lock:
            if self.suspending or self.exit_reason is not None:
                return False
            executor.parked = reason
        executor.park(reason)
        return True

    def _trips(self) -> bool:
        """Count a crash; tell whether it is one too many for the breaker."""
        if self.breaker is None:
            return False
        if self.crashes is None:
            self.crashes = self.breaker.window()
        return not self.crashes.admit(self.clock.now())

    def bury(self, batch: Batch, error: BaseException) -> None:
        """Make dead letters of what a policy gave up, and tell who waits. In the lane's thread."""
        letters = self.dead_letters()
        for message in batch.payload if type(batch.payload) is list else [batch.payload]:
            letters.bury(message, error)
        log.error("message buried", worker=repr(self), error=brief(error), exc_info=error)
        batch.resolve(error)

    def dead_letters(self) -> DeadLetters:
        """Give the worker's dead letters."""
        if self.letters is None:
            with self.lock:
                if self.letters is None:
                    self.letters = DeadLetters(self.actor_ref.push)
        return self.letters

    @property
    def status(self) -> WorkerStatus:
        """What the pair is doing."""
        if self.exit_reason is not None:
            return WorkerStatus.DEAD
        if self.stopping is not None:
            return WorkerStatus.STOPPING
        if self.alone:
            return WorkerStatus.PARKED if self.executor.parked else WorkerStatus.RESTARTING
        if self.timer is not None:
            return WorkerStatus.WAITING
        return WorkerStatus.BUSY if self.running else WorkerStatus.IDLE

    def resume(self) -> None:
        """Start a parked worker's executor again, forgetting its crashes.

        Raises:
            NotParked: it is not parked.

        """
        if self.status is not WorkerStatus.PARKED:
            msg = f"{self!r} is {self.status.value}, not parked, so there is nothing to resume"
            raise NotParked(msg)
        self.crashes = None
        self.executor.unpark()

    # Ending the executor alone.

    def suspend(self) -> None:
        """End the executor after its current batch; the accumulator goes on alone. Any thread."""
        submit = False
        with self.lock:
            if self.exit_reason is not None:
                return
            self.suspending = True
            if not self.alone and not self.running:
                self._cancel_timer()
                if self.stopping is None:
                    self.idle.clear()
                self.running = submit = True
        if submit:
            self.lane.submit(self.executor)
        elif self.executor.parked is not None:
            self.executor.die(Shutdown())

    def abandon_executor(self) -> None:
        """Cut the executor off, whatever it does; the accumulator goes on alone. Any thread.

        A thread cannot be killed: a job that hangs keeps its thread, but nobody waits for it.
        """
        executor = self.executor
        with self.lock:
            if self.alone or self.exit_reason is not None:
                return
            busy = self.running
            self.alone = True
            self.suspending = False
            self._cancel_timer()
            if self.stopping is None:  # else the token stays, and whoever pushes is refused
                self.idle.clear()
            self.running = True
            executor.is_cut_off = True
            self._first = None
            in_flight, self.in_flight = self.in_flight, None
        if busy and isinstance(self.lane, ThreadLane):
            self.lane.release()
            self.lane = ThreadLane(str(self.name or "worker"))
        error = WorkerStopped(f"{self!r} was killed while it processed this batch")
        executor.die(Killed(abandoned=busy))
        if in_flight is not None:
            in_flight.resolve(error)

    # Ending.

    def stop_asked(self, reply_to: Any) -> None:
        """Drain and end, as pykka's stop message asks; answer when that is done."""
        if reply_to is not None:
            self.watch(lambda _actor, _reason: reply_to.set(None))
        self.request_stop(StopMode.DRAIN)

    def stop_from_within(
        self, executor: Executor, reason: ExitReason, mode: StopMode = StopMode.FINISH
    ) -> None:
        """End after this batch, because the job said so.

        Supervised, it is the executor that ends; what that means is the supervisor's business.
        """
        if executor.is_cut_off:
            return
        if self.supervised:
            with self.lock:
                self.stop_reason = self.stop_reason or reason
            self.suspend()
        else:
            self.request_stop(mode, reason)

    def request_stop(self, mode: StopMode, reason: ExitReason | None = None) -> bool:
        """Begin to stop, or stop harder; tell whether the worker was still there. Any thread.

        In this order: `stopping` is set, the token goes in place for good, what is raw is folded.
        So a message pushed before is taken in, and whoever pushes later finds the token and is
        refused: no message vanishes in between.
        """
        submit = False
        with self.lock:
            if self.exit_reason is not None:
                return False
            first = self.stopping is None
            if mode.harder_than(self.stopping):
                self.stopping = mode
                self.stop_reason = reason or self.stop_reason or Normal()
            if first:
                self._close()
            alone = self.alone
            if not self.running:
                self._cancel_timer()
                self.running = submit = True
        if submit:
            self.lane.submit(self.executor)
        if self.stopping is StopMode.NOW or alone:
            self.die(self.stop_reason or Normal())
        return True

    def retire(self) -> bool:
        """End at once if there is nothing to do, in this thread; tell whether it did. Any thread.

        For executors without an `on_stop`: that would have to run in the lane.
        """
        with self.lock:
            if not self.idle or self.stopping is not None or self.exit_reason is not None:
                return False
            if len(self.core) or self.executor._inbox:  # noqa: SLF001
                return False
            self.stopping = StopMode.FINISH
            self.executor_follows = True
        self._end_both(self.executor, Normal())
        self._unlink()
        return True

    def _unlink(self) -> None:
        """Let the halves forget each other: they go at once, not with the garbage collector.

        Whoever still has a ref finds the worker ended.
        """
        executor: Any = self.executor
        self.state = executor.state = executor._accumulator = None  # noqa: SLF001
        core: Any = self.core
        core._owner = self._ref = None  # noqa: SLF001

    def _close(self) -> None:
        """Refuse what comes from now on, and take in what came before. Under the lock."""
        if not self.idle:
            self.idle.append(None)
        try:
            self.core.fold(self.clock.now() if self.core.timed else 0.0)
            self.core.behaviour.flush()
        except Exception:  # noqa: BLE001 - a broken behaviour must not keep anyone waiting
            log.error("behaviour failed", worker=repr(self), exc_info=True)

    def ended(self, executor: Executor) -> None:
        """Hear from the executor that it has run `on_stop`. In the lane's thread."""
        with self.lock:
            if executor.is_cut_off:
                return  # it was left behind, and another one may be at work in its place
            self.executor_follows = True
            final = not self.suspending or self.stopping is not None
            if final:
                reason = self.exit_reason or self.stop_reason or Normal()
            else:
                self.alone = True
                self.suspending = False
                reason, self.stop_reason = self.stop_reason or Shutdown(), None
        if final:
            self._end_both(executor, reason)
        else:
            executor.die(reason)

    def _end_both(self, executor: Executor, reason: ExitReason) -> None:
        """End both halves, the one that is watched last: of a supervised pair the executor."""
        for half in (self, executor) if self.supervised else (executor, self):
            half.die(reason)

    def shut_down(self, reason: ExitReason) -> None:
        """End for good, because a supervisor says so: drain, unless told otherwise. Any thread."""
        self.request_stop(self.final_mode, reason)

    def kill(self) -> None:
        """End at once, whatever is going on. Any thread."""
        self.request_stop(StopMode.NOW, Killed(abandoned=self.running))

    def _claim_death(self, reason: ExitReason) -> bool:
        with self.lock:
            if self.exit_reason is not None:
                return False
            self.exit_reason = reason
            if self.stopping is None:
                self._close()
            return True

    def _cut_off(self) -> None:
        if self.name is not None:
            forget_name(self.name, self.actor_ref)
        error = self.dead_error()
        with self.lock:
            self._cancel_timer()
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            try:
                self.discarded += self.core.abandon(error)
            except Exception:  # noqa: BLE001 - as in _close
                log.error("behaviour failed", worker=repr(self), exc_info=True)
            blocked, self.blocked = self.blocked, None
            in_flight, self.in_flight = self.in_flight, None
        if self.executor.parked is not None:
            self.executor.die(self.exit_reason or Normal())
        self.executor.refuse_mail()
        for waiter in blocked or ():
            waiter.resolve(error)
        if in_flight is not None:
            in_flight.resolve(error)
        if self.unreported:
            self.report_refusals()
        if self.discarded and not self.durable:
            log.warning("messages discarded", worker=repr(self), count=self.discarded)
        self.lane.release()

    def dead_error(self) -> WorkerStopped:
        """Make the error for those who come too late."""
        if self.exit_reason is None:
            return WorkerStopped(f"{self!r} is stopping and takes no more messages")
        return super().dead_error()
