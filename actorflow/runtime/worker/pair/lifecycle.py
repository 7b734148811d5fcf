"""How a pair begins, crashes, is started again and ends, and its callbacks for these events.

Unsupervised, a crash of the executor ends the accumulator with it. Supervised, the accumulator
stays, with all it holds, and is *alone* until its supervisor gives it a new executor.

Every method may be called from any thread. What changes the state runs under the pair's lock, and
never in the main thread (see `accumulator.py`); what calls user code, notifies or logs runs
outside the lock.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import uuid
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.answers import refuse
from actorflow.runtime.errors import (
    NotParked,
    StartFailed,
    WorkerCrashed,
    WorkerStopped,
)
from actorflow.runtime.exits import FORKED, Crash, ExitReason, Normal, Notices, Shutdown
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.log import log
from actorflow.runtime.registry import ACTORS, CURRENT, forget_name
from actorflow.runtime.tickets import ThreadTicket
from actorflow.runtime.worker.job.dead_letters import DeadLetters
from actorflow.runtime.worker.job.preemption import watch
from actorflow.runtime.worker.pair.executor_actor import ExecutorActor
from actorflow.runtime.worker.pair.interface import Effects
from actorflow.runtime.worker.pair.requests import (
    kill,
)
from actorflow.runtime.worker.pair.states import (
    ABANDON,
    ALONE,
    CRASHED,
    DEAD,
    PARKED,
    RESUMED,
    REVIVED,
    START_FAILED,
    STARTED,
    STARTING,
    STOP,
    TRIPPED,
    PairEvent,
    StopMode,
)
from actorflow.runtime.worker.pair.transitions import (
    apply,
    cut_off,
    schedule,
    schedule_start,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from actorflow.runtime.exits import Notice
    from actorflow.runtime.worker.job.batch import Batch
    from actorflow.runtime.worker.job.executor import Executor
    from actorflow.runtime.worker.pair.interface import Pair

__all__ = ["Lifecycle"]


class Lifecycle:
    """The beginnings and ends of one pair."""

    __slots__ = (
        "_crashes", "_executors", "_first", "_letters", "_over", "_pair", "_started", "_stopped",
        "_urn", "_watchers", "child_id", "durable", "executor_ended", "executor_exit",
        "executor_reason", "final_mode", "reason", "restarts", "starter", "subject",
        "supervised", "supervisor",
    )  # fmt: skip

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._first = pair.value
        self.supervised = False
        """A supervisor gives the accumulator a new executor after a crash."""
        self.durable = False
        """Messages left at the end are stored elsewhere, and so is the state: neither is lost."""
        self.executor_ended: Callable[[ExitReason], object] | None = None
        """Called when an executor has ended and the pair has not, for an owner that revives it."""
        self.executor_exit: ExitReason | None = None
        """Why the executor has ended; `None` while there is one."""
        self.supervisor: Any = None
        self.child_id: Hashable | None = None
        self.starter: Any = None
        """The actor that waits for the start, while it does."""
        self.final_mode = StopMode.DRAIN
        """How the pair ends when its supervisor ends it for good."""
        self.restarts = 0
        self.subject: Executor | None = None
        """The user's executor, if the job is a class."""
        self._executors: dict[int, ExecutorActor] = {}  # the present one, by the restarts so far
        self.executor_reason: ExitReason | None = None
        """Why the executor ends, or has ended."""
        self.reason: ExitReason | None = None
        """Why the pair was asked to stop."""
        self._crashes: Any = None
        self._letters: DeadLetters | None = None
        self._watchers = Notices()
        self._started: ThreadTicket | None = None
        self._over = pair.state is DEAD
        self._urn: str | None = None
        self._stopped: threading.Event | None = None

    # Beginning, and beginning again.

    def launch(self) -> None:
        """Start the first executor; return when its `on_start` has returned.

        Raises:
            StartFailed: `on_start` raised or asked to stop.

        """
        ACTORS.add(self._pair)
        self._start(STARTED)

    def supervise(
        self,
        executor_ended: Callable[[ExitReason], object],
        supervisor: Any = None,
        child_id: Hashable | None = None,
    ) -> None:
        """Mark the pair as supervised, before it is launched."""
        self.supervised = True
        self.executor_ended = executor_ended
        self.supervisor = supervisor
        self.child_id = child_id

    def revive(self) -> None:
        """Start another executor, with the first state, for an accumulator that is alone.

        In the turn of its supervisor, so never in the main thread.

        Raises:
            StartFailed: its `on_start` raised or asked to stop; the accumulator is still alone.

        """
        self._start(REVIVED)

    def _start(self, event: PairEvent) -> None:
        pair = self._pair
        settings = pair.settings
        if settings.executor is None:
            pair.value = self._first_state()
        else:
            self.subject = settings.make_subject(self._first_state())
            pair.handle = settings.handle_of(self.subject)
            if pair.core.shape.preempts:
                watch(pair)
        pair.prepare_idleness()
        started = self._started = ThreadTicket() if settings.has_on_start else None
        self.starter = CURRENT.get()
        try:
            if event is REVIVED:
                self._begin(event)
            else:
                UNINTERRUPTIBLE.run(self._begin, event)
            if started is None:
                return
            settings.lane.wait(started, None)
        except BaseException:  # Ctrl-C: the caller never gets a ref to stop it with
            kill(self._pair)
            raise
        finally:
            self.starter = None
        if started.error is not None:
            reason = self.executor_reason or Normal()
            if event is STARTED:  # if the executor alone was killed: nobody has the accumulator yet
                kill(pair)
            raise StartFailed(repr(pair), reason.describe()) from started.error.__cause__

    def _first_state(self) -> Any:
        first = self._first
        if self.supervised and not self.durable and first is not None:
            return copy.deepcopy(first)
        return first

    def _begin(self, event: PairEvent) -> None:
        pair = self._pair
        with pair.lock:
            effects = Effects()
            if event is REVIVED:
                # With the state, under one lock: an executor that is killed before has ended.
                self._executors.clear()
                self.restarts += 1
                self.executor_reason = self.executor_exit = None
                apply(pair, event, effects)
            if pair.state is STARTING:
                if self._started is not None:
                    schedule_start(pair, effects)
                else:
                    schedule(pair, STARTED, effects)
        pair.conclude(effects)
        if pair.exit_reason is not None:  # it was stopped before it could start
            self._release_starter(self.dead_error())

    def started(self, slot: Any, generation: int) -> Any:
        """Note that `on_start` has returned; return what the slot does next."""
        pair = self._pair
        with pair.lock:
            if generation != pair.generation:
                return None  # a waiting starter now waits for another executor
            starter, self._started = self._started, None
        task = pair.next(slot, generation, STARTED)
        if starter is not None:
            starter.resolve()  # last: the starter finds the pair ready
        return task

    def start_failed(self, generation: int, reason: ExitReason) -> None:
        """Note that `on_start` raised or asked to stop. In the lane's thread."""
        pair = self._pair
        with pair.lock:
            if generation != pair.generation:
                return
            effects = Effects()
            self.executor_reason = reason
            if not (self.supervised and self.restarts) or pair.mode is not None:
                pair.exit_reason = reason
            cut_off(pair, effects)
            apply(pair, START_FAILED, effects)
        pair.conclude(effects)

    def _release_starter(self, error: BaseException) -> None:
        started, self._started = self._started, None
        if started is not None:
            started.resolve(error)

    # Failing.

    def crashed(self, generation: int, error: BaseException, batch: Batch | None = None) -> None:
        """Note that the job, a hook or the behaviour raised, and that no policy helped.

        Callers whose messages were in flight get the exception itself. An executor that was cut
        off is ignored: another one may be at work in its place. In the lane's thread.
        """
        pair = self._pair
        reason = Crash(error)
        lost = pair.core.in_flight
        with pair.lock:
            if generation != pair.generation:
                return
            effects = Effects()
            effects.error = error
            self.executor_reason = reason
            if not self.supervised or pair.mode is not None:
                pair.exit_reason = pair.exit_reason or reason
                pair.reject_all_pushes()
            apply(pair, CRASHED, effects)
        if not self.durable:  # its owner knows it by another name
            log.error(
                "worker crashed", worker=repr(pair), error=reason.text, failed=lost, exc_info=error
            )
        self._call_on_failure(error)
        if not effects.dead and self._trips():
            with pair.lock:
                parks = self.executor_exit is None and effects.incarnation == self.restarts
                if parks:
                    effects.executor_gone = False
                    apply(pair, TRIPPED, effects)
            if parks and pair.state is PARKED:
                log.error("worker parked", worker=repr(pair), error=reason.text)
                self.refuse_mail()
                self._try_later()
        try:
            pair.conclude(effects)
        finally:  # last: woken callers find the pair as the crash has left it
            if batch is not None and batch.tickets is not None:
                batch.resolve(error)

    def _call_on_failure(self, error: BaseException) -> None:
        if self.subject is None:
            return
        try:
            self.subject.on_failure(type(error), error, error.__traceback__)
        except BaseException as second:  # noqa: BLE001 - it ends regardless
            log.error(
                "on_failure failed", worker=repr(self._pair), error=brief(second), exc_info=second
            )

    def _trips(self) -> bool:
        """Count a crash; return whether it is one too many for the breaker."""
        breaker = self._pair.settings.breaker
        if breaker is None:
            return False
        if self._crashes is None:
            self._crashes = breaker.window()
        return not self._crashes.admit(self._pair.settings.clock.now())

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of the pair."""
        if self._letters is None:
            self._pair.refuse_own_functions()
            with self._pair.lock:
                if self._letters is None:
                    self._letters = DeadLetters(self._pair.actor_ref.push)
        return self._letters

    @property
    def dead_letter_count(self) -> int:
        """How many dead letters there are now."""
        return 0 if self._letters is None else len(self._letters)

    def resume(self) -> None:
        """Start a parked pair's executor again, forgetting its crashes.

        Raises:
            NotParked: it is not parked.

        """
        self._pair.refuse_own_functions()
        UNINTERRUPTIBLE.run(self._resume)

    def _try_later(self) -> None:
        """Start a parked pair on trial after a while, if its breaker says so."""
        settings = self._pair.settings
        wait = None if settings.breaker is None else settings.breaker.half_open
        if wait is not None:
            settings.clock.call_at(settings.clock.now() + wait, partial(self._try, self.restarts))

    def _try(self, restarts: int) -> None:
        """Start a pair on trial that is still parked. In the clock's thread."""
        pair, breaker = self._pair, self._pair.settings.breaker
        with pair.lock:
            if pair.state is not PARKED or restarts != self.restarts or breaker is None:
                return
            self._crashes = breaker.trial(pair.settings.clock.now())
            effects = Effects()
            apply(pair, RESUMED, effects)
        log.info("worker on trial", worker=repr(pair))
        pair.conclude(effects)

    def _resume(self) -> None:
        pair = self._pair
        with pair.lock:
            if pair.state is not PARKED:
                msg = f"{pair!r} is {pair.state.value}, not parked, so there is nothing to resume"
                raise NotParked(msg)
            self._crashes = None
            effects = Effects()
            apply(pair, RESUMED, effects)
        pair.conclude(effects)

    # Ending.

    def conclude(self, effects: Effects) -> None:
        """Notify everybody whom the last transition concerns. Outside the lock."""
        pair = self._pair
        if effects.dead:
            reason = pair.exit_reason or Normal()
            self.executor_reason = self.executor_reason or reason
            self._end_executor()
            self._die(reason)
            self._release_starter(self.dead_error())
        elif effects.executor_gone:
            self._executor_gone(effects.incarnation)
        error = effects.error or self.dead_error()
        for batch in effects.cut:
            if batch.tickets is not None:
                batch.resolve(error)
        if pair.core.refusals:
            pair.offers.report()

    def over(self) -> None:
        """Mark the pair as ended; notify watchers that were added just before."""
        self._over = True
        if self._watchers:
            UNINTERRUPTIBLE.run(self._notify, self._pair.exit_reason or Normal())

    def forked(self) -> None:
        """Mark the pair as dead in a forked child."""
        pair = self._pair
        if pair.exit_reason is None:
            self.executor_reason = self.executor_reason or FORKED
            pair.exit_reason = FORKED
            pair.mode = StopMode.NOW
            pair.enter(DEAD, STOP)
            if not pair.idle:
                pair.idle.append(pair)
            self._over = True
            for executor in self._executors.values():
                executor.forked()

    def final_reason(self) -> ExitReason:
        """Return why the pair ends, once it does."""
        return self.reason or Normal()

    def _executor_gone(self, incarnation: int) -> None:
        """Report the end of an executor, unless that has been done.

        As soon as `executor_exit` is set there may be another executor: all that belongs to the
        one that has ended is taken together with that.
        """
        pair = self._pair
        with pair.lock:
            if self.executor_exit is not None or incarnation != self.restarts:
                return
            if pair.state is PARKED:  # since it was killed, which parks nobody
                apply(pair, ABANDON, Effects())
            reason = self.executor_exit = self.executor_reason or Shutdown()
            executor = self._executors.get(incarnation)
            mail: deque[Any] = deque()
            with contextlib.suppress(IndexError):  # of a thread that refuses mail, too
                mail.extend(pair.mail.popleft() for _ in range(len(pair.mail)))  # type: ignore[union-attr] # fmt: skip
            starter, self._started = self._started, None
        error = partial(_error, f"the executor of {pair!r} has ended: {reason.describe()}", reason)
        if executor is not None:
            executor.refuse_asked()
        if mail:
            refuse(mail, error)
        if executor is not None:
            executor.die(reason)
        if self.executor_ended is not None:
            self.executor_ended(reason)
        if starter is not None:
            starter.resolve(error())

    def _end_executor(self) -> None:
        self.refuse_mail()
        executor = self._executors.get(self.restarts)
        if executor is not None:
            executor.die(self.executor_reason or Shutdown())

    def _die(self, reason: ExitReason) -> None:
        pair = self._pair
        error = self.dead_error()
        discarded = 0
        with pair.lock:
            pair.forget_timers()
            try:
                discarded = pair.core.abandon(error)
            except Exception as failure:  # noqa: BLE001 - a broken behaviour keeps nobody waiting
                pair.core.note_refusal((), failure)
            blocked = pair.offers.take_blocked()
        if pair.settings.name is not None:
            forget_name(pair.settings.name, pair.actor_ref)
        self.refuse_mail()
        for waiter in blocked:
            waiter.resolve(error)
        if discarded and not self.durable:
            log.warning("messages discarded", worker=repr(pair), count=discarded)
        pair.settings.lane.release()
        ACTORS.discard(pair)
        self._over = True
        self._notify(reason)
        if self._stopped is not None:  # last: a woken waiter finds all callbacks called
            self._stopped.set()

    def refuse_mail(self) -> None:
        """Refuse all callers that wait for an answer of the executor."""
        executor = self._executors.get(self.restarts)
        if executor is not None:
            executor.refuse_asked()
        if self._pair.mail:
            refuse(self._pair.mail, self.dead_error)

    def dead_error(self) -> WorkerStopped:
        """Return the error for callers who come too late."""
        pair = self._pair
        reason = pair.exit_reason
        if reason is not None:
            text = f"{pair!r} has ended: {reason.describe()}"
        elif pair.state in (ALONE, PARKED):
            reason = self.executor_reason
            ended = "killed" if reason is None else reason.describe()
            text = f"the executor of {pair!r} has ended: {ended}"
            if pair.state is PARKED:
                text = f"{pair!r} is parked after too many crashes; resume() starts it again"
        else:
            text = f"{pair!r} is stopping and takes no more messages"
        return _error(text, reason)

    # Watchers, and pykka's view of the pair.

    @property
    def executor(self) -> ExecutorActor:
        """The actor that stands for the present executor; made when somebody asks for it.

        Without the lock, because a behaviour's functions may ask for it.
        """
        pair, incarnation = self._pair, self.restarts
        executor = self._executors.get(incarnation)
        if executor is None:
            made = ExecutorActor(pair, self.subject)
            executor = self._executors.setdefault(incarnation, made)
        if pair.exit_reason is not None:
            executor.die(self.executor_reason or pair.exit_reason)
        elif self.executor_exit is not None or incarnation != self.restarts:
            executor.die(self.executor_exit or Shutdown())
        return executor

    def watch(self, notice: Notice) -> None:
        """Call `notice(ref, reason)` once: when the pair has ended, or now if it has."""
        self._watchers.add(notice)
        if self._over:
            self.over()

    def unwatch(self, notice: Notice) -> None:
        """Withdraw a `watch`. Harmless if `notice` is unknown or has been called."""
        self._watchers.discard(notice)

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches for the end."""
        return bool(self._watchers) or bool(self._executors)

    def _notify(self, reason: ExitReason) -> None:
        self._watchers.notify(self._pair.actor_ref, reason, self._report_notice)

    def _report_notice(self, error: BaseException) -> None:
        log.error("exit notice failed", worker=repr(self._pair), exc_info=error)

    @property
    def urn(self) -> str:
        """The unique name of the accumulator in pykka's registry."""
        if self._urn is None:
            self._urn = uuid.uuid4().urn
        return self._urn

    @property
    def stopped(self) -> threading.Event:
        """An event that is set once the pair has ended."""
        if self._stopped is None:
            self._stopped = threading.Event()
        if self._over:
            self._stopped.set()
        return self._stopped


def _error(text: str, reason: ExitReason | None) -> WorkerStopped:
    """Return the error for callers of a worker that has already ended with that reason."""
    if not isinstance(reason, Crash):
        return WorkerStopped(text)
    error = WorkerCrashed(text)
    error.__cause__ = reason.exception
    return error
