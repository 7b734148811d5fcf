"""The durable worker: a worker whose messages and state survive anything.

Its state and the messages that led to it are committed together, so each message is in the state
exactly once. What the job does outside happens at least once.

All durable workers of an engine are executions of one kind, `worker`; the name decides which job
one runs.
"""

from __future__ import annotations

import copy
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, get_args, get_origin

from msgspec import Struct

from actorflow.behaviours import Queue, Stack, Throttle
from actorflow.behaviours.adapt import Base, adapt, refuse_preempting
from actorflow.behaviours.behaviour import Behaviour
from actorflow.engine import bodies
from actorflow.engine.errors import StateUnreadable
from actorflow.engine.executions.inbox_state import split
from actorflow.engine.kind import Options, Outcome
from actorflow.engine.typed import freeze, hints_of, is_plain, thaw
from actorflow.runtime.errors import BadJob, BadOption
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.job.failure import failure_policy
from actorflow.runtime.worker.job.jobs import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.kind import Context
    from actorflow.engine.stores.protocol import ExecutionRow, Store

__all__ = ["KIND", "DurableAnswer", "DurableJob", "WorkerFamily", "WorkerKind"]

KIND = "worker"
_KEY = "{id}"
_PLAIN = (Queue, Stack)


class DurableJob:
    """What durable workers do, as their user described it."""

    __slots__ = (
        "_has_key", "_message", "_state", "asynchronous", "behaviour", "do", "first", "is_plain",
        "on_failure", "throttle",
    )  # fmt: skip

    def __init__(
        self,
        do: Callable[..., Any],
        *,
        state: Any,
        behaviour: Any,
        throttle: float | None,
        on_failure: Any,
        keyed: bool = False,
    ) -> None:
        self._has_key = keyed and _takes_key(do)
        kind_of(partial(do, key="") if self._has_key else do)  # raises unless it can be a job
        failure_policy(on_failure)
        self.do = do
        self.asynchronous = inspect.iscoroutinefunction(do)
        self._message, self._state = _types_of(do)
        self.is_plain = not self._has_key and self._message is Any and self._state is Any
        """Whether the function gets the stored values without conversion."""
        self.first = bodies.encode(self.pack_state(state))
        self.behaviour = _factory(behaviour)
        self.throttle = throttle
        self.on_failure = on_failure
        adapted = adapt(self.options().behaviour)
        refuse_preempting(adapted, "a durable worker", BadOption)
        if adapted.traits.blocks:
            msg = (
                "when_full='block' makes pushers wait, but a durable worker stores each message "
                "before it accumulates it; use 'reject', 'drop_oldest' or 'drop_newest'"
            )
            raise BadOption(msg)

    def options(self) -> Options:
        """Return the options of the inbox."""
        behaviour = self.behaviour()
        if self.throttle is not None:
            behaviour = Throttle(behaviour, self.throttle)
        return Options(behaviour=behaviour, on_failure=self.on_failure, bodies=True)

    def pack_state(self, state: Any) -> Any:
        """Return a state as plain data, if the job declares its type; else as it is.

        Raises:
            NotStorable: a part of it is not plain data, and has no declared type.

        """
        return state if self._state is Any else freeze(state, self._state, _STATE)

    def state_of(self, packed: Any) -> Any:
        """Return a state as a value of the type that the job declares."""
        return packed if self._state is Any else thaw(packed, self._state, _STATE)

    def pack(self, message: Any) -> Any:
        """Return a message as plain data."""
        return message if self._message is Any else freeze(message, self._message, _MESSAGE)

    def call(self, batch: Any, state: Any, key: str) -> Any:
        """Call the user's function. Messages of a declared type are made values of that type."""
        if self._message is not Any:
            if type(batch) is list:
                batch = [thaw(each, self._message, _MESSAGE) for each in batch]
            else:
                batch = thaw(batch, self._message, _MESSAGE)
        return self.do(batch, state, key=key) if self._has_key else self.do(batch, state)


_MESSAGE = "the message"
_STATE = "the state"


