"""What a run left over is the next run, also when the process is killed in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actorflow.engine import bodies
from actorflow.engine.stores.sqlite.store import SqliteStore
from tests.crash.leaver import FIRST, LATER, LEFT

ROOT = Path(__file__).parent.parent.parent
LEAVER = Path(__file__).parent / "leaver.py"
PATIENCE = 50.0


def live(store: Path, size: int, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(LEAVER), str(store), str(size)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("failpoint", ["dispatch.before:1", "dispatch.before:2"])
def test_what_was_left_over_comes_first_after_each_of_many_crashes(
    tmp_path: Path, failpoint: str, size: int
) -> None:
    store = tmp_path / "store.db"
    order = [FIRST, *LEFT, *LATER]
    crashes = 0
    while (done := live(store, size, failpoint)).returncode == -signal.SIGKILL:
        crashes += 1  # each life does one message at least
        waiting = stored(store)
        assert waiting == order[len(order) - len(waiting) :]
    assert json.loads(done.stdout or "[]") == order, done.stderr
    assert crashes >= len(order) // int(failpoint[-1]), "it was killed on the way"


def stored(path: Path) -> list[str]:
    store = SqliteStore(path)
    try:
        return [bodies.decode(row.body) for row in store.rows("messages")]
    finally:
        store.close()
