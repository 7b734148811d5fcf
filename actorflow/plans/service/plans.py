"""What users call: start durable plans, and find them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import uuid
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from actorflow.engine.errors import ExecutionCancelled, KindMismatch
from actorflow.engine.ids import check_id
from actorflow.engine.kind import Status, decode_state
from actorflow.plans.errors import PlanFailed
from actorflow.plans.result_files import check_url, is_url
from actorflow.plans.run.job_calls import do_job
from actorflow.plans.run.options import RunOptions, cores
from actorflow.plans.run.result import PlanResult
from actorflow.plans.scheduler import CRASHES_MAX
from actorflow.plans.service.kind import KIND, TASKER, DurablePlan, PlanKind, start_body, tasker_for
from actorflow.plans.service.stored_plan import pack_plan
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from actorflow.engine.engine import BareEngine
    from actorflow.plans.job_record import JobRecord
    from actorflow.plans.plan import Plan

__all__ = ["OFFERS_MAX", "PlanHandle", "Plans"]

OFFERS_MAX = 5
"""Resources that one worker offers: each combination has a name of its own in the store."""


class Plans:
    """The durable plans of an engine. Thread-safe."""

    def __init__(self, engine: BareEngine) -> None:
        self._engine = engine
        self._parts = engine.parts
        self._lock = threading.Lock()
        self._starting = threading.Lock()  # or one start would sweep the folder of another
        self._tasker: dict[str, Any] | None = None
        self._temporary: str | None = None
        self._parts.register(PlanKind())
        self._parts.before_resume.append(self._before_resume)

    def _before_resume(self) -> None:
        if self._parts.store.listing(kind=KIND, status=Status.ACTIVE, limit=1).rows:
            self._have_workers()

    def _have_workers(self) -> None:
        if not self.has_workers:
            self.workers()

    def workers(
        self, workers: int | None = None, *, offers: Iterable[str] = (), **options: Any
    ) -> None:
        """Choose the worker processes that run the jobs of all plans, before the first one starts.

        Args:
            workers: how many there are at the same time, at most; one for each core by default. On
                a store that several machines share, 0 leaves all jobs to others.
            offers: on a store that several machines share: the resources that are here. A job with
                `resources={"gpu": 1}` gets only to machines that offer `"gpu"`.
            **options: of `engine.tasker`; `executor=af.Processes(renew_after=100)` renews them.

        Raises:
            BadOption: they were chosen already, or a plan was started before.

        """
        others = _combinations(offers)
        if workers == 0 and not self._parts.store.traits.shared:
            raise BadOption("workers=0: only this engine can run the jobs of its store")
        given = {"concurrency": workers or cores(), "executor": "process", "kills": True, **options}
        with self._lock:
            if self._tasker is not None:
                msg = (
                    f"plans have their workers already ({self._tasker}): call "
                    "engine.plans.workers() once, before the first plan is started or resumed"
                )
                raise BadOption(msg)
            if workers != 0:
                self._parts.tasks.register(TASKER, do_job, dict(given), others=others)
            self._tasker = given

    @property
    def has_workers(self) -> bool:
        """Whether the worker processes of this engine were chosen: see `workers`."""
        with self._lock:
            return self._tasker is not None

    def start(
        self,
        plan: Plan,
        *,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        workers: int | None = None,
        on_failure: str = "stop",
        retries: int = 0,
        crashes_max: int = CRASHES_MAX,
        resources: Mapping[str, int] | None = None,
        directory: str | Path | None = None,
    ) -> PlanHandle:
        """Start a durable plan: finished jobs and their results survive any crash.

        Args:
            plan: what to run; it is stored, so that a restart needs only the modules.
            id: only the first call with the same id starts it; another one returns the same plan.
            workers: how many jobs of this plan run at the same time, at most.
            on_failure: `"stop"` or `"continue"`; see `Plan.run`.
            retries: of jobs that have no number of their own.
            crashes_max: how many crashes of its worker fail a job.
            resources: how much there is of each resource that jobs use.
            directory: where large results go: a folder that all machines see, or a URL for fsspec,
                such as `"s3://bucket/plans"`. By default beside the store, if that is a file. On a
                store that several machines share, results are stored there by default, and may
                have 1 MiB each.

        Raises:
            BadPlan: the plan cannot be run.
            BadOption: the directory is a URL that cannot be used.
            KindMismatch: there is an execution of that id, and of another kind.

        """
        options = RunOptions(
            workers=cores() if workers is None else workers,
            on_failure=on_failure,
            retries=retries,
            crashes_max=crashes_max,
            resources=resources or {},
        )
        name = f"plan-{uuid.uuid4().hex}" if id is None else check_id(id, "an execution")
        if not self._parts.state.passive:
            self._have_workers()
        plan.blueprint.check_limits(options.resources)
        with self._starting:
            if self._parts.store.execution(name) is None:
                self._start(name, plan, options, directory)
            else:
                self._engine.resume()
        return self.get(name)

    def _start(
        self, name: str, plan: Plan, options: RunOptions, directory: str | Path | None
    ) -> None:
        body = start_body(
            pack_plan(plan.blueprint),
            {
                "directory": self._directory(name, directory),
                "offered": self._parts.store.traits.shared,
                "workers": options.workers,
                "on_failure": str(options.on_failure),
                "retries": options.retries,
                "crashes_max": options.crashes_max,
                "resources": dict(options.resources),
            },
        )
        self._engine.start(KIND, body, id=name)

    async def astart(self, plan: Plan, **options: Any) -> PlanHandle:
        """Like `start`, from a task of any event loop."""
        return await asyncio.to_thread(lambda: self.start(plan, **options))

    def get(self, id: str) -> PlanHandle:  # noqa: A002 - what it is
        """Return a durable plan by its id.

        Raises:
            UnknownExecution: no execution has that id.
            KindMismatch: it is of another kind.

        """
        row = self._parts.row(id)
        if row.kind != KIND:
            msg = f"execution {id!r} is of kind {row.kind!r}, not a plan"
            raise KindMismatch(msg)
        return PlanHandle(self._engine, id)

    def list(self) -> Iterator[PlanHandle]:
        """Yield all plans that are kept."""
        cursor = None
        while True:
            page = self._parts.store.listing(kind=KIND, after=cursor)
            for row in page.rows:
                yield PlanHandle(self._engine, row.id)
            cursor = page.after
            if cursor is None:
                return

    def workers_alive(self) -> int:
        """Return how many engines of a store that several share are alive. Asks the server."""
        return len(cast("Any", self._parts.store).status().members)

    def close(self) -> None:
        """Delete what plans of a store in memory have left in files."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _directory(self, name: str, given: str | Path | None) -> str:
        """Make the folder of a plan's large results; return nothing if they go to the store."""
        own = uuid.uuid5(uuid.NAMESPACE_OID, name).hex
        if given is None and self._parts.store.traits.shared:
            return ""
        if isinstance(given, str) and is_url(given):
            check_url(given)
            return f"{given.rstrip('/')}/{own}"
        base = self._base() if given is None else Path(given).absolute()
        folder = base / own
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "id").write_text(name, encoding="utf-8")
        return str(folder)

    def _base(self) -> Path:
        store = self._parts.store
        path = getattr(store, "path", None)
        if path is not None:
            base = Path(f"{path}.plans").absolute()
            self._sweep(base)
            return base
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="actorflow-plans-")
        return Path(self._temporary)

    def _sweep(self, base: Path) -> None:
        """Delete the files of plans that the store has forgotten."""
        for note in base.glob("*/id"):
            if self._parts.store.execution(note.read_text(encoding="utf-8")) is None:
                shutil.rmtree(note.parent, ignore_errors=True)


