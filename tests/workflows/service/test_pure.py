"""Pure tasks: done within the decision that asks for them, and stored with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Queue
from actorflow.workflows.errors import InvalidStep
from actorflow.workflows.service import pure
from tests.workflows.service.orders import PATIENCE, advance_until_done

if TYPE_CHECKING:
    from actorflow.testing import VirtualClock


def _double(number: int) -> int:
    return 2 * number


quick = af.task(name="quick double", pure=True)(_double)
usual = af.task(name="usual double")(_double)


class Quick(af.Workflow[int]):
    def handle(self) -> int:
        return self.execute(quick(self.execute(quick(1))))


class Usual(af.Workflow[int]):
    def handle(self) -> int:
        return self.execute(usual(self.execute(usual(1))))


def _run(engine: af.Engine, workflow: af.Workflow[int], id_: str) -> int:
    """Return how many commits a workflow takes."""
    before = engine.statistics().commits
    assert engine.start(workflow, id=id_).result(PATIENCE) == 4
    return engine.statistics().commits - before


def test_pure_tasks_are_stored_with_the_decision_that_asks_for_them(engine: af.Engine) -> None:
    engine.workflows.register(Quick, Usual)
    # A start on a busy machine may take a commit of its own.
    assert min(_run(engine, Usual(), f"usual-{n}") for n in range(9)) == 3
    assert min(_run(engine, Quick(), f"quick-{n}") for n in range(9)) == 1
    assert engine.statistics().tasks_done == 18


def test_what_is_recorded_is_that_of_other_tasks(engine: af.Engine) -> None:
    def recorded(cls: type[af.Workflow[int]], id_: str) -> tuple[Any, ...]:
        handle = engine.workflows.get(cls, id_)
        state: Any = handle.query().state
        return (
            [(each.step, each.status, each.input) for each in state.statuses],
            [(each.type, each.start_index) for each in state.branches],
            state.executions,
            [set(each) - {"at"} for each in handle.history()],
        )

    _run(engine, Usual(), "usual")
    _run(engine, Quick(), "quick")
    assert recorded(Quick, "quick") == recorded(Usual, "usual")


def test_a_pure_task_that_raises_is_tried_again_as_others_are(
    engine: af.Engine, clock: VirtualClock
) -> None:
    calls: list[int] = []

    @af.task(pure=True, retries=2, backoff=10)
    def fragile() -> str:
        calls.append(1)
        if len(calls) < 4:
            raise OSError("no network")
        return "done"

    class Tries(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(fragile())

    tries = engine.start(Tries(), id="t")
    advance_until_done(engine, clock, tries, 20)
    assert tries.result(PATIENCE) == "done"
    assert len(calls) == 4  # once within the decision, three attempts


def test_a_pure_task_that_changes_its_argument_changes_nothing_else(engine: af.Engine) -> None:
    @af.task(pure=True)
    def empty(numbers: list[int]) -> list[int]:
        numbers.clear()
        return numbers

    class Keeps(af.Workflow[list[int]]):
        def __init__(self) -> None:
            self.numbers = [1, 2]

        def handle(self) -> list[int]:
            return self.numbers + self.execute(empty(self.numbers))

    handle = engine.start(Keeps(), id="k")
    assert handle.result(PATIENCE) == [1, 2]
    state: Any = handle.query().state
    assert state.statuses[0].input == {"numbers": [1, 2]}


def test_a_pure_task_that_is_slow_goes_to_its_tasker(
    engine: af.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pure, "_SLOW", -1.0)  # any call takes longer
    _run(engine, Quick(), "quick")  # two calls, after which the next one is expected to be slow
    assert engine.statistics().tasks_done == 0
    _run(engine, Quick(), "again")
    assert engine.statistics().tasks_done == 2


def test_a_class_that_hears_of_starts_hears_of_those_of_pure_tasks(engine: af.Engine) -> None:
    class Hears(af.Workflow[list[str]]):
        def __init__(self) -> None:
            self.begun: list[str] = []

        def handle(self) -> list[str]:
            self.execute(quick(1))
            return self.begun

        def on_start(self, step: af.StepInfo) -> None:
            self.begun.append(step.name)

    assert engine.start(Hears()).result(PATIENCE) == ["quick double"]


@pytest.mark.parametrize(
    "other",
    [
        {"timeout": 1}, {"attempt_timeout": 1}, {"heartbeat": 1}, {"executor": "process"},
        {"lang": "javascript"}, {"batch": Queue},
    ],
)  # fmt: skip
def test_what_a_pure_task_cannot_have_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidStep, match=f"leave out pure or {next(iter(other))}"):
        af.task(pure=True, **other)


def test_a_pure_task_is_no_coroutine() -> None:
    async def later() -> None:
        threading.Event().wait(0)

    with pytest.raises(InvalidStep, match="a pure task never waits"):
        af.task(pure=True)(later)
