"""The options of a worker: written once, validated once, for `spawn`, `Worker` and all others.

`WorkerOptions` is the schema. `Settings` are the validated options of one call: immutable, and
shared by all workers that were spawned alike.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict
from weakref import ref

from actorflow.behaviours import Queue, Stack, Throttle
from actorflow.behaviours.adapt import adapt
from actorflow.behaviours.arguments import choice, count, flag, seconds
from actorflow.behaviours.errors import brief
from actorflow.runtime.clock import SYSTEM, Clock, checked_clock
from actorflow.runtime.errors import BadJob, BadOption, near, refuse_unhashable
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.lanes.pool import POOL
from actorflow.runtime.lanes.serial_lane import SerialLane
from actorflow.runtime.lanes.thread import ThreadLane
from actorflow.runtime.worker.job.failure import (
    Breaker,
    Drop,
    FailurePolicy,
    delay_of,
    failure_policy,
)
from actorflow.runtime.worker.job.jobs import JobKind, kind_of
from actorflow.runtime.worker.job.limit import Limit
from actorflow.runtime.worker.process.options import Processes
from actorflow.runtime.worker.shape import QUEUE, STACK

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from actorflow.behaviours.behaviour import Behaviour
    from actorflow.runtime.lanes.lane import RuntimeLane
    from actorflow.runtime.worker.job.batch import Batch
    from actorflow.runtime.worker.job.executor import Executor
    from actorflow.runtime.worker.process.lane import ProcessLane

__all__ = [
    "DEFAULTS",
    "MOST_AT_ONCE",
    "OptionsWithoutState",
    "Settings",
    "WorkerOptions",
    "accumulation_of",
    "check_known",
    "check_state",
    "runs_elsewhere",
    "settings_of",
]


MOST_AT_ONCE = 100_000
"""Batches that one worker may have in flight: each has a slot, which takes memory."""


class OptionsWithoutState(TypedDict, total=False):
    """The options of `WorkerOptions` apart from the state, whose type depends on the job."""

    behaviour: Any
    """How messages accumulate: an instance, a class or a factory. By default `Queue`."""
    name: Hashable | None
    """A name to find the worker by with `whereis`."""
    throttle: float | None
    """Seconds from the start of one call to the start of the next, at least."""
    executor: str | RuntimeLane | Processes
    """`"pool"`, `"thread"` for a thread of its own, `"process"` or `Processes(...)` for worker
    processes (or a lane, in tests)."""
    concurrency: int | Limit
    """How many batches may be in flight at once; more than 1 for jobs without state only.
    `Limit(2, 64)` adapts to how long batches take."""
    help: bool
    """Let a caller of `push_block` without timeout run an idle worker's batch itself."""
    idle_timeout: float | None
    """Seconds without work after which `Executor.on_idle` is called, which by default stops it."""
    on_failure: Any
    """What becomes of a batch whose job raised: `"drop"`, `"retry"`, `"isolate"`, or `Drop()`,
    `Retry(n)`, `Isolate(retries=n)`, or a policy of your own."""
    breaker: Breaker | None
    """Park the worker when its executor crashes too often. For supervised workers."""
    verbose: bool
    """Log each batch at debug level."""
    clock: Clock
    """Where time comes from; tests give a virtual one."""


class WorkerOptions(OptionsWithoutState, total=False):
    """What `spawn`, `Worker` and `batched` take besides the job."""

    state: Any
    """The first state; an `Executor` finds it as `self.state`."""


DEFAULTS: WorkerOptions = {
    "state": None,
    "behaviour": Queue,
    "name": None,
    "throttle": None,
    "executor": "pool",
    "concurrency": 1,
    "help": False,
    "idle_timeout": None,
    "on_failure": "drop",
    "breaker": None,
    "verbose": False,
    "clock": SYSTEM,
}
_UNSETTLED = {"state", "behaviour"}
"""Options that do not belong to the settings."""


def check_known(options: Mapping[str, Any], known: Mapping[str, Any], what: str) -> None:
    """Refuse unknown names of options.

    Raises:
        BadOption: the message names the nearest one.

    """
    for option in options:
        if option not in known:
            msg = f"{what} has no option {option!r}{near(option, known)}"
            raise BadOption(msg)


def check_state(state: Any) -> None:
    """Raise `BadOption` if the first state of a supervised worker cannot be copied."""
    if state is None:
        return
    try:
        copy.deepcopy(state)
    except Exception as error:  # of the state's class
        msg = (
            f"state={brief(state)} cannot be copied ({brief(error)}), and a supervised worker "
            "begins with a copy of it after each crash; make it in on_start of an Executor"
        )
        raise BadOption(msg) from error


