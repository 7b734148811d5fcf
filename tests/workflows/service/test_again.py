"""Instances that begin anew: `return self.again(...)`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.testing import VirtualClock

DONE: list[str] = []


@af.task
def note(text: str) -> str:
    """Record its id, by which an effect is deduplicated."""
    DONE.append(af.current_task().id)
    return text


@pytest.fixture(autouse=True)
def _none_done() -> None:
    DONE.clear()


class Hops(af.Workflow[str]):
    """Begins anew a number of times, with a step in each run."""

    def __init__(self, left: int, total: int = 0) -> None:
        self.left, self.total = left, total

    def handle(self) -> str:
        """Do a step, and begin anew."""
        self.execute(note(f"{self.left}"))
        if self.left == 0:
            return f"after {self.total}"
        return self.again(Hops(self.left - 1, self.total + 1))


def test_each_run_has_a_history_of_its_own_and_steps_with_other_ids(engine: af.Engine) -> None:
    hops = engine.start(Hops(3), id="h")
    assert hops.result(PATIENCE) == "after 3"
    assert DONE == ["h/0/0.0", "h/0/0.0@1", "h/0/0.0@2", "h/0/0.0@3"]
    assert hops.query().state.run == 3
    assert len(hops.query().state.statuses) == 1
    assert [each["type"] for each in hops.history() if each["type"] == "again"] == ["again"] * 3
    assert rows(engine, "timers") == rows(engine, "tasks") == rows(engine, "messages") == []
    assert rows(engine, "dead") == []


def test_a_thousand_hops_leave_a_small_state(opens: Callable[..., af.Engine]) -> None:
    class Waits(af.Workflow[int]):
        def __init__(self, hops: int = 0) -> None:
            self.hops = hops

        def handle(self) -> int:
            self.wait("hop")
            return self.hops if self.hops == 1_000 else self.again(Waits(self.hops + 1))

    with opens(":memory:") as engine:
        waits = engine.start(Waits())
        for _ in range(1_001):
            waits.send("hop")
        assert waits.result(60) == 1_000
        assert len(waits.query().state.branches) < 10


class Collects(af.Workflow[list[str]]):
    """Takes one event in each run, and counts in `on_event`."""

    def __init__(self, found: list[str] | None = None, seen: int = 0) -> None:
        self.found = found or []
        self.seen = seen

    def handle(self) -> list[str]:
        """Take one event."""
        event = self.wait("item")
        found = [*self.found, event.data["name"] if event else "?"]
        if len(found) == 5:
            return [*found, str(self.seen)]
        return self.again(Collects(found, self.seen))

    def on_event(self, event: af.Event) -> int:
        """Count."""
        self.seen += 1
        return self.seen


def test_e09_kept_and_pending_events_go_on_to_the_next_run(
    engine: af.Engine, clock: VirtualClock
) -> None:
    collects = engine.start(Collects())
    collects.pause()
    for name in "abcde":
        collects.send("item", name=name)
    collects.resume()
    assert collects.result(PATIENCE) == ["a", "b", "c", "d", "e", "5"]
    assert collects.query().kept == []


def test_asks_are_answered_across_runs(engine: af.Engine) -> None:
    collects = engine.start(Collects())
    assert [collects.ask("item", name=name) for name in "abcde"] == [1, 2, 3, 4, 5]
    assert collects.result(PATIENCE) == ["a", "b", "c", "d", "e", "5"]


def test_followers_see_the_values_of_all_runs(engine: af.Engine) -> None:
    class Publishes(af.Workflow[None]):
        def __init__(self, left: int) -> None:
            self.left = left

        def handle(self) -> None:
            self.publish(self.left)
            return self.again(Publishes(self.left - 1)) if self.left else None

    publishes = engine.start(Publishes(4))
    assert list(publishes.follow(timeout=PATIENCE)) == [4, 3, 2, 1, 0]


def test_a_parent_gets_the_result_of_the_last_run(engine: af.Engine) -> None:
    class Above(af.Workflow[str]):
        def handle(self) -> str:
            return self.execute(Hops(2))

    assert engine.start(Above()).result(PATIENCE) == "after 2"


def test_async_methods_begin_anew_as_well(engine: af.Engine) -> None:
    class Counts(af.Workflow[int]):
        def __init__(self, count: int) -> None:
            self.count = count

        async def handle(self) -> int:
            await note("x")
            return self.count if self.count == 3 else self.again(Counts(self.count + 1))

    assert asyncio.run(engine.start(Counts(0)).aresult(PATIENCE)) == 3


def test_random_numbers_differ_between_runs(engine: af.Engine) -> None:
    class Draws(af.Workflow[list[str]]):
        def __init__(self, drawn: list[str]) -> None:
            self.drawn = drawn

        def handle(self) -> list[str]:
            drawn = [*self.drawn, str(self.uuid())]
            return drawn if len(drawn) == 3 else self.again(Draws(drawn))

    assert len(set(engine.start(Draws([])).result(PATIENCE))) == 3


def test_the_next_run_begins_when_the_other_methods_have_ended(
    engine: af.Engine, clock: VirtualClock
) -> None:
    class Slow(af.Workflow[list[str]]):
        def __init__(self, seen: list[str]) -> None:
            self.seen = seen

        def handle(self) -> list[str]:
            self.wait("go")
            return self.seen or self.again(Slow(["again"]))

        def on_event(self, event: af.Event) -> str:
            if event.name == "slow":
                self.wait(seconds=60)
            return f"{event.name} {len(self.seen)}"

    slow = engine.start(Slow([]))
    slow.send("slow", id="s")
    slow.send("go")
    until(engine, lambda: slow.query().state.successor == {"seen": ["again"]})
    slow.send("quick", id="q")
    clock.advance(60)
    assert slow.ask("slow", id="s", timeout=PATIENCE) == "slow 0"
    assert slow.ask("quick", id="q", timeout=PATIENCE) == "quick 1"
    slow.send("go")
    assert slow.result(PATIENCE) == ["again"]


def test_timers_and_tasks_of_the_last_run_are_gone(engine: af.Engine) -> None:
    class Leaves(af.Workflow[str]):
        def __init__(self, run: int) -> None:
            self.run = run

        def handle(self) -> str:
            if self.run == 1:
                self.wait("end")
                return "ended"
            self.first(af.Wait(days=9), note("quick"))
            return self.again(Leaves(1))

    leaves = engine.start(Leaves(0))
    leaves.send("end")
    assert leaves.result(PATIENCE) == "ended"
    assert rows(engine, "timers") == rows(engine, "tasks") == []


def test_children_beyond_the_limit_of_ids_get_hashed_ids(opens: Callable[..., af.Engine]) -> None:
    class Deep(af.Workflow[int]):
        def __init__(self, depth: int) -> None:
            self.depth = depth

        def handle(self) -> int:
            return 0 if self.depth == 0 else 1 + self.execute(Deep(self.depth - 1))

    with opens(":memory:") as engine:
        assert engine.start(Deep(220)).result(60) == 220


def test_a_long_history_is_reported_once(
    engine: af.Engine, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    class Long(af.Workflow[None], history_limit=10):
        def handle(self) -> None:
            for _ in range(7):
                self.wait("go")

    long = engine.start(Long())
    for _ in range(7):
        long.ask("go")
    long.result(PATIENCE)
    said = caplog.text + capsys.readouterr().err
    assert said.count("the history of a workflow is long") == 2


def test_wrong_uses_are_explained(engine: af.Engine) -> None:
    class Wrong(af.Workflow[Any]):
        def __init__(self, how: str) -> None:
            self.how = how

        def handle(self) -> Any:
            if self.how == "class":
                return self.again(Hops(1))
            if self.how == "return":
                self.again(Wrong(""))
            return None

    for how, said in {"class": "goes on as one", "return": r"return self\.again"}.items():
        wrong = engine.start(Wrong(how))
        with pytest.raises(af.ActorflowError, match=said):
            wrong.result(PATIENCE)


def test_it_goes_on_after_a_restart(tmp_path: Path, opens: Callable[..., af.Engine]) -> None:
    with opens(tmp_path / "a.db") as engine:
        collects = engine.start(Collects(), id="c")
        for name in "abc":
            collects.send("item", name=name)
        collects.ask("item", name="d")
    with opens(tmp_path / "a.db") as engine:
        collects = engine.workflows.get(Collects, "c")
        collects.send("item", name="e")
        assert collects.result(PATIENCE) == ["a", "b", "c", "d", "e", "5"]
