"""Workers: an executor fronted by an accumulator, and the ref by which one talks to them."""

from __future__ import annotations

import atexit
import math
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from actorflow.runtime.actor.actor import CURRENT, Ref
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import (
    BadOption,
    Full,
    PushTimeout,
    StopTimeout,
    WorkerCrashed,
    WouldDeadlock,
    near,
    refuse_unhashable,
)
from actorflow.runtime.exits import Crash
from actorflow.runtime.log import log
from actorflow.runtime.registry import ROSTER, forget_name, take_name
from actorflow.runtime.worker.accumulator import FOLD_AT, Accumulator
from actorflow.runtime.worker.failure import Breaker, failure_policy
from actorflow.runtime.worker.jobs import executor_maker, lane_for
from actorflow.runtime.worker.orders import StopMode
from actorflow.runtime.worker.tickets import AsyncTicket, ThreadTicket
from behaviours import Queue, Throttle
from behaviours.arguments import seconds
from behaviours.base import adapt
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from types import TracebackType
    from typing import Self

    from actorflow.runtime.clock import Clock
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.lanes.lane import Lane
    from actorflow.runtime.worker.executor import Executor
    from actorflow.runtime.worker.failure import DeadLetters, FailurePolicy
    from actorflow.runtime.worker.metrics import WorkerStatistics
    from actorflow.runtime.worker.orders import WorkerStatus
    from behaviours.base import Behaviour

__all__ = ["DEFAULT_TIMEOUT", "Worker", "WorkerRef", "spawn"]

DEFAULT_TIMEOUT: Any = object()
"""Says that a caller of `push_block` gave no timeout: what that means depends on the worker."""
_TIMEOUT = 5.0  # seconds that a caller waits unless it says otherwise


