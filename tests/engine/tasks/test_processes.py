"""Taskers in other processes: results, retries, and processes that hang or die."""

from __future__ import annotations

import functools
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.engine import BareEngine
from actorflow.engine.kind import NewTask, Outcome, TaskEnded
from actorflow.engine.tasks.process import ProcessTasker
from actorflow.engine.tasks.task import TaskAttempt
from actorflow.runtime.errors import BadJob
from actorflow.runtime.restarts import Backoff
from actorflow.runtime.worker.process.options import Processes
from tests.engine.kinds import PATIENCE, Script, quiet, rows, state_of, until
from tests.engine.tasks import chores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.testing import VirtualClock

ROOT = Path(__file__).parents[3]
SOON = Backoff(initial=1.0, maximum=1.0)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Return the file that functions write into."""
    path = tmp_path / "notes"
    path.touch()
    return path


def lines(notes: Path, count: int) -> list[str]:
    """Wait until so many lines have been written."""
    while len(found := notes.read_text(encoding="ascii").splitlines()) < count:
        pass
    return found


@pytest.fixture
def engine(clock: VirtualClock) -> Iterator[BareEngine]:
    with BareEngine(clock=clock, retention=None) as made:
        yield made


@pytest.fixture
def script(engine: BareEngine, notes: Path) -> Script:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            return [*state, message.value if message.ok else _plain(message)]
        if "ask" in message:
            return Outcome(
                state=state, tasks=[NewTask(name, "t", str(notes)) for name in message["ask"]]
            )
        return Outcome(state=state, cancelled_tasks=message["cancel"])

    made = Script(step)
    engine.register(made)
    return made


def _plain(ended: TaskEnded) -> Any:
    assert ended.error is not None
    return {"kind": ended.error.type, "message": ended.error.message}


def ask(engine: BareEngine, *names: str) -> None:
    engine.send("x", {"ask": list(names)}, kind="script")


def results(engine: BareEngine, script: Script, count: int) -> list[Any]:
    script.wait(count)
    quiet(engine)
    found: list[Any] = state_of(engine, "x")
    return found


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("do", [chores.tell_process, chores.tell_process_later])
def test_a_function_runs_in_one_process_after_the_other_task(
    engine: BareEngine, script: Script, do: Any
) -> None:
    engine.tasker("t", do, executor="process")
    ask(engine, "a", "b", "c")
    found = results(engine, script, 4)
    assert [each[1:] for each in found] == [["a", 1], ["b", 1], ["c", 1]]
    (process,) = {each[0] for each in found}
    assert process != os.getpid()
    engine.close()
    assert is_gone(process)


def test_as_many_processes_as_places(engine: BareEngine, script: Script, notes: Path) -> None:
    engine.tasker("t", chores.wait_for_line, executor="process", concurrency=2)
    ask(engine, "a", "b")
    begun = lines(notes, 2)
    with notes.open("a", encoding="ascii") as file:
        file.write("go\n")
    assert sorted(results(engine, script, 3)) == sorted(map(int, begun))
    assert len(set(begun)) == 2


def test_what_it_raises_is_told_and_tried_again(
    engine: BareEngine, script: Script, clock: VirtualClock
) -> None:
    engine.tasker("t", chores.fail_twice, executor="process", retries=2, backoff=SOON)
    ask(engine, "a")
    for _ in range(2):
        until(engine, lambda: clock.next_time() is not None)
        assert rows(engine, "tasks")[0].due == clock.now() + 1.0
        clock.advance(1.0)
    assert results(engine, script, 2) == ["third"]
    assert engine.statistics().tasks_retried == 2


@pytest.mark.parametrize(
    ("do", "kind", "text"),
    [
        (chores.fail_twice, "ValueError", "attempt 1"),
        (chores.be_fussy, "TaskFailed", "Fussy: fussy 7 (it cannot be sent"),
        (chores.be_unspeakable, "Unspeakable", "Unspeakable"),
        (chores.leave, "SystemExit", "enough"),
        (chores.return_a_lock, "TaskFailed", "what tasker 't' returned (it cannot be sent"),
        (chores.exit_hard, "TaskCrashed", "of tasker 't' was ended with exit code 3 while it did"),
        (len, "TypeError", "has no len"),
    ],
)
def test_the_failure_is_told(
    engine: BareEngine, script: Script, do: Any, kind: str, text: str
) -> None:
    engine.tasker("t", do, executor="process")
    ask(engine, "a")
    (error,) = results(engine, script, 2)
    assert error["kind"] == kind
    assert text in error["message"]


def test_a_held_task_is_answered_later(engine: BareEngine, script: Script) -> None:
    engine.tasker("t", chores.hold, executor="process")
    ask(engine, "a")
    script.wait(1)
    while engine.parts.tasks._taskers["t"].running or not engine.parts.tasks.row("a"):
        quiet(engine)
    assert engine.return_task("a", "late")
    assert results(engine, script, 2) == ["late"]


def test_a_process_that_hangs_is_killed_and_the_task_tried_again(
    engine: BareEngine, script: Script, notes: Path, clock: VirtualClock
) -> None:
    engine.tasker(
        "t", chores.hang_at_first, executor="process", timeout=10.0, retries=1, backoff=SOON
    )
    ask(engine, "a")
    (first,) = lines(notes, 1)
    clock.advance(10.0)
    until(engine, lambda: clock.next_time() is not None)
    clock.advance(1.0)
    assert results(engine, script, 2) == ["second"]
    assert lines(notes, 2)[1] != first
    while not is_gone(int(first)):
        pass


def test_a_process_that_hangs_is_told_as_a_timeout(
    engine: BareEngine, script: Script, notes: Path, clock: VirtualClock
) -> None:
    engine.tasker("t", chores.hang_at_first, executor="process", timeout=10.0)
    ask(engine, "a")
    (process,) = lines(notes, 1)
    clock.advance(10.0)
    (error,) = results(engine, script, 2)
    assert error["kind"] == "TaskTimeout"
    while not is_gone(int(process)):
        pass


def test_heartbeats_reach_the_engine_and_say_when_it_is_enough(
    engine: BareEngine, script: Script, notes: Path, clock: VirtualClock
) -> None:
    engine.tasker("t", chores.beat_until_unwanted, executor="process", timeout=10.0)
    ask(engine, "a")
    lines(notes, 1)

    def lease() -> float:
        while (end := clock.next_time()) is None:  # it is just being renewed
            pass
        return end

    for _ in range(3):
        before = lease()
        clock.advance(9.0)
        while lease() == before:  # until the next heartbeat has come
            pass
    engine.send("x", {"cancel": ["a"]})
    assert lines(notes, 2)[1] == "not wanted"
    assert results(engine, script, 2) == []


def test_a_process_that_is_killed_takes_only_its_own_task_with_it(
    engine: BareEngine, script: Script, notes: Path
) -> None:
    engine.tasker("t", chores.wait_for_line, executor="process", concurrency=2)
    ask(engine, "a", "b")
    victim, other = lines(notes, 2)
    os.kill(int(victim), signal.SIGKILL)
    (error,) = results(engine, script, 2)
    assert error["kind"] == "TaskCrashed"
    assert f"process {victim} of tasker 't' was ended by SIGKILL" in error["message"]
    with notes.open("a", encoding="ascii") as file:
        file.write("go\n")
    assert results(engine, script, 3)[1] == int(other)
    ask(engine, "c")
    assert len(results(engine, script, 5)) == 3


def test_a_task_whose_process_died_is_tried_again(
    engine: BareEngine, script: Script, notes: Path, clock: VirtualClock
) -> None:
    engine.tasker("t", chores.die_at_first, executor="process", retries=1, backoff=SOON)
    ask(engine, "a")
    until(engine, lambda: clock.next_time() is not None)
    clock.advance(1.0)
    assert results(engine, script, 2) == ["second"]
    assert len(set(lines(notes, 2))) == 2


def test_a_process_that_died_with_nothing_to_do_is_replaced(
    engine: BareEngine, script: Script
) -> None:
    engine.tasker("t", chores.tell_process, executor="process")
    ask(engine, "a")
    ((first, _, _),) = results(engine, script, 2)
    os.kill(first, signal.SIGKILL)
    while not is_gone(first):
        pass
    ask(engine, "b")
    assert results(engine, script, 4)[1][0] != first


def test_what_cannot_be_sent_to_another_process_is_refused_at_once(engine: BareEngine) -> None:
    def local(task: Any) -> None:
        """Do nothing: other processes cannot import it."""

    for do in (local, lambda task: None, functools.partial(print, threading.Lock())):
        with pytest.raises(BadJob, match=r"tasker 't' cannot run in another process: .* a module"):
            engine.tasker("t", do, executor="process")


def test_closing_kills_what_hangs_and_it_begins_again(tmp_path: Path, notes: Path) -> None:
    tasks = [NewTask("a", "t", str(notes))]
    engine = BareEngine(tmp_path / "s.db")
    engine.register(Script(lambda state, message: Outcome(state=state, tasks=tasks)))
    engine.tasker("t", chores.hang_at_first, executor="process")
    engine.send("x", "begin", kind="script")
    (process,) = lines(notes, 1)
    engine.close(timeout=0.05)
    while not is_gone(int(process)):
        pass
    with BareEngine(tmp_path / "s.db") as again:
        assert [row.id for row in rows(again, "tasks")] == ["a"]


EXIT = """
import sys
from actorflow.engine.engine import BareEngine
from actorflow.engine.kind import NewTask, Outcome
from tests.engine.tasks import chores
from tests.engine.kinds import Script
from pathlib import Path

