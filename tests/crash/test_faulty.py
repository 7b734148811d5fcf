"""Programs that end badly, in real processes: acknowledged work is still there afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actorflow.engine.executions.stored_backlog import CRASHES

ROOT = Path(__file__).parent.parent.parent
FAULTY = Path(__file__).parent / "faulty.py"
EXIT = 3


def run(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FAULTY), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(150)
def test_only_the_message_that_ends_the_process_becomes_a_dead_letter(tmp_path: Path) -> None:
    """It came with a thousand others, and another worker has a thousand in the same commit."""
    store, count = tmp_path / "s.db", 1_000
    done = run("exit_in_job", store, count)
    lives = 1
    while done.returncode == EXIT:
        assert lives <= CRASHES + 6, "it crashes again and again"  # late trials do not count
        done = run("exit_in_job", store, 0)
        lives += 1
    assert done.returncode == 0, done.stderr
    assert lives > 2, "an innocent message may have been with it"
    ((state, other, letters),) = lines(done)
    assert [each for each in state if each != "last"] == list(range(count))
    assert [each for each in other if each != "last"] == list(range(count))
    ((message, error),) = letters
    assert message == "poison"
    assert "the process ended" in error


@pytest.mark.parametrize("kills", [40, pytest.param(500, marks=pytest.mark.soak)])
def test_kills_from_outside_make_no_dead_letters(tmp_path: Path, kills: int) -> None:
    program = Path(__file__).parent / "kills_from_outside.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "s.db"), str(kills)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    state, letters = json.loads(done.stdout.splitlines()[-1])
    assert letters == []
    assert state == list(range(120))


@pytest.mark.parametrize("retries", [2, 5])
def test_attempts_of_a_task_that_ends_the_process_are_counted(tmp_path: Path, retries: int) -> None:
    store = tmp_path / "s.db"
    done = run("exit_in_task", store, retries)
    for _ in range(retries + 2):
        if done.returncode != EXIT:
            break
        done = run("exit_in_task", store, retries)
    assert done.returncode == 0, done.stderr
    (((outcome, value, error),),) = lines(done)
    assert (outcome, value) == ("crashed", None)
    assert "the process ended" in error
    attempts = Path(f"{store}.attempts").read_text(encoding="ascii").split()
    assert attempts == [str(number + 1) for number in range(retries + 1)]


@pytest.mark.parametrize("behaviour", ["unique", "bounded"])
@pytest.mark.parametrize("when", ["processed", "displaced"])
def test_what_was_acknowledged_is_not_lost_by_a_kill(
    tmp_path: Path, behaviour: str, when: str
) -> None:
    """A push_block takes the place of a message that push_ack has acknowledged."""
    store = tmp_path / "s.db"
    done = run("lose", store, behaviour, KILL_WHEN=when)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert lines(done) == [[when]]
    done = run("show", store)
    assert done.returncode == 0, done.stderr
    ((state, letters),) = lines(done)
    assert letters == []
    newest = [each for each in state if each[0] == "a"]
    if when == "processed":  # what displaced it is in the state, so it has had its effect
        assert newest == [["a", 2]]
    else:  # what displaced it may be gone with the process, but then it is not
        assert newest in ([["a", 1]], [["a", 2]], [["a", 1], ["a", 2]])


def test_what_a_full_inbox_has_accepted_is_not_rejected_after_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    done = run("overfill", store, "first")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert lines(done) == [["rejected"]]
    done = run("overfill", store, "")
    assert done.returncode == 0, done.stderr
    assert lines(done) == [[[0, 1, 2], ["rejected"]]]


@pytest.mark.parametrize("how", ["leave_open", "leave_open_in_thread"])
def test_an_engine_that_is_not_closed_loses_nothing_at_a_normal_end(
    tmp_path: Path, how: str
) -> None:
    done = run(how, tmp_path / "s.db")
    assert (done.returncode, done.stderr) == (0, "")
    ((state, _),) = lines(run("show", tmp_path / "s.db"))
    assert state == [*range(100), ["end", 0]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
@pytest.mark.parametrize("name", ["s.db", ":memory:"])
def test_a_fork_leaves_the_engine_to_the_parent(tmp_path: Path, name: str) -> None:
    where = Path(name) if name == ":memory:" else tmp_path / name
    done = run("fork", where, PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stderr
    *wrong, child, parent = lines(done)
    assert wrong == []
    assert child[0] == "child"
    assert child[1] == child[2]
    assert parent == ["parent", 0, [1, 2], 0 if name == ":memory:" else 1]
