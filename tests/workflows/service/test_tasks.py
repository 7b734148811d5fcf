"""Tasks of workflows on the taskers of an engine."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Linger, Queue, Unique
from actorflow.engine.errors import ExecutionFailed
from actorflow.runtime.errors import ActorflowError
from actorflow.workflows.task import current_task
from tests.engine.kinds import until
from tests.workflows.service.orders import PATIENCE, advance_until_done
from tests.workflows.service.process_tasks import Away, Hangs, breaks_elsewhere

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.testing import VirtualClock


def test_a_task_is_tried_again_with_the_same_id(engine: af.Engine, clock: VirtualClock) -> None:
    ids: list[str] = []

    @af.task(retries=2, backoff=10)
    def fragile() -> str:
        ids.append(current_task().id)
        if len(ids) < 3:
            raise OSError("no network")
        return "done"

    class Tries(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(fragile())

    tries = engine.start(Tries(), id="t")
    advance_until_done(engine, clock, tries, 20)
    assert tries.result(PATIENCE) == "done"
    assert ids == ["t/0/0.0"] * 3


@af.task(name="in a thread")
def breaks() -> None:
    raise ValueError("no")


@af.task(name="on the loop")
async def breaks_later() -> None:
    raise ValueError("no")


@af.task(name="in a batch", batch=Queue)
def breaks_all(_numbers: list[int]) -> list[int]:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("step", "function"),
    [
        (breaks, "in breaks"),
        (breaks_later, "in breaks_later"),
        (lambda: breaks_all(1), "in breaks_all"),
        (breaks_elsewhere, "in breaks_elsewhere"),
    ],
    ids=["thread", "loop", "batch", "process"],
)
def test_z60_the_failure_of_a_task_comes_with_its_traceback(
    engine: af.Engine, caplog: pytest.LogCaptureFixture, step: Any, function: str
) -> None:
    class Breaks(af.Workflow[str]):
        def handle(self) -> str:
            try:
                self.execute(step(), raises=True)
            except af.StepFailed as error:
                return str(error.error["stacktrace"])
            return "done"

    engine.workflows.register(breaks, breaks_later, breaks_all, breaks_elsewhere)
    found = engine.start(Breaks()).result(PATIENCE)
    assert function in found
    assert found.endswith("ValueError: no\n")
    (record,) = [each for each in caplog.records if "task failed" in each.getMessage()]
    assert "ValueError('no')" in record.getMessage()


def test_outside_of_a_task_there_is_none() -> None:
    with pytest.raises(ActorflowError, match="no task of a workflow runs here"):
        current_task()


def test_async_tasks_run_on_the_loop(engine: af.Engine) -> None:
    @af.task
    async def later(number: int) -> str:
        await asyncio.sleep(0)
        return f"{number} {current_task().id}"

    class Gathers(af.Workflow[tuple[str, ...]]):
        def handle(self) -> tuple[str, ...]:
            return self.execute(*(later(number) for number in range(3)))

    found = engine.start(Gathers(), id="g").result(PATIENCE)
    assert list(found) == [f"{number} g/0/0.{number}" for number in range(3)]


@pytest.mark.parametrize("executor", ["thread", "loop"])
def test_where_a_task_runs_can_be_chosen(engine: af.Engine, executor: str) -> None:
    names: list[str] = []

    @af.task(executor=executor)
    def sync() -> None:
        names.append(threading.current_thread().name)

    @af.task(executor=executor)
    async def later() -> None:
        names.append(threading.current_thread().name)

    class Both(af.Workflow[None]):
        def handle(self) -> None:
            self.execute(sync())
            self.execute(later())

    engine.start(Both()).result(PATIENCE)
    assert all(("loop" in name) == (executor == "loop") for name in names), names


def test_concurrency_is_for_all_instances(engine: af.Engine) -> None:
    now, most = [0], [0]
    lock, both = threading.Lock(), threading.Barrier(2)

    @af.task(concurrency=2)
    def counted() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        both.wait(PATIENCE)
        with lock:
            now[0] -= 1

    class Counts(af.Workflow[None]):
        def handle(self) -> None:
            self.execute(*(counted() for _ in range(4)))

    for each in [engine.start(Counts()) for _ in range(5)]:
        each.result(PATIENCE)
    assert most[0] == 2


def test_tasks_of_different_instances_share_a_call(engine: af.Engine, clock: VirtualClock) -> None:
    calls: list[list[int]] = []

    @af.task(batch=Linger(Queue(), 5.0, size=10))
    def halve(numbers: list[int]) -> list[int | Exception]:
        calls.append(numbers)
        return [number // 2 if number % 2 == 0 else ValueError("odd") for number in numbers]

    class Halves(af.Workflow[int]):
        def __init__(self, number: int) -> None:
            self.number = number

        def handle(self) -> int:
            result = self.execute(halve(self.number))
            assert isinstance(result, int)
            return result

    started = [engine.start(Halves(number)) for number in range(10)]
    for number, each in enumerate(started):
        if number % 2 == 0:
            assert each.result(PATIENCE) == number // 2
        else:
            with pytest.raises(ExecutionFailed, match="odd"):
                each.result(PATIENCE)
    assert [sorted(call) for call in calls] == [list(range(10))]
    last = engine.start(Halves(8))
    advance_until_done(engine, clock, last, 5)
    assert last.result(PATIENCE) == 4


def test_a_batch_that_fails_as_a_whole_is_tried_again(
    engine: af.Engine, clock: VirtualClock
) -> None:
    calls: list[int] = []

    @af.task(batch=Queue(), retries=1, backoff=1)
    async def upper(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        if len(calls) == 1:
            raise OSError("no network")
        return [text.upper() for text in texts]

    class Upper(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(upper("a"))

    started = engine.start(Upper())
    advance_until_done(engine, clock, started, 2)
    assert started.result(PATIENCE) == "A"


def test_any_behaviour_makes_the_batches(engine: af.Engine) -> None:
    seen: Counter[str] = Counter()

    @af.task(batch=Unique(key=str))
    def look_up(names: list[str]) -> list[str]:
        seen.update(names)
        return [f"found {name}" for name in names]

    class Looks(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(look_up("x"))

    assert engine.start(Looks()).result(PATIENCE) == "found x"
    assert seen == {"x": 1}


def test_tasks_in_other_processes(engine: af.Engine) -> None:
    (number, process), later = engine.start(Away()).result(PATIENCE)
    assert (number, later) == (7, 8)
    assert process != os.getpid()


def test_a_cancel_kills_the_processes_of_its_tasks(engine: af.Engine, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    hanging = engine.start(Hangs(str(path)))
    until(engine, lambda: path.exists() and path.read_text())
    process = int(path.read_text())
    assert hanging.cancel()
    until(engine, lambda: not _runs(process))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_cancelled_workflow_tells_its_tasks(engine: af.Engine) -> None:
    begun, told = threading.Event(), threading.Event()

    @af.task
    def steps() -> None:
        begun.set()
        task = current_task()
        end = time.monotonic() + PATIENCE
        while task.heartbeat():
            assert time.monotonic() < end
        told.set()

    class Runs(af.Workflow[None]):
        def handle(self) -> None:
            self.execute(steps())

    runs = engine.start(Runs())
    assert begun.wait(PATIENCE)
    runs.cancel()
    assert told.wait(PATIENCE)


@pytest.mark.parametrize("verb", ["cancel", "kill", "first", "close"])
def test_a_coroutine_that_is_not_wanted_any_more_is_cancelled(engine: af.Engine, verb: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    @af.task
    async def hangs() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    class Runs(af.Workflow[str]):
        def handle(self) -> str:
            found = self.first(hangs(), af.Wait("go"), cancel=True)
            return f"{found.index} came first"

    runs = engine.start(Runs())
    assert begun.wait(PATIENCE)
    if verb == "first":
        runs.send("go")
        assert runs.result(PATIENCE) == "1 came first"
    elif verb == "close":
        engine.close(timeout=0.01)
    else:
        getattr(runs, verb)()
    assert ended.wait(PATIENCE)


def test_first_cancels_the_others(engine: af.Engine) -> None:
    go, told = threading.Event(), threading.Event()

    @af.task
    def slow() -> str:
        task = current_task()
        while task.heartbeat():
            go.wait(0.01)
        told.set()
        return "slow"

    @af.task
    def fast() -> str:
        return "fast"

    class Races(af.Workflow[str]):
        def handle(self) -> str:
            return str(self.first(slow(), fast(), cancel=True).value)

    assert engine.start(Races()).result(PATIENCE) == "fast"
    assert told.wait(PATIENCE)


def test_a_task_for_another_process_must_be_importable(engine: af.Engine) -> None:
    @af.task(executor="process")
    def local() -> None: ...

    with pytest.raises(af.BadOption, match="at the top of a module"):
        engine.workflows.register(local)

    @af.task(executor="process", batch=Queue())
    def lists(numbers: list[int]) -> list[int]:
        return numbers

    with pytest.raises(af.BadOption, match="batch="):
        engine.workflows.register(lists)


# Which thread does it.

_answered = threading.Event()
_inside = threading.Barrier(2)


@af.task
def wait_for_the_event() -> bool:
    return _answered.wait(PATIENCE)


@af.task
def meet(number: int) -> int:
    _inside.wait(PATIENCE)
    return number


class Attentive(af.Workflow[bool]):
    def handle(self) -> bool:
        return self.execute(wait_for_the_event())

    def on_event(self, event: af.Event) -> None:
        _answered.set()


class Together(af.Workflow[list[int]]):
    def handle(self) -> list[int]:
        return list(self.execute(meet(1), meet(2)))


def test_a_workflow_takes_events_while_its_task_runs(engine: af.Engine) -> None:
    _answered.clear()
    handle = engine.start(Attentive())
    handle.send("go on")
    assert handle.result(PATIENCE)


def test_tasks_of_one_call_run_at_the_same_time(engine: af.Engine) -> None:
    assert engine.start(Together()).result(PATIENCE) == [1, 2]
