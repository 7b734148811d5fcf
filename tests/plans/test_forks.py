"""Jobs that fork: only the worker process answers, and nothing outlives the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from actorflow.plans.plan import Plan
from actorflow.runtime.processes import launcher as launchers

ROOT = Path(__file__).parents[2]


def fork_and(end: str) -> str:
    """Fork a child that ends in some way; return what only the parent may return."""
    pid = os.fork()
    if pid == 0:
        if end == "exit":
            sys.exit(0)
        if end == "raise":
            raise ValueError("in the child")
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return "child"
    os.waitpid(pid, 0)
    return "parent"


def fork_and_leave(folder: str) -> int:
    """Fork a child that goes on; return at once."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)  # as long as it is let
    Path(folder, str(pid)).touch()
    return os.getpid()


def leave_a_daemon(folder: str) -> int:
    """Start a process in a session of its own; return at once."""
    daemon = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    Path(folder, str(daemon.pid)).touch()
    daemon.returncode = 0  # it is meant to go on
    return os.getpid()


@pytest.mark.parametrize("launcher", ["forkserver", "spawn"])
def test_only_the_worker_process_answers(launcher: Any) -> None:
    plan = Plan()
    for end in ("exit", "return", "raise", "kill"):
        for number in range(2):
            plan.job(fork_and, end, name=f"{end} {number}")
    result = plan.run(workers=2, launcher=launcher, retries=1)
    assert {result[name] for name in result} == {"parent"}
    assert {record.attempts for record in result.records} == {1}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


PROGRAM = """\
import sys
import actorflow as af
from tests.plans.test_forks import fork_and_leave, leave_a_daemon

if __name__ == "__main__":
    plan = af.Plan()
    for number in range(4):
        plan.job(fork_and_leave, sys.argv[1], name=f"leave {number}")
    plan.job(leave_a_daemon, sys.argv[1])
    result = plan.run(workers=2, renew_after=1)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_no_child_of_a_job_outlives_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    left = tmp_path / "left"
    left.mkdir()
    subprocess.run(
        [sys.executable, program, left], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    pids = [int(each.name) for each in left.iterdir()]
    assert len(pids) == 5
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        os.sched_yield()
    assert [pid for pid in pids if is_alive(pid)] == []


def kill_all(marker: str) -> str:
    """On the first attempt, fork a child that goes on, and kill the fork server and oneself."""
    try:
        Path(marker).mkdir()
    except FileExistsError:
        return "second attempt"
    if os.fork() == 0:
        time.sleep(600)
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def stop_the_server(marker: str) -> str:
    """On the first attempt, stop the fork server, and end before it can report that."""
    try:
        Path(marker).mkdir()
    except FileExistsError:
        return "second attempt"
    os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="a stopped child cannot be noticed")
def test_a_plan_survives_a_fork_server_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "_PATIENCE", 0.1)
    plan = Plan()
    plan.job(stop_the_server, str(tmp_path / "marker"), name="job")
    server = launchers.Forkserver()
    assert plan.run(workers=1, launcher=server)["job"] == "second attempt"
    server.close()


def test_a_plan_survives_its_fork_server_and_a_worker_killed_together(tmp_path: Path) -> None:
    plan = Plan()
    plan.job(kill_all, str(tmp_path / "marker"), name="job")
    assert plan.run(workers=1)["job"] == "second attempt"
