"""Starting workers: `spawn`, and `Worker`, which describes one that is started later."""

from __future__ import annotations

import atexit
import copy
from typing import TYPE_CHECKING, Any, overload

from actorflow.behaviours.adapt import Base
from actorflow.behaviours.behaviour import Behaviour
from actorflow.behaviours.errors import brief
from actorflow.runtime import tracing
from actorflow.runtime.errors import BadOption, refuse_unhashable
from actorflow.runtime.fork import after_fork
from actorflow.runtime.log import log
from actorflow.runtime.registry import ACTORS, forget_name, take_name
from actorflow.runtime.worker.options import (
    DEFAULTS,
    OptionsWithoutState,
    Settings,
    WorkerOptions,
    accumulation_of,
    check_known,
    settings_of,
)
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.ref_variants import ref_class

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from typing import Never, Protocol, TypeAlias, Unpack

    from typing_extensions import TypeVar

    from actorflow.runtime.worker.job.answers import Answers
    from actorflow.runtime.worker.job.executor import Executor
    from actorflow.runtime.worker.ref import WorkerRef

    M = TypeVar("M", default=Any)
    A = TypeVar("A", default=Any)
    S = TypeVar("S", default=Any)

    Answered: TypeAlias = Answers[S, A] | Awaitable[Answers[S, A]]

    A_co = TypeVar("A_co", covariant=True, default=Any)

    class Answering(Protocol[M, A_co]):
        """An executor whose `handle` answers."""

        def handle(self, batch: list[M], /) -> Answered[Any, A_co]:
            """See `Executor.handle`."""
            ...

    class Handling(Protocol[M]):
        """An executor with a batch of known messages."""

        def handle(self, batch: list[M], /) -> object:
            """See `Executor.handle`."""
            ...


__all__ = ["Worker", "launch", "make", "spawn"]


# The first overload that fits gives the type of the ref: jobs that answer come first, and last
# those whose behaviour makes something else of a batch than a list. The type of the state is that
# of the job's second parameter, and `None` where no state is given.
@overload
def spawn(
    job: Callable[[list[M], S], Answered[S, A]],
    *,
    state: S,
    **options: Unpack[OptionsWithoutState],
) -> WorkerRef[M, A]: ...
@overload
def spawn(
    job: Callable[[list[M], None], Answered[None, A]], **options: Unpack[OptionsWithoutState]
) -> WorkerRef[M, A]: ...
@overload
def spawn(
    job: Callable[[list[M], S], object], *, state: S, **options: Unpack[OptionsWithoutState]
) -> WorkerRef[M, Any]: ...
@overload
def spawn(
    job: Callable[[list[M], None], object], **options: Unpack[OptionsWithoutState]
) -> WorkerRef[M, Any]: ...
@overload
def spawn(
    job: Callable[[Any, S], object], *, state: S, **options: Unpack[OptionsWithoutState]
) -> WorkerRef: ...
@overload
def spawn(
    job: Callable[[Any, None], object], **options: Unpack[OptionsWithoutState]
) -> WorkerRef: ...
@overload
def spawn(
    job: Callable[[], Answering[M, A]], **options: Unpack[WorkerOptions]
) -> WorkerRef[M, A]: ...
@overload
def spawn(
    job: Callable[[], Handling[M]], **options: Unpack[WorkerOptions]
) -> WorkerRef[M, Any]: ...
@overload
def spawn(job: Callable[[], Executor], **options: Unpack[WorkerOptions]) -> WorkerRef: ...
def spawn(
    job: Callable[[Any, Any], Any] | type[Executor] | Callable[[], Any],
    *positional: Never,
    **options: Unpack[WorkerOptions],
) -> WorkerRef:
    """Start a worker: an executor that runs `job`, fronted by an accumulator.

    The job is a function `(batch, state) -> state`, a coroutine function of that shape, or an
    `Executor` subclass. Options are given by name:

    - `state` (None): the first state; an `Executor` finds it as `self.state`.
    - `behaviour` (`Queue`): how messages accumulate: an instance, a class or a factory.
    - `name` (None): a name to find the worker by with `whereis`.
    - `throttle` (None): at least so many seconds from the start of one call to that of the next.
    - `executor` ("pool"): "pool", "thread" (a thread of its own), "process" or `Processes(...)`.
    - `concurrency` (1): batches in flight at once; more than 1 for jobs without state only.
      `Limit(2, 64)` adapts to how long batches take.
    - `help` (False): a caller of `push_block` without timeout may run an idle worker's batch.
    - `idle_timeout` (None): seconds without work until `Executor.on_idle` is called.
    - `on_failure` ("drop"): "drop", "retry", "isolate", or a policy such as `Retry(3)`.
    - `breaker` (None): park a supervised worker that crashes too often: `Breaker()`.
    - `verbose` (False): log each batch at debug level.
    - `clock` (system time): where time comes from; tests pass a virtual one.

    Raises:
        BadJob, BadBehaviour, BadOption: something cannot work; the message shows the right call.
        AlreadyStarted: a worker of that name is running.
        StartFailed: the executor's `on_start` raised or asked to stop.

    """
    if positional:
        given = ", ".join(map(brief, positional))
        msg = (
            f"spawn(job, {given}): options are given by name, "
            f"as in spawn(job, state={brief(positional[0])})"
        )
        raise BadOption(msg)
    if tracing.TRACER is not None:
        job = tracing.traced_job(job, options.get("name"))
    worker = make(job, options)
    launch(worker)
    return worker


