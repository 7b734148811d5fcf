"""A process that commits is killed with SIGKILL: each commit is there as a whole, or not at all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.crash.committer import COMPACTED, KEPT, logged

ROOT = Path(__file__).parent.parent.parent
COMMITTER = Path(__file__).parent / "committer.py"
PATIENCE = 50.0
ENDLESS = 10_000_000


class Program:
    """The committer, started again and again on one store."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store.db"
        self.notes = folder / "notes"
        self.notes.touch()

    def start(self, last: int, failpoint: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(COMMITTER), str(self.store), str(self.notes), str(last)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
            stdout=subprocess.PIPE,
            text=True,
        )

    def acknowledged(self) -> list[int]:
        return [int(line) for line in self.notes.read_text(encoding="ascii").split("\n")[:-1]]

    def check(self) -> int:
        """Look whether whole commits are there, and all that were acknowledged; return how many."""
        acknowledged = self.acknowledged()
        last = max([0, *acknowledged])
        store = SqliteStore(self.store, read_only=True)
        try:
            row, other = store.execution("a"), store.execution("b")
            number = int(row.state or b"0") if row is not None else 0
            assert last <= number <= last + 1, "acknowledged and lost, or never committed"
            kept = [b"%d" % n for n in range(max(1, number - KEPT + 1), number + 1)]
            assert [m.body for m in store.pending(execution="a").rows] == kept
            assert [t.body for t in store.due()] == kept
            assert [t.body for t in store.open().rows] == kept
            assert row is None or (other is not None and other.state == row.state)
            log = store.execution("log")
            assert log is None or log.state == logged(number)
            past = [entry[3] for table, entry in store.snapshot() if table == "history"]
            assert past == [b"%d" % n for n in range(1, number + 1)]
            assert list(store.verify()) == []
        finally:
            store.close()
        return number


def end(process: subprocess.Popen[str]) -> int:
    code = process.wait(PATIENCE)
    assert process.stdout is not None
    process.stdout.close()
    return code


@pytest.mark.parametrize("failpoint", ["commit.before", "commit.inside", "commit.after"])
def test_killed_at_each_step_of_a_commit(failpoint: str, tmp_path: Path) -> None:
    program = Program(tmp_path)
    reached = 0
    for times in (1, 2, 30):
        assert end(program.start(ENDLESS, f"{failpoint}:{times}")) == -signal.SIGKILL
        number = program.check()
        assert number == reached + times - (failpoint != "commit.after")
        reached = number
    assert end(program.start(reached + 5)) == 0
    assert program.check() == reached + 5


def test_killed_while_a_state_is_made_whole(tmp_path: Path) -> None:
    program = Program(tmp_path)
    reached = 0
    for times in (1, 2, 3, 2):  # the first part is moved, or the parts are removed
        assert end(program.start(ENDLESS, f"commit.parts:{times}")) == -signal.SIGKILL
        number = program.check()
        assert (number + 1) % COMPACTED in (0, 1, 2), number
        reached = max(reached, number)
    assert end(program.start(reached + 20)) == 0
    assert program.check() == reached + 20


def kill_many(folder: Path, kills: int, chance: random.Random) -> None:
    program = Program(folder)
    for _ in range(kills):
        process = program.start(ENDLESS)
        # Killed when so many more have been acknowledged: a moment that no clock decides.
        goal = len(program.acknowledged()) + chance.randrange(1, 60)
        while len(program.acknowledged()) < goal and process.poll() is None:
            pass
        for _ in range(chance.randrange(100_000)):
            pass
        process.send_signal(signal.SIGKILL)
        assert end(process) == -signal.SIGKILL
        program.check()


def test_killed_at_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 5, random.Random(3))


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_killed_at_a_hundred_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 100, random.Random())
