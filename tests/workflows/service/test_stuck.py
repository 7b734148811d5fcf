"""What the log says of instances that need somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionFailed
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@af.task
def declines() -> None:
    raise ValueError("no money")


class Charges(af.Workflow[None]):
    """Waits for a task that fails."""

    def handle(self) -> None:
        """Execute it."""
        self.execute(declines())


class Raises(af.Workflow[None]):
    """Has a bug after a step."""

    def handle(self) -> None:
        """Wait for nothing, then raise."""
        self.wait(seconds=0)
        raise KeyError("bug")


class Parent(af.Workflow[None]):
    """Waits for a child that has a bug."""

    def handle(self) -> None:
        """Execute it."""
        self.execute(Raises())


def lines(caplog: pytest.LogCaptureFixture, of: str) -> list[str]:
    found = [each.getMessage() for each in caplog.records]
    return [each for each in found if "stuck: " in each and f"execution={of!r}" in each]


def fails(engine: af.Engine, workflow: af.Workflow[None], id_: str) -> None:
    with pytest.raises(ExecutionFailed):
        engine.start(workflow, id=id_).result(PATIENCE)


def test_the_log_names_the_reason_and_the_commands_that_help(
    opens: Callable[..., af.Engine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "orders.db"
    with opens(store, durability="off") as engine:
        fails(engine, Charges(), "a task")
        fails(engine, Raises(), "code")
        fails(engine, Parent(), "parent")
    (task,) = lines(caplog, "a task")
    assert "ValueError: the task declines (0/0.0) failed: no money" in task
    assert f"Run: actorflow retry {store} 'a task' --step 0/0.0" in task
    assert f"or actorflow rewind {store} 'a task' 0/0.0" in task
    (code,) = lines(caplog, "code")
    assert f"KeyError: 'bug'. Fix the code, then run: actorflow resume {store} code" in code
    assert f"or actorflow fork {store} code 0/0.0, or actorflow cancel {store} code" in code
    (parent,) = lines(caplog, "parent")
    assert "Its sub-workflow is stuck: see the log of that" in parent


def test_each_reason_is_logged_once_and_again_after_somebody_has_acted(
    engine: af.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    charges = engine.start(Charges(), id="c")
    with pytest.raises(ExecutionFailed):
        charges.result(PATIENCE)
    for _ in range(3):
        charges.send("hello")
        charges.query()
    with pytest.raises(ExecutionFailed):
        charges.result(PATIENCE)
    assert len(lines(caplog, "c")) == 1
    charges.retry()
    with pytest.raises(ExecutionFailed):
        charges.result(PATIENCE)
    assert len(lines(caplog, "c")) == 2
