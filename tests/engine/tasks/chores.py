"""Functions that tests run in other processes, so they stand at the top of a module.

The body of a task is the path of a file: what the function wants to tell the test is written there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.engine.tasks.task import HOLD

if TYPE_CHECKING:
    from actorflow.engine.tasks.task import TaskAttempt


class Fussy(Exception):
    """An exception that can be pickled, but not made again from that."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"{name} {count}")


def note(task: TaskAttempt, text: str) -> None:
    with Path(task.body).open("a", encoding="ascii") as file:
        file.write(f"{text}\n")


def tell_process(task: TaskAttempt) -> Any:
    return [os.getpid(), task.id, task.attempt]


async def tell_process_later(task: TaskAttempt) -> Any:
    return tell_process(task)


def fail_twice(task: TaskAttempt) -> Any:
    if task.attempt < 3:
        msg = f"attempt {task.attempt}"
        raise ValueError(msg)
    return "third"


def be_fussy(task: TaskAttempt) -> Any:
    raise Fussy("fussy", 7)


class Unspeakable(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def be_unspeakable(task: TaskAttempt) -> Any:
    raise Unspeakable


def leave(task: TaskAttempt) -> Any:
    sys.exit("enough")


def return_a_lock(task: TaskAttempt) -> Any:
    return threading.Lock()


def hold(task: TaskAttempt) -> Any:
    return HOLD


def hang_at_first(task: TaskAttempt) -> Any:
    note(task, str(os.getpid()))
    if task.attempt == 1:
        threading.Event().wait()
    return "second"


def die_at_first(task: TaskAttempt) -> Any:
    note(task, str(os.getpid()))
    if task.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "second"


def exit_hard(task: TaskAttempt) -> Any:
    os._exit(3)


def wait_for_line(task: TaskAttempt) -> Any:
    """Go on when the test has written a line."""
    note(task, str(os.getpid()))
    while "go" not in Path(task.body).read_text(encoding="ascii"):
        pass
    return os.getpid()


def beat_until_unwanted(task: TaskAttempt) -> Any:
    note(task, str(os.getpid()))
    while task.heartbeat():
        pass
    note(task, "not wanted")
    return None