def make(job: Any, options: WorkerOptions) -> WorkerRef:
    """Validate the options and make a worker that is not started yet. See `spawn`."""
    settings = settings_of(job, options)
    # Last, so that a call that is refused leaves the behaviour free for another.
    behaviour = accumulation_of(options)
    pair = Accumulator(settings, behaviour, options.get("state"))
    worker: WorkerRef = ref_class(behaviour)(pair)
    pair.actor_ref = worker
    return worker


def launch(worker: WorkerRef) -> None:
    """Start a worker that `make` has made, under its name if it has one."""
    pair = worker.actor
    settings = pair.settings
    if settings.breaker is not None and not pair.lifecycle.supervised:
        msg = (
            "breaker= parks a worker that its supervisor restarts too often, and nobody "
            "supervises this one; start it as a child of a Supervisor, or in "
            "Server([...], supervisor=Restart())"
        )
        raise BadOption(msg)
    simple = settings.name is None and settings.executor is None and settings.idle_timeout is None
    if simple and (not pair.is_supervised or pair.lifecycle.durable):
        pair.open()
        return
    try:
        if settings.name is not None:
            take_name(settings.name, worker)
        pair.lifecycle.launch()
    except BaseException:
        if settings.name is not None:
            forget_name(settings.name, worker)
        raise


class Worker:
    """A worker that is started later: an id, a job, and the options of `spawn`.

    >>> Worker("doubler", lambda batch, total: total + 2 * sum(batch), state=0).id
    'doubler'
    """

    __slots__ = ("id", "job", "options")

    @overload
    def __init__(
        self,
        id: Hashable,
        job: Callable[[Any, S], object],
        *,
        state: S,
        **options: Unpack[OptionsWithoutState],
    ) -> None: ...
    @overload
    def __init__(
        self,
        id: Hashable,
        job: Callable[[Any, Any], object],
        **options: Unpack[OptionsWithoutState],
    ) -> None: ...
    @overload
    def __init__(
        self, id: Hashable, job: Callable[[], Executor], **options: Unpack[WorkerOptions]
    ) -> None: ...
    def __init__(
        self,
        id: Hashable,  # noqa: A002 - the word of the contract
        job: Any,
        **options: Unpack[WorkerOptions],
    ) -> None:
        refuse_unhashable(id, "id")
        check_known(options, DEFAULTS, "Worker")
        self.id = id
        self.job = job
        self.options: WorkerOptions = options
        """The options of `spawn` that were given."""
        Settings(job, options, "Worker")  # raises for an invalid job or options, here and now

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Worker):
            return NotImplemented
        return (self.id, self.job, self.options) == (other.id, other.job, other.options)

    def __hash__(self) -> int:
        return hash((self.id, self.job))

    def __repr__(self) -> str:
        given = "".join(f", {name}={brief(value)}" for name, value in self.options.items())
        return f"Worker({self.id!r}, {brief(self.job)}{given})"

    def __call__(self) -> WorkerRef:
        """Spawn it, alone."""
        return spawn(self.job, **self.options)

    def make(self) -> WorkerRef:
        """Make a worker that is not started yet, with a behaviour of its own.

        So the specification can be used again.
        """
        options = self.options
        behaviour = options.get("behaviour")
        if isinstance(behaviour, (Behaviour, Base)) or hasattr(behaviour, "take"):
            try:
                options = {**options, "behaviour": copy.deepcopy(behaviour)}
            except Exception:  # noqa: BLE001 - then it serves one worker, and a second is refused
                options = self.options
        return make(self.job, options)

    def with_options(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Return the same worker with other options."""
        merged: Any = {**self.options, **options}
        return Worker(self.id, self.job, **merged)


def _pairs() -> list[Accumulator]:
    return [member for member in ACTORS.members() if isinstance(member, Accumulator)]


@atexit.register
def _report_lost() -> None:
    """Report lost messages when the program ends without stopping its workers."""
    for pair in _pairs():
        lost = len(pair.core) - pair.ahead()  # without the lock: nobody may be left to release it
        if lost and not pair.lifecycle.durable:
            log.warning(
                "messages lost at exit: stop the worker, or use it in a with block",
                worker=repr(pair),
                count=lost,
            )


def _after_fork() -> None:
    """Mark the parent's workers as dead in a forked child: their threads are not here."""
    for pair in _pairs():
        pair.forked()
        ACTORS.discard(pair)
        if pair.settings.name is not None:
            forget_name(pair.settings.name, pair.actor_ref)


after_fork(_after_fork, last=True)
