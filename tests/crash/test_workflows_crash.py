"""Workflows whose process is killed at random points: nothing lost, no step recorded twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
RUNNER = Path(__file__).parent / "workflow_runner.py"
VERBS = Path(__file__).parent / "workflow_verbs.py"
POINTS = (
    "run.fetch",
    "run.after",
    "commit.before",
    "commit.inside",
    "commit.after",
    "dispatch.before",
    "dispatch.inside",
)


class Program:
    """The runner, started again and again on one store."""

    def __init__(self, folder: Path, instances: int, steps: int, *, in_lane: bool = False) -> None:
        folder.mkdir()
        self.instances, self.steps, self.in_lane = instances, steps, in_lane
        self.lives = 0
        self._store, self._notes = folder / "workflows.db", folder / "notes.jsonl"

    def live(self, failpoint: str = "", after_tasks: int = 0) -> subprocess.CompletedProcess[str]:
        """Run it until it is killed, or done."""
        self.lives += 1
        return subprocess.run(
            [
                sys.executable, str(RUNNER), str(self._store), str(self._notes), str(self.lives),
                str(self.instances), str(self.steps),
            ],
            env={
                **os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint,
                "KILL_AFTER_TASKS": str(after_tasks), **({"IN_LANE": "1"} if self.in_lane else {}),
            },
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )  # fmt: skip

    def live_until_killed(self, dice: random.Random, most: int) -> bool:
        """Kill it at a random point; return whether it was, before it was done."""
        count = dice.randint(1, most)
        point = dice.choice([*POINTS, "task"])
        done = self.live(after_tasks=count) if point == "task" else self.live(f"{point}:{count}")
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode != 0

    def check(self) -> int:
        """Let it end, and check all that it has noted; return how many tasks were done again."""
        done = self.live()
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert found["left"] == {"messages": 0, "tasks": 0, "timers": 0, "dead": 0}
        assert len(found["ended"]) == self.instances, "an instance was lost"
        if self.in_lane:
            self._check_lane(found["lane"])
        for ended in found["ended"].values():
            assert ended["result"] == list(range(self.steps))
            for name in ("scheduled", "successes"):
                assert len(ended[name]) == self.steps, "a step was lost, or recorded twice"
                assert len(set(ended[name])) == self.steps
        return self._check_tasks()

    def _check_lane(self, lane: dict[str, Any]) -> None:
        """Check that the instances ran one after the other."""
        assert lane["running"] == lane["waiting"] == []
        lines = map(json.loads, self._notes.read_text(encoding="utf-8").splitlines())
        orders = [each["order"] for each in lines if "order" in each]
        assert orders == sorted(orders), "two instances ran at the same time"

    def _check_tasks(self) -> int:
        ids: dict[tuple[int, int], set[str]] = defaultdict(set)
        begun: dict[str, list[int]] = defaultdict(list)
        known: dict[int, set[str]] = {}
        for line in self._notes.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "known" in entry:
                known[entry["life"]] = set(entry["known"])
            else:
                ids[entry["order"], entry["number"]].add(entry["task"])
                begun[entry["task"]].append(entry["life"])
        assert all(len(each) == 1 for each in ids.values()), "a task has two ids to deduplicate by"
        assert len(ids) == self.instances * self.steps, "a step was never done"
        again = 0
        for task, lives in begun.items():
            assert len(set(lives)) == len(lives), f"{task} was done twice in one life"
            for life in lives:
                assert task not in known.get(life, ()), f"{task} was done again, although recorded"
            again += len(lives) - 1
        return again


@pytest.mark.timeout(300)
def test_killed_at_random_points_workflows_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    dice = random.Random(7)
    program = Program(tmp_path / "few", instances=8, steps=12)
    killed = sum(program.live_until_killed(dice, most=25) for _ in range(8))
    assert killed >= 4
    program.check()


@pytest.mark.timeout(300)
def test_killed_at_random_points_workflows_in_a_lane_run_one_after_the_other(
    tmp_path: Path,
) -> None:
    dice = random.Random(5)
    program = Program(tmp_path / "lane", instances=5, steps=4, in_lane=True)
    killed = sum(program.live_until_killed(dice, most=12) for _ in range(6))
    assert killed >= 3
    program.check()


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_killed_at_200_random_points(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    print(f"seed {seed}")  # noqa: T201 - to do it again
    kills = round_ = again = 0
    while kills < 200:
        round_ += 1
        program = Program(tmp_path / str(round_), instances=50, steps=20)
        while kills < 200 and program.live_until_killed(dice, most=60):
            kills += 1
        again += program.check()
    print(f"{kills} kills in {round_} rounds; {again} tasks were done again")  # noqa: T201


VERBS_SAID = {
    "asked": [0, 1, 3, 6],
    "counted": 15,
    "followed": [0, 1, 3, 6, 10, 15],
    "tagged": ["counter"],
    "flagged": "flag",
    "steps": ["one", "two", "three", "seen", "go"],
    "fork": ["one", "two", "three", "go"],
    "parent": [0, 2, 4, "Cancelled"],
    "ended": ["cancelled", "cancelled"],
    "turns": ["0", "1", "2", "3", "4"],
    "last": "4",
    "triggered": "happy new year",
    "made up for": ["happy new year"] * 4,
    "started": 5,
    "left": {"messages": 0, "tasks": 0, "dead": 0},
    "active": ["cron:yearly"],
}


def say_verbs(folder: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    """Say all verbs, until the program is killed or done."""
    return subprocess.run(
        [sys.executable, str(VERBS), str(folder / "verbs.db"), str(folder / "flag")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def say_verbs_and_kill(folder: Path, dice: random.Random, most: int) -> int:
    """Kill the program at random points until it was done; return how often it was killed."""
    folder.mkdir()
    for kills in range(most + 1):
        # Rather early in each life: later ones find much done already.
        point = f"{dice.choice(POINTS)}:{dice.randint(1, 25)}" if kills < most else ""
        done = say_verbs(folder, point)
        if done.returncode == 0:
            assert json.loads(done.stdout.splitlines()[-1]) == VERBS_SAID
            return kills
        assert done.returncode == -signal.SIGKILL, done.stderr
    raise AssertionError(done.stderr)


@pytest.mark.timeout(300)
def test_killed_while_verbs_are_said_each_of_them_counts_once(tmp_path: Path) -> None:
    dice = random.Random(11)
    assert sum(say_verbs_and_kill(tmp_path / str(each), dice, most=4) for each in range(3)) >= 3


@pytest.mark.soak
@pytest.mark.timeout(3_000)
def test_killed_200_times_while_verbs_are_said(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    print(f"seed {seed}")  # noqa: T201 - to do it again
    kills = round_ = 0
    while kills < 200:
        round_ += 1
        kills += say_verbs_and_kill(tmp_path / str(round_), dice, most=6)
