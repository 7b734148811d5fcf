"""Functions that the tests of plans run in worker processes."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any


def nothing() -> None:
    """Do nothing."""


def one() -> int:
    return 1


def add(*numbers: int) -> int:
    return sum(numbers)


def double(number: int) -> int:
    return 2 * number


def upto(number: int) -> list[int]:
    return list(range(number))


def plus(number: int, by: int = 1) -> int:
    return number + by


def boom(*_: Any) -> None:
    msg = "boom"
    raise ValueError(msg)


def large(size: int) -> bytes:
    return b"x" * size


def size_of(data: bytes) -> int:
    return len(data)


def note(directory: str, name: str, *_: Any) -> str:
    """Write one byte for each call, from any process: appending is atomic."""
    with Path(directory, name).open("ab") as file:
        file.write(b"x")
    return name


def fail_first(directory: str, times: int) -> int:
    """Fail until it was called more often than that; return the number of the call."""
    path = Path(directory, "calls")
    with path.open("ab") as file:
        file.write(b"x")
    calls = path.stat().st_size
    if calls <= times:
        msg = f"call {calls}"
        raise RuntimeError(msg)
    return calls


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_first(directory: str, times: int) -> int:
    """Kill the process until it was called more often than that."""
    path = Path(directory, "deaths")
    with path.open("ab") as file:
        file.write(b"x")
    if path.stat().st_size <= times:
        die()
    return os.getpid()


def pid(*_: Any) -> int:
    return os.getpid()


def allocate(size: int) -> int:
    return len(bytearray(size))


def wait_for_ever() -> None:
    threading.Event().wait()


def wait_at(fifo: str) -> str:
    """Wait until somebody writes to a named pipe; return what."""
    return Path(fifo).read_text(encoding="utf-8")


def wait_for_lock(path: str) -> None:
    """Wait until nobody else has the lock of a file."""
    with Path(path).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def talk(text: str, *, fails: bool = False) -> None:
    """Print and warn."""
    sys.stdout.write(f"{text}\n")
    sys.stderr.write(f"{text} on stderr\n")
    warnings.warn("careful", stacklevel=1)
    if fails:
        boom()


def act(log: str, name: str, crashes: int, failures: int, *inputs: int) -> int:
    """Crash so often, then fail so often, then return 1 more than all inputs; log each step."""
    calls = 1 + Path(log).read_text(encoding="utf-8").split().count(f"begin:{name}")
    write(log, f"begin:{name}")
    if calls <= crashes:
        die()
    if calls <= crashes + failures:
        boom()
    write(log, f"end:{name}")
    return 1 + sum(inputs)


def write(log: str, line: str) -> None:
    with Path(log).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


class Rude(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def rude() -> None:
    raise Rude


def verbose() -> None:
    raise ValueError("x" * 30_000_000)
