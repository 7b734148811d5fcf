"""A tree in the foreground, as a real process with real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.runtime.worker.probe import PATIENCE, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="this system has no POSIX signals"),
    pytest.mark.timeout(60),
]

HEAD = """
import os, sys, threading
import actorflow as af

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one write: threads do not mix

class Child(af.Actor):
    def __init__(self, name):
        super().__init__()
        self.name = name
    def on_start(self):
        say("start", self.name)
    def on_stop(self):
        say("stop", self.name)
"""


class Program:
    """A Python program under test."""

    def __init__(self, body: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + body],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def until(self, text: str) -> list[str]:
        lines = []
        while (line := self.line()) != text:
            lines.append(line)
            assert line or self.process.poll() is None, self.process.communicate()
        return lines

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, list[str], str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.split("\n")[:-1], err


@contextmanager
def program(body: str) -> Iterator[Program]:
    made = Program(body)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_and_stops_in_order(number: int) -> None:
    body = """
def job(batch, state):
    say("batch", *batch)
    if batch == [1]:
        gate.wait(20)
gate = threading.Event()
class Pusher(Child):
    def on_start(self):
        worker = af.whereis("w")
        for n in (1, 2, 3):
            worker.push(n)
        say("ready")
    def on_stop(self):
        say("stop", self.name)
        gate.set()
tree = [af.Child("a", Child, "a"), af.Worker("w", job, name="w"), af.Child("p", Pusher, "p")]
sys.exit(af.run(af.Supervisor(tree)))
"""
    with program(body) as running:
        running.until("ready")
        running.send(number)
        code, lines, errors = running.end()
    assert code == af.ExitCode.OK, errors
    assert [line for line in lines if line != "batch 1"] == ["stop p", "batch 2 3", "stop a"]


def test_tree_that_is_done_ends_the_program() -> None:
    body = """
class Brief(Child):
    def on_start(self):
        self.stop()
tree = af.Supervisor(
    [af.Child("a", Child, "a"),
     af.Child("b", Brief, "b", restart="transient", significant=True)],
    auto_shutdown="any_significant")
code = af.run(tree)
say("code", repr(code))
sys.exit(code)
"""
    with program(body) as running:
        code, lines, _ = running.end()
    assert code == 0
    assert lines == ["start a", "stop b", "stop a", "code <ExitCode.OK: 0>"]


def test_tree_that_gives_up_is_1() -> None:
    body = """
def job(batch, state):
    raise ValueError("boom")
class Pusher(Child):
    def on_start(self):
        threading.Thread(target=push, daemon=True).start()
def push():
    while (worker := af.whereis("w")) is None:
        pass
    for _ in range(2):
        try:
            worker.push_block(1)
        except Exception:
            pass
tree = af.Supervisor([af.Worker("w", job, name="w"), af.Child("p", Pusher, "p")], max_restarts=1)
sys.exit(af.run(tree))
"""
    with program(body) as running:
        code, lines, errors = running.end()
    assert code == af.ExitCode.FAILED
    assert lines == ["stop p"]
    last = errors.strip().split("\n")[-1]
    assert "tree ended" in last
    assert "gave up on child 'w' (crash: ValueError: boom): 2 restarts" in last
    assert "code='FAILED'" in last


def test_tree_that_does_not_start_is_2() -> None:
    body = """
def broken():
    raise OSError("no port")
sys.exit(af.run(af.Supervisor([af.Child("a", Child, "a"), af.Child("b", broken)])))
"""
    with program(body) as running:
        code, lines, errors = running.end()
    assert code == af.ExitCode.NOT_STARTED
    assert lines == ["start a", "stop a"]
    assert "no port" in errors


HANGING = """
def job(batch, state):
    say("hanging")
    threading.Event().wait()
class Pusher(Child):
    def on_start(self):
        af.whereis("w").push(1)
    def on_stop(self):
        say("stop", self.name)
worker = af.Worker("w", job, name="w")
tree = af.Supervisor(
    [af.Child("a", Child, "a"), af.Child("w", worker, shutdown=999), af.Child("p", Pusher, "p")]
)
"""


def test_second_signal_stops_now_and_is_3() -> None:
    with program(HANGING + "sys.exit(af.run(tree))") as running:
        running.until("hanging")
        running.send(signal.SIGTERM)
        running.until("stop p")
        running.send(signal.SIGTERM)
        code, lines, errors = running.end()  # the hanging thread does not keep it alive
    assert code == af.ExitCode.FORCED
    assert lines == []
    assert "stopping now" in errors


def test_deadline_is_3() -> None:
    with program(HANGING + "sys.exit(af.run(tree, deadline=0.05))") as running:
        running.until("hanging")
        running.send(signal.SIGTERM)
        code, _, _ = running.end()
    assert code == 3


def test_signals_while_the_start_hangs() -> None:
    body = """
