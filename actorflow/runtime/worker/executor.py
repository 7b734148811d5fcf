"""The executor: the half of a worker that calls the job, one batch at a time.

An executor is an actor whose messages are batches. It takes them from its accumulator; what
arrives by `tell`, `ask` or a proxy is served between two batches. Jobs come in three forms, all
of them an `Executor` in the end: a function `(batch, state) -> state`, a coroutine function of
the same shape, or a subclass with hooks.
"""

from __future__ import annotations

import inspect
from collections import deque
from functools import partial
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import pykka
from pykka import messages

from actorflow.runtime.actor.actor import CURRENT, FrameworkActor, Stop, reply
from actorflow.runtime.actor.mailbox import refuse
from actorflow.runtime.errors import (
    BadJob,
    StartFailed,
    WorkerCrashed,
    WorkerStopped,
)
from actorflow.runtime.exits import Crash, Killed
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.log import log
from actorflow.runtime.registry import ROSTER
from actorflow.runtime.worker.accumulation import Batch
from actorflow.runtime.worker.deferred import Deferred
from actorflow.runtime.worker.failure import Drop
from actorflow.runtime.worker.orders import Order, StopMode
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pykka._envelope import Envelope

    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.accumulation import Ticket
    from actorflow.runtime.worker.accumulator import Accumulator

__all__ = ["Executor"]

_RESERVED = (
    "begin", "bind", "current", "fail", "help", "is_cut_off", "needs_start", "park", "parked",
    "put", "refuse_mail", "report_failure", "run", "unpark",
)  # fmt: skip
_ROUNDS = 16  # batches that a worker processes before it lets others run


