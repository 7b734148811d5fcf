"""Verbs for many executions at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from tests.engine.kinds import PATIENCE, flush, until

if TYPE_CHECKING:
    from pathlib import Path


class Waits(af.Workflow[str]):
    """Waits for an event."""

    def __init__(self, group: str) -> None:
        self.group = group

    def handle(self) -> str:
        """Wait."""
        self.tag(group=self.group)
        self.wait("go")
        return self.group


def test_a_thousand_are_cancelled_in_a_few_commits(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        for n in range(1_000):
            engine.start(Waits("a" if n % 2 else "b"), id=f"w-{n:03}")
        until(engine, lambda: _count(engine, "a") == 500)
        before = engine.statistics().commits
        found = engine.bulk("cancel", tags={"group": "a"})
        assert (found.chosen, found.done, found.errors) == (500, 500, {})
        assert engine.statistics().commits - before < 100
        until(engine, lambda: len([*engine.executions(status="cancelled")]) == 500)
        found = engine.bulk("kill", kind="workflow:Waits")  # without the ended ones
        assert (found.chosen, found.done) == (500, 500)
        assert len([*engine.executions(status="cancelled")]) == 1_000


def _count(engine: af.Engine, group: str) -> int:
    return len([*engine.executions(tags={"group": group})])


def test_pause_and_resume_reach_what_can_be_paused() -> None:
    with af.Engine(":memory:") as engine:
        waits = [engine.start(Waits("a"), id=f"w-{n}") for n in range(3)]
        engine.pause(af.Lane("c"))
        engine.worker("saves", lambda _rows, state: state).push(1)
        until(engine, lambda: len([*engine.executions()]) == 5)
        flush(engine)
        found = engine.bulk("pause", status="active")
        assert found.done == 4
        assert list(found.errors) == ["saves"]
        assert "of kind 'worker', which knows no 'pause'" in str(found.errors["saves"])
        until(engine, lambda: [each.query().mode for each in waits] == ["paused"] * 3)
        assert asyncio.run(engine.abulk("resume", kind="workflow:Waits")).done == 3
        for each in waits:
            each.send("go")
            assert each.result(PATIENCE) == "a"
        found = engine.bulk("cancel", ids=["w-0", "none", "lane:c"])
        assert found.chosen == 3
        assert sorted(found.errors) == ["lane:c", "none"]


def test_nothing_is_chosen_by_mistake() -> None:
    with af.Engine(":memory:") as engine:
        with pytest.raises(af.BadOption, match="would choose everything: give a filter, or ids"):
            engine.bulk("cancel")
        with pytest.raises(af.BadOption, match="action='stop'"):
            engine.bulk("stop", kind="workflow:Waits")
