"""Workflows whose process is killed at any moment lose nothing and record no step twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.workflow_runner import COUNT, STEPS

ROOT = Path(__file__).parent.parent.parent
RUNNER = Path(__file__).parent / "workflow_runner.py"
POINTS = (
    "run.after", "commit.before", "commit.parts", "commit.after", "dispatch.before",
    "dispatch.inside",
)  # fmt: skip


def begin(folder: Path, failpoint: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(RUNNER), str(folder / "flows.db"), str(folder / "notes.txt")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def notes(folder: Path) -> list[str]:
    file = folder / "notes.txt"
    return file.read_text().splitlines() if file.exists() else []


def check(folder: Path, kills: int) -> None:
    """Run it to its end, and look at what became of all."""
    runner = begin(folder)
    out, err = runner.communicate(timeout=100)
    assert runner.returncode == 0, err
    found = json.loads(out.splitlines()[-1])
    assert found["left"] == {}
    assert found["dead"] == 0
    assert len(found["ended"]) == COUNT
    begun = Counter(notes(folder))
    for number in range(COUNT):
        one = found["ended"][f"w-{number}"]
        steps = [number * 1_000 + step for step in range(STEPS)]
        # Each success is counted once, in the state that its recording led to.
        assert one["result"][:-1] == steps
        assert one["result"][-1] >= STEPS
        assert len(one["works"]) == len(set(one["works"])) == STEPS + 2
        assert one["branches"] == list(range(len(one["branches"])))
        mine = {task for task in begun if task.startswith(f"task w-{number}/")}
        assert len(mine) == STEPS, "each task has one id, however often it is begun"
        assert begun[f"side w-{number}/0/6.0"] >= 1
    assert max(begun.values()) <= kills + 1, "a task is only begun again after a kill"


@pytest.mark.timeout(300)
def test_killed_at_random_points_they_get_there(tmp_path: Path) -> None:
    dice = random.Random(12)
    kills = 0
    for _ in range(6):
        runner = begin(tmp_path)
        before = len(notes(tmp_path))
        target = before + dice.randrange(1, 90)
        while len(notes(tmp_path)) < target and runner.poll() is None:
            time.sleep(0.001)  # another process makes progress
        if runner.poll() is None:
            runner.send_signal(signal.SIGKILL)
            kills += 1
        runner.communicate(timeout=60)
    assert kills >= 3
    check(tmp_path, kills)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_failpoint_they_get_there(point: str, tmp_path: Path) -> None:
    kills = 0
    for count in (2, 40):
        runner = begin(tmp_path, f"{point}:{count}")
        runner.communicate(timeout=100)
        kills += runner.returncode == -signal.SIGKILL
    assert kills
    check(tmp_path, kills)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_killed_at_200_random_points(tmp_path: Path) -> None:
    dice = random.Random(7)
    for round_ in range(20):
        folder = tmp_path / str(round_)
        folder.mkdir()
        kills = 0
        for _ in range(10):
            runner = begin(folder)
            target = len(notes(folder)) + dice.randrange(1, 60)
            while len(notes(folder)) < target and runner.poll() is None:
                time.sleep(0.001)
            if runner.poll() is None:
                runner.send_signal(signal.SIGKILL)
                kills += 1
            runner.communicate(timeout=60)
        check(folder, kills)
