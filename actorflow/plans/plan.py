"""`Plan`: what users write."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from actorflow.behaviours.errors import brief
from actorflow.plans.arguments import InputFile
from actorflow.plans.blueprint import Blueprint
from actorflow.plans.cache.cache import FolderCache
from actorflow.plans.errors import BadPlan, PlanFailed, UnknownJob
from actorflow.plans.job import DEFAULT, Job, JobOptions, OptionsGiven, options_of
from actorflow.plans.report.diagram import Diagram
from actorflow.plans.report.drawing import Drawing
from actorflow.plans.report.progress import ProgressBar, shown_on
from actorflow.plans.run.monitor import LastRun, RunMonitor
from actorflow.plans.run.options import BUDGET, RunOptions, cores
from actorflow.plans.run.preview import preview
from actorflow.plans.run.run import PlanRun
from actorflow.plans.scheduler import CRASHES_MAX, Role
from actorflow.plans.sources import add_graph, add_mapping, add_module
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from actorflow.engine.engine import BareEngine
    from actorflow.plans.report.report import Report
    from actorflow.plans.run.preview import Prediction
    from actorflow.plans.run.result import PlanResult

__all__ = ["Plan"]


class Plan:
    """A graph of jobs, run on OS processes that come and go. Not thread-safe while it is built.

    >>> plan = Plan()
    >>> load = plan.job(list, "abc")
    >>> plan.job(len, load, name="count")
    <Job 'count'>
    >>> [job.name for job in plan]
    ['list', 'count']
    """

    def __init__(self) -> None:
        self.blueprint = Blueprint()
        """The jobs as data."""
        self._last: LastRun | None = None

    # Building.

    def job(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        after: Job | str | Iterable[Job | str] = (),
        name: str | None = None,
        priority: int = 0,
        retries: int | None = None,
        timeout: float | None = None,
        weight: int = 1,
        resources: Mapping[str, Any] | None = None,
        cache: bool = True,
        **kwargs: Any,
    ) -> Job:
        """Add a job: a function that is called in a worker process.

        Args:
            function: any function; lambdas and closures need cloudpickle.
            *args: its arguments. A job among them, also inside lists, tuples and dictionaries,
                comes first, and the function gets its result.
            after: jobs that come first, whose results are not needed; also by name.
            name: must be unique; otherwise the name of the function, numbered from the second on.
            priority: of two ready jobs, the one with the higher number comes first.
            retries: how often it is tried again after it has failed; `None` leaves it to the run.
            timeout: seconds for one attempt; then its process is killed.
            weight: how many workers' places it takes.
            resources: what it takes of the resources that `run(resources=...)` limits; `"memory"`
                is a limit of its process in bytes, or a tuple of limits for one attempt each.
            cache: False runs it even if it is up to date.
            **kwargs: its other arguments.

        Raises:
            BadPlan: it cannot be part of this plan, or the function does not take these arguments.

        """
        plain = priority == 0 and retries is None and timeout is None and weight == 1
        if plain and resources is None and cache is True:
            options = DEFAULT
        else:
            options = options_of(
                OptionsGiven(
                    priority=priority,
                    retries=retries,
                    timeout=timeout,
                    weight=weight,
                    resources=resources,
                    cache=cache,
                )
            )
        blueprint = self.blueprint
        index = blueprint.add(function, args, kwargs, name=name, after=after, options=options)
        return Job(blueprint, index)

    def file(self, path: str | os.PathLike[str]) -> Path:
        """Return a path to give to a job as an argument, so that the content of the file counts.

        With `cache=`, the job runs again when the content has changed. The file is read when the
        job is looked up, so that a job before it may write it.

        >>> Plan().file("input.csv").suffix
        '.csv'
        """
        return InputFile(path)

    def map(
        self,
        function: Callable[..., Any],
        items: Job | Iterable[Any],
        /,
        *,
        name: str | None = None,
        after: Job | str | Iterable[Job | str] = (),
        priority: int = 0,
        retries: int | None = None,
        timeout: float | None = None,
        weight: int = 1,
        resources: Mapping[str, Any] | None = None,
        cache: bool = True,
        **kwargs: Any,
    ) -> Job:
        """Call a function once for each item; the result of the job returned is the list.

        Args:
            function: called with an item and `kwargs`, in a job of its own for each item.
            items: what to branch over: values, jobs, or one job whose result is a list that is
                only known when it has run.
            name: of the whole; the jobs are `name[0]`, `name[1]` and so on.
            after: as for `job`; so are the other options, which hold for each of the jobs.
            priority: see `job`.
            retries: see `job`.
            timeout: see `job`.
            weight: see `job`.
            resources: see `job`.
            cache: see `job`.
            **kwargs: the same for all; jobs among them hand over their results.

        """
        options = options_of(
            OptionsGiven(
                priority=priority,
                retries=retries,
                timeout=timeout,
                weight=weight,
                resources=resources,
                cache=cache,
            )
        )
        if isinstance(items, Job):
            index = self.blueprint.add(
                function, (items,), kwargs, name=name, after=after, options=options, role=Role.MAP
            )
            return Job(self.blueprint, index)
        if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
            msg = (
                f"{brief(items)} is nothing to branch over: give a list, or a job that returns one"
            )
            raise BadPlan(msg)
        return self._map_items(function, items, kwargs, name=name, after=after, options=options)

    def _map_items(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        kwargs: dict[str, Any],
        *,
        name: str | None,
        after: Any,
        options: JobOptions,
    ) -> Job:
        blueprint = self.blueprint
        many = isinstance(after, Iterable) and not isinstance(after, str)
        waits = tuple(after) if many else after
        items = tuple(items)  # whatever is wrong with them is noticed before a job is added
        blueprint.check_upstream(items, kwargs, waits)
        blueprint.check_call(function, (None,), kwargs)
        # The gathering job comes first, so that a name that is taken is refused before the rest.
        gather = blueprint.add(function, (), name=name, role=Role.GATHER)
        first = len(blueprint)
        for item in items:
            each = blueprint.add(
                function, (item,), kwargs, after=waits, options=options, named=False
            )
            blueprint.link(each, gather)
        blueprint.span(first, len(blueprint) - first, gather)
        return Job(blueprint, gather)

    @classmethod
    def from_mapping(
        cls,
        jobs: Mapping[Hashable, Any],
        edges: Iterable[tuple[Hashable, Hashable]] = (),
    ) -> Plan:
        """Return a plan of functions by name, and edges (job, job after it).

        A value is a function, whose parameters may name jobs directly before it to get their
        results; or a tuple `(function, argument, ...)`.
        """
        plan = cls()
        add_mapping(plan.blueprint, jobs, edges)
        return plan

    @classmethod
    def from_networkx(cls, graph: Any) -> Plan:
        """Return a plan from a `networkx.DiGraph` whose nodes have an attribute `job`.

        The other attributes of a node may be options of `job`. See `from_mapping`.
        """
        plan = cls()
        add_graph(plan.blueprint, graph)
        return plan

    @classmethod
    def from_module(cls, module: ModuleType) -> Plan:
        """Return a plan of the functions in a module that are marked with `@job`.

        Their parameters name the jobs whose results they take.
        """
        plan = cls()
        add_module(plan.blueprint, module)
        return plan

    # Running.

    def run(
        self,
        workers: int | None = None,
        *,
        renew_after: int | None = None,
        renew_after_seconds: float | None = None,
        max_rss: int | None = None,
        setup: Callable[[], object] | None = None,
        launcher: Any = "forkserver",
        on_failure: str = "stop",
        retries: int = 0,
        crashes_max: int = CRASHES_MAX,
        resources: Mapping[str, int] | None = None,
        budget: int = BUDGET,
        quiet: bool = False,
        cache: str | os.PathLike[str] | None = None,
        force: bool = False,
        progress: bool | None = None,
        on: str | BareEngine | None = None,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        directory: str | os.PathLike[str] | None = None,
    ) -> PlanResult:
        """Run the plan on worker processes; return when all is done.

        Args:
            workers: how many processes at the same time, at most; one for each core by default.
                With `on`, how many jobs on all machines: 100 by default.
            renew_after: jobs after which a process is replaced by a new one.
            renew_after_seconds: seconds after which a process is replaced.
            max_rss: bytes of memory from which on a process is replaced.
            setup: called once in each process, before its first job.
            launcher: what starts processes: `"forkserver"`, `"spawn"`, or a `Launcher`.
            on_failure: what a job that has failed for good means for the others: `"stop"` begins
                nothing more, `"continue"` skips what needs its result.
            retries: how often a job is tried again that has no number of its own.
            crashes_max: how many crashes of its worker fail a job.
            resources: how much there is of each resource that jobs use.
            budget: bytes of arguments that wait for workers at the same time, at most.
            quiet: do not pass on what jobs print; it is in their records.
            cache: a folder for results. A job whose code, arguments and inputs are those of an
                earlier run is not run again; see `why`.
            force: run everything, and store it in the cache again.
            progress: show a bar on stderr; by default if that is a terminal and rich is installed.
            on: a store that several machines share, such as `"postgresql://host/db"`, or an engine
                on one: the workers of that store run the jobs (`actorflow cluster worker`), and
                this process only waits. Takes no options of processes, of a cache or of progress.
            id: with `on`: the name of the plan in the store. Another call with the same id waits
                for the same plan, so that a program that was killed can be started again.
            directory: with `on`: where results above 1 MiB go, a folder that all machines share or
                a URL for fsspec. They are deleted with the result, unless the plan has an `id`.

        Raises:
            BadPlan: the plan cannot be run; nothing was started.
            BadOption: an option has a wrong value, or is not for a run of that sort.
            BadCache: the folder cannot be used as a cache.
            PlanFailed: a job has failed, and `on_failure` is `"stop"`; or no process could be
                started. Its `result` has the finished jobs.
            KeyboardInterrupt: Ctrl-C. Jobs that run are killed, and a report is printed.

        """
        if on is not None:
            given = {
                "renew_after": renew_after, "renew_after_seconds": renew_after_seconds,
                "max_rss": max_rss, "setup": setup, "cache": cache, "progress": progress,
                "launcher": launcher != "forkserver", "budget": budget != BUDGET,
                "quiet": quiet, "force": force,
            }  # fmt: skip
            _refuse_for(on, given)
            return self._run_on(
                on,
                id=id,
                workers=workers,
                directory=directory,
                on_failure=on_failure,
                retries=retries,
                crashes_max=crashes_max,
                resources=resources,
            )
        if id is not None or directory is not None:
            name = "id" if id is not None else "directory"
            msg = f"{name}= is for plans on other machines: plan.run(on='postgresql://host/db')"
            raise BadOption(msg)
        with ExitStack() as stack:
            options = RunOptions(
                workers=cores() if workers is None else workers,
                renew_after=renew_after,
                renew_after_seconds=renew_after_seconds,
                max_rss=max_rss,
                setup=setup,
                launcher=launcher,
                on_failure=on_failure,
                retries=retries,
                crashes_max=crashes_max,
                resources=resources or {},
                budget=budget,
                quiet=quiet,
                cache=_open_cache(stack, cache, force=force),
            )
            run = PlanRun(self.blueprint, options, watch=_open_watch(stack, progress=progress))
            try:
                return run.run()
            finally:
                self._last = LastRun.of(run)

    def _run_on(self, on: str | BareEngine, **options: Any) -> PlanResult:
        # By name: it stands above this module, and loads an engine.
        above = importlib.import_module("actorflow.plans.service.cluster_run")
        result: PlanResult
        try:
            result = above.run_on(self, on, **options)
        except PlanFailed as failed:
            self._last = LastRun(cast("PlanResult", failed.result).report)
            raise
        self._last = LastRun(result.report)
        return result

    # Looking.

    def __len__(self) -> int:
        return len(self.blueprint)

    def __iter__(self) -> Iterator[Job]:
        return (Job(self.blueprint, index) for index in range(len(self.blueprint)))

    def __getitem__(self, name: str) -> Job:
        """Return a job by its name; raise `UnknownJob` if no job has it."""
        return Job(self.blueprint, self.blueprint.index(name))

    def __contains__(self, job: object) -> bool:
        if isinstance(job, Job):
            return job.blueprint is self.blueprint
        return isinstance(job, str) and self.blueprint.has(job)

    def __repr__(self) -> str:
        return f"<Plan of {len(self):,} jobs>"

    def upstream(self, job: Job | str) -> Sequence[Job]:
        """Return the jobs directly before a job. Costs a look at every edge."""
        index = self[job].index if isinstance(job, str) else job.index
        return [Job(self.blueprint, each) for each in self.blueprint.upstream()[index]]

    def check(self) -> None:
        """Check that the plan can be run, as `run` does before it starts anything.

        Raises:
            BadPlan: there is a cycle, an unknown name, or a function that cannot be sent to another
                process.

        """
        self.blueprint.graph()
        self.blueprint.codes()

    def why(self, job: Job | str, cache: str | os.PathLike[str] | None = None) -> str:
        """Return why a job runs or does not: "argument `alpha` changed", "up to date".

        With a cache, this is about what `run(cache=...)` would do now; the cost is that of looking
        at every job. Without, it is about the last run of this plan.

        Raises:
            UnknownJob: the plan has no such job.
            BadOption: there is no cache, and the plan has not been run.

        """
        name = job.name if isinstance(job, Job) else job
        found = self.report().records if cache is None else self.preview(cache)
        reasons = {each.name: each.reason for each in found}
        if name not in reasons:
            msg = f"there is no job {name!r}{near(name, reasons)}"
            raise UnknownJob(msg)
        return reasons[name] or "it was run without a cache"

    def preview(self, cache: str | os.PathLike[str], *, force: bool = False) -> list[Prediction]:
        """Return what a run with this cache would do with each job, and why. Runs nothing.

        Raises:
            BadPlan: the plan cannot be run.
            BadCache: the folder cannot be used as a cache.

        """
        with FolderCache(cache, force=force) as folder:
            return preview(self.blueprint, folder)

    def report(self) -> Report:
        """Return what the last run has cost: times, workers, the critical path; print it.

        Raises:
            BadOption: the plan has not been run.

        """
        if self._last is None:
            raise BadOption("the plan has not been run: plan.run() first")
        return self._last.report

    def draw(self, path: str | os.PathLike[str] | None = None) -> Drawing:
        """Return a drawing of the graph, coloured by the last run; save it if a path is given.

        Printed, it is text. A path ends with `.png`, `.svg` or `.pdf` (these need matplotlib), or
        with `.mmd` (Mermaid), `.dot` or `.txt`.
        """
        records = () if self._last is None else self._last.report.records
        if len(records) >= len(self) > 0:
            diagram = Diagram.of_records(records)
        else:
            names = self.blueprint.names()
            before = [[names[each] for each in some] for some in self.blueprint.upstream()]
            diagram = Diagram.of(dict(zip(names, before, strict=True)))
        drawing = Drawing(diagram)
        if path is not None:
            drawing.save(path)
        return drawing


def _refuse_for(on: object, given: Mapping[str, object]) -> None:
    """Refuse options that are for processes of this machine.

    Raises:
        BadOption: one of them is given.

    """
    for name, value in given.items():
        if value is not None and value is not False:
            msg = (
                f"{name}= is for processes on this machine; with on={brief(on)}, workers decide "
                "about that: engine.plans.workers(...) in the setup of `actorflow cluster worker`"
            )
            raise BadOption(msg)


def _open_cache(
    stack: ExitStack, folder: str | os.PathLike[str] | None, *, force: bool
) -> FolderCache | None:
    return None if folder is None else stack.enter_context(FolderCache(folder, force=force))


def _open_watch(stack: ExitStack, *, progress: bool | None) -> RunMonitor | None:
    wanted = shown_on() if progress is None else progress
    return RunMonitor(stack.enter_context(ProgressBar())) if wanted else None
