"""The example of the seed in 15 steps, with the real API on an engine."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actorflow as af
from tests.engine.kinds import until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from actorflow.workflows.workflow import StepInfo

GOLDEN = Path(__file__).parents[2] / "conformance" / "data" / "workflows"
GATES = [threading.Event() for _ in range(4)]


def wait_at(number: int) -> int:
    assert GATES[number - 1].wait(PATIENCE)
    return number


@af.task
def task1() -> int:
    return wait_at(1)


@af.task
def task2() -> int:
    return wait_at(2)


@af.task
def task3() -> int:
    return wait_at(3)


@af.task
def task4() -> int:
    return wait_at(4)


class Parallel(af.Workflow[None]):
    def handle(self) -> None:
        self.execute(task1(), task2(), task3())
        self.execute(task4())

    def on_start(self, step: StepInfo) -> None: ...


def test_z15_the_example_of_the_seed(engine: af.Engine) -> None:
    golden = json.loads((GOLDEN / "01_parallel_example.json").read_text())
    expected: dict[str, Any] = golden["steps"][-1]["state"]
    for gate in GATES:
        gate.clear()
    parallel = engine.start(Parallel())
    until(engine, lambda: len(parallel.query().state.branches) == 4)
    for number, branches in ((3, 5), (1, 6), (2, 7), (4, 9)):
        GATES[number - 1].set()
        until(engine, lambda branches=branches: len(parallel.query().state.branches) >= branches)  # type: ignore[misc]
    parallel.result(PATIENCE)
    state = parallel.query().plain()
    assert state["executions"] == expected["executions"]
    assert state["decision_mode"] == expected["decision_mode"]
    assert [
        {
            name: status[name]
            for name in ("position", "name", "status", "completion_index", "output")
        }
        for status in state["statuses"]
    ] == [
        {
            name: status[name]
            for name in ("position", "name", "status", "completion_index", "output")
        }
        for status in expected["statuses"]
    ]
    # Which of the first three starts first is up to the threads.
    assert [branch["type"] for branch in state["branches"]] == [
        branch["type"] for branch in expected["branches"]
    ]