class WorkerRef(Ref[Accumulator]):
    """The ref of a running worker: push messages, stop it, look at it. Safe in any thread.

    Get one from `spawn`. It is a `pykka.ActorRef` of the accumulator; `executor` is the ref of
    the other half.
    """

    __slots__ = ("_help", "_idle", "_items")

    def __init__(self, accumulator: Accumulator, *, help: bool = False) -> None:  # noqa: A002
        self.actor = accumulator
        self.actor_class = Accumulator
        self._items = accumulator.core.raw
        self._idle = accumulator.idle
        self._help = help

    # Messages.

    def push(self, message: Any) -> None:
        """Send a message and go on: it is processed some time, or counted as rejected. O(1).

        An idle worker takes it at once, alone. A busy one accumulates it.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        self._items.append(message)
        if self._idle:
            self.actor.wake((message,))

    def push_many(self, messages: Iterable[Any]) -> None:
        """Send many messages at once; an idle worker gets them as one batch.

        Raises:
            WorkerStopped: the worker has ended, or is stopping.

        """
        messages = list(messages)
        if not messages:
            return
        self._items.extend(messages)
        if self._idle:
            self.actor.wake(messages)

    def push_ack(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Send a message and return once it is accumulated.

        The timeout matters only for a behaviour that makes pushers wait (`when_full="block"`).

        Raises:
            Rejected: the behaviour refuses it: bound reached, or malformed.
            WorkerStopped: the worker has ended, or is stopping.

        """
        self.actor.offer(message, None, timeout)

    def push_block(self, message: Any, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Send a message and return once the batch that holds it was processed.

        The default timeout is 5 seconds, or none where the worker was spawned with `help=True`.

        Raises:
            Exception: what the job raised on that batch.
            Displaced: the message was replaced, dropped or has expired, so it never will be.
            Rejected: the behaviour refuses it.
            PushTimeout: not in time; the message stays accumulated and will be processed.
            WorkerStopped: the worker ended before it processed the message.
            WouldDeadlock: called from the worker's own job.

        """
        accumulator = self.actor
        if CURRENT.get() is accumulator.executor:
            msg = f"{accumulator!r} would wait for itself: its own job calls push_block"
            raise WouldDeadlock(msg)
        ticket = ThreadTicket()
        if timeout is DEFAULT_TIMEOUT:
            timeout = None if self._help else _TIMEOUT
        left = timeout
        if self._help and timeout is None:
            accumulator.offer_and_help(message, ticket)
        else:
            left = accumulator.offer(message, ticket, timeout)
        if not accumulator.lane.wait(ticket, left):
            msg = (
                f"{accumulator!r} did not process {brief(message)} within {timeout} s; "
                "it stays accumulated"
            )
            raise PushTimeout(msg)
        if ticket.error is not None:
            raise ticket.error

    async def apush_ack(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Do as `push_ack`, from a task of any event loop."""
        await self._aoffer(message, None, timeout)

    async def apush_block(self, message: Any, timeout: float | None = _TIMEOUT) -> None:
        """Do as `push_block`, from a task of any event loop."""
        accumulator = self.actor
        if CURRENT.get() is accumulator.executor:
            msg = f"{accumulator!r} would wait for itself: its own job calls apush_block"
            raise WouldDeadlock(msg)
        ticket = AsyncTicket()
        left = await self._aoffer(message, ticket, timeout)
        if not await ticket.wait(left):
            msg = (
                f"{accumulator!r} did not process {brief(message)} within {timeout} s; "
                "it stays accumulated"
            )
            raise PushTimeout(msg)

    async def _aoffer(self, message: Any, ticket: Any, timeout: float | None) -> float | None:
        """Do as `Accumulator.offer`, for a task."""
        begin = None
        left = timeout
        while (waiter := self.actor.try_offer(message, ticket, AsyncTicket)) is not None:
            if begin is None:
                begin = time.monotonic()
            try:
                in_time = await waiter.wait(left)
            finally:
                self.actor.forget_blocked(waiter)
            if not in_time:
                raise Full(len(self.actor.core.behaviour))
            if timeout is not None:
                left = timeout - (time.monotonic() - begin)
        return left

    # Looking at it.

    @property
    def name(self) -> Hashable | None:
        """The name it was spawned under."""
        return self.actor.name

    @property
    def executor(self) -> Ref[Executor]:
        """The ref of the executor: `tell`, `ask` and `proxy()` reach it between two batches."""
        ref: Ref[Executor] = self.actor.executor.actor_ref
        return ref

    @property
    def exit_reason(self) -> ExitReason | None:
        """Why it ended; `None` while it lives."""
        return self.actor.exit_reason

    def statistics(self) -> WorkerStatistics:
        """Take a picture of the worker: counts, batch sizes, depth, latency. O(1)."""
        return self.actor.statistics()

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that `Isolate` found to be poison: read, retry or purge them."""
        return self.actor.dead_letters()

    @property
    def status(self) -> WorkerStatus:
        """What the worker is doing."""
        return self.actor.status

    def resume(self) -> None:
        """Start a parked worker's executor again.

        Raises:
            NotParked: the worker is not parked.

        """
        self.actor.resume()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do at this very moment. O(1), without a lock."""
        return bool(self._idle)

    def __len__(self) -> int:
        """Count what is accumulated now."""
        with self.actor.lock:
            return len(self.actor.core)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        reason = self.actor.exit_reason
        return f"<{self.actor!r}{'' if reason is None else ', ended: ' + reason.describe()}>"

    # Ending.

    def stop(  # type: ignore[override]
        self,
        *,
        drain: bool | None = None,
        now: bool = False,
        timeout: float | None = None,
        block: bool = True,
    ) -> bool:
        """Stop the worker; tell whether it was still there.

        Args:
            drain: process what is accumulated first (the default); `False` finishes the current
                batch only and discards the rest.
            now: do not even wait for the current batch: those who wait are told, the job runs
                to its end in its thread, cut off.
            timeout: seconds to wait; when they are up, it is stopped now.
            block: `False` returns at once and the worker stops by itself.

        Raises:
            StopTimeout: it did not end in time, so it was cut off.

        """
        mode = StopMode.asked_for(drain=drain, now=now)
        accumulator = self.actor
        ended = ThreadTicket()
        there = accumulator.request_stop(mode)
        if not block or CURRENT.get() is accumulator.executor:
            return there
        accumulator.watch(lambda _actor, _reason: ended.resolve())
        if not accumulator.lane.wait(ended, timeout):
            left = len(accumulator.core)
            accumulator.request_stop(StopMode.NOW)
            msg = f"{accumulator!r} did not stop within {timeout} s; cut off with {left} messages"
            raise StopTimeout(msg)
        return there

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drain and stop. If the worker has crashed, say so, unless something else is raised."""
        self.stop()
        reason = self.actor.exit_reason
        if kind is None and isinstance(reason, Crash):
            crashed = WorkerCrashed(f"{self.actor!r} has ended: {reason.describe()}")
            raise crashed from reason.exception


class FoldingWorkerRef(WorkerRef):
    """A worker whose behaviour stays small: a long raw inbox is folded by who made it long."""

    __slots__ = ()

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`."""
        items = self._items
        items.append(message)
        if self._idle:
            self.actor.wake((message,))
        elif len(items) > FOLD_AT:
            self.actor.fold_early()

    def push_many(self, messages: Iterable[Any]) -> None:
        """See `WorkerRef.push_many`."""
        super().push_many(messages)
        if len(self._items) > FOLD_AT:
            self.actor.fold_early()


class EagerWorkerRef(WorkerRef):
    """A worker whose behaviour must see each message at once: its time, or whether it fits."""

    __slots__ = ()

    def push(self, message: Any) -> None:
        """See `WorkerRef.push`. Where the behaviour says so, it waits for room."""
        self.actor.push_eagerly(message)

    def push_many(self, messages: Iterable[Any]) -> None:
        """See `WorkerRef.push_many`."""
        for message in messages:
            self.actor.push_eagerly(message)


def _ref_class(behaviour: Behaviour) -> type[WorkerRef]:
    traits = behaviour.traits
    if traits.stamped or traits.blocks:
        return EagerWorkerRef
    return FoldingWorkerRef if traits.shrinks or traits.bounded else WorkerRef


def spawn(
    job: Callable[[Any, Any], Any] | type[Executor],
    *,
    state: Any = None,
    behaviour: Any = Queue,
    name: Hashable | None = None,
    throttle: float | None = None,
    executor: str | Lane = "pool",
    help: bool = False,  # noqa: A002 - the word of the contract
    idle_timeout: float | None = None,
    on_failure: Any = "drop",
    breaker: Breaker | None = None,
    verbose: bool = False,
    clock: Clock = SYSTEM,
) -> WorkerRef:
    """Start a worker: an executor that runs `job`, fronted by an accumulator.

    Args:
        job: a function `(batch, state) -> state`, a coroutine function of that shape, or an
            `Executor` subclass.
        state: the first state; a subclass finds it as `self.state`.
        behaviour: how messages accumulate: an instance, a class or a factory.
        name: a name to find it by with `whereis`.
        throttle: seconds from the start of one call to the start of the next, at least.
        executor: `"pool"`, or `"thread"` for a thread of its own (or a lane, in tests).
        help: let a caller of `push_block` without timeout run an idle worker's batch itself.
        idle_timeout: seconds without work after which `Executor.on_idle` is called, which by
            default ends the worker.
        on_failure: what becomes of a batch whose job raised: `"drop"`, `"retry"`, `"isolate"`,
            or `Drop()`, `Retry(n)`, `Isolate(retries=n)`, or a policy of your own.
        breaker: park the worker when its executor crashes too often (supervised workers).
        verbose: log each batch at debug level.
        clock: where time comes from; tests give a virtual one.

    Raises:
        BadJob, BadBehaviour, BadOption: something cannot work; the message shows the right call.
        AlreadyStarted: a worker of that name is running.
        StartFailed: the executor's `on_start` raised or asked to stop.

    """
    worker = make(
        job, state=state, behaviour=behaviour, name=name, throttle=throttle, executor=executor,
        help=help, idle_timeout=idle_timeout, on_failure=on_failure, breaker=breaker,
        verbose=verbose, clock=clock,
    )  # fmt: skip
    launch(worker)
    return worker


def make(
    job: Any,
    *,
    state: Any,
    behaviour: Any,
    name: Hashable | None,
    throttle: float | None,
    executor: str | Lane,
    help: bool,  # noqa: A002
    idle_timeout: float | None,
    on_failure: Any,
    breaker: Breaker | None,
    verbose: bool,
    clock: Clock,
) -> WorkerRef:
    """Check the options and make a worker that is not started yet. See `spawn`."""
    maker, policy, lane = _checked(
        job, name=name, throttle=throttle, executor=executor, help=help,
        idle_timeout=idle_timeout, on_failure=on_failure, breaker=breaker,
    )  # fmt: skip
    # Last, so that a call that is refused leaves the behaviour free for another.
    adapted = adapt(behaviour if throttle is None else Throttle(behaviour, throttle))
    accumulator = Accumulator(
        adapted, maker, job, state=state, lane=lane, clock=clock, name=name, policy=policy
    )
    if idle_timeout is not None:
        accumulator.idle_timeout = idle_timeout
    if breaker is not None:
        accumulator.breaker = breaker
    if verbose:
        accumulator.verbose = True
    worker = accumulator._ref = _ref_class(adapted)(accumulator, help=help)  # noqa: SLF001
    return worker


def _checked(
    job: Any,
    *,
    name: Hashable | None,
    throttle: float | None,
    executor: str | Lane,
    help: bool,  # noqa: A002
    idle_timeout: Any,
    on_failure: Any,
    breaker: Any,
) -> tuple[Callable[[Any], Executor], FailurePolicy, Lane]:
    """Refuse options that cannot work; give what those stand for that can."""
    maker = executor_maker(job)
    if throttle is not None:
        seconds(throttle, "throttle", "spawn(job, throttle=0.5)")
    if idle_timeout is not None:
        number = isinstance(idle_timeout, (int, float)) and not isinstance(idle_timeout, bool)
        if not (number and 0 < idle_timeout < math.inf):
            msg = (
                f"idle_timeout={idle_timeout!r} must be a positive number of seconds, "
                "as in spawn(job, idle_timeout=60.0)"
            )
            raise BadOption(msg)
    if breaker is not None and not isinstance(breaker, Breaker):
        msg = f"breaker={breaker!r} must be a Breaker, as in breaker=Breaker(failures=5)"
        raise BadOption(msg)
    if name is not None:
        refuse_unhashable(name, "name")
    policy = failure_policy(on_failure)
    lane = lane_for(executor, job, maker, name)
    if help and not lane.can_help:
        msg = "help=True lets callers run the job, which needs executor='pool' and a plain function"
        raise BadOption(msg)
    return maker, policy, lane


@atexit.register
def _report_lost() -> None:
    """Say what is lost when the program ends without stopping its workers."""
    for actor in ROSTER.members():
        lost = len(actor.core) if isinstance(actor, Accumulator) else 0
        if lost and not actor.durable:
            log.warning(
                "messages lost at exit: stop the worker, or use it in a with block",
                worker=repr(actor),
                count=lost,
            )


def launch(worker: WorkerRef) -> None:
    """Start a worker that `make` has made, under its name if it has one."""
    name = worker.name
    if name is not None:
        take_name(name, worker)
    try:
        worker.actor.launch()
    except BaseException:
        if name is not None:
            forget_name(name, worker)
        raise


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a server needs to know to start one of its workers: an id, a job, and `spawn`'s options.

    >>> Worker("doubler", lambda batch, total: total + 2 * sum(batch), state=0).id
    'doubler'
    """

    id: Hashable
    job: Any
    state: Any = None
    behaviour: Any = Queue
    throttle: float | None = None
    executor: str | Lane = "pool"
    name: Hashable | None = None
    help: bool = False
    idle_timeout: float | None = None
    on_failure: Any = "drop"
    breaker: Breaker | None = None
    verbose: bool = False
    clock: Clock = SYSTEM

    def __init__(self, id: Hashable, job: Any, **options: Any) -> None:  # noqa: A002
        known = {field.name: field.default for field in fields(Worker)}
        for option in options:
            if option not in known or option in ("id", "job"):
                msg = f"Worker has no option {option!r}{near(option, list(known)[2:])}"
                raise BadOption(msg)
        refuse_unhashable(id, "id")
        for name, value in {**known, **options, "id": id, "job": job}.items():
            object.__setattr__(self, name, value)
        _checked(
            job, name=self.name, throttle=self.throttle, executor=self.executor, help=self.help,
            idle_timeout=self.idle_timeout, on_failure=self.on_failure, breaker=self.breaker,
        )  # fmt: skip

    def __call__(self) -> WorkerRef:
        """Spawn it, alone."""
        return spawn(self.job, **self.options())

    def with_options(self, **options: Any) -> Worker:
        """Give the same worker with other options."""
        return Worker(self.id, self.job, **{**self.options(), **options})

    def options(self) -> dict[str, Any]:
        """Give the options as `spawn` takes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)[2:]}
