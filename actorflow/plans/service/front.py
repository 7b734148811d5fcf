"""What users call: start durable plans, and find them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import Cancelled, KindMismatch
from actorflow.engine.identifiers import check_id
from actorflow.engine.kind import Status
from actorflow.plans.errors import PlanFailed
from actorflow.plans.master import CRASHES_MAX
from actorflow.plans.run.options import RunOptions, cores
from actorflow.plans.run.result import PlanResult
from actorflow.plans.service.definition import pack_plan
from actorflow.plans.service.kind import KIND, TASKER, DurablePlan, PlanKind, start_body
from actorflow.plans.service.tasker import do_job
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actorflow.engine.engine import Engine
    from actorflow.plans.plan import Plan
    from actorflow.plans.record import JobRecord

__all__ = ["PlanHandle", "Plans"]


class Plans:
    """The durable plans of an engine. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._core = engine.core
        self._lock = threading.Lock()
        self._starting = threading.Lock()  # or one start would sweep the folder of another
        self._tasker: dict[str, Any] | None = None
        self._temporary: str | None = None
        self._core.register(PlanKind())
        self._core.before_resume.append(self._before_resume)

    def _before_resume(self) -> None:
        if self._core.store.listing(kind=KIND, status=Status.ACTIVE, limit=1).rows:
            self._have_workers()

    def _have_workers(self) -> None:
        with self._lock:
            missing = self._tasker is None
        if missing:
            self.workers()

    def workers(self, workers: int | None = None, **options: Any) -> None:
        """Choose the worker processes that run the jobs of all plans, before the first one starts.

        Args:
            workers: how many there are at the same time, at most; one for each core by default.
            **options: of `engine.tasker`; `executor=af.Processes(renew_after=100)` renews them.

        Raises:
            BadOption: they were chosen already, or a plan was started before.

        """
        given = {"concurrency": workers or cores(), "executor": "process", "kills": True, **options}
        with self._lock:
            if self._tasker is not None:
                msg = (
                    f"plans have their workers already ({self._tasker}): call "
                    "engine.plans.workers() once, before the first plan is started or resumed"
                )
                raise BadOption(msg)
            self._core.board.register(TASKER, do_job, dict(given))
            self._tasker = given

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
            directory: where large results go; beside the store, if that is a file. On a store that
                several machines share, give one that they share as well.

        Raises:
            BadPlan: the plan cannot be run.
            BadOption: the store is shared, and there is no directory.
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
        self._have_workers()
        plan.blueprint.check_limits(options.resources)
        with self._starting:
            if self._core.store.execution(name) is None:
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
                "directory": str(self._directory(name, directory)),
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
            UnknownExecution: there is none of that id.
            KindMismatch: it is of another kind.

        """
        row = self._core.row(id)
        if row.kind != KIND:
            msg = f"execution {id!r} is of kind {row.kind!r}, not a plan"
            raise KindMismatch(msg)
        return PlanHandle(self._engine, id)

    def list(self) -> Iterator[PlanHandle]:
        """Yield all plans that are kept."""
        cursor = None
        while True:
            page = self._core.store.listing(kind=KIND, after=cursor)
            for row in page.rows:
                yield PlanHandle(self._engine, row.id)
            cursor = page.after
            if cursor is None:
                return

    def close(self) -> None:
        """Delete what plans of a store in memory have left in files."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _directory(self, name: str, given: str | Path | None) -> Path:
        """Make the folder of a plan's large results."""
        base = self._base() if given is None else Path(given).absolute()
        folder = base / uuid.uuid5(uuid.NAMESPACE_OID, name).hex
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "id").write_text(name, encoding="utf-8")
        return folder

    def _base(self) -> Path:
        store = self._core.store
        path = getattr(store, "path", None)
        if path is not None:
            base = Path(f"{path}.plans").absolute()
            self._sweep(base)
            return base
        if store.traits.shared:
            msg = (
                "large results of a plan go to files, which all machines on this store must see: "
                "engine.plans.start(plan, directory='/shared/plans')"
            )
            raise BadOption(msg)
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="actorflow-plans-")
        return Path(self._temporary)

    def _sweep(self, base: Path) -> None:
        """Delete the files of plans that the store has forgotten."""
        for note in base.glob("*/id"):
            if self._core.store.execution(note.read_text(encoding="utf-8")) is None:
                shutil.rmtree(note.parent, ignore_errors=True)


class PlanHandle:
    """A durable plan."""

    def __init__(self, engine: Engine, id: str) -> None:  # noqa: A002 - what it is
        self._engine = engine
        self.id = id
        """Its id in the store."""

    def __repr__(self) -> str:
        return f"<plan {self.id!r}>"

    @property
    def status(self) -> Status:
        """Where it stands."""
        return self._engine.execution(self.id).status

    def records(self) -> Sequence[JobRecord]:
        """Return what is known of each job, as last committed. Reads the whole journal."""
        return self._state().records()

    def result(self, timeout: float | None = None) -> PlanResult:
        """Wait until the plan has ended; return its result.

        Raises:
            PlanFailed: a job has failed, and failures stop the plan.
            Cancelled: it was cancelled.
            WaitTimeout: not in time. It goes on.

        """
        return self._result(self._engine.wait(self.id, timeout))

    async def aresult(self, timeout: float | None = None) -> PlanResult:
        """Like `result`, from a task of any event loop."""
        return self._result(await self._engine.await_(self.id, timeout))

    def _result(self, ended: Any) -> PlanResult:
        if ended.status == Status.CANCELLED:
            msg = f"plan {self.id!r} was cancelled"
            raise Cancelled(msg)
        state = self._state()
        desk = state.desk
        result = PlanResult(
            state.records,
            _no_value if desk is None else desk.value,
            seconds=ended.updated - ended.created,
            workers=state.workers,
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
        row = self._engine.core.row(self.id)
        state: DurablePlan = self._engine.core.decode(self._engine.core.kinds[KIND], row)
        return state


def _no_value(job: int) -> Any:
    msg = f"there is no job {job}: the plan is empty"
    raise LookupError(msg)