class Settings:
    """The validated options of a job, apart from the state and the behaviour.

    Raises:
        BadJob, BadOption: something cannot work; the message shows the right call.

    """

    __slots__ = (
        "__weakref__", "asynchronous", "breaker", "checks", "clock", "concurrency", "executor",
        "given", "handle", "has_on_start", "has_on_stop", "help", "idle_timeout", "is_real", "job",
        "lane", "limit", "name", "now", "policy", "remote", "reruns", "title", "verbose",
    )  # fmt: skip
    given: Mapping[str, Any]
    """The options that they are for, without the state: that goes with its worker."""

    def __init__(self, job: Any, given: WorkerOptions, what: str = "spawn") -> None:
        check_known(given, DEFAULTS, what)
        options: Any = {**DEFAULTS, **given}
        kind = kind_of(job)
        call = {"Worker": "Worker(id, job, ", "batched": "batched("}.get(what, f"{what}(job, ")
        self.job = job
        named = job.func if isinstance(job, partial) else job
        self.title = str(getattr(named, "__qualname__", None) or brief(named))
        """The name of the job, for logs and errors."""
        self.executor = kind.executor
        self.has_on_start = kind.has_on_start
        self.has_on_stop = kind.has_on_stop
        self.name: Hashable | None = options["name"]
        if self.name is not None:
            refuse_unhashable(self.name, "name")
        if options["throttle"] is not None:
            seconds(options["throttle"], "throttle", f"{call}throttle=0.5)", error=BadOption)
        self.idle_timeout: float | None = options["idle_timeout"]
        if self.idle_timeout is not None:
            example = f"{call}idle_timeout=60.0)"
            seconds(self.idle_timeout, "idle_timeout", example, zero=False, error=BadOption)
        self.breaker: Breaker | None = options["breaker"]
        if self.breaker is not None and not isinstance(self.breaker, Breaker):
            msg = f"breaker={brief(self.breaker)} must be a Breaker, as in breaker=Breaker()"
            raise BadOption(msg)
        self.limit, self.concurrency = _concurrency(options["concurrency"], call)
        """How the concurrency adapts, if it does, and the most batches that may be in flight."""
        if self.concurrency > 1:
            self._refuse_state(options["state"])
        self.policy: FailurePolicy = failure_policy(options["on_failure"])
        self.reruns = type(self.policy) is not Drop
        """Whether the policy may run a batch again."""
        self.clock = checked_clock(options["clock"])
        self.now: Callable[[], float] = self.clock.now
        """Returns the time. Calling it from a local variable is faster than `clock.now()`."""
        self.verbose = flag(options["verbose"], "verbose", f"{call}verbose=True)", error=BadOption)
        self.remote = _remote(options["executor"], job, self)
        """The lane, if the job runs in worker processes."""
        self.asynchronous = kind.asynchronous and self.remote is None
        self.lane = self.remote or _lane(options["executor"], kind, self.name)
        by_itself = isinstance(options["executor"], (str, SerialLane)) or self.remote is not None
        self.is_real = self.clock is SYSTEM and by_itself
        """Whether time passes, and the lane runs, by themselves."""
        self.help = flag(options["help"], "help", f"{call}help=True)", error=BadOption)
        if self.help and not (self.lane.can_help and self.concurrency == 1):
            msg = (
                "help=True lets callers run the job, which needs executor='pool', "
                "concurrency=1 and a job that is not a coroutine function"
            )
            raise BadOption(msg)
        self.handle: Callable[[Any, Any], Any] | None = job if kind.executor is None else None
        if self.remote is not None:
            self.handle = self._call_elsewhere
        self.checks = self.concurrency > 1 or self.verbose

    def _refuse_state(self, state: Any) -> None:
        why = None
        if self.executor is not None:
            why = f"{self.executor.__name__} keeps what it likes between two batches"
        elif state is not None:
            why = f"state={brief(state)} would be changed by several batches at once"
        if why is not None:
            msg = (
                f"concurrency={self.concurrency} is for jobs without state, and {why}; "
                "use a function job(batch, state) with state=None, or concurrency=1"
            )
            raise BadOption(msg)

    def _call_elsewhere(self, batch: Any, state: Any) -> Any:
        """Make the job run in a worker process."""
        assert self.remote is not None  # noqa: S101 - only then it is the handle
        return self.remote.call(batch, state)

    @property
    def owns_lane(self) -> bool:
        """Whether the lane is there for this job only."""
        return self.remote is not None or isinstance(self.lane, ThreadLane)

    @property
    def kills(self) -> bool:
        """Whether a job that is cut off ends with that: a process can be killed."""
        return self.remote is not None

    def renew_lane(self) -> None:
        """Kill the processes, or leave the thread to a job that hangs in it; and take others."""
        self.lane.release()
        if self.remote is not None:
            self.lane = self.remote = self.remote.successor()
        else:
            self.lane = ThreadLane(str(self.name or "worker"))

    def make_subject(self, state: Any) -> Executor:
        """Make the user's executor, for a job that is a class."""
        subject: Executor = self.job()
        subject.state = state
        if self.idle_timeout is not None:
            subject.idle_timeout = self.idle_timeout
        return subject

    def handle_of(self, subject: Executor) -> Callable[[Any, Any], Any]:
        """Return the function to call with a batch and the state."""
        handle = subject.handle

        def call(batch: Any, _state: Any) -> Any:
            return handle(batch)

        return call

    @property
    def delay(self) -> Callable[[Batch], float] | None:
        """How long a batch waits before the policy runs it again; `None` if it never does."""
        return delay_of(self.policy)

    def checked(self, outcome: Any) -> Any:
        """Return the new state, or a `BadJob` if there must not be one."""
        if self.concurrency > 1 and outcome is not None:
            return BadJob(
                f"{self.title} runs with concurrency={self.concurrency}, so it keeps no state, "
                f"but it returned {brief(outcome)}; return None, or Answers(None, answers)"
            )
        return outcome


