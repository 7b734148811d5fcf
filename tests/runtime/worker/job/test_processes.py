"""Workers whose job runs in other processes: `executor="process"`."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Chunk, Queue
from actorflow.runtime.worker.options import Settings
from actorflow.runtime.worker.process.lane import ProcessLane
from tests.runtime.processes.pools import lines, wait_gone
from tests.runtime.worker.job import elsewhere

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.testing import VirtualClock


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def test_the_state_travels_both_ways() -> None:
    with af.spawn(elsewhere.add, state=10, executor="process") as worker:
        assert worker.ask(1) == 11
        assert worker.ask(2) == 13
        assert worker.statistics().batches == 2


def test_batches_run_in_one_process_which_ends_with_the_worker() -> None:
    with af.spawn(elsewhere.where, executor="process") as worker:
        process = worker.ask("x")
        assert process != os.getpid()
        assert worker.ask("y") == process
    wait_gone(process)


def test_as_many_processes_as_batches_in_flight(notes: Path) -> None:
    behaviour = Chunk(Queue(), 1)
    with af.spawn(elsewhere.meet, executor="process", concurrency=2, behaviour=behaviour) as worker:
        asked = [worker.ask(str(notes), block=False) for _ in range(2)]
        assert len({each.get(timeout=40) for each in asked}) == 2


def test_coroutine_functions_and_closures_run_there_too() -> None:
    with af.spawn(elsewhere.later, state=1, executor="process") as worker:
        assert worker.ask(2) == 3
    offset = 5
    with af.spawn(
        lambda batch, _state: af.Answers(None, [each + offset for each in batch]),
        executor="process",
    ) as worker:
        assert worker.ask(1) == 6


def test_an_error_is_the_jobs_own_with_the_traceback_from_there() -> None:
    worker = af.spawn(elsewhere.fail, executor="process")
    with pytest.raises(ValueError, match="oops") as caught:
        worker.push_block("oops")
    assert "elsewhere.py" in str(caught.value.__cause__)
    assert isinstance(worker.exit_reason, af.Crash)


def test_a_crash_of_the_process_is_a_crash_of_the_executor(notes: Path) -> None:
    worker = af.spawn(elsewhere.die_at_first, executor="process")
    with pytest.raises(af.ProcessCrashed, match="was ended with exit code 3"):
        worker.push_block(str(notes))
    assert isinstance(worker.exit_reason, af.Crash)


def test_a_crash_of_the_process_is_retried_if_asked_for(notes: Path) -> None:
    with af.spawn(elsewhere.die_at_first, executor="process", on_failure="retry") as worker:
        worker.push_block(str(notes))
    assert len(set(lines(notes, 2))) == 2


def test_the_message_that_kills_processes_is_isolated(notes: Path) -> None:
    with af.spawn(elsewhere.die_of_poison, executor="process", on_failure="isolate") as worker:
        worker.push_many([(str(notes), text) for text in ("a", "b", "poison", "c", "d")])
        with pytest.raises(af.ProcessCrashed):
            worker.push_block((str(notes), "poison"), timeout=60)
        worker.push_block((str(notes), "e"), timeout=60)
        assert sorted(lines(notes, 5)) == ["a", "b", "c", "d", "e"]
        assert [each.message[1] for each in worker.dead_letters] == ["poison", "poison"]


def test_a_supervised_worker_gets_another_process(notes: Path) -> None:
    spec = af.Worker("w", elsewhere.die_at_first, executor="process")
    with af.Server([spec], supervisor=af.Restart()) as server:
        with pytest.raises(af.ProcessCrashed):
            server.push_block("w", str(notes))
        server.push_block("w", str(notes))
    assert len(set(lines(notes, 2))) == 2


def test_kill_really_kills(notes: Path) -> None:
    worker = af.spawn(elsewhere.hang, executor="process")
    worker.push(str(notes))
    (process,) = lines(notes, 1)
    worker.kill()
    assert worker.exit_reason == af.Killed(abandoned=False)
    wait_gone(int(process))


def test_brutal_kill_really_kills(notes: Path) -> None:
    worker = af.Worker("w", elsewhere.hang, executor="process", name="hanging")
    ref = af.Supervisor([af.Child("w", worker, shutdown="brutal_kill")]).start()
    found = af.whereis("hanging")
    assert found is not None
    found.push(str(notes))
    (process,) = lines(notes, 1)
    ref.stop()
    wait_gone(int(process))


def test_a_stop_that_takes_too_long_kills(notes: Path) -> None:
    worker = af.spawn(elsewhere.hang, executor="process")
    worker.push(str(notes))
    (process,) = lines(notes, 1)
    with pytest.raises(af.StopTimeout):
        worker.stop(timeout=0.01)
    wait_gone(int(process))


def test_the_time_of_a_batch_is_limited(notes: Path, clock: VirtualClock) -> None:
    given = af.Processes(timeout=10.0)
    worker = af.spawn(elsewhere.hang, executor=given, clock=clock)
    asked = worker.ask(str(notes), block=False)
    (process,) = lines(notes, 1)
    clock.advance(10.0)
    with pytest.raises(af.ProcessTimeout, match="did not end within 10 s"):
        asked.get(timeout=40)
    wait_gone(int(process))


def test_processes_are_renewed() -> None:
    with af.spawn(elsewhere.where, executor=af.Processes(renew_after=2)) as worker:
        found = [worker.ask(n) for n in range(6)]
    assert len(set(found)) == 3


def test_a_job_may_stop_its_worker() -> None:
    worker = af.spawn(elsewhere.stop, executor="process")
    worker.push_block("enough")
    assert worker.actor_stopped.wait(40)
    assert worker.exit_reason == af.Shutdown("enough")


def test_what_a_job_prints_is_printed_here(capfd: pytest.CaptureFixture[str]) -> None:
    with af.spawn(elsewhere.say, executor="process") as worker:
        worker.push_block("hello")
    assert capfd.readouterr().out == "hello\n"


@pytest.mark.parametrize("message", [threading.Lock(), threading.Lock])
def test_what_cannot_be_sent_fails_its_batch(message: Any) -> None:
    worker = af.spawn(elsewhere.return_a_lock, executor="process")
    error = af.BadJob if not callable(message) else af.NotSendable
    with pytest.raises(error, match="another process"):
        worker.push_block(message)


class Counter(af.Executor):
    """Keeps a number."""

    def handle(self, batch: Any) -> None:
        """Count."""


@pytest.mark.parametrize(
    ("job", "options", "error", "text"),
    [
        (Counter, {}, af.BadOption, "Counter is an Executor"),
        (elsewhere.add, {"help": True}, af.BadOption, "executor='pool'"),
        (elsewhere.add, {"concurrency": 2, "state": 1}, af.BadOption, "jobs without state"),
        ("unsendable", {}, af.BadJob, "cannot be sent"),
    ],
)
def test_what_cannot_work_is_refused(
    job: Any, options: Any, error: type[Exception], text: str
) -> None:
    if job == "unsendable":
        job = _Unsendable()
    with pytest.raises(error, match=text):
        af.spawn(job, executor="process", **options)


class _Unsendable:
    """A job with a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, batch: Any, state: Any) -> Any:
        """Do nothing."""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"renew_after": 0}, "renew_after=0"),
        ({"timeout": -1.0}, "timeout=-1"),
        ({"launcher": "docker"}, "launcher='docker'"),
    ],
)
def test_bad_options_are_refused(options: Any, text: str) -> None:
    with pytest.raises(af.BadOption, match=text):
        af.Processes(**options)


