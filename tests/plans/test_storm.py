"""A storm of jobs that fork, crash, hang and misbehave, while their fork server is killed.

Each job has one right outcome. Afterwards no process and no file is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from actorflow.plans.plan import Plan
from tests.plans.test_forks import ROOT, fork_and, is_alive

SMALL, LARGE = 40, 300


def first_time(folder: str, name: str) -> bool:
    """Return whether this is the first attempt at a job, and note whose process it is."""
    Path(folder, f"{name}.{os.getpid()}.pid").touch()
    try:
        Path(folder, name).mkdir()
    except FileExistsError:
        return False
    return True


def crash(folder: str, name: str, how: str) -> str:
    """End the process on the first attempt."""
    if first_time(folder, name):
        if how == "exit":
            os._exit(3)
        if how == "write":  # to all files, also to the socket that the result takes
            for file in range(3, 64):
                with suppress(OSError):
                    os.write(file, b"debug" * 20)
            return "wrong"
        os.kill(os.getpid(), getattr(signal, how))
        signal.pause()
    return name


def hang(folder: str, name: str, how: str) -> str:
    """Do not end on the first attempt, until the time is up."""
    if first_time(folder, name):
        if how == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if how == "children" and os.fork() == 0:
            time.sleep(600)
        while True:
            signal.pause()
    return name


def kill_server(folder: str, name: str) -> str:
    """Kill the process that forks the workers, on the first attempt."""
    if first_time(folder, name):
        os.kill(os.getppid(), signal.SIGKILL)
    return name


def misbehave(folder: str, name: str, how: str) -> str:
    """Do what jobs should not do, and return the right value."""
    first_time(folder, name)
    if how == "chdir":
        os.chdir("/")
    elif how == "close":
        with suppress(OSError):  # an earlier job in this process may have done so
            os.close(1)
    elif how == "print":
        sys.stdout.write("x" * 200_000)
    elif how == "threads":
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    elif how == "environment":
        os.environ.clear()
        sys.path.clear()
        sys.modules.pop("json", None)
    return name


def fail(folder: str, name: str, how: str) -> Any:
    """Fail in some way."""
    first_time(folder, name)
    if how == "recursion":
        return fail(folder, name, how)
    if how == "exit":
        sys.exit(f"{name} wants to leave")
    if how == "interrupt":
        raise KeyboardInterrupt(name)
    return threading.Lock()  # cannot be sent back


FORKS = ("exit", "return", "raise", "kill")
CRASHES = ("exit", "write", "SIGKILL", "SIGSEGV", "SIGABRT")
HANGS = ("plain", "stubborn", "children")
FAILS = ("recursion", "exit", "interrupt", "lock")
MISBEHAVES = ("chdir", "close", "print", "threads", "environment")


def add_job(plan: Plan, random_: random.Random, folder: str, number: int) -> str | None:
    """Add a job of some sort; return its right value, or `None` if it is to fail."""
    kind = random_.choices(("fork", "crash", "hang", "server", "misbehave", "fail"),
                           (4, 4, 1, 1, 5, 2))[0]  # fmt: skip
    name = f"{kind}-{number}"
    if kind == "fork":
        plan.job(fork_and, random_.choice(FORKS), name=name)
        return "parent"
    if kind == "crash":
        plan.job(crash, folder, name, random_.choice(CRASHES), name=name)
    elif kind == "hang":
        plan.job(hang, folder, name, random_.choice(HANGS), name=name, timeout=2.0, retries=3)
    elif kind == "server":
        plan.job(kill_server, folder, name, name=name)
    elif kind == "misbehave":
        plan.job(misbehave, folder, name, random_.choice(MISBEHAVES), name=name)
    else:
        plan.job(fail, folder, name, random_.choice(FAILS), name=name)
        return None
    return name


def storm(folder: str, seed: int, count: int) -> dict[str, Any]:
    """Run a plan of such jobs; return the problems."""
    random_ = random.Random(seed)
    plan = Plan()
    right = {}
    for number in range(count):
        value = add_job(plan, random_, folder, number)
        right[list(plan)[-1].name] = value
    total = plan.job(sum, [1, 2, 3], name="total", after=list(plan))
    with plan.run(workers=2, on_failure="continue", crashes_max=20, quiet=True) as result:
        wrong = {
            name: str(result.record(name).error or result[name])
            for name, value in right.items()
            if (value is None) != (name in result.failed)
            or (value is not None and result[name] != value)
        }
        assert (total.name in result.skipped) == bool(result.failed)
    return {"wrong": wrong, "failed": len(result.failed), "jobs": len(result)}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize(
    ("seed", "count"),
    [(1, SMALL), *(pytest.param(seed, LARGE, marks=pytest.mark.soak) for seed in range(3))],
)
@pytest.mark.timeout(240)
def test_a_storm_of_jobs_gives_only_right_results_and_leaves_nothing(
    tmp_path: Path, seed: int, count: int
) -> None:
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.plans.test_storm", str(folder), str(seed), str(count)],
        check=False, capture_output=True, text=True, timeout=200, cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == {}
    assert found["jobs"] == count + 1
    pids = {int(path.name.split(".")[-2]) for path in folder.glob("*.pid")}
    assert pids
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        os.sched_yield()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert list(scratch.iterdir()) == []


if __name__ == "__main__":
    print(json.dumps(storm(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))  # noqa: T201 - read by the test
