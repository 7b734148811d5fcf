"""Code that has changed since an instance began."""

from __future__ import annotations

from typing import Any

from actorflow.workflows.decider import Decider
from actorflow.workflows.errors import (
    WorkflowModified,
)
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.workflow import Workflow
from tests.workflows.driving import Driver, drive
from tests.workflows.orders import double, ship


def versions(name: str, one: Any, other: Any) -> tuple[type[Workflow[Any]], type[Workflow[Any]]]:
    """Return two classes of the same name."""
    return type(name, (Workflow,), {"handle": one}), type(name, (Workflow,), {"handle": other})


def old_code(self: Workflow[Any]) -> Any:
    return [self.execute(double(1)), self.execute(double(2)), self.execute(double(3))]


def new_code(self: Workflow[Any]) -> Any:
    found: list[Any] = [self.execute(double(1))]
    if self.patched("ship early"):
        found.append(self.execute(ship("early")))
    found.append(self.execute(double(2)))
    if self.patched("ship late"):
        found.append(self.execute(ship("late")))
    found.append(self.execute(double(3)))
    return found


def answer(name: str, given: Any) -> Any:
    return given["order"] if name == "ship" else given["number"]


def test_patched_code_is_for_instances_that_are_not_past_it(decider: Decider) -> None:
    old, new = versions("Changing", old_code, new_code)
    fresh = Driver(new(), decider, id="fresh")
    assert fresh.run(answer) == [1, "early", 2, "late", 3]

    running = drive(old(), decider)
    running.succeed("0/0.0", 1)
    running.restart().cls = new
    assert running.run(answer) == [1, 2, "late", 3], "it had come to the second call"
    again = Driver(new(), decider, id="again", forget=True)
    assert again.run(answer) == [1, "early", 2, "late", 3]


def test_z57_modified_code_is_refused_with_what_was_recorded(decider: Decider) -> None:
    def bad_code(self: Workflow[Any]) -> Any:
        return self.execute(ship("x"))

    old, new = versions("Changing", old_code, bad_code)
    driver = drive(old(), decider)
    driver.cls = new
    driver.succeed("0/0.0", 1)
    assert driver.mode == "modified"
    message = driver.state.error["message"]
    for words in (
        "the code of Changing was modified",
        "branch 0 (handle) at position 0.0",
        "recorded execute of the task double({'number': 1})",
        "now does execute of the task ship({'order': 'x'})",
    ):
        assert words in message
    assert driver.state.error["name"] == WorkflowModified.__name__
    driver.cls = old
    driver.receive(m.Resume(driver.tick()))
    assert driver.run(answer) == [1, 2, 3]


def test_r23_a_strict_decider_misses_steps_that_are_gone() -> None:
    def shorter(self: Workflow[Any]) -> Any:
        return self.execute(double(1))

    for strict, mode in ((False, "terminated"), (True, "modified")):
        decider = Decider(strict=strict)
        old, new = versions("Changing", old_code, shorter)
        driver = drive(old(), decider)
        driver.succeed("0/0.0", 1)
        driver.cls = new
        driver.restart().succeed("0/1.0", 2)
        assert driver.mode == mode
        if strict:
            assert "position 1.0" in driver.state.error["message"]
        decider.close()


def test_check_replays_a_history_against_other_code(decider: Decider) -> None:
    def other_end(self: Workflow[Any]) -> Any:
        return [self.execute(double(1)), self.execute(double(2)), self.execute(ship("x"))]

    old, good = versions("Changing", old_code, other_end)
    driver = drive(old(), decider)
    driver.succeed("0/0.0", 1)
    before = stored.encode(driver.state)
    assert decider.check(old, driver.state) is None
    assert decider.check(good, driver.state) is None, "it differs after the recorded part"
    assert stored.encode(driver.state) == before
    driver.succeed("0/1.0", 2)
    found = decider.check(good, driver.state)
    assert found is not None
    assert (found.kind, found.branch, found.position) == ("modified", 0, "2.0")
    assert "position 2.0" in str(found)
    driver.succeed("0/2.0", 3)
    assert decider.check(old, driver.state) is None, "ended ones can be checked, too"
    assert decider.statistics().instances == 0
