"""The desk of a master: it makes calls of jobs, and keeps the values that come back.

What the run of a plan and a durable plan share. No threads, no processes, no time.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from actorflow.plans.arguments import replace
from actorflow.plans.errors import BadPlan
from actorflow.plans.job import DEFAULT, Job, JobOptions
from actorflow.plans.lookup import Hit, Input, JobSpec
from actorflow.plans.master import Ending, Master, OnFailure, Role, Rules, State
from actorflow.plans.run.calls import Slot, perform, split
from actorflow.plans.run.pace import Pace
from actorflow.plans.values import Gathered, Inline, Spilled, Value
from actorflow.runtime.lanes.process.packing import Packed, pack_value
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.plans.blueprint import Blueprint
    from actorflow.plans.lookup import Cache
    from actorflow.plans.run.calls import Wire

__all__ = ["Desk", "Refused"]


class Refused(Exception):
    """The arguments of a job cannot be sent to a worker."""


class Desk:
    """The jobs of a plan as calls, and their results as values.

    Args:
        blueprint: the plan.
        directory: where large results go.
        on_failure: see `Master`.
        workers: how many jobs run at the same time.
        budget: see `Master`.
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
        self._pace = Pace(workers, exact=exact)
        graph = blueprint.graph()
        blueprint.check_limits(limits or {})
        self.master = Master(
            graph,
            rules={
                job: _rules(options, retries, crashes_max)
                for job, options in blueprint.options.items()
            },
            default=Rules(retries=retries, crashes_max=crashes_max),
            roles=blueprint.roles,
            on_failure=on_failure,
            places=self._pace.places,
            budget=budget,
            limits=limits,
        )

    # Handing out.

    def next(self) -> int | None:
        """Return the next job to hand out; `None` if there is none now.

        Jobs that are up to date, and maps over results that are lists of values, never get here.
        """
        master = self.master
        while (job := master.take()) is not None:
            if master.role(job) is Role.MAP:
                source = self.value(self._source(job))
                if not isinstance(source, Gathered):
                    return job
                self._expand(job, source.parts)
            elif self._cache is not None and self._is_up_to_date(job):
                master.ended(job, Ending.OK)
            else:
                return job
        return None

    def call(self, job: int) -> Packed:
        """Return the call of a job that is handed out.

        Raises:
            Refused: its arguments cannot be sent to another process; report it as failed.

        """
        master = self.master
        keep = (f"{self._directory}/{job}-{master.attempts(job)}", self._cache is not None)
        try:
            if master.role(job) is Role.MAP:
                packed = pack_value((split, (self.source(job), keep)))
            else:
                packed = pack_value((perform, self._call(job, keep)))
        except Exception as error:
            msg = (
                f"the arguments of job {self.name(job)!r} cannot be sent to a worker process "
                f"({type(error).__name__}: {error}); give arguments that can be pickled"
            )
            raise Refused(msg) from error
        master.weigh(job, packed.size)
        return packed

    def options(self, job: int) -> JobOptions:
        """Return the options of a job; one that a map has added has those of the map."""
        return self.blueprint.options.get(self._written(job), DEFAULT)

    # What comes back.

    def ended(
        self, job: int, ending: Ending, wire: Wire = None, seconds: float | None = None
    ) -> State:
        """Note how an attempt of a job has ended; return where the job stands now.

        `seconds` is how long it ran, where that is known.
        """
        master = self.master
        if seconds is not None:
            master.places = self._pace.after(seconds)
        if ending is Ending.OK and master.state(job) is State.OUT:
            if master.role(job) is Role.MAP:
                self._expand(job, tuple(map(_value, wire)))
                return master.state(job)
            value = self.values[job] = _value(wire)
            if job in self._keys and self._cache is not None:
                self._cache.store(*self._keys.pop(job), value)
        return master.ended(job, ending)

    # Values and names.

    def value(self, job: int) -> Value:
        """Return the result of a job that is done."""
        value = self.values.get(job)
        if value is None:
            parts = tuple(self.value(each) for each in self.parts(job))
            digest = _hash_of(parts) if self._cache is not None else ""
            value = self.values[job] = Gathered(parts, digest)
        return value

    def parts(self, job: int) -> range:
        """Return the jobs whose results a gathering job gathers."""
        return self.blueprint.gathered.get(job) or self.master.children(job)

    def gathering(self) -> list[int]:
        """Return the jobs whose result is a list of results."""
        return self.master.with_role(Role.GATHER)

    def name(self, job: int) -> str:
        """Return the name of a job."""
        origin = self.master.origin(job)
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
        origin = self.master.origin(job)
        args = self.blueprint.args[written]
        if origin is not None:
            args = (Input(f"{name(self._source(written))}[{origin[1]}]"),)
        named: Callable[[Job], Input] = lambda each: Input(name(each.index))  # noqa: E731
        return JobSpec(
            name=self.name(job),
            function=function,
            args=replace(Job, args, named),
            kwargs=replace(Job, self.blueprint.kwargs.get(written, {}), named),
            cache=self.options(job).cache,
        )

    def source(self, job: int) -> Wire:
        """Return what a map branches over, as it travels to a worker."""
        return _wire(self.value(self._source(job)))

    # How it is done.

    def _written(self, job: int) -> int:
        """Return the job as it stands in the plan: the map of one that a map has added."""
        origin = self.master.origin(job)
        return job if origin is None else origin[0]

    def _source(self, job: int) -> int:
        source: Job = self.blueprint.args[job][0]
        return source.index

    def _expand(self, job: int, parts: tuple[Value, ...]) -> None:
        new = self.master.expand(job, len(parts))
        self.items.update(zip(new, parts, strict=True))

    def _call(self, job: int, keep: tuple[str, bool]) -> tuple[Any, ...]:
        written = self._written(job)
        blueprint = self.blueprint
        code = self._codes[id(blueprint.functions[written])]
        args, kwargs = blueprint.args[written], blueprint.kwargs.get(written)
        if not blueprint.takes[written]:
            return code, args, kwargs, (), keep
        inputs: list[Wire] = []

        def slot(each: Job) -> Slot:
            inputs.append(_wire(self.value(each.index)))
            return Slot(len(inputs) - 1)

        if written != job:
            inputs.append(_wire(self.items[job]))
            args = (Slot(0),)
        else:
            args = replace(Job, args, slot)
        kwargs = replace(Job, kwargs, slot) if kwargs else None
        return code, args, kwargs, tuple(inputs), keep

    def _is_up_to_date(self, job: int) -> bool:
        assert self._cache is not None  # noqa: S101 - for mypy
        spec = self.spec(job)
        found = self._cache.lookup(spec, self._digests(job, spec))
        self.reasons[job] = found.reason
        if isinstance(found, Hit):
            self.values[job] = found.value
            self.cached.add(job)
            return True
        if found.key is not None:
            self._keys[job] = spec, found.key
        return False

    def _digests(self, job: int, spec: JobSpec) -> dict[str, str]:
        written = self._written(job)
        digests: dict[str, str] = {}

        def note(each: Job) -> None:
            digests[self.blueprint.name(each.index)] = self.value(each.index).digest

        if written == job:
            replace(Job, self.blueprint.args[job], note)
        else:
            digests[spec.args[0].name] = self.items[job].digest
        replace(Job, self.blueprint.kwargs.get(written, {}), note)
        return digests


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
        return Inline(wire)
    if isinstance(wire, (tuple, list)) and isinstance(wire[0], bytes):
        return Inline(*wire)
    if isinstance(wire, (tuple, list)) and isinstance(wire[0], str):
        return Spilled(*wire)
    msg = f"{brief(wire)} is not a value"
    raise TypeError(msg)


def _wire(value: Value) -> Wire:
    """Return a value as it travels to a worker."""
    if isinstance(value, Gathered):
        return [_wire(part) for part in value.parts]
    if isinstance(value, Inline):
        return value.data
    return value.path, value.size, value.digest


def _hash_of(parts: tuple[Value, ...]) -> str:
    return blake2b("\n".join(part.digest for part in parts).encode(), digest_size=16).hexdigest()
