"""One worker process by itself, driven over its socket; and launchers."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.processes import wire
from actorflow.runtime.processes.launcher import FORKSERVER, Handle, Launcher, Spawn
from actorflow.runtime.processes.memory import SharedPage
from actorflow.runtime.processes.packed import pack, pack_value, unpack
from tests.runtime.processes import pools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAUNCHERS: list[Any] = [FORKSERVER, Spawn()]


class Parent:
    """Plays the parent of one process."""

    def __init__(self, launcher: Launcher) -> None:
        ours, theirs = socket.socketpair()
        self.handle: Handle = launcher.start(1, theirs)
        theirs.close()
        self.channel = wire.Channel(ours)
        self.page = SharedPage()
        self.frames: list[wire.WireFrame] = []
        self.send(wire.CONFIGURE, packed=pack_value((None, False)))
        self.send(wire.PAGE, file=self.page.take())
        self.pid = self.next().sequence

    def send(self, kind: int, sequence: int = 0, **rest: Any) -> None:
        self.channel.send(*wire.encode(kind, sequence, **rest))

    def call(self, sequence: int, function: Any, *args: Any) -> None:
        self.send(wire.CALL, sequence, packed=pack(function, args))

    def next(self) -> wire.WireFrame:
        while not self.frames:
            self.frames = self.channel.receive()
        return self.frames.pop(0)

    def result(self) -> Any:
        frame = self.next()
        assert frame.kind == wire.OK
        return unpack(frame.data, frame.buffers)

    def close(self) -> None:
        self.handle.kill()
        while self.handle.wait(0.1) is None and self.handle.alive():
            pass
        self.channel.close()


@pytest.fixture(params=LAUNCHERS, ids=["forkserver", "spawn"])
def parent(request: pytest.FixtureRequest) -> Iterator[Parent]:
    made = Parent(request.param)
    yield made
    made.close()


def test_t25_t26_a_process_waits_for_calls_without_working(parent: Parent) -> None:
    parent.call(1, os.times)
    first = parent.result()
    parent.call(2, os.times)
    second = parent.result()
    assert second.user + second.system - first.user - first.system < 1.0
    assert not select.select([parent.channel.socket], [], [], 0)[0]


def test_t27_a1_completions_come_in_order_and_before_the_next_begins(
    parent: Parent, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    parent.call(1, pools.double, 1)
    parent.call(2, pools.wait_for, str(notes), "go")
    parent.call(3, pools.double, 3)
    assert parent.result() == 2
    pools.lines(notes, 1)
    assert parent.page.begun == 2
    pools.note(str(notes), "go")
    assert parent.result() == parent.pid
    assert parent.result() == 6
    assert parent.page.begun == 3


@pytest.mark.parametrize("leaves", [True, False], ids=["t28 renew", "t29 done"])
def test_t28_t29_a_process_finishes_what_it_holds_and_exits(
    parent: Parent,
    leaves: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    for number in range(1, 4):
        parent.call(number, pools.double, number)
    if leaves:
        parent.send(wire.LEAVE)
    else:
        parent.channel.socket.shutdown(socket.SHUT_WR)
    assert [parent.result() for _ in range(3)] == [2, 4, 6]
    with pytest.raises(EOFError):
        parent.next()
    assert parent.handle.wait(pools.PATIENCE) == 0
    assert not parent.handle.alive()


def test_a_call_to_be_skipped_is_not_begun(parent: Parent, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    parent.call(1, pools.wait_for, str(notes), "go")
    pools.lines(notes, 1)
    for number in (2, 3):
        parent.call(number, pools.double, number)
    parent.page.skip(2)
    pools.note(str(notes), "go")
    assert parent.result() == parent.pid
    skipped = parent.next()
    assert (skipped.kind, skipped.sequence) == (wire.SKIPPED, 2)
    assert parent.result() == 6


def test_a11_a_handle_tells_and_kills(parent: Parent) -> None:
    parent.call(1, pools.process)
    assert parent.result() == parent.pid
    assert parent.handle.alive()
    assert parent.handle.pid == parent.pid
    parent.handle.kill()
    while parent.handle.alive():
        select.select([parent.handle.fileno()], [], [], 1.0)
    assert parent.handle.wait(1.0) == -signal.SIGKILL
    parent.handle.kill()
    pools.wait_gone(parent.pid)


def test_a_process_ends_when_its_parent_closes_the_socket(parent: Parent) -> None:
    parent.channel.socket.close()
    assert parent.handle.wait(pools.PATIENCE) == 0


def test_sigint_is_for_the_parent(parent: Parent) -> None:
    parent.call(1, pools.kill_self, signal.SIGINT)
    assert parent.result() is None
    parent.call(2, pools.double, 2)
    assert parent.result() == 4


def test_what_a_process_needs_to_start_does_not_import_asyncio() -> None:
    """It takes longer to import than most of the rest, and only jobs that are `async` need it."""
    script = "import sys, actorflow.runtime.processes.child.fork_server; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True
    )
    assert "asyncio" not in done.stdout.split()