def _factory(behaviour: Any) -> Any:
    """Return the factory of the behaviour, which is called whenever the worker is loaded.

    Raises:
        BadOption: it is not a behaviour, class or factory.

    """
    if isinstance(behaviour, (Behaviour, Base)):
        if type(behaviour) in _PLAIN:
            return type(behaviour)
        return partial(copy.deepcopy, behaviour)
    if not callable(behaviour):
        msg = f"behaviour={behaviour!r:.80} is not a behaviour: write behaviour=Queue()"
        raise BadOption(msg)
    return behaviour


def _takes_key(do: Any) -> bool:
    try:
        return "key" in inspect.signature(do).parameters
    except (TypeError, ValueError):
        return False


def _types_of(do: Any) -> tuple[Any, Any]:
    """Return the declared types of a message and of the state; `Any` if undeclared."""
    try:
        names = [*inspect.signature(do).parameters][:2]
    except (TypeError, ValueError):
        return Any, Any
    hints = hints_of(do) if inspect.isroutine(do) else {}
    batch = hints.get(names[0], Any) if names else Any
    state = hints.get(names[1], Any) if len(names) > 1 else Any
    items = get_args(batch) if get_origin(batch) is list else ()
    message = items[0] if items else Any
    return (Any if is_plain(message) else message), (Any if is_plain(state) else state)


class WorkerFamily:
    """Workers whose names follow a pattern: the key is between its two ends."""

    __slots__ = ("_end", "_start", "job")

    def __init__(self, pattern: str, job: DurableJob) -> None:
        self._start, self._end = pattern.split(_KEY)
        self.job = job

    def name_of(self, key: str) -> str:
        """Return the name of the worker of a key."""
        return f"{self._start}{key}{self._end}"

    def key_of(self, name: str) -> str | None:
        """Return the key of a worker, `None` if its name does not follow the pattern."""
        start, end = self._start, self._end
        if len(name) <= len(start) + len(end) or not name.startswith(start):
            return None
        return name[len(start) : len(name) - len(end)] if name.endswith(end) else None

    def overlaps(self, other: WorkerFamily) -> bool:
        """Return whether a name may follow both patterns."""
        starts = sorted((self._start, other._start), key=len)
        ends = sorted((self._end, other._end), key=len)
        return starts[1].startswith(starts[0]) and ends[1].endswith(ends[0])


_FIRST = object()
"""The state of a worker that has not run: its job knows it."""


def _outcome(job: DurableJob, result: Any, batch: Any) -> Outcome:
    """Return what a job has returned as an outcome.

    Raises:
        BadJob: its answers do not fit the batch.

    """
    answers = None
    if type(result) is Answers:
        messages = batch if type(batch) is list else [batch]
        problem = result.problem(messages, 1)
        if problem is not None:
            raise BadJob(problem)
        result, answers = result.state, [DurableAnswer.of(each) for each in result.answers]
    return Outcome(state=job.pack_state(result), answers=answers)


_SPECIAL = (Answers, Deferred)


class DurableAnswer(Struct, frozen=True):
    """An answer to a caller: another one than any that says only that a message was processed."""

    value: Any

    @classmethod
    def of(cls, value: Any) -> DurableAnswer | BaseException:
        """Return an answer; an exception is raised to its caller."""
        if isinstance(value, BaseException):
            return value
        if type(value) in _SCALARS:
            return cls(value)
        return cls(copy.deepcopy(value))  # the state may hold it, too


_SCALARS = frozenset((type(None), bool, int, float, str, bytes))


