"""`actorflow serve` as a real process, steered by real commands, and killed in between."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.client import Client
from actorflow.api.errors import ControlUnreachable
from tests.api.test_sockets import TOKEN, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 50.0
FLOW = """\
sequence
  trap signal: 'hurry'
    def msg \\ set f.hurried true
  desk 'look at it'
  clerk 'file it'
  desk 'sign it'
"""

pytestmark = pytest.mark.timeout(120)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


class Program:
    """One store, its server, and the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "orders.db"
        self.server: subprocess.Popen[str] | None = None

    def serve(self, *options: str, app: str = "tests.api.desk:setup") -> None:
        """Start the server, and return when it says that it serves."""
        self.server = subprocess.Popen(
            [sys.executable, "-m", "actorflow.cli", "serve", "orders.db", "--app", app, *options],
            cwd=self.folder,
            env=environment(THE_TOKEN=TOKEN),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None
        line = self.server.stdout.readline()
        assert line.startswith("serving orders.db"), (line, self.server.communicate())

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal to the server; return its exit code and what it said."""
        assert self.server is not None
        self.server.send_signal(number)
        _, told = self.server.communicate(timeout=PATIENCE)
        code = self.server.returncode
        self.server = None
        return code, told

    def run(self, *arguments: str, code: int = 0, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "actorflow.cli", *arguments],
            cwd=self.folder,
            env=environment(),
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def wait(self, execution: str) -> Any:
        """Wait until an execution has ended, well or not; return it."""
        done = subprocess.run(
            [sys.executable, "-m", "actorflow.cli", "wait", "orders.db", execution, "--json"],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        shown = json.loads(done.stdout)
        assert done.returncode == (shown["status"] != "done" or shown["error"] is not None)
        return shown

    def task(self) -> str:
        """Return the only task that waits, once there is one."""
        client = Client(f"{self.store}.sock")
        while not client.tasks()["tasks"]:
            pass
        (task,) = client.tasks()["tasks"]
        found: str = task["id"]
        return found


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    if made.server is not None:
        made.server.kill()
        made.server.communicate()


def test_a_flow_with_held_tasks_outlives_kills_of_its_server(program: Program) -> None:
    program.serve()
    (program.folder / "orders.flo").write_text(FLOW)
    assert program.run("start", "orders.db", "--flow", "orders.flo", "--id", "o-7") == "o-7\n"
    first = program.task()
    assert "o-7" in program.run("ps", "orders.db")

    assert program.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert (program.folder / "orders.db.sock").exists()  # stale
    assert first in program.run("tasks", "orders.db")  # from the store itself
    program.run("send", "orders.db", "counter", "1", "--kind", "worker")

    program.serve()
    assert program.task() == first
    program.run("send", "orders.db", "o-7", '{"by": "hand"}', "--event", "hurry")
    assert program.run("return-task", "orders.db", first, "--value", '{"looked": true}')
    second = program.task()
    while second == first:
        second = program.task()
    assert program.end(signal.SIGKILL)[0] == -signal.SIGKILL

    # Answered while nobody runs: stored for the next engine.
    assert program.run("return-task", "orders.db", second, "--value", '{"signed": true}')
    assert "active" in program.run("ps", "orders.db")

    program.serve()
    shown: dict[str, Any] = json.loads(program.run("wait", "orders.db", "o-7", "--json"))
    assert shown["status"] == "done"
    assert shown["result"]["signed"] is True
    counted = json.loads(program.run("show", "orders.db", "counter", "--json"))
    assert counted["view"] == 1
    code, told = program.end(signal.SIGTERM)
    assert (code, "closed orders.db" in told) == (0, True), told
    assert not (program.folder / "orders.db.sock").exists()


def test_what_a_command_was_told_outlives_a_kill_right_after(program: Program) -> None:
    program.serve()
    program.run("start", "orders.db", "--flow", "-", "--id", "o-1", given="desk 'look'\n")
    task = program.task()
    client = Client(f"{program.store}.sock")
    assert client.return_task(task, value={"looked": True})["wanted"]
    assert client.start("ledger", {"end": 1}, id="l-1")
    assert client.send("counter", 1, kind="worker")
    program.end(signal.SIGKILL)

    program.serve()
    shown = json.loads(program.run("wait", "orders.db", "o-1", "--json"))
    assert shown["result"]["looked"] is True
    assert json.loads(program.run("wait", "orders.db", "l-1", "--json"))["result"] == 1
    program.end(signal.SIGTERM)
    assert json.loads(program.run("show", "orders.db", "counter", "--json"))["view"] == 1


def test_a_flow_is_cancelled_over_a_restart(program: Program) -> None:
    program.serve()
    program.run("start", "orders.db", "--flow", "-", "--id", "o-8", given=FLOW)
    program.task()
    assert program.end(signal.SIGINT)[0] == 0
    assert "cancelled" in program.run("cancel", "orders.db", "o-8")
    program.serve()
    shown = program.wait("o-8")
    assert shown["status"] in {"cancelled", "done"}
    assert shown["tasks"] == []
    assert "it had ended already" in program.run("cancel", "orders.db", "o-8")


def test_a_task_fails_by_hand_and_its_flow_with_it(program: Program) -> None:
    program.serve()
    program.run("start", "orders.db", "--flow", "-", "--id", "o-9", given="desk 'look'\n")
    program.run("fail-task", "orders.db", program.task(), "--error", "no stock")
    shown = program.wait("o-9")
    assert shown["status"] == "stuck"
    assert "no stock" in json.dumps(shown["view"]["failures"])


def test_a_second_server_is_refused_and_the_first_goes_on(program: Program) -> None:
    program.serve()
    told = program.run("serve", "orders.db", "--app", "tests.api.desk:setup", code=4)
    assert "open for writing in another engine" in told
    assert Client(f"{program.store}.sock").health()["status"] == "ok"


def test_a_port_beside_the_socket(program: Program) -> None:
    port = free_port()
    program.serve("--tcp", f"127.0.0.1:{port}", "--token-env", "THE_TOKEN")
    address = f"tcp://127.0.0.1:{port}"
    assert Client(address, token=TOKEN).health() == Client(f"{program.store}.sock").health()
    assert "token" in program.run("ps", address, code=4)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 2, "--app"),
        (("--app", "nothing"), 2, "MODULE:SETUP"),
        (("--app", "no.such.module:setup"), 1, "cannot be loaded"),
        (("--app", "tests.api.desk:nothing"), 1, "cannot be loaded"),
        (("--app", "tests.api.desk:NOT_CALLABLE"), 1, "cannot be called"),
        (("--app", "tests.api.desk:broken"), 1, "RuntimeError: no database"),
        (("--app", "tests.api.desk:setup", "--tcp", "127.0.0.1:4000"), 2, "--token-env"),
        (
            ("--app", "tests.api.desk:setup", "--tcp", "h:1", "--token-env", "NOT_SET"),
            2,
            "NOT_SET",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    program: Program, arguments: tuple[str, ...], code: int, told: str
) -> None:
    assert told in " ".join(program.run("serve", "orders.db", *arguments, code=code).split())


def test_a_second_signal_ends_a_server_that_is_still_closing(program: Program) -> None:
    program.serve("--timeout", "600", app="tests.api.desk:slow")
    client = Client(f"{program.store}.sock")
    client.start(flow="desk 'look'\n")
    while client.stats()["tasks"] == 0:
        pass
    assert program.server is not None
    program.server.send_signal(signal.SIGTERM)
    while (program.folder / "orders.db.sock").exists():  # it is closing
        pass
    assert program.end(signal.SIGTERM)[0] == 130


def test_a_server_that_was_stopped_hears_of_the_signal_that_came_meanwhile(
    program: Program,
) -> None:
    for number in (signal.SIGTERM, signal.SIGINT) * 2:
        program.serve()
        assert program.server is not None
        os.kill(program.server.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, program.server.pid, os.WSTOPPED)
        os.kill(program.server.pid, number)
        code, told = program.end(signal.SIGCONT)
        assert (code, told.splitlines()[-1]) == (0, "closed orders.db")


def test_acknowledged_requests_count_once_over_kills_at_any_moment(program: Program) -> None:
    """Four clients send numbers while the server is killed again and again."""
    acknowledged: list[int] = []
    numbers = itertools.count()
    chance = random.Random(7)
    for _ in range(4):
        program.serve()
        client = Client(f"{program.store}.sock")
        client.start("ledger", id="l")
        go_on = threading.Event()

        def send(client: Client = client, go_on: threading.Event = go_on) -> None:
            while not go_on.is_set():
                number = next(numbers)
                try:
                    client.send("l", number, key=str(number))
                except ControlUnreachable:  # killed: it may be stored, or not
                    return
                acknowledged.append(number)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        enough = len(acknowledged) + chance.randrange(20, 80)
        while len(acknowledged) < enough:
            pass
        program.end(signal.SIGKILL)
        go_on.set()
        for thread in threads:
            thread.join(PATIENCE)
    program.serve()
    program.run("send", "orders.db", "l", '{"end": null}')
    noted = json.loads(program.run("wait", "orders.db", "l", "--json"))["view"]
    counted = Counter(each for each in noted if each is not None)
    assert [number for number in acknowledged if counted[number] != 1] == []
    assert {number: count for number, count in counted.items() if count > 1} == {}


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_the_commands_do_without_output(tmp_path: Path, closed: str) -> None:
    flow = tmp_path / "a.flo"
    flow.write_text("1", encoding="ascii")
    with af.Engine(tmp_path / "s.db"):
        pass
    command = f"{sys.executable} -m actorflow.cli"
    for each in (f"start s.db --flow a.flo --id x {closed}", f"ps s.db {closed}"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} {each}"],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    with af.Engine(tmp_path / "s.db") as engine:
        assert engine.result("x", timeout=PATIENCE) == {"ret": 1}


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("start s.db --flow -", 2, "the flow is empty"),
        ("import new.db", 1, "the first line must be"),
        ("flow check -", 0, ""),
    ],
)
def test_input_that_is_closed_is_empty(tmp_path: Path, command: str, code: int, told: str) -> None:
    with af.Engine(tmp_path / "s.db"):
        pass
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m actorflow.cli {command} <&-"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.db").exists()
