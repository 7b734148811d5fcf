"""No room: a clear error, nothing acknowledged is lost, and it goes on when there is room again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from actorflow.engine.engine import BareEngine

ROOT = Path(__file__).parent.parent.parent
FILLER = Path(__file__).parent / "filler.py"


def test_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(FILLER), str(tmp_path / "store.db")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    acknowledged, state, refused, blocked, _ = json.loads(done.stdout)
    assert (refused, blocked) == (20, 5)
    assert state == acknowledged
    with BareEngine(tmp_path / "store.db") as engine:
        assert engine.worker("w", lambda batch, state: state, state=[]).state() == acknowledged
