"""The worker benchmark runs and reports every row. No test depends on a figure."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import workers
from benchmarks.harness import report
from benchmarks.harness.cases import FULL, QUICK, missing, sections
from benchmarks.harness.goals import goals, promises, wanted
from benchmarks.harness.measure import Case, Result, Section, measure, ratio
from benchmarks.harness.tables import put_between_markers
from benchmarks.loads.calls import has_peer
from benchmarks.loads.throughput import BEHAVIOURS, available

if TYPE_CHECKING:
    from pathlib import Path

PEERS = {
    "plain pykka",
    "plain pykka, one processor",
    "two-actor pykka",
    "asyncio queue",
    "SimpleQueue thread",
    "bare list",
}
NOTHING = Case(label="nothing", load="nothing", subject="nobody")


def result(**figures: list[float]) -> Result:
    return Result(case=NOTHING, figures=figures)


def section(*labels: str, rounds: int = 2) -> Section:
    cases = tuple(Case(label=label, load="load", subject=label) for label in labels)
    return Section(name="some", title="Some", cases=cases, rounds=rounds)


def test_a_quick_run_measures_every_case_and_compares_it_with_the_goals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "RESULTS.md"

    code = workers.main(
        ["--quick", "--rounds", "1", "--json", str(figures), "--markdown", str(page)]
    )

    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    printed = capsys.readouterr().out
    assert code == 0, printed
    for each in sections(QUICK):
        rows = found["results"][each.name]
        assert list(rows) == [case.label for case in each.cases]
        assert all(row["figures"] and not row["errors"] for row in rows.values())
        assert each.title in printed
        assert f"### {each.title}" in page.read_text(encoding="utf-8")
    unknown = {goal["promise"]["section"] for goal in found["goals"] if goal["met"] is None}
    assert unknown == (set() if has_peer() else {"calls", "calls-1ms"})
    assert "the figures mean nothing" in printed


@pytest.mark.parametrize("name", ["burst-1", "burst-4"])
def test_every_behaviour_and_every_peer_has_a_row(name: str) -> None:
    [burst] = [each for each in sections(FULL) if each.name == name]
    labels = {case.label for case in burst.cases}
    assert labels >= PEERS | {each for each in BEHAVIOURS if available(each)}
    assert not labels & set(missing())


def test_a_case_runs_in_a_process_of_its_own() -> None:
    [chunks] = [each for each in sections(QUICK) if each.name == "chunks"]
    done = subprocess.run(
        [sys.executable, workers.__file__, "--child", json.dumps(asdict(chunks.cases[0]))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)) == ["rate"]


def test_cases_take_turns() -> None:
    turns: list[str] = []

    def load(subject: str) -> dict[str, float]:
        turns.append(subject)
        return {"rate": float(len(turns))}

    found = measure([section("a", "b")], {"load": load}, script=None)
    assert turns == ["a", "b", "a", "b"]
    assert found["some"]["b"].figures == {"rate": [2.0, 4.0]}


def test_a_case_that_fails_is_reported_and_the_others_go_on() -> None:
    def load(subject: str) -> dict[str, float]:
        if subject == "bad":
            msg = "no luck"
            raise ValueError(msg)
        return {"rate": 1e6}

    some = section("bad", "good", rounds=1)
    found = measure([some], {"load": load}, script=None)
    assert report.errors(found) == ["some: bad: ValueError: no luck"]
    text = report.as_text([some], found, {"machine": "mine"}, [])
    assert "good" in text
    assert text.endswith("some: bad: ValueError: no luck")


def test_a_ratio_is_taken_within_each_round() -> None:
    slowed_down = result(rate=[10.0, 1.0, 10.0])
    beside_it = result(rate=[5.0, 0.5, 5.0])
    assert ratio(slowed_down, beside_it, "rate") == 2.0
    assert ratio(slowed_down, None, "rate") is None
    assert ratio(slowed_down, result(), "rate") is None


def test_a_goal_that_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {goal.met for goal in goals({})} == {None}


def test_a_ratio_counts_where_there_is_a_reference_and_the_figure_itself_elsewhere() -> None:
    found = {
        "round-trip": {"push_block": result(p50=[40.0]), "bare hand-off": result(p50=[20.0])},
        "population": {"Queue": result(**{"spawn us": [8.0]})},
    }
    by_work = {goal.promise.work: goal for goal in goals(found) if goal.met is not None}
    trip = by_work["push_block on an idle worker, p50 / bare hand-off"]
    spawn = by_work["spawn at 100,000 pairs"]
    assert len(by_work) == 2
    assert (trip.ours, trip.reference, trip.ratio, trip.met) == (40.0, 20.0, 2.0, False)
    assert (spawn.ours, spawn.reference, spawn.ratio, spawn.met) == (8.0, None, None, True)


def test_every_goal_refers_to_cases_that_are_run() -> None:
    by_name = {each.name: {case.label for case in each.cases} for each in sections(FULL)}
    for promise in promises():
        needed = {promise.ours, promise.reference} - {None}
        if promise.section.startswith("calls") and not has_peer():
            needed = {promise.ours}
        assert needed <= by_name[promise.section]


def test_goals_alone_leave_out_the_cases_that_no_goal_refers_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--quick", "--rounds", "1", "--goals", "--only", "crowd-1000", "ack"]
    assert workers.main([*arguments, "--json", str(figures)]) == 0
    found = json.loads(figures.read_text(encoding="utf-8"))
    [crowd] = [each for each in sections(QUICK) if each.name == "crowd-1000"]
    assert wanted(crowd) == {"Queue", "bare list"}
    assert {name: set(rows) for name, rows in found["results"].items()} == {
        "crowd-1000": {"Queue", "bare list"}
    }
    assert "work" in capsys.readouterr().out


def test_only_the_text_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    put_between_markers(page, "first", "workers")
    page.write_text(page.read_text(encoding="utf-8") + "\nkept\n", encoding="utf-8")

    put_between_markers(page, "second", "workers")

    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Results\n")
    assert "second" in text
    assert "first" not in text
    assert text.endswith("\nkept\n")


def test_a_page_without_markers_keeps_what_it_says(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("# Mine\n", encoding="utf-8")
    put_between_markers(page, "ours", "workers")
    assert page.read_text(encoding="utf-8").startswith("# Mine\n\n<!-- workers: begin -->\n\nours")
