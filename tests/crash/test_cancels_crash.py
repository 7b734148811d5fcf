"""Workflows that are killed while they are cancelled: they go on to clean up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RUNNER = Path(__file__).parent / "cancel_runner.py"
TRIP = ["car", "hotel", "flight"]


def run(folder: Path, workflow: str, at: str, failpoint: str = "") -> str | None:
    """Run the program; return what it prints, `None` if it was killed."""
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(folder / "w.db"), str(folder / "notes"), workflow, at],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("workflow", "at"),
    [*(("Saga", name) for name in TRIP), ("AsyncSaga", "hotel"), ("Greets", "flight")],
)
def test_x03_a_cancelled_workflow_that_is_killed_goes_on_to_clean_up(
    tmp_path: Path, workflow: str, at: str
) -> None:
    kills = 0
    for failpoint in ("commit.after:2", "run.after:3", "commit.before:2"):
        kills += run(tmp_path, workflow, at, failpoint) is None
    assert kills >= 1
    said = run(tmp_path, workflow, at)
    assert said is not None
    found = json.loads(said.splitlines()[-1])
    booked = TRIP[: TRIP.index(at) + 1]
    undone = ["goodbye"] if workflow == "Greets" else [f"undo {name}" for name in booked[::-1]]
    assert found["ended"] == "cancelled"
    assert found["done"][: len(booked)] == [f"book {name}" for name in booked]
    assert sorted(found["done"][len(booked) :]) == sorted(undone), "a step was lost, or done twice"
    notes = (tmp_path / "notes").read_text(encoding="utf-8").split("\n")
    assert set(notes) == {"", *found["done"]}
