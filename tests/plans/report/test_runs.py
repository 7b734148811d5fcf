"""Seeing real runs: the report, drawings, and progress on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from actorflow.plans.errors import PlanFailed
from actorflow.plans.job_record import JobStatus
from actorflow.plans.plan import Plan
from actorflow.runtime.errors import BadOption
from tests.plans.jobs import add, boom, plus, upto

ROOT = Path(__file__).parents[3]


def diamond() -> Plan:
    plan = Plan()
    start = plan.job(add, 1, name="start")
    left, right = (plan.job(plus, start, name=name) for name in ("left", "right"))
    plan.job(add, left, right, name="end")
    return plan


def test_a_run_has_a_report() -> None:
    plan = diamond()
    result = plan.run(workers=2)
    report = plan.report()
    assert report.counts == {JobStatus.DONE: 4}
    assert report.width == 2
    assert report.elapsed >= report.busy / 2
    path = report.critical_path.names
    assert {path[0], path[-1]} == {"start", "end"}
    assert str(report).startswith("4 jobs in ")
    assert result.report().critical_path == report.critical_path
    assert plan.report() is report


def test_a_run_that_failed_has_a_report_too() -> None:
    plan = Plan()
    bad = plan.job(boom, name="bad")
    plan.job(add, bad, name="after")
    with pytest.raises(PlanFailed):
        plan.run(workers=1)
    report = plan.report()
    assert report.counts == {JobStatus.FAILED: 1, JobStatus.SKIPPED: 1}
    assert "ValueError: boom" in str(report)
    assert "job 'bad' failed" in str(report)


def test_a_plan_is_drawn_before_and_after_its_run(tmp_path: Path) -> None:
    plan = diamond()
    text = "start\nleft <- start\nright <- start\nend <- left, right"
    assert str(plan.draw()) == text
    assert {node.statuses for node in plan.draw().diagram.nodes} == {()}
    plan.run(workers=1)
    drawing = plan.draw(tmp_path / "plan.svg")
    assert str(drawing) == text
    assert {node.statuses for node in drawing.diagram.nodes} == {(JobStatus.DONE,)}
    assert "<svg" in (tmp_path / "plan.svg").read_text()


def test_a_map_is_drawn_with_the_jobs_it_has_added() -> None:
    plan = Plan()
    plan.map(plus, plan.job(upto, 2, name="items"), name="each")
    assert str(plan.draw()) == "items\neach <- items"
    plan.run(workers=1)
    assert "each[0] <- items" in str(plan.draw())


def test_a_plan_that_was_not_run_has_no_report() -> None:
    with pytest.raises(BadOption, match="the plan has not been run"):
        diamond().report()


SCRIPT = """\
import sys
import actorflow as af

def work(number):
    return number

if __name__ == "__main__":
    plan = af.Plan()
    for number in range(20):
        plan.job(work, number)
    plan.run(workers=2, progress=eval(sys.argv[1]))
"""


def run_script(home: Path, progress: str, *, terminal: bool) -> str:
    """Run a plan in a new process; return what it writes to stderr."""
    (home / "flow.py").write_text(SCRIPT)
    ours, theirs = pty.openpty() if terminal else os.pipe()  # to read, to write
    done = subprocess.Popen(
        [sys.executable, "flow.py", progress],
        cwd=home,
        env={"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:
        pass  # how a terminal says that the other side has gone
    os.close(ours)
    assert done.wait() == 0
    return b"".join(parts).decode()


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    text = run_script(tmp_path, "None", terminal=True)
    assert "20/20" in text
    assert "20 done" in text


@pytest.mark.parametrize(("progress", "terminal"), [("None", False), ("False", True)])
def test_progress_is_quiet_where_nobody_looks(
    progress: str, *, terminal: bool, tmp_path: Path
) -> None:
    assert run_script(tmp_path, progress, terminal=terminal) == ""
