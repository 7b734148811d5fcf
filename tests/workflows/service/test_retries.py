"""Retries, timeouts, heartbeats and progress of tasks."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Linger, Queue
from actorflow.engine.errors import BadResult, ExecutionFailed
from actorflow.workflows.errors import InvalidStep
from tests.engine.kinds import until
from tests.workflows.service.orders import PATIENCE, advance_until_done
from tests.workflows.service.process_tasks import counts_up, says_who

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actorflow.testing import VirtualClock


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: Any, tmp_path: Path, clock: VirtualClock) -> Iterator[af.Engine]:
    """Yield an engine: tasks do not depend on the store, beyond what `check_store` checks."""
    where = ":memory:" if request.param == "memory" else tmp_path / "store.db"
    with af.Engine(where, clock=clock, durability="off", retention=None) as made:
        yield made


PAUSE = af.Backoff(initial=1.0, factor=1.0, maximum=1.0)


class CardDeclined(Exception):
    """The bank says no."""


class Raised(af.Workflow[str]):
    """Execute the task of that name; return the name and the text of its failure."""

    task: Any = None

    def handle(self) -> str:
        try:
            return f"done {self.execute(type(self).task(), raises=True)}"
        except af.StepFailed as error:
            return f"{error.error['name']}: {error.error['message']}"


def class_of(engine: af.Engine, task: Any) -> type[Raised]:
    """Return a workflow which executes a task without arguments; register both."""
    made = type("Raised", (Raised,), {"task": staticmethod(task)})
    engine.workflows.register(task, made)
    return made


def started(engine: af.Engine, task: Any, id: str | None = None) -> Any:  # noqa: A002 - its id
    """Return the handle of a workflow which executes a task."""
    return engine.start(class_of(engine, task)(), id=id)


@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({"give_up_on": (CardDeclined,)}, 1),
        ({"give_up_on": OSError}, 4),
        ({"retry_on": (CardDeclined, OSError)}, 4),
        ({"retry_on": OSError}, 1),
    ],
)
def test_which_errors_are_tried_again_can_be_chosen(
    engine: af.Engine, clock: VirtualClock, options: dict[str, Any], tries: int
) -> None:
    tried: list[int] = []

    decorate: Any = af.task

    @decorate(retries=3, backoff=PAUSE, **options)  # type: ignore[untyped-decorator]
    def charge() -> None:
        tried.append(1)
        raise CardDeclined("no money")

    handle = started(engine, charge)
    advance_until_done(engine, clock, handle, 1)
    assert handle.result(PATIENCE) == "CardDeclined: no money"
    assert len(tried) == tries


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("give_up_on", "CardDeclined"),
        ("retry_on", (OSError, 5)),
        ("heartbeat", 0),
        ("attempt_timeout", -1),
        ("backoff", "1"),
    ],
)
def test_wrong_options_are_refused_where_the_task_is_defined(option: str, value: Any) -> None:
    with pytest.raises(InvalidStep, match=option):
        af.task(**{option: value})(lambda: None)


def test_an_attempt_in_a_thread_ends_and_the_next_gets_its_place(
    engine: af.Engine, clock: VirtualClock
) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)
    attempts: Counter[str] = Counter()

    @af.task(attempt_timeout=10.0, retries=1, backoff=PAUSE, concurrency=1)
    def hang() -> str:
        task = af.current_task()
        attempts[task.id] += 1
        begun.release()
        if task.attempt == 1:
            release.wait(PATIENCE)
        return f"attempt {task.attempt}"

    handle = started(engine, hang, id="a")
    assert begun.acquire(timeout=PATIENCE)
    clock.advance(10.0)
    advance_until_done(engine, clock, handle, 1)
    assert handle.result(PATIENCE) == "done attempt 2"
    release.set()


@pytest.mark.parametrize("limit", ["timeout", "attempt_timeout"])
def test_hung_threads_do_not_block_a_task_for_all_instances(
    engine: af.Engine, clock: VirtualClock, limit: str
) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)
    hangs = [True]

    decorate: Any = af.task

    @decorate(**{limit: 10.0})  # type: ignore[untyped-decorator]
    def hang() -> str:
        begun.release()
        if hangs[0]:
            assert release.wait(10 * PATIENCE)
        return "fine"

    flow = class_of(engine, hang)
    hung = [engine.start(flow(), id=f"hung-{number}") for number in range(32)]
    for _ in hung:
        assert begun.acquire(timeout=PATIENCE)
    hangs[0] = False
    last = engine.start(flow(), id="last")
    until(engine, lambda: engine.statistics().tasks == 33)
    clock.advance(10.0)
    assert last.result(PATIENCE) in ("done fine", hung[0].result(PATIENCE))
    for each in hung:
        assert each.result(PATIENCE).startswith("TaskTimeout: ")
    release.set()


def test_the_timeout_is_for_all_attempts(engine: af.Engine, clock: VirtualClock) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    @af.task(timeout=25.0, attempt_timeout=10.0, retries=100, backoff=PAUSE)
    def hang() -> None:
        begun.release()
        release.wait(PATIENCE)

    handle = started(engine, hang, id="a")
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE)
        clock.advance(10.0)
        until(engine, lambda: engine.statistics().tasks == 1)
        clock.advance(1.0)
    assert begun.acquire(timeout=PATIENCE)
    clock.advance(3.0)
    assert handle.result(PATIENCE) == "TaskTimeout: hang (0/0.0) took longer than its 25.0 s"
    release.set()


def test_a_coroutine_is_cancelled_when_its_time_is_up(
    engine: af.Engine, clock: VirtualClock
) -> None:
    begun, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    @af.task(attempt_timeout=10.0)
    async def hang() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.release()
            raise

    handle = started(engine, hang)
    assert begun.acquire(timeout=PATIENCE)
    clock.advance(10.0)
    assert handle.result(PATIENCE).startswith("TaskTimeout: attempt 1 at task ")
    assert cancelled.acquire(timeout=PATIENCE)


def test_progress_is_a_heartbeat_and_reaches_the_next_attempt(
    engine: af.Engine, clock: VirtualClock
) -> None:
    steps, go = threading.Semaphore(0), threading.Semaphore(0)
    seen: list[Any] = []

    @af.task(heartbeat=10.0, retries=1, backoff=PAUSE)
    def upload() -> int:
        task = af.current_task()
        seen.append(task.last_progress)
        for part in range(task.last_progress or 0, 3):
            assert task.progress(part + 1)
            steps.release()
            assert go.acquire(timeout=PATIENCE)
        return 3

    handle = started(engine, upload, id="a")
    for _ in range(2):
        assert steps.acquire(timeout=PATIENCE)
        clock.advance(8.0)
        go.release()
    assert steps.acquire(timeout=PATIENCE)
    clock.advance(10.0)
    advance_until_done(engine, clock, handle, 1)
    assert handle.result(PATIENCE) == "done 3"
    assert seen == [None, 3]
    go.release()


def test_progress_survives_a_restart(opens: Any, tmp_path: Any) -> None:
    begun, seen = threading.Semaphore(0), []
    release = threading.Event()

    @af.task
    def upload() -> str:
        task = af.current_task()
        seen.append(task.last_progress)
        if task.last_progress is None:
            task.progress({"page": 7})
            begun.release()
            release.wait(PATIENCE)
        return "uploaded"

    with opens(tmp_path / "s.db", durability="off") as engine:
        started(engine, upload, id="a")
        assert begun.acquire(timeout=PATIENCE)
        until(engine, lambda: engine.parts.store.open().rows[0].body[0] >= 0xC7)
        engine.close(timeout=0.05)
    with opens(tmp_path / "s.db", durability="off") as engine:
        assert started(engine, upload, id="a").result(PATIENCE) == "done uploaded"
    assert seen == [None, {"page": 7}]
    release.set()


def test_tasks_of_a_batch_have_their_ids(engine: af.Engine) -> None:
    seen: dict[str, int] = {}

    @af.task(batch=Linger(Queue(), 5.0, size=3))
    def double(numbers: list[int]) -> list[int]:
        for number, task in zip(numbers, af.current_task().batch, strict=True):
            seen[task.id] = number
        return [2 * number for number in numbers]

    class Doubles(af.Workflow[list[int]]):
        def handle(self) -> list[int]:
            return list(self.execute(*(double(number) for number in (7, 7, 9))))

    assert engine.start(Doubles(), id="d").result(PATIENCE) == [14, 14, 18]
    assert seen == {"d/0/0.0": 7, "d/0/0.1": 7, "d/0/0.2": 9}


def test_a_task_in_another_process_has_its_id(engine: af.Engine) -> None:
    handle = started(engine, says_who, id="a")
    assert handle.result(PATIENCE) == "done a/0/0.0"


def test_progress_from_another_process_reaches_the_next_attempt(
    engine: af.Engine, clock: VirtualClock
) -> None:
    handle = started(engine, counts_up, id="a")
    advance_until_done(engine, clock, handle, 1)
    assert handle.result(PATIENCE) == "done 2"


def test_a_result_of_another_type_fails_its_task(engine: af.Engine) -> None:
    @af.task(retries=3)
    def charge() -> int:
        return "4"  # type: ignore[return-value]

    found = started(engine, charge).result(PATIENCE)
    assert found.startswith("BadResult: the result of the task ")
    assert "is not int, as it is declared" in found
    assert "'4'" in found


@pytest.mark.parametrize("executor", ["thread", "loop"])
def test_a_person_answers_a_held_task(engine: af.Engine, executor: str) -> None:
    held = threading.Semaphore(0)

    @af.task(executor=executor)
    def approve() -> bool:
        held.release()
        return af.HOLD

    handle = started(engine, approve, id="a")
    assert held.acquire(timeout=PATIENCE)
    with pytest.raises(BadResult, match="is not bool, as it is declared"):
        engine.return_task("a/0/0.0", "yes")
    assert engine.return_task("a/0/0.0", value=True)
    assert handle.result(PATIENCE) == "done True"


def test_a_held_task_has_its_timeout(engine: af.Engine, clock: VirtualClock) -> None:
    held = threading.Semaphore(0)

    @af.task(timeout=3 * 86_400.0)
    def approve() -> bool:
        held.release()
        return af.HOLD

    handle = started(engine, approve, id="a")
    assert held.acquire(timeout=PATIENCE)
    until(engine, lambda: engine.parts.store.counts(("a",))["a"].timers == 1)
    clock.advance(3 * 86_400.0)
    assert handle.result(PATIENCE).startswith("TaskTimeout: ")
    assert not engine.return_task("a/0/0.0", value=True)


def test_a_task_that_fails_for_good_names_its_error(engine: af.Engine) -> None:
    @af.task(give_up_on=CardDeclined, retries=9)
    def charge() -> None:
        raise CardDeclined("no money")

    class Buys(af.Workflow[None]):
        def handle(self) -> None:
            self.execute(charge())

    with pytest.raises(ExecutionFailed, match="no money"):
        engine.start(Buys()).result(PATIENCE)