if __name__ == "__main__":
    store, notes, do, how = sys.argv[1:]
    engine = BareEngine(store)
    tasks = [NewTask("a", "t", notes)]
    script = Script(lambda state, message: Outcome(state=state, tasks=tasks) if message == "begin"
        else [message.value])
    engine.register(script)
    engine.tasker("t", getattr(chores, do), executor="process")
    engine.send("x", "begin", kind="script")
    while not Path(notes).read_text():
        pass
    if how == "close":
        engine.close(timeout=0.05)
    elif how == "idle":
        with open(notes, "a") as file:
            file.write("go")
        script.wait(2)
    print("end", flush=True)
    if how == "killed":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("do", "how", "code"),
    [
        ("hang_at_first", "close", 0),
        ("hang_at_first", "leave", 0),
        ("wait_for_line", "idle", 0),
        ("hang_at_first", "killed", -signal.SIGKILL),
    ],
)
def test_no_process_outlives_the_interpreter(
    tmp_path: Path, notes: Path, do: str, how: str, code: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(EXIT, encoding="ascii")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "s.db"), str(notes), do, how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "end\n"), done.stderr
    process = int(lines(notes, 1)[0])
    while not is_gone(process):
        pass


def test_c20_an_attempt_that_is_handed_out_again_while_a_process_makes_it_is_made_once(
    notes: Path,
) -> None:
    """An engine that loses a partition and gets it back forgets the task, not its process."""
    tasker = ProcessTasker("t", chores.wait_for_line, 2, Processes())
    reports: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
    task = TaskAttempt("a", "e", "t", str(notes), 1)
    try:
        tasker.begin(task, lambda *how: reports.put(("first", *how)))
        lines(notes, 1)
        tasker.begin(task, lambda *how: reports.put(("second", *how)))
        chores.note(task, "go")
        ended = [reports.get(timeout=PATIENCE) for _ in range(2)]
        assert [who for who, _, _ in ended] == ["first", "second"]
        assert ended[0][1:] == ended[1][1:]
        assert ended[0][1] is None
        assert len(lines(notes, 2)) == 2, "one process noted that it began"
        tasker.begin(task, lambda *how: reports.put(("third", *how)))
        assert reports.get(timeout=PATIENCE)[:2] == ("third", None), "it is not in hand any more"
    finally:
        tasker.close()
