"""The end of a program, however it comes, leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.runtime.processes import pools
from tests.runtime.processes.pools import PATIENCE, ROOT, lines, wait_gone

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, signal, sys, threading
from actorflow.runtime.processes.call import ProcessCall
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools

def main():
    notes, launcher, how = sys.argv[1:]
    pool = ProcessPool(2, launcher=launcher)
    collector = pools.Collector()
    pool.submit([ProcessCall.of(n, pools.hang, notes) for n in range(2)], collector)
    pools.lines(__import__("pathlib").Path(notes), 2)
    print("ready", flush=True)
    if how == "wait":
        threading.Event().wait()
    if how == "with":
        with pool:
            threading.Event().wait()
    if how == "raise":
        raise SystemExit(3)
    if how == "os._exit":
        os._exit(4)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def start(tmp_path: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(program), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("launcher", ["forkserver", "spawn"])
@pytest.mark.parametrize(
    ("how", "number", "ends"),
    [
        ("leave", None, (0, 0)),
        ("raise", None, (3, 0)),
        ("os._exit", None, (4, 0)),
        ("wait", signal.SIGKILL, (-signal.SIGKILL, 0)),
        ("wait", signal.SIGTERM, (-signal.SIGTERM, 0)),
        ("wait", signal.SIGINT, (-signal.SIGINT, 1)),
        ("with", signal.SIGINT, (-signal.SIGINT, 1)),
    ],
)
def test_no_process_outlives_the_program(
    notes: Path,
    launcher: str,
    how: str,
    number: int | None,
    ends: tuple[int, int],
) -> None:
    program = start(notes.parent, PROGRAM, str(notes), launcher, how)
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "ready\n"
        if number is not None:
            os.killpg(program.pid, number)  # as a terminal does: to all of the group
        _, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    for process in lines(notes, 2):
        wait_gone(int(process))
    assert (program.returncode, errors.count("Traceback")) == ends, errors


UNGUARDED = """
from actorflow.runtime.processes.call import ProcessCall
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools

with ProcessPool(1, launches_max=2) as pool:
    ended = pools.one(pool, pools.nothing)
    raise SystemExit(f"{ended.outcome}: {ended.error}")
"""


def test_a_main_module_without_a_guard_is_explained(tmp_path: Path) -> None:
    program = start(tmp_path, UNGUARDED)
    try:
        _, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert program.returncode == 1
    assert "no worker process could be started" in errors
    assert 'if __name__ == "__main__":' in errors


MAIN = """
import sys
from actorflow.runtime.processes.call import ProcessCall
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools

OFFSET = 3

class Thing:
    def __init__(self, value):
        self.value = value

def shift(number):
    return Thing(number + OFFSET)

if __name__ == "__main__":
    with ProcessPool(1, launcher=sys.argv[-1]) as pool:
        ended = pools.one(pool, shift, 4)
        assert type(ended.result) is Thing, ended
        print(ended.result.value)
"""


@pytest.mark.parametrize("launcher", ["forkserver", "spawn"])
@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_functions_and_classes_of_the_main_module(tmp_path: Path, how: str, launcher: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(MAIN, encoding="utf-8")
    given = {"file": [str(program)], "-c": ["-c", MAIN], "stdin": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, "-W", "error", *given, launcher],
        input=MAIN if how == "stdin" else "",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")


FORK = """
import os, sys
from actorflow.runtime.errors import WorkerStopped
from actorflow.runtime.processes.call import ProcessCall
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools

if __name__ == "__main__":
    with ProcessPool(1) as pool:
        pools.one(pool, pools.nothing)
        child = os.fork()
        if not child:
            try:
                pool.submit(ProcessCall.of("a", pools.nothing), print)
            except WorkerStopped:
                with ProcessPool(1) as own:
                    assert pools.one(own, pools.double, 4).result == 8
                sys.stdout.write("child ")
                sys.stdout.flush()
                sys.exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(pools.one(pool, pools.double, 2).result)
"""


def test_a_forked_child_has_pools_of_its_own_only(tmp_path: Path) -> None:
    program = start(tmp_path, FORK)
    try:
        output, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert (output, errors) == ("child 4\n", "")


def test_t30_a_process_has_its_own_group() -> None:
    from actorflow.runtime.processes.process_pool import ProcessPool  # noqa: PLC0415 - only here

    with ProcessPool(1) as pool:
        ended = pools.one(pool, pools.group)
        assert ended.result == ended.pid


RANDOM = """
import numpy as np
from actorflow.runtime.processes.call import ProcessCall
from actorflow.runtime.processes.process_pool import ProcessPool
from tests.runtime.processes import pools

if __name__ == "__main__":
    with ProcessPool(1, renew_after=1) as pool:
        found = {pools.one(pool, pools.draw).result for _ in range(4)}
        print(len(found))
"""


def test_forked_processes_have_random_numbers_of_their_own(tmp_path: Path) -> None:
    program = start(tmp_path, RANDOM)
    try:
        output, errors = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert (output, errors) == ("4\n", "")
