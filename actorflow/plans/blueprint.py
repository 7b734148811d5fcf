"""A plan as data: its jobs in columns, by number, checked before anything starts.

One list for each property instead of one object for each job, and only what differs from the
default is kept: a million jobs are built and checked in seconds.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from actorflow.behaviours.errors import brief
from actorflow.plans.arguments import find
from actorflow.plans.call_checker import CallChecker
from actorflow.plans.errors import BadPlan, UnknownJob
from actorflow.plans.graph import Graph
from actorflow.plans.job import DEFAULT, Job, JobOptions
from actorflow.plans.scheduler import Role
from actorflow.runtime.errors import install_hint, kind_and_text, near
from actorflow.runtime.processes.packed import pack_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Blueprint", "PickledFunction"]

_AFTER = "after={} must be a job, a name, or a list of these"

_NUMBERED = re.compile(r"(.*)-([1-9][0-9]*)", re.DOTALL)
_ITEM = re.compile(r"(.*)\[(0|[1-9][0-9]*)\]", re.DOTALL)


class PickledFunction:
    """A function that is only known as workers get it."""

    __slots__ = ("__name__", "data")

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.__name__ = name

    def __call__(self) -> NoReturn:
        """Refuse: it is called in workers only."""
        msg = f"{self.__name__} was stored, and is loaded by workers only"
        raise TypeError(msg)

    def __reduce__(self) -> tuple[type[PickledFunction], tuple[bytes, str]]:
        return PickledFunction, (self.data, self.__name__)


class Blueprint:
    """The jobs of a plan, in columns. Jobs are only ever added."""

    def __init__(self) -> None:
        self.functions: list[Callable[..., Any] | None] = []
        """The function of each job; `None` for a job that only gathers."""
        self.args: list[tuple[Any, ...]] = []
        self.kwargs: dict[int, dict[str, Any]] = {}
        self.options: dict[int, JobOptions] = {}
        self.roles: dict[int, Role] = {}
        self.takes = bytearray()
        """1 for each job that takes the result of another one."""
        self.gathered: dict[int, range] = {}
        """By job that gathers the jobs of a map over known items: these jobs."""
        self._sources = array("i")
        self._targets = array("i")
        self._later: list[tuple[str, int]] = []  # edges from jobs that are given by name
        self._given: dict[int, str] = {}
        self._by_name: dict[str, int] = {}
        self._ordinals = array("i")
        self._counted: dict[str, array[int]] = {}  # by name of a function: its jobs
        self._spans: list[int] = []  # the first job of each map over known items
        self._span_of: dict[int, tuple[int, int]] = {}  # by first: (gathering job, count)
        self._calls = CallChecker()

    def __len__(self) -> int:
        return len(self.functions)

    # Building.

    def add(
        self,
        function: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        name: str | None = None,
        after: Any = (),
        options: JobOptions = DEFAULT,
        role: Role = Role.CALL,
        named: bool = True,
    ) -> int:
        """Add a job; return its number. `named=False` leaves its name to `span`.

        Raises:
            BadPlan: it cannot be part of the plan.

        """
        if type(function) is not PickledFunction and not callable(function):
            msg = (
                f"{brief(function)} cannot be called: plan.job(fit, data), not plan.job(fit(data))"
            )
            raise BadPlan(msg)
        if role is not Role.GATHER:
            self.check_call(function, args, kwargs)
        index = len(self.functions)
        jobs = _jobs_in(args, kwargs)
        before = self._upstream(jobs, after)
        if named:
            self._name(index, function, name)
        else:
            self._ordinals.append(0)
        self.functions.append(function)
        self.args.append(args)
        self.takes.append(1 if jobs else 0)
        if kwargs:
            self.kwargs[index] = kwargs
        if options is not DEFAULT:
            self.options[index] = options
        if role:
            self.roles[index] = role
        for each in before:
            self.link(each, index)
        return index

    def check_call(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> None:
        """Check that a function takes these arguments.

        Raises:
            BadPlan: it does not.

        """
        if type(function) is not PickledFunction:
            self._calls.check(function, args, kwargs)

    def check_upstream(self, args: tuple[Any, ...], kwargs: dict[str, Any], after: Any) -> None:
        """Check what a job with these arguments would wait for.

        Raises:
            BadPlan: one is a job of another plan, or `after` names none.

        """
        self._upstream(_jobs_in(args, kwargs), after)

    def link(self, before: int | str, after: int) -> None:
        """Add an edge; a job that comes later in the plan may be given by its name."""
        if isinstance(before, str):
            self._later.append((before, after))
        else:
            self._sources.append(before)
            self._targets.append(after)

    def span(self, first: int, count: int, gather: int) -> None:
        """Name the jobs of a map over known items after the job that gathers them."""
        self.gathered[gather] = range(first, first + count)
        if count:
            self._spans.append(first)
            self._span_of[first] = (gather, count)

    def _upstream(self, jobs: list[Job], after: Any) -> Iterable[int | str]:
        waits: list[Any] = jobs
        if isinstance(after, (Job, str)):
            waits = [*jobs, after]
        elif after:
            if not isinstance(after, Iterable):
                raise BadPlan(_AFTER.format(brief(after)))
            waits = [*jobs, *after]
        found: dict[int | str, None] = {}
        for job in waits:
            if isinstance(job, str):
                found[job] = None
            elif not isinstance(job, Job):
                raise BadPlan(_AFTER.format(brief(after)))
            elif job.blueprint is not self:
                msg = f"{job!r} belongs to another plan: add it to this one first"
                raise BadPlan(msg)
            else:
                found[job.index] = None
        return found

    # Names.

    def _name(self, index: int, function: Any, name: Any) -> None:
        if name is None:
            self._number(index, function)
            return
        if not isinstance(name, str) or not name or name != name.strip():
            msg = f"name={brief(name)} must be text without space around it, as in name='fit'"
            raise BadPlan(msg)
        if self._index(name) is not None:
            msg = f"there are two jobs of the name {name!r}: give one another name="
            raise BadPlan(msg)
        self._given[index] = name
        self._by_name[name] = index
        self._ordinals.append(0)

    def _number(self, index: int, function: Any) -> None:
        base = _base_name(function)
        counted = self._counted.setdefault(base, array("i"))
        counted.append(index)
        while _numbered(base, len(counted)) in self._by_name:  # somebody has given that name
            counted[-1] = -1
            counted.append(index)
        self._ordinals.append(len(counted))

    def name(self, index: int) -> str:
        """Return the name of a job."""
        ordinal = self._ordinals[index]
        if ordinal:
            return _numbered(_base_name(self.functions[index]), ordinal)
        name = self._given.get(index)
        if name is not None:
            return name
        first = self._spans[bisect_right(self._spans, index) - 1]
        return f"{self.name(self._span_of[first][0])}[{index - first}]"

    def names(self) -> list[str]:
        """Return the names of all jobs, by number."""
        return [self.name(index) for index in range(len(self))]

    def index(self, name: str) -> int:
        """Return the number of a job.

        Raises:
            UnknownJob: no job has that name.

        """
        index = self._index(name)
        if index is None:
            msg = f"there is no job {name!r}{near(name, self.names())}"
            raise UnknownJob(msg)
        return index

    def has(self, name: str) -> bool:
        """Return whether there is a job of that name."""
        return self._index(name) is not None

    def _index(self, name: str) -> int | None:
        index = self._by_name.get(name)
        if index is not None:
            return index
        counted = self._counted.get(name)
        if counted is not None and counted[0] >= 0:
            return counted[0]
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            counted, ordinal = self._counted.get(numbered[1]), int(numbered[2])
            if counted is not None and 1 < ordinal <= len(counted) and counted[ordinal - 1] >= 0:
                return counted[ordinal - 1]
        item = _ITEM.fullmatch(name)
        if item is not None:
            gather, place = self._index(item[1]), int(item[2])
            for first, (each, count) in self._span_of.items():
                if each == gather and place < count:
                    return first + place
        return None

    # Checking.

    def graph(self) -> Graph:
        """Return the graph of the jobs.

        Raises:
            BadPlan: there is a cycle, or a job waits for one that is not there.

        """
        sources, targets = self._sources, self._targets
        if self._later:
            sources, targets = sources[:], targets[:]
            for name, after in self._later:
                before = self._index(name)
                if before is None:
                    known = near(name, self.names())
                    msg = f"job {self.name(after)!r} waits for {name!r}, which is not there{known}"
                    raise BadPlan(msg)
                sources.append(before)
                targets.append(after)
        graph = Graph(len(self), sources, targets)
        cycle = graph.cycle()
        if cycle is not None:
            path = " -> ".join(map(self.name, cycle))
            msg = f"jobs wait for each other, so none of them can begin: {path}"
            raise BadPlan(msg)
        return graph

    def check_limits(self, limits: Mapping[str, int]) -> None:
        """Check that no job waits forever for a resource.

        Raises:
            BadPlan: a job needs more of one than there is.

        """
        for job, options in self.options.items():
            for name, amount in options.uses.items():
                if amount > limits.get(name, 0):
                    known = "" if name in limits else near(name, limits)
                    msg = (
                        f"job {self.name(job)!r} needs {amount} of resource {name!r}, but the run "
                        f"has {limits.get(name, 0)}: run(resources={{{name!r}: {amount}}}){known}"
                    )
                    raise BadPlan(msg)

    def upstream(self) -> list[Sequence[int]]:
        """Return the jobs directly before each job."""
        found: list[list[int]] = [[] for _ in range(len(self))]
        for first, second in self.graph().edges():
            found[second].append(first)
        return [list(dict.fromkeys(each)) for each in found]

    def codes(self) -> dict[int, bytes]:
        """Return every function as a worker process gets it, by `id()`.

        Raises:
            BadPlan: a function cannot be sent to another process.

        """
        functions = {id(each): each for each in self.functions if each is not None}
        return {number: self._code(each) for number, each in functions.items()}

    @staticmethod
    def base_name(function: Any) -> str:
        """Return the name that jobs of a function have unless they are given one."""
        return _base_name(function)

    def _code(self, function: Callable[..., Any]) -> bytes:
        if isinstance(function, PickledFunction):
            return function.data
        try:
            packed = pack_value(function)
        except Exception as error:
            job = next(i for i, each in enumerate(self.functions) if each is function)
            msg = (
                f"the function of job {self.name(job)!r} cannot be sent to a worker process "
                f"({kind_and_text(error)}); give one at the top of a module; lambdas and "
                f"closures need cloudpickle: {install_hint('plans')}"
            )
            raise BadPlan(msg) from error
        return packed.data


def _jobs_in(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[Job]:
    jobs: list[Job] = []
    try:
        for each in args:
            if type(each) is Job:
                jobs.append(each)
            else:
                find(Job, each, jobs)
        if kwargs:
            find(Job, kwargs, jobs)
    except RecursionError:
        msg = (
            "an argument contains itself, or is nested more deeply than Python's recursion limit: "
            "give the job a flat list, or put the structure into an object of your own"
        )
        raise BadPlan(msg) from None
    return jobs


def _base_name(function: Any) -> str:
    while hasattr(function, "func"):  # a functools.partial
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def _numbered(base: str, ordinal: int) -> str:
    return base if ordinal == 1 else f"{base}-{ordinal}"
