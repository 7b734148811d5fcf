"""Nothing is sent twice or too early, although the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

from examples.rate_limit import app

ROOT = Path(__file__).parents[2]


def most_within(times: list[float], seconds: float) -> int:
    """Return how many there are at most in an interval of that length."""
    return max(number - bisect_left(times, at - seconds) + 1 for number, at in enumerate(times))


def test_limits_hold_over_a_kill(tmp_path: Path) -> None:
    store = str(tmp_path / "api.db")
    killed = subprocess.run(
        [sys.executable, str(ROOT / "examples/rate_limit/app.py"), store],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ACTORFLOW_FAILPOINT": "commit.after:64"},
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = app.main(store)
    assert sorted(request["number"] for request in done["requests"]) == list(range(60))
    assert most_within(done["times"], 0.25) <= 0.25 * app.PER_SECOND + app.BURST + 1
    pairs = [*zip(done["times"], done["requests"], strict=True)]
    for name in "abc":
        own = [at for at, each in pairs if each["customer"] == name]
        assert most_within(own, 0.25) <= 0.25 * app.PER_CUSTOMER + app.CUSTOMER_BURST + 1
