"""Real processes, killed with SIGKILL: acknowledged is there once, the rest at most once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from actorflow.engine.errors import StoreBusy
from actorflow.engine.stores.sqlite.store import SqliteStore

ROOT = Path(__file__).parent.parent.parent
PUSHER = Path(__file__).parent / "pusher.py"
PATIENCE = 50.0
STRIDE = 1_000_000
"""Each life of the program has numbers of its own, so that nothing is pushed twice."""

FAILPOINTS = [
    "commit.before",
    "commit.inside",
    "commit.after",
    "run.fetch",
    "run.after",
    "dispatch.before",
    "dispatch.inside",
]


class Program:
    """The pusher, started again and again on one store."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store.db"
        self.notes = folder / "notes"
        self.notes.touch()
        self.lives = 0

    def start(self, count: int, failpoint: str = "") -> subprocess.Popen[str]:
        first = self.lives * STRIDE
        self.lives += 1
        return subprocess.Popen(
            [sys.executable, str(PUSHER), str(self.store), str(self.notes), str(first),
             str(first + count)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def acknowledged(self) -> list[int]:
        lines = self.notes.read_text(encoding="ascii").split("\n")[:-1]
        return [int(line) for line in lines]

    def check(self) -> int:
        """Let all go on to its end; look whether everything is as promised; count."""
        done = subprocess.run(
            [sys.executable, str(PUSHER), str(self.store), str(self.notes), "0", "-"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        seen = Counter(n for state in json.loads(done.stdout) for n in state if n >= 0)
        acknowledged = self.acknowledged()
        assert [n for n in acknowledged if seen[n] == 0] == [], "acknowledged and lost"
        assert {n: times for n, times in seen.items() if times > 1} == {}, "processed twice"
        assert all(n // STRIDE < self.lives for n in seen), "never pushed"
        return len(acknowledged)


def kill_many(folder: Path, kills: int, total: int, chance: random.Random) -> None:
    program = Program(folder)
    acknowledged = 0
    for _ in range(kills):
        process = program.start(total)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("running")
        # Killed when so many more have been acknowledged: a moment that no clock decides.
        goal = len(program.acknowledged()) + chance.randrange(max(total // kills, 1) * 2)
        while len(program.acknowledged()) < goal and process.poll() is None:
            pass
        for _ in range(chance.randrange(200_000)):
            pass
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
        process.stdout.close()
        acknowledged = len(program.acknowledged())
    if acknowledged < total:
        process = program.start(total - acknowledged)
        assert process.wait(PATIENCE * 4) == 0
        assert process.stdout is not None
        process.stdout.close()
    assert program.check() >= total


def test_killed_at_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, kills=6, total=1_200, chance=random.Random(1))


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_killed_at_a_hundred_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, kills=100, total=20_000, chance=random.Random())


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_at_each_step(tmp_path: Path, failpoint: str) -> None:
    program = Program(tmp_path)
    for times in (1, 7, 40):
        process = program.start(10_000, f"{failpoint}:{times}")
        assert process.wait(PATIENCE) == -signal.SIGKILL
        assert process.stdout is not None
        process.stdout.close()
    process = program.start(50)
    assert process.wait(PATIENCE) == 0
    assert process.stdout is not None
    process.stdout.close()
    assert program.check() >= 50


def test_a_second_process_is_refused_and_readers_are_welcome(tmp_path: Path) -> None:
    program = Program(tmp_path)
    process = program.start(100_000_000)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("running")
        with pytest.raises(StoreBusy, match=f"process {process.pid}"):
            SqliteStore(program.store)
        reader = SqliteStore(program.store, read_only=True)
        assert {row.kind for row in reader.listing().rows} <= {"worker"}
        reader.close()
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()
    SqliteStore(program.store).close()
