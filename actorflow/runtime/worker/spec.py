"""Starting workers: `spawn`, and `Worker`, which describes one that is started later."""

from __future__ import annotations

import atexit
import copy
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import BadOption, refuse_unhashable
from actorflow.runtime.fork import after_fork
from actorflow.runtime.log import log
from actorflow.runtime.registry import ROSTER, forget_name, take_name
from actorflow.runtime.worker.options import (
    DEFAULTS,
    Settings,
    WorkerOptions,
    accumulation_of,
    check_known,
    settings_of,
)
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pushes import ref_class
from behaviours.base import Base, Behaviour
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Unpack

    from actorflow.runtime.worker.job.executor import Executor
    from actorflow.runtime.worker.ref import WorkerRef

__all__ = ["Worker", "launch", "make", "spawn"]


def spawn(
    job: Callable[[Any, Any], Any] | type[Executor] | Callable[[], Executor],
    **options: Unpack[WorkerOptions],
) -> WorkerRef:
    """Start a worker: an executor that runs `job`, fronted by an accumulator.

    The job is a function `(batch, state) -> state`, a coroutine function of that shape, or an
    `Executor` subclass. The options are those of `WorkerOptions`: `state`, `behaviour`, `name`,
    `throttle`, `executor`, `concurrency`, `help`, `idle_timeout`, `on_failure`, `breaker`,
    `verbose`, `clock`.

    Raises:
        BadJob, BadBehaviour, BadOption: something cannot work; the message shows the right call.
        AlreadyStarted: a worker of that name is running.
        StartFailed: the executor's `on_start` raised or asked to stop.

    """
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
    if settings.breaker is not None and not pair.life.supervised:
        msg = (
            "breaker= parks a worker that its supervisor restarts too often, and nobody "
            "supervises this one; start it as a child of a Supervisor, or in "
            "Server([...], supervisor=Restart())"
        )
        raise BadOption(msg)
    simple = settings.name is None and settings.executor is None and settings.idle_timeout is None
    if simple and (not pair.is_supervised or pair.life.durable):
        pair.open()
        return
    try:
        if settings.name is not None:
            take_name(settings.name, worker)
        pair.life.launch()
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
        Settings(job, options, "Worker")  # refuses what cannot work, here and now

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
    return [member for member in ROSTER.members() if isinstance(member, Accumulator)]


@atexit.register
def _report_lost() -> None:
    """Say what is lost when the program ends without stopping its workers."""
    for pair in _pairs():
        lost = len(pair.core) - pair._ahead()  # without the lock: nobody may be left to release it
        if lost and not pair.life.durable:
            log.warning(
                "messages lost at exit: stop the worker, or use it in a with block",
                worker=repr(pair),
                count=lost,
            )


def _after_fork() -> None:
    """Mark the parent's workers as dead in a forked child: their threads are not here."""
    for pair in _pairs():
        pair._forked()
        ROSTER.discard(pair)
        if pair.settings.name is not None:
            forget_name(pair.settings.name, pair.actor_ref)


after_fork(_after_fork, last=True)
