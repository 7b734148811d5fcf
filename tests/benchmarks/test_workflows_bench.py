"""The benchmark of workflows measures what it says, and writes its section. No figure is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import workflows
from benchmarks.harness import turns

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, dict[str, Any]] = {
    "two_steps": {"starters": 2, "each": 3},
    "replay": {"work": "two_steps", "argument": 1, "each": 2, "turns": 1},
    "steps": {"lengths": (2, 4), "turns": 1},
    "reaction": {"count": 3},
    "events": {"callers": 5, "each": 4},
    "crowd": {"count": 30},
    "kept": {"count": 20},
    "until": {"count": 5},
    "again": {"hops": 5},
    "lanes": {"count": 10, "concurrency": 2},
    "keyed": {"keys": 20, "each": 1},
}


@pytest.mark.parametrize("load", workflows.LOADS)
def test_each_load_measures_something(load: str, tmp_path: Path) -> None:
    figures = workflows.LOADS[load](tmp_path, workflows.OURS, **SMALL[load])
    assert all(value >= 0 for value in figures.values())
    assert figures


def test_a_run_fills_its_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With real cases, of which only the smallest are run in their processes."""
    chosen = [
        turns.Case(workflows.TWO[8], workflows.OURS, "two_steps", SMALL["two_steps"]),
        turns.Case(workflows.CROWD, "30", "crowd", SMALL["crowd"], once=True),
    ]
    monkeypatch.setattr(workflows, "cases", lambda *, quick: chosen if quick else [])
    page = tmp_path / "RESULTS.md"
    page.write_text("# Results\n\nmine\n", encoding="utf-8")
    assert workflows.main(["--quick", "--markdown", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Results\n\nmine\n\n<!-- workflows: begin -->\n\n## Workflows")
    assert "| 30 waiting workflows found after a restart, s | < 5 |" in text
    assert "30 waiting workflows" in capsys.readouterr().out


def test_a_goal_is_judged_by_what_was_measured() -> None:
    rates = {"actorflow": [{"rate": 900.0}, {"rate": 1_100.0}], workflows.LOGGED: [{"rate": 90.0}]}
    found: turns.Found = {workflows.TWO[1]: rates}
    first, *others = workflows.goals(found)
    assert first.value == pytest.approx(11.1, abs=0.02)
    assert first.verdict == "met"
    assert {each.verdict for each in others} == {"-"}
