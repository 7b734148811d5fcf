"""Whenever the process is killed, each thing is booked once, and nothing is left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(folder: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "app.py"), str(folder / "trip.db")],
        env={
            **os.environ,
            "PYTHONPATH": str(HERE.parents[1]),
            "BOOKINGS": str(folder / "bookings.jsonl"),
            "ACTORFLOW_FAILPOINT": failpoint,
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("point", ["commit.after", "dispatch.before"])
def test_killed_twice_it_books_each_thing_once(point: str, tmp_path: Path) -> None:
    for count in (3, 2):
        assert run(tmp_path, f"{point}:{count}").returncode == -signal.SIGKILL
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "booked hotel in Rome, car in Rome, flight to Rome",
        "no trip to the moon",
        "booked now: car in Rome, flight to Rome, hotel in Rome",
    ]
    lines = (tmp_path / "bookings.jsonl").read_text(encoding="utf-8").splitlines()
    requests = Counter((each["action"], each["what"]) for each in map(json.loads, lines))
    assert set(requests.values()) == {1}
    assert len(requests) == 7  # five bookings, two cancelled
