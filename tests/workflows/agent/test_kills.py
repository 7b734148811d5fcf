"""Workers and engines as real processes, which get kill -9 in the midst of jobs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.api.client import Client
from actorflow.api.errors import ControlUnreachable
from actorflow.workflows.remote import LEASE
from tests.api.test_sockets import free_port
from tests.engine.kinds import until
from tests.workflows.agent.worker import Agency, Refused, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import actorflow as af
    from actorflow.testing import VirtualClock

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parent / "worker.py"
PATIENCE = 50.0
STEPS = 6
COUNT = 4

# Each step is a task whose output onSuccess notes, so that one that is recorded twice shows.
METHODS = {
    "handle": [
        {"op": "let", "var": "done", "value": 0},
        {
            "op": "while",
            "cond": {"gt": [STEPS, {"var": "done"}]},
            "do": [
                {
                    "op": "execute",
                    "works": [{"task": "step", "input": [{"prop": "number"}, {"var": "done"}]}],
                },
                {"op": "let", "var": "done", "value": {"add": [{"var": "done"}, 1]}},
            ],
        },
        {"op": "return", "value": {"prop": "seen"}},
    ],
    "onSuccess": [
        {
            "op": "set",
            "prop": "seen",
            "value": {"append": [{"prop": "seen"}, {"arg": "task_output"}]},
        }
    ],
}
WORKFLOWS = {"Steps": METHODS}

pytestmark = pytest.mark.timeout(240)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def start_worker(url: str, notes: Path, hangs: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), url, "test", json.dumps(WORKFLOWS), str(notes), hangs],
        env=environment(),
    )


def kill(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def wait_for(process: subprocess.Popen[Any], notes: Path, count: int) -> None:
    while len(lines(notes)) < count:
        assert process.poll() is None, "it has ended by itself"


@pytest.mark.parametrize("hangs", ["task", "decision"])
def test_r24_a_worker_is_killed_in_the_midst_of_a_job(
    engine: af.Engine, clock: VirtualClock, tmp_path: Path, hangs: str
) -> None:
    steps = engine.workflows.remote("Steps", lang="test", tasks=["step"])
    url, notes = engine.serve_agent(port=0), tmp_path / "notes"
    handle = engine.start(steps(number=1, seen=[]), id="s")
    victim = start_worker(url, notes, hangs)
    wait_for(victim, notes, 1)
    kill(victim)
    until(engine, lambda: engine.parts.writer.quiet)
    clock.advance(LEASE + 1)
    until(engine, lambda: engine.parts.writer.quiet)
    clock.advance(10)
    second = start_worker(url, notes)
    try:
        assert handle.result(PATIENCE) == [[1, number] for number in range(STEPS)]
    finally:
        kill(second)
    begun = Counter(line for line in lines(notes) if line.startswith("step"))
    assert begun.pop("step [1, 0]") == (2 if hangs == "task" else 1)
    assert set(begun.values()) == {1}


class Program:
    """`actorflow agent` on one store and one port, in any process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(folder / "steps.db.sock")
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and return when it serves."""
        command = ["agent", "steps.db", "--port", str(self.port), "--workflow", "Steps=test"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "actorflow.cli", *command, "--task", "step=test"],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(f"serving steps.db at {self.url}"), self.process.communicate()

    def kill(self) -> None:
        assert self.process is not None
        kill(self.process)

    def begin(self, number: int) -> str:
        properties = {"number": number, "seen": []}
        found: str = self.client.start("Steps", properties, id=f"s-{number}")["execution"]
        return found


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    made.start()
    yield made
    if made.process is not None:
        kill(made.process)


def test_r18_an_engine_is_killed_in_the_midst_of_a_decision_and_of_a_task(program: Program) -> None:
    agency = Agency(program.url)
    worker = Worker(agency, WORKFLOWS)
    execution = program.begin(1)
    lost = agency.job()
    agency.next_branch(lost["uuid"])
    works = [{"name": "step", "input": [1, 0], "position": "0.0"}]
    assert agency.execute(lost["uuid"], works) == {"status": "scheduled"}
    program.kill()
    program.start()
    with pytest.raises(Refused) as refused:
        agency.finish_branch(lost["uuid"], {"properties": {}})
    assert refused.value.status == 410
    again = agency.job()
    assert again["uuid"] != lost["uuid"]
    worker.decide(again)

    task = worker.next_task()
    program.kill()
    program.start()
    later = worker.next_task()
    assert later == task  # under the same uuid, to deduplicate by
    agency.task(task["uuid"], status="completed", output=task["input"])
    while (shown := program.client.execution(execution))["status"] == "active":
        worker.work(wait=0.05)
    assert shown["result"] == [[1, number] for number in range(STEPS)]
    assert shown["tasks"] == shown["dead"] == shown["messages"] == []


def test_r18_a_task_is_answered_right_after_the_engine_was_killed(program: Program) -> None:
    agency = Agency(program.url)
    worker = Worker(agency, WORKFLOWS)
    execution = program.begin(1)
    for _ in range(STEPS):
        task = worker.next_task()
        program.kill()
        program.start()
        agency.task(task["uuid"], status="running")
        agency.task(task["uuid"], status="completed", output=task["input"])
    while (shown := program.client.execution(execution))["status"] == "active":
        assert worker.work(wait=0.05)["action"] != "TaskScheduled"
    assert shown["result"] == [[1, number] for number in range(STEPS)]


def test_r18_engine_and_workers_are_killed_at_random(program: Program, tmp_path: Path) -> None:
    dice, notes = random.Random(18), tmp_path / "notes"
    executions = [program.begin(number) for number in range(COUNT)]
    workers = [start_worker(program.url, notes) for _ in range(2)]
    try:
        for target in (3, 8, 14):
            wait_for(workers[0], notes, target + dice.randrange(3))
            program.kill()
            program.start()
        for number, execution in enumerate(executions):
            shown = program.client.wait(execution, timeout=PATIENCE)
            # Each step is recorded once, in order.
            assert shown["result"] == [[number, step] for step in range(STEPS)]
            assert shown["tasks"] == shown["dead"] == shown["messages"] == []
    except ControlUnreachable:
        assert program.process is not None
        program.process.kill()
        raise AssertionError(program.process.communicate()) from None
    finally:
        for worker in workers:
            kill(worker)
    begun = Counter(lines(notes))
    assert len(begun) == COUNT * STEPS
    assert sum(begun.values()) <= COUNT * STEPS + 3 * len(workers), (
        "only those in flight are repeated"
    )
