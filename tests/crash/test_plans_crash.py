"""Plans whose workers or whose scheduler are killed at any moment lose nothing."""

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

from actorflow.engine.stores.opening import open_store
from actorflow.plans.job_record import JobStatus
from actorflow.plans.plan import Plan
from actorflow.plans.service.kind import PlanKind
from tests.crash.plan_runner import LAYERS, WIDTH, be_mortal, mortal

ROOT = Path(__file__).parent.parent.parent
RUNNER = Path(__file__).parent / "plan_runner.py"


def begin(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(RUNNER), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def notes(folder: Path) -> list[str]:
    file = folder / "notes.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def wait_for_notes(folder: Path, count: int, runner: subprocess.Popen[str]) -> None:
    while len(notes(folder)) < count and runner.poll() is None:
        time.sleep(0.001)  # another process makes progress


def test_t29_a5_workers_killed_at_random_through_2000_jobs_lose_nothing() -> None:
    plan = Plan()
    jobs = [plan.job(mortal, number) for number in range(2_000)]
    result = plan.run(workers=2, setup=be_mortal, crashes_max=100)
    assert [result[job] for job in jobs] == list(range(2_000))
    assert sum(record.crashes for record in result.records) > 0


def finished(folder: Path) -> set[str]:
    """Return the names of the jobs whose end is stored."""
    store = open_store(folder / "plan.db", read_only=True)
    try:
        row = store.execution("layers")
        if row is None:
            return set()
        records = PlanKind().decode(row.state).records()
    finally:
        store.close()
    return {record.name for record in records if record.status is JobStatus.DONE}


@pytest.mark.timeout(300)
def test_a_durable_plan_whose_master_is_killed_five_times_gets_there(tmp_path: Path) -> None:
    dice = random.Random(7)
    known: list[tuple[set[str], Counter[str]]] = []
    for _ in range(5):
        runner = begin("durable", tmp_path / "plan.db", tmp_path / "notes.txt")
        wait_for_notes(tmp_path, len(notes(tmp_path)) + dice.randrange(1, 20), runner)
        assert runner.poll() is None, runner.communicate()[1]
        runner.send_signal(signal.SIGKILL)
        runner.communicate(timeout=60)  # ends when the last worker has closed the pipe
        known.append((finished(tmp_path), Counter(notes(tmp_path))))
    runner = begin("durable", tmp_path / "plan.db", tmp_path / "notes.txt")
    out, err = runner.communicate(timeout=100)
    assert runner.returncode == 0, err

    found = json.loads(out)
    expected: dict[str, int] = {f"0/{place}": 1 for place in range(WIDTH)}
    for layer in range(1, LAYERS):
        for place in range(WIDTH):
            before = (
                expected[f"{layer - 1}/{place}"] + expected[f"{layer - 1}/{(place - 1) % WIDTH}"]
            )
            expected[f"{layer}/{place}"] = 1 + before
    assert found == expected
    begun = Counter(notes(tmp_path))
    assert known[-1][0], "some had ended before the last kill"
    for names, counted in known:
        assert {name: begun[name] for name in names} == {name: counted[name] for name in names}


@pytest.mark.timeout(120)
def test_ctrl_c_stops_in_order_and_leaves_no_process(tmp_path: Path) -> None:
    runner = begin("waits", tmp_path / "notes.txt")
    wait_for_notes(tmp_path, 3, runner)  # the first job, and two that wait
    os.killpg(runner.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, err = runner.communicate(timeout=60)  # ends when the last worker has closed the pipe
    assert runner.returncode == -signal.SIGINT, err
    assert "interrupted: 21 jobs in " in err
    assert "1 done, 20 skipped" in err
    assert err.count("Traceback") == 1, err
    assert out == ""
