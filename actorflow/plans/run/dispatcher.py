"""The dispatcher of a scheduler: it makes calls of jobs, and keeps the returned values.

Shared by plans in memory and durable plans. No threads, no processes, no time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.plans.arguments import replace
from actorflow.plans.cache_protocol import Hit, Input, JobSpec
from actorflow.plans.errors import BadPlan
from actorflow.plans.job import DEFAULT, Job, JobOptions
from actorflow.plans.results import InlineResult, MapResult, SpilledResult, Value
from actorflow.plans.run.job_calls import InputSlot, perform, split
from actorflow.plans.scheduler import Ending, OnFailure, Role, Rules, Scheduler, State
from actorflow.runtime.errors import kind_and_text
from actorflow.runtime.processes.packed import Packed, pack_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.plans.blueprint import Blueprint
    from actorflow.plans.cache_protocol import Cache
    from actorflow.plans.run.job_calls import Wire

__all__ = ["ArgumentsNotSent", "Dispatcher", "Prefetch"]


class ArgumentsNotSent(Exception):
    """The arguments of a job cannot be sent to a worker."""


class Dispatcher:
    """The jobs of a plan as calls, and their results as values.

    Args:
        blueprint: the plan.
        directory: where large results go; empty if they travel as small ones do.
        on_failure: see `Scheduler`.
        workers: how many jobs run at the same time.
        budget: see `Scheduler`.
        retries: of jobs that have no number of their own.
        crashes_max: how many crashes of its worker fail a job.
        limits: how much there is of each resource.
        cache: what skips jobs that are up to date.

    Raises:
        BadPlan: the plan cannot be run, or not with these limits.

    """

    def __init__(
        self,
        blueprint: Blueprint,
        directory: str,
        *,
        on_failure: OnFailure = OnFailure.STOP,
        workers: int = 1,
        budget: int = 64 << 20,
        retries: int = 0,
        crashes_max: int = 5,
        limits: Mapping[str, int] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.blueprint = blueprint
        self.values: dict[int, Value] = {}
        """The results of the jobs that are done; those of gathering jobs when they were needed."""
        self.items: dict[int, Value] = {}
        """By job that a map has added: what it is called with."""
        self.reasons: dict[int, str] = {}
        """Why a job was run or not, where there is a cache."""
        self.cached: set[int] = set()
        """Jobs whose results came from the cache."""
        self._directory = directory
        self._cache = cache
        self._keys: dict[int, tuple[JobSpec, str]] = {}
        self._codes = blueprint.codes()
        exact = any(each.weight > 1 or each.uses for each in blueprint.options.values())
        self._prefetch = Prefetch(workers, exact=exact)
        graph = blueprint.graph()
        blueprint.check_limits(limits or {})
        self.scheduler = Scheduler(
            graph,
            rules={
                job: _rules(options, retries, crashes_max)
                for job, options in blueprint.options.items()
            },
            default=Rules(retries=retries, crashes_max=crashes_max),
            roles=blueprint.roles,
            on_failure=on_failure,
            places=self._prefetch.places,
            budget=budget,
            limits=limits,
        )

    # Handing out.

    def next(self) -> int | None:
        """Return the next job to hand out, or `None` if no job is ready.

        Jobs that are up to date, and maps over results that are lists of values, never get here.
        """
        scheduler = self.scheduler
        while (job := scheduler.take()) is not None:
            if scheduler.role(job) is Role.MAP:
                source = self.value(self._source(job))
                if not isinstance(source, MapResult):
                    return job
                self._expand(job, source.parts)
            elif self._cache is not None and self._is_up_to_date(job):
                scheduler.ended(job, Ending.OK)
            else:
                return job
        return None

    def call(self, job: int) -> Packed:
        """Return the call of a job that is handed out.

        Raises:
            Refused: its arguments cannot be sent to another process; report it as failed.

        """
        scheduler = self.scheduler
        folder = self._directory
        path = f"{folder}/{job}-{scheduler.attempts(job)}" if folder else ""
        keep = (path, self._cache is not None)
        try:
            if scheduler.role(job) is Role.MAP:
                packed = pack_value((split, (self.source(job), keep)))
            else:
                packed = pack_value((perform, self._call(job, keep)))
        except Exception as error:
            msg = (
                f"the arguments of job {self.name(job)!r} cannot be sent to a worker process "
                f"({kind_and_text(error)}); give arguments that can be pickled"
            )
            raise ArgumentsNotSent(msg) from error
        scheduler.weigh(job, packed.size)
        return packed

    def options(self, job: int) -> JobOptions:
        """Return the options of a job; one that a map has added has those of the map."""
        return self.blueprint.options.get(self._written(job), DEFAULT)

    # Jobs that come back.

    def ended(
        self, job: int, ending: Ending, wire: Wire = None, seconds: float | None = None
    ) -> State:
        """Record how an attempt of a job has ended; return where the job stands now.

        `seconds` is how long it ran, where that is known.
        """
        scheduler = self.scheduler
        if seconds is not None:
            scheduler.places = self._prefetch.after(seconds)
        if ending is Ending.OK and scheduler.state(job) is State.OUT:
            if scheduler.role(job) is Role.MAP:
                self._expand(job, tuple(map(_value, wire)))
                return scheduler.state(job)
            value = self.values[job] = _value(wire)
            if job in self._keys and self._cache is not None:
                self._cache.store(*self._keys.pop(job), value)
        return scheduler.ended(job, ending)

    # Values and names.

    def value(self, job: int) -> Value:
        """Return the result of a job that is done."""
        value = self.values.get(job)
        if value is None:
            parts = tuple(self.value(each) for each in self.parts(job))
            digest = _hash_of(parts) if self._cache is not None else ""
            value = self.values[job] = MapResult(parts, digest)
        return value

    def parts(self, job: int) -> range:
        """Return the jobs whose results a gathering job gathers."""
        return self.blueprint.gathered.get(job) or self.scheduler.children(job)

    def gathering(self) -> list[int]:
        """Return the jobs whose result is a list of results."""
        return self.scheduler.with_role(Role.GATHER)

    def name(self, job: int) -> str:
        """Return the name of a job."""
        origin = self.scheduler.origin(job)
        if origin is None:
            return self.blueprint.name(job)
        return f"{self.blueprint.name(origin[0])}[{origin[1]}]"

    def spec(self, job: int) -> JobSpec:
        """Return a job as a cache sees it."""
        written = self._written(job)
        name = self.blueprint.name
        function = self.blueprint.functions[written]
        if function is None:
            msg = f"job {self.name(job)!r} only gathers"
            raise BadPlan(msg)
        origin = self.scheduler.origin(job)
        args = self.blueprint.args[written]
        if origin is not None:
            args = (Input(f"{name(self._source(written))}[{origin[1]}]"),)
        named: Callable[[Job], Input] = lambda each: Input(name(each.index))  # noqa: E731
        kwargs = self.blueprint.kwargs.get(written, {})
        if self.blueprint.takes[written]:
            args, kwargs = replace(Job, args, named), replace(Job, kwargs, named)
        return JobSpec(
            name=self.name(job),
            function=function,
            args=args,
            kwargs=kwargs,
            cache=self.options(job).cache,
        )

    def source(self, job: int) -> Wire:
        """Return what a map branches over, as it travels to a worker."""
        return _wire(self.value(self._source(job)))

    # How it is done.

    def _written(self, job: int) -> int:
        """Return the job as it stands in the plan: the map of one that a map has added."""
        origin = self.scheduler.origin(job)
        return job if origin is None else origin[0]

    def _source(self, job: int) -> int:
        source: Job = self.blueprint.args[job][0]
        return source.index

    def _expand(self, job: int, parts: tuple[Value, ...]) -> None:
        new = self.scheduler.expand(job, len(parts))
        self.items.update(zip(new, parts, strict=True))

    def _call(self, job: int, keep: tuple[str, bool]) -> tuple[Any, ...]:
        written = self._written(job)
        blueprint = self.blueprint
        code = self._codes[id(blueprint.functions[written])]
        args, kwargs = blueprint.args[written], blueprint.kwargs.get(written)
        if not blueprint.takes[written]:
            return code, args, kwargs, (), keep
        inputs: list[Wire] = []

        def slot(each: Job) -> InputSlot:
            inputs.append(_wire(self.value(each.index)))
            return InputSlot(len(inputs) - 1)

        if written != job:
            inputs.append(_wire(self.items[job]))
            args = (InputSlot(0),)
        else:
            args = replace(Job, args, slot)
        kwargs = replace(Job, kwargs, slot) if kwargs else None
        return code, args, kwargs, tuple(inputs), keep

    def _is_up_to_date(self, job: int) -> bool:
        assert self._cache is not None  # noqa: S101 - for mypy
        spec = self.spec(job)
        found = self._cache.lookup(spec, self._inputs(job, spec))
        self.reasons[job] = found.reason
        if isinstance(found, Hit):
            self.values[job] = found.value
            self.cached.add(job)
            return True
        if found.key is not None:
            self._keys[job] = spec, found.key
        return False

    def _inputs(self, job: int, spec: JobSpec) -> dict[str, Value]:
        written = self._written(job)
        inputs: dict[str, Value] = {}

        def note(each: Job) -> None:
            inputs[self.blueprint.name(each.index)] = self.value(each.index)

        if written == job:
            replace(Job, self.blueprint.args[job], note)
        else:
            inputs[spec.args[0].name] = self.items[job]
        replace(Job, self.blueprint.kwargs.get(written, {}), note)
        return inputs


def _rules(options: JobOptions, retries: int, crashes_max: int) -> Rules:
    return Rules(
        priority=options.priority,
        retries=retries if options.retries is None else options.retries,
        crashes_max=crashes_max,
        weight=options.weight,
        uses=options.uses,
    )


def _value(wire: Wire) -> Value:
    """Return a value that has come from a worker."""
    if type(wire) is bytes:
        return InlineResult(wire)
    if isinstance(wire, (tuple, list)):
        *fields, code = wire
        kind: Any = InlineResult if isinstance(wire[0], bytes) else SpilledResult
        if isinstance(wire[0], (bytes, str)):
            return kind(*fields, tuple(code))  # type: ignore[no-any-return]
    msg = f"{brief(wire)} is not a value"
    raise TypeError(msg)


def _wire(value: Value) -> Wire:
    """Return a value as it travels to a worker."""
    if isinstance(value, MapResult):
        return [_wire(part) for part in value.parts]
    if isinstance(value, InlineResult):
        return value.data
    return value.path, value.size, value.digest, value.code


def _hash_of(parts: tuple[Value, ...]) -> str:
    return blake2b("\n".join(part.digest for part in parts).encode(), digest_size=16).hexdigest()


_AHEAD = (
    0.02  # seconds of work that are handed out ahead, so that no worker waits for the scheduler
)
_LEAST, _MOST = 2, 64  # jobs for each worker
_WEIGHT = 1 / 12  # of the last job in the average: a dozen jobs or so count


class Prefetch:
    """Decides how many jobs are out at the same time.

    Few if they are long: a job with a higher priority cannot overtake jobs that are handed out,
    and these start even if the plan stops. Many if they are short.

    Args:
        workers: how many there are.
        exact: hand out no more than the workers can run at once, because weights or resources are
            counted for jobs that are handed out.

    >>> prefetch = Prefetch(2)
    >>> prefetch.places, prefetch.after(1.0), [prefetch.after(0.0001) for _ in range(100)][-1]
    (4, 4, 128)
    """

    __slots__ = ("_average", "_exact", "_workers", "places")

    def __init__(self, workers: int, *, exact: bool = False) -> None:
        self._workers = workers
        self._exact = exact
        self._average: float | None = None
        self.places = workers if exact else workers * _LEAST
        """How many jobs may be out."""

    def after(self, seconds: float) -> int:
        """Record how long a job took; return how many jobs may be out now."""
        average = self._average
        self._average = seconds if average is None else average + _WEIGHT * (seconds - average)
        if not self._exact:
            each = _MOST if self._average <= 0 else round(_AHEAD / self._average)
            self.places = self._workers * max(_LEAST, min(_MOST, each))
        return self.places
