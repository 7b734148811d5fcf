"""The generator of a measurement, in a process of its own: says when each message is due.

A job that keeps the interpreter busy would hold up a producer in the same process, and the delay
would count as latency. So `Generator` starts this file as a program, which imports nothing but the
standard library. It gets the times of arrival, and writes the number of messages that are due
whenever there are more. The messages themselves stay with the caller.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from array import array
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

__all__ = ["Generator", "GeneratorFailed"]

_NEAR = 0.0001  # seconds before an arrival that are spun away instead of slept
_DUE = struct.Struct("<q")
_START = struct.Struct("<d")
_AHEAD = 0.02  # seconds from "go" to time 0
_MUCH = 1 << 16


class GeneratorFailed(Exception):
    """The generator's process has ended too early."""


class Generator:
    """A running generator. Use it as a context manager, and iterate over `due()`."""

    def __init__(self, times: Sequence[float]) -> None:
        self._times = array("d", times)
        self.start = 0.0
        """Time 0 on the clock `time.perf_counter`, which all processes share."""
        self.latest = 0.0
        """By how many seconds a message was announced too late, at most."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us
        )
        stdin, stdout = self._pipes()
        stdin.write(_DUE.pack(len(self._times)))
        self._times.tofile(stdin)
        stdin.flush()
        if stdout.read(1) != b"r":
            raise GeneratorFailed
        self.start = time.perf_counter() + _AHEAD
        stdin.write(_START.pack(self.start))
        stdin.flush()
        return self

    def due(self) -> Iterator[int]:
        """Yield how many messages are due, each time that there are more; blocks in between.

        Raises:
            GeneratorFailed: the process has ended before all were.

        """
        _, stdout = self._pipes()
        left = b""
        told, count = 0, len(self._times)
        while told < count:
            left += self._read(stdout)
            whole = len(left) // _DUE.size
            if whole:
                numbers = struct.unpack_from(f"<{whole}q", left)
                last = numbers.index(count) if count in numbers else whole - 1
                told, left = numbers[last], left[(last + 1) * _DUE.size :]
                yield told
        while len(left) < _START.size:
            left += self._read(stdout)
        self.latest = _START.unpack(left)[0]

    def _read(self, stdout: BinaryIO) -> bytes:
        got = os.read(stdout.fileno(), _MUCH)
        if not got:
            raise GeneratorFailed
        return got

    def _pipes(self) -> tuple[BinaryIO, BinaryIO]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - both are pipes
        assert stdout is not None  # noqa: S101
        return stdin, stdout  # type: ignore[return-value]

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        for pipe in self._pipes():
            try:
                pipe.close()
            except OSError:  # it did not read all, and is gone
                continue
        self._process.wait()


def _generate(stdin: BinaryIO, stdout: int) -> None:
    """Announce messages as they become due. Runs in the generator's process."""
    (count,) = _DUE.unpack(stdin.read(_DUE.size))
    times = array("d")
    times.frombytes(stdin.read(count * times.itemsize))
    os.write(stdout, b"r")
    (start,) = _START.unpack(stdin.read(_START.size))
    clock, sleep = time.perf_counter, time.sleep
    at, latest = 0, 0.0
    while at < count:
        until = start + times[at]
        left = until - clock()
        if left > _NEAR:
            sleep(left - _NEAR)
        while (now := clock()) < until:
            pass
        latest = max(latest, now - until)
        while at < count and start + times[at] <= now:
            at += 1
        os.write(stdout, _DUE.pack(at))
    os.write(stdout, _START.pack(latest))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _generate(sys.stdin.buffer, 1)
    except (BrokenPipeError, struct.error):
        sys.exit(1)  # nobody listens any more