class Slow(Child):
    def on_start(self):
        say("starting")
        threading.Event().wait()
sys.exit(af.run(af.Supervisor([af.Child("a", Child, "a"), af.Child("slow", Slow, "slow")])))
"""
    with program(body) as running:
        running.until("starting")
        running.send(signal.SIGTERM)
        running.send(signal.SIGINT)  # two of the same kind may count as one
        code, _, _ = running.end()
    assert code == 3


def test_signal_while_starting_stops_once_it_is_up() -> None:
    body = """
class Slow(Child):
    def on_start(self):
        say("starting")
        gate.wait(20)
gate = threading.Event()
import signal
def caught(number, frame):
    keep(number, frame)
    gate.set()
real = signal.signal
def patched(number, handler):
    global keep
    if callable(handler) and number == signal.SIGTERM and getattr(handler, "__self__", None):
        keep = handler
        return real(number, caught)
    return real(number, handler)
signal.signal = patched
sys.exit(af.run(af.Supervisor([af.Child("a", Child, "a"), af.Child("slow", Slow, "slow")])))
"""
    with program(body) as running:
        running.until("starting")
        running.send(signal.SIGTERM)
        code, lines, errors = running.end()
    assert code == 0, errors
    assert lines == ["stop slow", "stop a"]


@pytest.mark.parametrize("executor", ["pool", "thread", "asyncio"])
def test_no_thread_keeps_the_interpreter_alive(executor: str) -> None:
    body = f"""
async def acall(batch, state):
    say("busy")
def call(batch, state):
    say("busy")
    threading.Event().wait()
job, options = (acall, {{}}) if {executor!r} == "asyncio" else (call, {{"executor": {executor!r}}})
class Pusher(Child):
    def on_start(self):
        af.whereis("w").push(1)
worker = af.Child("w", af.Worker("w", job, name="w", **options), shutdown=0.01)
sys.exit(af.run(af.Supervisor([worker, af.Child("p", Pusher, "p")])))
"""
    with program(body) as running:
        running.until("busy")
        running.send(signal.SIGTERM)
        code, _, errors = running.end()
    assert code == 0, errors
    assert "Traceback" not in errors


def test_only_in_the_main_thread() -> None:
    caller = Caller(af.run, af.Supervisor()).wait()
    assert isinstance(caller.error, af.BadOption)


def test_handlers_are_put_back_and_other_errors_are_raised() -> None:
    assert threading.current_thread() is threading.main_thread()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with (
        af.Supervisor(name="taken"),
        pytest.raises(af.AlreadyStarted),
    ):
        af.run(af.Supervisor(name="taken"))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_m21_log_handler_that_raises_does_not_end_the_run() -> None:
    body = """
import logging
class Broken(logging.Handler):
    def emit(self, record):
        raise OSError("disk full")
logging.getLogger("actorflow").addHandler(Broken())
logging.getLogger("actorflow").setLevel("DEBUG")
class Ready(Child):
    def on_start(self):
        say("ready")
sys.exit(af.run(af.Supervisor([af.Child("a", Ready, "a")])))
"""
    with program(body) as running:
        running.until("ready")
        running.send(signal.SIGTERM)
        code, lines, errors = running.end()
    assert (code, lines) == (af.ExitCode.OK, ["stop a"]), errors


def test_codes_are_numbers() -> None:
    assert [int(code) for code in af.ExitCode] == [0, 1, 2, 3]


def test_tree_that_has_ended_already() -> None:
    tree = af.Supervisor().start()
    tree.stop()
    assert af.run(tree) is af.ExitCode.OK
    killed = af.Supervisor().start()
    killed.kill()
    assert af.run(killed) is af.ExitCode.FAILED


def test_signal_in_this_very_process() -> None:
    seen: list[Any] = []

    class Shot(af.Actor):
        def on_start(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        def on_stop(self) -> None:
            seen.append("stopped")

    assert af.run(af.Supervisor([af.Child("shot", Shot)])) is af.ExitCode.OK
    assert seen == ["stopped"]
