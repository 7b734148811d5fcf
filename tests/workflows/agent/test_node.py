"""The worker in JavaScript: the example of the seed in 15 steps, and an order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.kinds import until
from tests.workflows.agent.worker import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import actorflow as af
    from actorflow.testing import VirtualClock

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "agent-node"
GOLDEN = ROOT / "tests" / "conformance" / "data" / "workflows" / "01_parallel_example.json"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None and not os.environ.get("CI"), reason="node is not installed"
)


def node(*arguments: str) -> subprocess.Popen[str]:
    assert NODE is not None, "CI must have node: see .ci/run"
    return subprocess.Popen(
        [NODE, *arguments],
        cwd=EXAMPLE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_z15_the_15_steps_of_the_seed_through_the_agent(engine: af.Engine) -> None:
    golden = json.loads(GOLDEN.read_text())
    expected: dict[str, Any] = golden["steps"][-1]["state"]
    parallel = engine.workflows.remote("Parallel", lang="javascript")
    tasks = ["task1", "task2", "task3", "task4"]
    engine.workflows.remote_tasks(*tasks, lang="javascript", env="tasks")
    handle = engine.start(parallel())
    script = node("seed.mjs", engine.serve_agent(port=0))
    out, err = script.communicate(timeout=2 * PATIENCE)
    assert script.returncode == 0, (out, err)
    steps = out.splitlines()
    assert len(steps) == 15
    assert [line.split(".")[0].strip() for line in steps] == [str(n) for n in range(1, 16)]
    assert [line.split()[1] for line in steps] == [
        "(decision)", "(task)", "(task)", "(task)", "(decision)", "(decision)", "(task)", "(task)",
        "(task)", "(decision)", "(decision)", "(task)", "(decision)", "(task)", "(decision)",
    ]  # fmt: skip
    assert handle.result(PATIENCE) is None
    state = handle.query().plain()
    assert state["executions"] == expected["executions"]
    assert state["decision_mode"] == expected["decision_mode"] == "terminated"
    names = [branch.get("task_name") for branch in state["branches"]]
    assert names[4:] == ["task3", "task1", "task2", "task4", "task4"]
    # Which of the first three starts first is up to the threads of the engine.
    assert sorted(names[1:4]) == ["task1", "task2", "task3"]
    assert [branch["type"] for branch in state["branches"]] == [
        branch["type"] for branch in expected["branches"]
    ]
    fields = ("position", "name", "status", "completion_index", "output")
    assert [{name: status[name] for name in fields} for status in state["statuses"]] == [
        {name: status[name] for name in fields} for status in expected["statuses"]
    ]


@pytest.fixture
def worker(engine: af.Engine) -> Iterator[subprocess.Popen[str]]:
    names = ["charge", "reserve", "refund", "email", "ship"]
    engine.workflows.remote("Order", lang="javascript", tasks=names)
    engine.workflows.remote("Basket", lang="javascript")
    made = node("worker.mjs", engine.serve_agent(port=0))
    yield made
    made.kill()
    made.communicate()


def start(engine: af.Engine, workflow: str, **properties: Any) -> str:
    body = {"start": {"properties": properties}}
    return engine.start(f"workflow:{workflow}", body).id


def event(engine: af.Engine, execution: str, **data: Any) -> None:
    engine.send(execution, {"event": "paid", "data": data})


def waits(engine: af.Engine, execution: str) -> bool:
    view = engine.execution(execution).view
    return bool(view and view.state.waits)


def test_an_order_in_javascript(
    engine: af.Engine, worker: subprocess.Popen[str], clock: VirtualClock
) -> None:
    paid = start(engine, "Order", order=7, amount=40)
    event(engine, paid, amount=30)
    late = start(engine, "Order", order=8, amount=40)
    until(engine, lambda: waits(engine, paid) and waits(engine, late))
    event(engine, paid, amount=10)
    assert engine.result(paid, PATIENCE) == "7 shipped in 3 parcels"
    clock.advance(3 * 86_400)
    assert engine.result(late, PATIENCE) == "hold-8 refunded"
    both = start(engine, "Basket", orders=[1, 2])
    assert engine.result(both, PATIENCE) == ["1 shipped in 3 parcels", "2 shipped in 3 parcels"]


def test_an_error_in_javascript_is_seen_in_python(
    engine: af.Engine, worker: subprocess.Popen[str]
) -> None:
    broken = start(engine, "Basket")  # it has no orders
    failure = engine.wait(broken, PATIENCE).failure
    assert failure is not None
    assert failure.type == "TypeError"
    assert "orders.mjs" in failure.traceback
