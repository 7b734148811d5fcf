"""Conditions: `until` waits until what the properties say is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.engine.errors import ExecutionFailed
from actorflow.testing import WorkflowHarness
from actorflow.workflows.errors import InvalidStep, NotInWorkflow

if TYPE_CHECKING:
    from pathlib import Path


@af.task
def count(votes: int) -> int:
    """Return the number of votes."""
    return votes


class Vote(af.Workflow[str]):
    """Waits for three votes."""

    def __init__(self, days: float | None = 2) -> None:
        self.days = days
        self.votes = 0

    def handle(self) -> str:
        """Wait, then count."""
        enough = self.until(lambda: self.votes >= 3, days=self.days)
        return f"{enough} {self.execute(count(self.votes))}"

    def on_event(self, event: af.Event) -> None:
        """Count a vote."""
        self.votes += event.data.get("n", 1)


class AsyncVote(Vote):
    """The same with `async def`."""

    async def handle(self) -> str:  # type: ignore[override]
        """Wait, then count."""
        enough = await self.auntil(lambda: self.votes >= 3, days=self.days)
        return f"{enough} {await count(self.votes)}"


@pytest.mark.parametrize("cls", [Vote, AsyncVote])
def test_a_condition_that_becomes_true_ends_the_wait(cls: type[Vote]) -> None:
    with WorkflowHarness(cls(), stubs={count: lambda votes: votes}) as vote:
        for _ in range(2):
            vote.send("vote")
        assert vote.steps == [("Until", {"duration": 2 * 86400.0})]
        vote.send("vote")
        assert vote.result == "True 3"


@pytest.mark.parametrize("cls", [Vote, AsyncVote])
def test_a_condition_that_does_not_become_true_in_time_returns_false(cls: type[Vote]) -> None:
    with WorkflowHarness(cls(), stubs={count: lambda votes: votes}) as vote:
        vote.send("vote")
        vote.advance(days=3)
        assert vote.result == "False 1"


def test_without_a_duration_it_waits_for_ever() -> None:
    with WorkflowHarness(Vote(None), stubs={count: lambda votes: votes}) as vote:
        vote.advance(days=3000)
        vote.send("vote", n=3)
        assert vote.result == "True 3"


def test_a_condition_that_holds_already_needs_no_step() -> None:
    class Now(af.Workflow[bool]):
        def handle(self) -> bool:
            return self.until(lambda: True)

    with WorkflowHarness(Now()) as now:
        assert now.result is True
        assert now.steps == []


@pytest.mark.parametrize("cls", [Vote, AsyncVote])
def test_it_survives_a_restart(cls: type[Vote]) -> None:
    with WorkflowHarness(cls(), stubs={count: lambda votes: votes}) as vote:
        vote.send("vote")
        vote.restart()
        vote.send("vote")
        vote.restart()
        vote.send("vote")
        vote.restart()
        assert vote.result == "True 3"


def test_a_rewind_waits_again() -> None:
    class Twice(af.Workflow[list[bool]]):
        def __init__(self) -> None:
            self.seen = 0

        def handle(self) -> list[bool]:
            self.wait("go")
            first = self.until(lambda: self.seen >= 2, days=1)
            second = self.until(lambda: self.seen >= 4, days=1)
            return [first, second]

        def on_event(self, event: af.Event) -> None:
            self.seen += event.name == "more"

    with WorkflowHarness(Twice()) as twice:
        for name in ("go", "more", "more", "more"):
            twice.send(name)
        twice.rewind("0/0.0")  # later events happen again
        twice.send("more")
        assert twice.result == [True, True]
    with WorkflowHarness(Twice()) as twice:
        for name in ("go", "more", "more", "more"):
            twice.send(name)
        twice.rewind("0/2.0")
        twice.advance(days=2)
        assert twice.result == [True, False]


def test_of_two_methods_that_wait_for_the_same_only_one_goes_on() -> None:
    class Lock(af.Workflow[list[str]]):
        def __init__(self) -> None:
            self.locked = False
            self.order: list[str] = []

        def handle(self) -> list[str]:
            self.until(lambda: len(self.order) == 6)
            return self.order

        def on_event(self, event: af.Event) -> None:
            name = event.name
            self.until(lambda: not self.locked)
            self.locked = True
            self.order.append(f"+{name}")
            self.wait(seconds=1)
            self.order.append(f"-{name}")
            self.locked = False

    with WorkflowHarness(Lock()) as lock:
        with lock.together():
            for name in "abc":
                lock.send(name)
        for _ in range(6):
            lock.advance(seconds=1)
        order = lock.result
        assert sorted(order[::2]) == ["+a", "+b", "+c"]
        assert [each[1] for each in order[::2]] == [each[1] for each in order[1::2]]


def test_a_condition_sees_what_a_method_changed_before_a_step() -> None:
    class Parts(af.Workflow[int]):
        def __init__(self) -> None:
            self.level = 0

        def handle(self) -> int:
            self.until(lambda: self.level == 1)
            return self.level

        def on_event(self, event: af.Event) -> None:
            self.level = 1
            self.wait(days=1)
            self.level = event.data["to"]

    with WorkflowHarness(Parts()) as parts:
        parts.send("x", to=7)
        parts.kill()
        assert parts.state.branches[0].output == 1


def test_an_event_that_is_refused_ends_no_wait() -> None:
    class Refuses(af.Workflow[int]):
        def __init__(self) -> None:
            self.level = 0

        def handle(self) -> int:
            self.until(lambda: self.level > 0)
            return self.level

        def on_event(self, event: af.Event) -> None:
            self.level = event.data["to"]
            if self.level == 5:
                raise af.Refused("not 5")

    with WorkflowHarness(Refuses()) as refuses:
        with refuses.together():
            refuses.send("x", to=5)
            refuses.send("x", to=0)
        assert refuses.properties["level"] == 0
        refuses.send("x", to=2)
        assert refuses.result == 2


def test_a_condition_cannot_ask_for_anything() -> None:
    class Asks(af.Workflow[None]):
        def handle(self) -> None:
            self.until(self.now)

    with WorkflowHarness(Asks()) as asks, pytest.raises(ExecutionFailed, match="NotInWorkflow"):
        _ = asks.result
    with pytest.raises(NotInWorkflow):
        Asks().until(lambda: True)


def test_a_condition_that_raises_stops_the_instance() -> None:
    class Bad(af.Workflow[None]):
        def __init__(self) -> None:
            self.by = 1

        def handle(self) -> None:
            self.until(lambda: 1 // self.by == 7)

        def on_event(self, event: af.Event) -> None:
            self.by = event.data["by"]

    with WorkflowHarness(Bad()) as bad:
        bad.send("x", by=0)
        with pytest.raises(ExecutionFailed, match="ZeroDivisionError"):
            _ = bad.result


def test_what_is_no_condition_is_refused() -> None:
    class Bad(af.Workflow[None]):
        def handle(self) -> None:
            given: Any = True
            with pytest.raises(InvalidStep, match="give a function"):
                self.until(given)
            with pytest.raises(InvalidStep, match="days='3'"):
                self.until(lambda: False, days="3")  # type: ignore[arg-type]

    with WorkflowHarness(Bad()) as bad:
        assert bad.result is None


@given(st.lists(st.sampled_from(["up", "down", "time", "restart"]), max_size=12))
def test_it_returns_whether_the_condition_was_met_in_time(happenings: list[str]) -> None:
    class Level(af.Workflow[list[Any]]):
        def __init__(self) -> None:
            self.level = 0

        def handle(self) -> list[Any]:
            return [self.until(lambda: self.level >= 2, seconds=3), self.level]

        def on_event(self, event: af.Event) -> None:
            self.level += 1 if event.name == "up" else -1

    level, left = 0, 3
    with WorkflowHarness(Level()) as harness:
        for each in happenings:
            if each == "restart":
                harness.restart()
            elif each == "time":
                left -= 1
                harness.advance(seconds=1)
            else:
                level += 1 if each == "up" else -1
                harness.send(each)
            if level >= 2 or left == 0:
                assert harness.result == [level >= 2, level]
                break


def test_it_survives_the_end_of_the_engine(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "store") as engine:
        engine.workflows.register(Vote, count)
        vote = engine.start(Vote(), id="v-1")
        vote.ask("vote")
        vote.ask("vote")
    with af.Engine(tmp_path / "store") as engine:
        engine.workflows.register(Vote, count)
        again = engine.workflows.get(Vote, "v-1")
        again.send("vote")
        assert again.result(timeout=20) == "True 3"