def _concurrency(given: Any, call: str) -> tuple[Limit | None, int]:
    """Validate the option `concurrency`."""
    if isinstance(given, Limit):
        return given, given.most
    example = f"{call}concurrency=4)"
    return None, count(given, "concurrency", example, most=MOST_AT_ONCE, error=BadOption)


def runs_elsewhere(executor: Any) -> bool:
    """Return whether the option `executor` asks for worker processes."""
    return isinstance(executor, Processes) or (isinstance(executor, str) and executor == "process")


def check_executor(executor: Any) -> None:
    """Raise `BadOption` if the option `executor` is not valid."""
    if isinstance(executor, str):
        choice(executor, "executor", ("pool", "thread", "process"), error=BadOption)
    elif not isinstance(executor, Processes) and not callable(getattr(executor, "claim", None)):
        if callable(getattr(executor, "submit", None)):
            msg = (
                f"executor={brief(executor)} is an executor of concurrent.futures, which cannot "
                "run a worker; use executor='pool' (grows while jobs block), 'thread' or 'process'"
            )
            raise BadOption(msg)
        msg = f"executor={brief(executor)} must be 'pool', 'thread', 'process' or a lane"
        raise BadOption(msg)


def _remote(executor: Any, job: Any, settings: Settings) -> ProcessLane | None:
    """Make the lane of worker processes, if the option `executor` asks for it."""
    if not runs_elsewhere(executor):
        return None
    from actorflow.runtime.worker.process.lane import ProcessLane  # noqa: PLC0415 - loads processes

    if settings.executor is not None:
        name = settings.executor.__name__
        msg = (
            f"executor='process' is for functions, and {name} is an Executor, which keeps what it "
            "likes between two batches; use a function job(batch, state): its state travels"
        )
        raise BadOption(msg)
    given = executor if isinstance(executor, Processes) else Processes()
    name = str(settings.name or settings.title)
    return ProcessLane(name, job, settings.concurrency, given, settings.clock)


def _lane(executor: Any, kind: JobKind, name: object) -> RuntimeLane:
    """Find the lane that the option `executor` stands for; coroutines go to the event loop."""
    check_executor(executor)
    if kind.asynchronous:
        if executor != "pool":
            msg = f"a coroutine job runs on the event loop: leave executor={executor!r} out"
            raise BadOption(msg)
        return LOOP
    if not isinstance(executor, str):
        return executor  # type: ignore[no-any-return]
    return POOL if executor == "pool" else ThreadLane(str(name or "worker"))


_last: ref[Settings] | None = None
"""The settings that were made last, as long as a worker has them."""


def settings_of(job: Any, options: WorkerOptions) -> Settings:
    """Return the settings for these options; those of the last call if they are the same."""
    global _last  # noqa: PLW0603 - a cache
    last = None if _last is None else _last()
    if last is not None and last.job is job and _same(last.given, options):
        return last
    settings = Settings(job, options)
    if settings.name is None and not settings.owns_lane:
        settings.given = {
            name: None if name in _UNSETTLED else value for name, value in options.items()
        }
        _last = ref(settings)
    return settings


def _same(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether options lead to the same settings. By identity: users own `__eq__`."""
    if not (some or others):
        return True
    if some.get("concurrency", 1) != 1:
        return False  # the state is looked at, too
    if some.keys() == others.keys():
        for name, value in some.items():
            if value is not others[name] and name not in _UNSETTLED:
                return False
        return True
    if not others.keys() <= DEFAULTS.keys():
        return False  # there are options to refuse
    return all(
        some.get(name, default) is others.get(name, default)
        for name, default in DEFAULTS.items()
        if name not in _UNSETTLED
    )


def accumulation_of(options: WorkerOptions) -> Behaviour:
    """Make and claim the behaviour that the options ask for.

    Raises:
        BadBehaviour, AlreadyUsed: it is not a behaviour, or belongs to another worker.

    """
    behaviour = options.get("behaviour", Queue)
    throttle = options.get("throttle")
    if throttle is None and behaviour is Queue:
        return QUEUE
    if throttle is None and behaviour is Stack:
        return STACK
    return adapt(behaviour if throttle is None else Throttle(behaviour, throttle))