class WorkerKind:
    """The kind of execution that durable workers are."""

    name = KIND
    unhurried = True

    def __init__(self) -> None:
        self._jobs: dict[str, DurableJob] = {}
        self._families: list[WorkerFamily] = []

    def add(self, name: str, job: DurableJob) -> None:
        """Make the job of a worker known.

        Raises:
            BadOption: there is one of that name.

        """
        if self.job_of(name) is not None:
            msg = f"there is a durable worker {name!r} already; give this one another name"
            raise BadOption(msg)
        self._jobs[name] = job

    def add_family(self, pattern: str, job: DurableJob) -> WorkerFamily:
        """Make the job of all workers known whose names follow a pattern.

        Raises:
            BadOption: the pattern has no key, or other workers have such names.

        """
        given: Any = pattern
        if not isinstance(given, str) or given.count(_KEY) != 1:
            msg = f"pattern={given!r:.80}: write {_KEY} where the key goes: 'account/{_KEY}'"
            raise BadOption(msg)
        family = WorkerFamily(pattern, job)
        taken = any(each.overlaps(family) for each in self._families)
        if taken or any(family.key_of(name) is not None for name in self._jobs):
            msg = f"there are durable workers with names like {pattern!r} already; choose another"
            raise BadOption(msg)
        self._families.append(family)
        return family

    def job_of(self, execution: str) -> DurableJob | None:
        """Return the job of a worker. O(1), plus the number of families for a keyed one."""
        job = self._jobs.get(execution)
        if job is None and self._families:
            for family in self._families:
                if family.key_of(execution) is not None:
                    return family.job
        return job

    def _key_of(self, execution: str) -> str:
        keys = (family.key_of(execution) for family in self._families)
        return next((key for key in keys if key is not None), execution)

    def knows(self, execution: str) -> bool:
        """Return whether there is a job for an execution; until then its messages wait."""
        return self.job_of(execution) is not None

    reserves = knows

    def kind_of(self, execution: str) -> str | None:
        """Return what kind is created by a message to that name, if it is that of a worker."""
        return KIND if self.knows(execution) else None

    def quick(self, execution: str) -> bool:
        """Return whether the behaviour is one that runs no code of a user."""
        job = self._jobs.get(execution) or self.job_of(execution)
        return job is not None and job.behaviour in _PLAIN

    def options(self, execution: str) -> Options:
        """Return the options that the user chose."""
        return self._job(execution).options()

    def _job(self, execution: str) -> DurableJob:
        job = self.job_of(execution)
        if job is None:
            msg = f"there is no job for the durable worker {execution!r}"
            raise LookupError(msg)
        return job

    def decode(self, data: bytes | None) -> Any:
        """Return the state from stored bytes."""
        return _FIRST if data is None else bodies.decode(split(data)[1])

    def encode(self, state: Any) -> bytes:
        """Return a state as bytes."""
        return bodies.encode(state)

    def run(self, context: Context, state: Any, batch: Any) -> Any:
        """Call the job."""
        job = self._jobs.get(context.id) or self._job(context.id)
        if state is _FIRST:
            state = bodies.decode(job.first)
        if job.is_plain:
            result = job.do(batch, state)
            if not job.asynchronous and type(result) not in _SPECIAL:
                return Outcome(state=result)
        else:
            result = job.call(batch, job.state_of(state), self._key_of(context.id))
        if job.asynchronous:
            return self._run_async(job, result, batch)
        if type(result) is Deferred:
            return self._run_later(job, result, batch)
        return _outcome(job, result, batch)

    def _run_later(self, job: DurableJob, result: Deferred, batch: Any) -> Deferred:
        made = Deferred()

        def go_on(error: BaseException | None, state: Any) -> None:
            if error is not None:
                made.resolve(error)
                return
            try:
                outcome = _outcome(job, state, batch)
            except Exception as failure:  # noqa: BLE001 - the job's
                made.resolve(failure)
            else:
                made.resolve(None, outcome)

        result.then(go_on)
        return made

    async def _run_async(self, job: DurableJob, result: Any, batch: Any) -> Outcome:
        return _outcome(job, await result, batch)

    def state_of(self, name: str, data: bytes | None) -> Any:
        """Return the state of a worker; the first one if it has not run.

        Raises:
            StateUnreadable: it is not what a worker stores.

        """
        job = self.job_of(name)
        if data is None:
            return None if job is None else job.state_of(bodies.decode(job.first))
        try:
            state = bodies.decode(split(data)[1])
            return state if job is None else job.state_of(state)
        except ValueError as error:
            raise StateUnreadable(name, self.name, data, error) from error

    def view(self, row: ExecutionRow, _store: Store) -> Any:
        """Return the state."""
        return self.state_of(row.id, row.state)