class Executor(FrameworkActor):
    """A job with hooks. Subclass it, implement `handle`, and `spawn` the class.

    The hooks run one at a time, in some thread of the worker's lane. If one of them is an
    `async def`, they all run on the event loop. Each may return or raise `Stop(reason)` to end
    the worker; any other exception is a crash, except one raised while answering an `ask`, which
    is the caller's (see `Actor.ask_failures`).
    """

    state: Any = None
    """What `spawn` was given as `state`; the executor may use it as it likes."""

    idle_timeout: float | None = None
    """Seconds without anything to do after which `on_idle` is called; see there."""

    parked: Crash | None = None
    """Why it was not started again after its crash: the breaker has tripped."""

    is_cut_off: bool = False
    """It has ended, or was left behind: its accumulator does not listen to it any more."""

    current: Batch | None = None
    """The batch, or the part of one, that `handle` was last called with."""

    _inbox: Any = ()
    """What is to be served before the next batch; a deque once there was something."""
    _asynchronous: bool = False
    _accumulator: Accumulator
    _reruns: bool = False  # what fails may be run again

    def __init__(self) -> None:
        """Prepare; do what can fail in `on_start`, from where it reaches whoever spawns."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if taken := [name for name in _RESERVED if name in cls.__dict__]:
            msg = (
                f"{cls.__name__}.{taken[0]} would replace what runs the executor; "
                f"name it differently, {taken[0]}_ for example"
            )
            raise BadJob(msg)
        hooks = ("on_start", "handle", "handle_message", "on_idle", "on_stop")
        cls._asynchronous = any(inspect.iscoroutinefunction(getattr(cls, hook)) for hook in hooks)

    def handle(self, batch: Any) -> Any:
        """Process one batch: a list, unless the behaviour hands over something else.

        If it raises, the worker crashes; those who wait for a message of this batch get the
        exception itself.
        """
        msg = f"{type(self).__name__} must define handle(self, batch)"
        raise BadJob(msg)

    def handle_message(self, message: Any) -> Any:
        """Answer what comes by `worker.executor.tell` or `.ask`, between two batches."""
        return super().on_receive(message)

    def on_receive(self, message: Any) -> Any:
        """Hand over to `handle_message`; that is the one to override."""
        return self.handle_message(message)

    def on_idle(self) -> Any:
        """React to `idle_timeout` seconds without work. By default the worker ends.

        It is called once for each stretch of idleness.
        """
        return Stop()

    # Scheduling.

    def bind(self, accumulator: Accumulator) -> None:
        """Join the accumulator: it schedules, with one token for both."""
        self._accumulator = accumulator
        self._idle = accumulator.idle
        self.lane = accumulator.lane
        self._reruns = not isinstance(accumulator.policy, Drop)

    def put(self, envelope: Envelope[Any]) -> None:
        """Put an envelope in; it is served before the next batch. Any thread. O(1)."""
        if self._is_over():
            raise self.dead_error()
        if type(self._inbox) is tuple:
            with self._accumulator.lock:
                if type(self._inbox) is tuple:
                    self._inbox = deque()
        self._inbox.append(envelope)
        self._accumulator.call_executor()
        if self._is_over():
            self.refuse_mail()  # it ended just now: nobody else looks at the inbox

    def _is_over(self) -> bool:
        if self.exit_reason is not None or self.parked is not None:
            return True
        return self._accumulator.exit_reason is not None  # cut off, with a job that still runs

    def _claim_death(self, reason: ExitReason) -> bool:
        with self._accumulator.lock:
            if self.exit_reason is not None:
                return False
            self.exit_reason = reason
            self.is_cut_off = True
            return True

    def _cut_off(self) -> None:
        self.refuse_mail()

    def refuse_mail(self) -> None:
        """Tell all who wait for an answer that none will come. Any thread."""
        self._refuse_asked()
        if self._inbox:
            refuse(self._inbox, self.dead_error)

    def kill(self) -> None:
        """End at once. Any thread."""
        self.die(Killed(abandoned=not self._idle))

    def begin(self, started: Ticket) -> None:
        """Enter the roster and run `on_start` in the lane; `started` hears how that went."""
        ROSTER.add(self)
        self.lane.submit(_Steps(self, partial(self._start, started)))

    @property
    def needs_start(self) -> bool:
        """Whether there is an `on_start` to run."""
        return type(self).on_start is not pykka.Actor.on_start

    def run(self) -> None:
        """Process batches, for a while. Only the lane calls this; the token is out."""
        if self._asynchronous:
            self._drive(self._work())
            return
        before = CURRENT.set(self)
        try:
            self._work_now()
        except BaseException as error:  # noqa: BLE001 - of a behaviour, after the job
            self._crash(error)
        finally:
            CURRENT.reset(before)

    def _work_now(self) -> None:
        """Do as `_work`, at a third of its cost, for as long as nothing but batches comes up."""
        accumulator = self._accumulator
        step = accumulator.first_step(self) or accumulator.next_step(self)
        for _ in range(_ROUNDS):
            if step is None:
                return
            if type(step) is not Batch or self._inbox:
                self._drive(self._work(step))
                return
            if not self._process_now(step):
                return
            batch, step = step, accumulator.next_step(self)
            # Told last: who waits finds the worker idle, and this thread about to sleep, so that
            # the two do not fight over the interpreter lock.
            if batch.tickets is not None:
                batch.resolve()
        if step is not None:
            accumulator.postpone(self, step)
            self.lane.submit(self)

    def _process_now(self, batch: Batch) -> bool:
        """Call the job without a generator; tell whether it went as jobs usually go.

        Then those who wait for the batch are still to be told.
        """
        self.current = batch
        begin = perf_counter()
        try:
            outcome = self.handle(self._given(batch) if self._reruns else batch.payload)
        except BaseException as error:  # noqa: BLE001 - every way out of a job ends here
            self._drive(self._work_on(batch, begin, error))
            return False
        if outcome is not None:
            if type(outcome) is CoroutineType:
                outcome = _never_awaited(self, outcome)
            if type(outcome) is Deferred:
                outcome.then(partial(self._finish_later, batch, begin))
                return False
            if isinstance(outcome, (Stop, BadJob)):
                self._drive(self._work_on(batch, begin, outcome))
                return False
        if self.exit_reason is not None:
            return False  # it was cut off meanwhile, and all have been told
        self._accumulator.finished(batch, begin)
        return True

    def _finish_later(self, batch: Batch, begin: float, error: BaseException | None) -> None:
        """Finish a batch that a `Deferred` has held up, in the thread that resolves it.

        The lane is needed only for what there is to run: the next batch, or another attempt.
        """
        if error is not None:
            self.lane.submit(_Steps(self, lambda: self._work_on(batch, begin, error)))
        elif self.exit_reason is None:
            try:
                self._processed(batch, begin, None)
                self._accumulator.proceed(self)
            except BaseException as failure:  # noqa: BLE001 - of a behaviour, after the job
                self._crash(failure)

    @staticmethod
    def _given(batch: Batch) -> Any:
        """Give a copy of what may be run again: a job may empty its batch before it raises."""
        return batch.payload[:] if type(batch.payload) is list else batch.payload

    def help(self, batch: Batch) -> None:
        """Process one batch in the thread of a caller who waits for it (`help=True`)."""
        before = CURRENT.set(self)
        self.current = batch
        begin = perf_counter()
        try:
            try:
                outcome = self.handle(self._given(batch) if self._reruns else batch.payload)
            except BaseException as error:  # noqa: BLE001 - every way out of a job ends here
                outcome = error
            if isinstance(outcome, (BaseException, Deferred)):
                self._drive(self._help_on(batch, begin, outcome))
                return
            try:
                self._processed(batch, begin, None)
            finally:  # Ctrl-C lands in the caller's thread, and may do so after the job
                if self.exit_reason is None:
                    self._accumulator.proceed(self)
        finally:
            CURRENT.reset(before)

    def _drive(self, steps: Generator[Any, Any, None]) -> None:
        """Run the steps to their end. They yield what is to be awaited, or a `Deferred`."""
        if self._asynchronous:
            LOOP.spawn(partial(self._drive_async, steps))
            return
        before = CURRENT.set(self)
        try:
            for deferred in steps:
                deferred.then(partial(self._go_on_later, steps))
                return
        except BaseException as error:  # noqa: BLE001 - of a policy or behaviour, after the job
            self._crash(error)
        finally:
            CURRENT.reset(before)

    def _go_on_later(self, steps: Generator[Any, Any, None], error: BaseException | None) -> None:
        """Go on in the lane with steps that a `Deferred` has held up."""
        if error is not None:
            steps = _raising(steps, error)
        self.lane.submit(_Steps(self, lambda: steps))

    async def _drive_async(self, steps: Generator[Any, Any, None]) -> None:
        CURRENT.set(self)
        try:
            value = next(steps)
            while True:
                try:
                    if inspect.isawaitable(value):
                        value = await value
                except BaseException as error:  # noqa: BLE001 - the steps know what to do
                    value = steps.throw(error)
                else:
                    value = steps.send(value)
        except StopIteration:
            return
        except BaseException as error:  # noqa: BLE001 - as in `_drive`
            self._crash(error)

    # What the executor does. Each `yield` gives a hook's result to be awaited on the loop.

    def _start(self, started: Ticket) -> Generator[Any, Any, None]:
        reason: ExitReason | None = None
        try:
            outcome: Any = self.on_start()  # type: ignore[func-returns-value]
            if self._asynchronous:
                outcome = yield outcome
            if isinstance(outcome, Stop):
                reason = outcome.reason
        except Stop as stop:
            reason = stop.reason
        except BaseException as error:  # noqa: BLE001 - given to whoever starts it
            reason = Crash(error)
        if reason is not None:
            self.die(reason)
            failure = StartFailed(self.title, reason.describe())
            failure.__cause__ = reason.exception if isinstance(reason, Crash) else None
            started.resolve(failure)
            return
        self._accumulator.proceed(self)  # idle before the starter goes on and pushes
        started.resolve()

    def _work_on(self, batch: Batch, begin: float, outcome: Any) -> Generator[Any, Any, None]:
        """Go on with a batch whose job raised, wants to stop, or finishes later; then work."""
        yield from self._settle(batch, begin, outcome)
        if self.exit_reason is None:
            yield from self._work()

    def _help_on(self, batch: Batch, begin: float, outcome: Any) -> Generator[Any, Any, None]:
        """Do as `_work_on`, but leave what comes next to the lane."""
        try:
            yield from self._settle(batch, begin, outcome)
        finally:
            if self.exit_reason is None:
                self._accumulator.proceed(self)

    def _settle(self, batch: Batch, begin: float, outcome: Any) -> Generator[Any, Any, None]:
        """Finish a batch whose job raised (`outcome` is what), wants to stop, or needs time."""
        try:
            if isinstance(outcome, Deferred):
                outcome = yield outcome
        except BaseException as failure:  # noqa: BLE001 - as if the job had raised it
            outcome = failure
        if isinstance(outcome, BaseException) and not isinstance(outcome, Stop):
            yield from self._recover(batch, outcome)
        else:
            self._processed(batch, begin, outcome)

    def _work(self, step: Any = None) -> Generator[Any, Any, None]:
        accumulator = self._accumulator
        if step is None:
            step = accumulator.first_step(self)
        for _ in range(_ROUNDS):
            if self._inbox:
                yield from self._serve()
            if self.exit_reason is not None:
                return
            if step is None:
                step = accumulator.next_step(self)
                if step is None:
                    return
            if type(step) is Batch:
                error = yield from self._process(step)
                if error is not None:
                    yield from self._recover(step, error)
            else:
                yield from self._obey(step)
            step = None
        if self.exit_reason is None:
            self.lane.submit(self)

    def _obey(self, order: Any) -> Generator[Any, Any, None]:
        """Do what the accumulator says besides giving a batch."""
        if isinstance(order, Exception):
            self._crash(order)
        elif order is Order.IDLE:
            yield from self._call(self.on_idle)
        elif order is Order.END:
            yield from self._end()

    def _process(self, batch: Batch) -> Generator[Any, Any, BaseException | None]:
        """Call the job, and tell those who wait; give what it raised."""
        self.current = batch
        begin = perf_counter()
        try:
            outcome = self.handle(self._given(batch) if self._reruns else batch.payload)
            if self._asynchronous or type(outcome) is Deferred:
                outcome = yield outcome
        except Stop as stop:
            outcome = stop
        except BaseException as error:  # noqa: BLE001 - every way out of a job ends here
            return error
        self._processed(batch, begin, outcome)
        return None

    def _processed(self, batch: Batch, begin: float, outcome: Any) -> None:
        """Account for a batch whose job has returned."""
        if self.exit_reason is None:  # else it was cut off meanwhile, and all have been told
            self._accumulator.finished(batch, begin)
            batch.resolve()
            if isinstance(outcome, Stop):
                self._accumulator.stop_from_within(self, outcome.reason)

    def _recover(self, batch: Batch, error: BaseException) -> Generator[Any, Any, None]:
        """Deal with a batch that failed, as the policy says."""
        todo = self._instead(batch, error)
        while todo:
            part = todo.pop()
            failure = yield from self._process(part)
            if failure is not None:
                todo.extend(self._instead(part, failure))
            if self.exit_reason is not None or self._accumulator.exit_reason is not None:
                for lost in (part, *reversed(todo)):
                    lost.resolve(failure or error)
                return

    def _instead(self, batch: Batch, error: BaseException) -> list[Batch]:
        """Find what to run instead of a batch that failed, last part first."""
        if self.exit_reason is not None:
            return []
        policy = self._accumulator.policy
        batch.failures += 1
        contained = isinstance(error, Exception)  # SystemExit and the like always end it
        parts = policy.parts(batch) if contained else None
        if parts:
            return parts[::-1]
        if policy.buries and contained:
            self._accumulator.bury(batch, error)
        else:
            self._accumulator.executor_crashed(self, batch, error)
        return []

    def _serve(self) -> Generator[Any, Any, None]:
        """Answer what came by `tell`, `ask` or a proxy."""
        while self._inbox and self.exit_reason is None:
            envelope = self._inbox.popleft()
            reply_to = envelope.reply_to
            if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001
                self._accumulator.stop_asked(reply_to)
                continue
            self._asked = reply_to
            try:
                answer = self._handle_receive(envelope.message)
                if self._asynchronous:
                    answer = yield answer
                if isinstance(answer, Stop):
                    raise answer  # noqa: TRY301 - returned or raised, it means the same
            except Stop as stop:
                self._asked = None
                self._accumulator.stop_from_within(self, stop.reason)
                self._accumulator.stop_asked(reply_to)
            except BaseException as error:  # noqa: BLE001 - the caller's, or a crash
                self._asked = None
                self._answer_with(reply_to, error)
            else:
                self._asked = None
                if reply_to is not None:
                    reply(reply_to, answer)

    def _call(self, hook: Callable[[], Any]) -> Generator[Any, Any, None]:
        """Call a hook outside of any batch."""
        try:
            outcome = hook()
            if self._asynchronous:
                outcome = yield outcome
        except Stop as stop:
            outcome = stop
        except BaseException as error:  # noqa: BLE001 - a hook that raises is a crash
            self._accumulator.executor_crashed(self, None, error)
            return
        if isinstance(outcome, Stop):  # what has arrived meanwhile is not lost
            self._accumulator.stop_from_within(self, outcome.reason, StopMode.DRAIN)

    def _end(self) -> Generator[Any, Any, None]:
        """Run `on_stop`, then tell the accumulator that this is the end."""
        try:
            outcome: Any = self.on_stop()  # type: ignore[func-returns-value]
            if self._asynchronous:
                yield outcome
        except BaseException as error:  # noqa: BLE001 - it ends all the same
            log.error("on_stop failed", actor=self.title, error=brief(error), exc_info=error)
        self._accumulator.ended(self)

    def _crash(self, error: BaseException) -> None:
        self._accumulator.executor_crashed(self, None, error)

    def park(self, reason: Crash) -> None:
        """Put the death off, and so the restart, until `unpark`: the breaker has tripped."""
        self.is_cut_off = True
        self.parked = reason
        self.refuse_mail()

    def unpark(self) -> None:
        """Die after all, so that the supervisor hears of it."""
        if self.parked is not None:
            self.die(self.parked)

    def dead_error(self) -> WorkerStopped:
        """Make the error for those who come too late, or while the executor is parked."""
        if self.exit_reason is None and self.parked is not None:
            error = WorkerCrashed(f"{self!r} is parked after too many crashes")
            error.__cause__ = self.parked.exception
            return error
        if self.exit_reason is None:
            return self._accumulator.dead_error()
        return super().dead_error()

    def report_failure(self, error: BaseException) -> None:
        """Call `on_failure`, whatever it does. In the lane's thread."""
        try:
            self.on_failure(type(error), error, error.__traceback__)
        except BaseException as second:  # noqa: BLE001 - it ends all the same
            log.error("on_failure failed", actor=self.title, error=brief(second), exc_info=second)


def _never_awaited(executor: Executor, coroutine: Any) -> BadJob:
    coroutine.close()
    name = type(executor).__name__
    return BadJob(f"{name}.handle returned a coroutine: write `async def handle(self, batch)`")


class _Steps:
    """Runs some steps of an executor in its lane."""

    __slots__ = ("_executor", "_make")

    def __init__(self, executor: Executor, make: Callable[[], Generator[Any, Any, None]]) -> None:
        self._executor = executor
        self._make = make

    def run(self) -> None:
        """Run them. Only the lane calls this."""
        self._executor._drive(self._make())  # noqa: SLF001


def _raising(steps: Generator[Any, Any, None], error: BaseException) -> Generator[Any, Any, None]:
    """Go on with steps by raising an exception where they wait."""
    try:
        value = steps.throw(error)
    except StopIteration:
        return
    while True:
        sent = yield value
        try:
            value = steps.send(sent)
        except StopIteration:
            return
