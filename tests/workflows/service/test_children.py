"""Sub-workflows that fail: the parent says so, and goes on after a fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionFailed
from actorflow.workflows.errors import StepFailed
from tests.engine.kinds import until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator


class Broken(af.Workflow[str]):
    """Raises until somebody fixes it."""

    fixed = False

    def handle(self) -> str:
        if not type(self).fixed:
            raise RuntimeError("not yet")
        return "fixed"


@af.task
def decline(card: str) -> str:
    raise ValueError(card)


class Declines(af.Workflow[str]):
    def handle(self) -> str:
        return self.execute(decline("c-1"))


class Middle(af.Workflow[str]):
    def handle(self) -> str:
        return "middle: " + self.execute(Broken())


class Top(af.Workflow[str]):
    def handle(self) -> str:
        return "top: " + self.execute(Middle())


class Catches(af.Workflow[str]):
    def __init__(self) -> None:
        self.failures: list[str] = []

    def handle(self) -> str:
        try:
            return self.execute(Broken(), raises=True)
        except StepFailed as failed:
            return f"caught {failed}"

    def on_failure(self, step: Any, error: Any) -> None:
        self.failures = [*self.failures, f"{step.name} {error.name}"]


@pytest.fixture(autouse=True)
def _broken() -> Iterator[None]:
    yield
    Broken.fixed = False


def test_r20_the_failure_of_a_child_is_said_by_its_parent_until_the_child_goes_on(
    engine: af.Engine,
) -> None:
    top = engine.start(Top(), id="t")
    with pytest.raises(
        ExecutionFailed, match=r"the sub-workflow Middle \(t/0/0.0\) failed: the "
    ) as e:
        top.result(PATIENCE)
    assert "the sub-workflow Broken (t/0/0.0/0/0.0) failed: not yet" in str(e.value)
    assert "resume it after a fix" in str(e.value)
    child = engine.workflows.get(Broken, "t/0/0.0/0/0.0")
    child.resume()  # without a fix
    until(engine, lambda: top.status == "stuck" and child.status == "stuck")
    Broken.fixed = True
    child.resume()
    until(engine, lambda: top.status == "done")
    assert top.result(PATIENCE) == "top: middle: fixed"
    assert top.query().failed == []


def test_r20_a_parent_is_active_again_when_its_child_is(engine: af.Engine) -> None:
    class Waits(af.Workflow[str]):
        def handle(self) -> str:
            if not Broken.fixed:
                raise RuntimeError("not yet")
            self.wait("go")
            return "gone"

    class Above(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(Waits())

    above = engine.start(Above(), id="a")
    with pytest.raises(ExecutionFailed, match="Waits"):
        above.result(PATIENCE)
    Broken.fixed = True
    child = engine.workflows.get(Waits, "a/0/0.0")
    child.resume()
    until(engine, lambda: above.status == "active")
    child.send("go")
    assert above.result(PATIENCE) == "gone"
    noted = [each["type"] for each in above.history() if each["type"].startswith("child")]
    assert noted == ["child stuck", "child resumed"]


def test_r16_the_failure_of_a_child_is_raised_where_the_code_wants_it(engine: af.Engine) -> None:
    catches = engine.start(Catches(), id="c")
    assert catches.result(PATIENCE) == ("caught Broken (0/0.0) failed with RuntimeError: not yet")
    assert catches.query().properties["failures"] == ["Broken RuntimeError"]
    Broken.fixed = True  # too late for the parent, which has gone on
    child = engine.workflows.get(Broken, "c/0/0.0")
    child.resume()
    assert child.result(PATIENCE) == "fixed"
    assert catches.result(PATIENCE).startswith("caught")


def test_r20_a_child_that_waits_for_a_failed_task_has_failed_for_its_parent(
    engine: af.Engine,
) -> None:
    class Above(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(Declines())

    above = engine.start(Above(), id="a")
    with pytest.raises(ExecutionFailed, match=r"the task decline \(0/0.0\) failed: c-1"):
        above.result(PATIENCE)
    engine.workflows.get(Declines, "a/0/0.0").cancel()
    until(engine, lambda: above.query().failed)
    assert above.status == "stuck"


def test_a_dispatched_child_that_fails_is_no_concern_of_its_parent(engine: af.Engine) -> None:
    class Above(af.Workflow[str]):
        def handle(self) -> str:
            self.dispatch(Broken())
            self.wait("go")
            return "gone"

    above = engine.start(Above(), id="a")
    until(engine, lambda: any(each.id == "a/0/0.0" for each in engine.executions(status="stuck")))
    assert above.status == "active"
    above.send("go")
    assert above.result(PATIENCE) == "gone"