class PlanHandle:
    """A durable plan."""

    def __init__(self, engine: BareEngine, id: str) -> None:  # noqa: A002 - what it is
        self._engine = engine
        self.id = id
        """Its id in the store."""
        self.keeps_files = True
        """Whether its large results stay when the objects of `result()` are gone."""

    def __repr__(self) -> str:
        return f"<plan {self.id!r}>"

    @property
    def status(self) -> Status:
        """Where it stands."""
        return self._engine.parts.status(self.id)

    def records(self) -> Sequence[JobRecord]:
        """Return the record of each job, as last committed. Reads the whole journal."""
        return self._state().records()

    @property
    def directory(self) -> str:
        """The folder or URL of its large results; empty if they are in the store."""
        return self._state().directory

    def result(self, timeout: float | None = None) -> PlanResult:
        """Wait until the plan has ended; return its result.

        Raises:
            PlanFailed: a job has failed, and failures stop the plan.
            ExecutionCancelled: it was cancelled.
            WaitTimeout: not in time. It goes on.

        """
        return self._result(self._engine.wait(self.id, timeout))

    async def aresult(self, timeout: float | None = None) -> PlanResult:
        """Like `result`, from a task of any event loop."""
        return self._result(await self._engine.await_(self.id, timeout))

    def _result(self, ended: Any) -> PlanResult:
        if ended.status == Status.CANCELLED:
            msg = f"plan {self.id!r} was cancelled"
            raise ExecutionCancelled(msg)
        state = self._state()
        dispatcher = state.dispatcher
        result = PlanResult(
            state.records,
            _no_value if dispatcher is None else dispatcher.value,
            seconds=ended.updated - ended.created,
            workers=state.workers,
            directory=None if self.keeps_files else state.directory or None,
        )
        if ended.failure is not None:
            raise PlanFailed(f"{ended.failure.message}\n{result}", result)
        return result

    def cancel(self) -> None:
        """End the plan; jobs that run are killed."""
        self._engine.cancel(self.id)

    async def acancel(self) -> None:
        """Like `cancel`, from a task of any event loop."""
        await self._engine.acancel(self.id)

    def _state(self) -> DurablePlan:
        row = self._engine.parts.row(self.id)
        state: DurablePlan = decode_state(self._engine.parts.kinds[KIND], row)
        return state


def _combinations(offers: Iterable[str]) -> list[str]:
    """Return the taskers of all jobs that use some of the resources which are offered.

    Raises:
        BadOption: these are not names, or too many.

    """
    if isinstance(offers, str):
        msg = f"offers={offers!r} must be a list of names: offers=[{offers!r}]"
        raise BadOption(msg)
    given: list[Any] = list(offers)
    for name in given:
        if not isinstance(name, str) or not name or name == "memory":
            msg = f"offers={given!r}: {name!r} is not the name of a resource, such as 'gpu'"
            raise BadOption(msg)
    names = sorted(set(given))
    if len(names) > OFFERS_MAX:
        msg = f"offers={names!r}: a worker offers at most {OFFERS_MAX} resources"
        raise BadOption(msg)
    return [
        tasker_for(some) for count in range(len(names)) for some in combinations(names, count + 1)
    ]


def _no_value(job: int) -> Any:
    msg = f"there is no job {job}: the plan is empty"
    raise LookupError(msg)