def test_a_specification_starts_no_process() -> None:
    af.Worker("w", elsewhere.where, executor="process")
    lane = Settings(elsewhere.where, {"executor": "process"}).lane
    assert isinstance(lane, ProcessLane)
    assert lane._pool is None


def test_batched_functions_run_in_processes() -> None:
    assert elsewhere.double(4)[0] == 8
    assert elsewhere.double(4)[1] != os.getpid()
    with pytest.raises(KeyError):
        elsewhere.double(7)
    with pytest.raises(ValueError, match="unlucky") as caught:
        elsewhere.double(13)
    assert "elsewhere.py" in caught.value.__notes__[0]
    elsewhere.double.worker.stop()


def test_batched_coroutine_functions_and_closures() -> None:
    assert asyncio.run(_await(elsewhere.triple(5))) == 15
    elsewhere.triple.worker.stop()
    factor = 10

    @af.batched(executor="process")
    def scale(numbers: list[int]) -> list[int]:
        return [factor * each for each in numbers]

    assert scale(2) == 20
    scale.worker.stop()


async def _await(what: Any) -> Any:
    return await what


class Holder:
    """Has a batched method."""

    @af.batched(executor="process")
    def method(self, items: list[Any]) -> list[Any]:
        """Return them."""
        return items


def test_a_method_cannot_run_elsewhere() -> None:
    with pytest.raises(af.BadJob, match=r"Holder\.method is a method"):
        Holder().method(1)
