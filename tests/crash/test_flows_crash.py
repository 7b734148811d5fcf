"""Flows whose process is killed at each step neither lose nor repeat a state change."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.flow_runner import COUNT

ROOT = Path(__file__).parent.parent.parent
RUNNER = Path(__file__).parent / "flow_runner.py"
POINTS = (
    "run.fetch",
    "run.after",
    "commit.before",
    "commit.inside",
    "commit.after",
    "dispatch.before",
    "dispatch.inside",
)


def run(folder: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUNNER), str(folder / "flows.db"), str(folder / "notes.txt")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def check(folder: Path, done: subprocess.CompletedProcess[str], kills: int = 1) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["left"] == {"messages": 0, "tasks": 0, "timers": 0, "dead": 0}
    # Launches that nobody heard of, because of a kill, may be there as well.
    assert COUNT <= len(found["ended"]) <= COUNT * (kills + 1)
    given = [
        line[5:] for line in (folder / "notes.txt").read_text().splitlines() if line[:4] == "task"
    ]
    for one in found["ended"]:
        assert one["status"] == "done"
        assert one["payload"]["l"] == [1, "first", 2, "second", 3, 3, 3, "last", "end"]
        assert one["payload"]["slept"] is True
        assert one["numbers"], "a message is missing from the history, or there twice"
        assert one["runs"]
        assert one["tasks"] == 0
        mine = {task for task in given if task.startswith(f"{one['exid']}/")}
        assert len(mine) == 3, "each task has one id, however often it is handed out"
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_failpoint_a_flow_goes_on_as_if_nothing_had_happened(
    point: str, tmp_path: Path
) -> None:
    for count in (1, 4):
        folder = tmp_path / str(count)
        folder.mkdir()
        done = run(folder, f"{point}:{count}")
        assert done.returncode == -signal.SIGKILL
        check(folder, run(folder))


@pytest.mark.timeout(300)
def test_killed_again_and_again_it_gets_there(tmp_path: Path) -> None:
    killed = [run(tmp_path, f"{point}:4").returncode == -signal.SIGKILL for point in POINTS]
    check(tmp_path, run(tmp_path), kills=sum(killed))


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_killed_at_every_count_of_every_failpoint(tmp_path: Path) -> None:
    for point in POINTS:
        for count in range(1, 60):
            folder = tmp_path / f"{point}-{count}"
            folder.mkdir()
            done = run(folder, f"{point}:{count}")
            if done.returncode == 0:
                check(folder, done)
                break
            check(folder, run(folder))
