"""Functions that tests run in worker processes, and a collector of their outcomes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.runtime.processes.call import CallEnded, ProcessCall
from actorflow.runtime.processes.child.heartbeat import heartbeat
from actorflow.runtime.processes.packed import pack

if TYPE_CHECKING:
    from collections.abc import Hashable

    from actorflow.runtime.processes.process_pool import ProcessPool

PATIENCE = 40.0
ROOT = Path(__file__).parent.parent.parent.parent.parent


class Collector:
    """Collects how calls have ended."""

    def __init__(self) -> None:
        self.ended: list[CallEnded] = []
        self._changed = threading.Condition()

    def __call__(self, ended: CallEnded) -> None:
        with self._changed:
            self.ended.append(ended)
            self._changed.notify_all()

    def wait(self, count: int) -> list[CallEnded]:
        """Wait until so many calls have ended."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ended) >= count, PATIENCE)
            return list(self.ended)

    def by_id(self, count: int) -> dict[Hashable, CallEnded]:
        found = self.wait(count)
        assert len(found) == count
        return {each.id: each for each in found}


def run(pool: ProcessPool, *calls: ProcessCall) -> list[CallEnded]:
    """Make calls and wait; return their ends in the order of the calls."""
    collector = Collector()
    pool.submit(calls, collector)
    found = collector.by_id(len(calls))
    return [found[call.id] for call in calls]


def one(pool: ProcessPool, function: Any, *args: Any, **options: Any) -> CallEnded:
    """Make one call and wait."""
    (ended,) = run(pool, ProcessCall("one", pack(function, args), **options))
    return ended


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def wait_gone(process: int) -> None:
    while not is_gone(process):
        pass


def lines(notes: Path, count: int) -> list[str]:
    """Wait until so many lines have been written."""
    while len(found := notes.read_text(encoding="ascii").splitlines()) < count:
        pass
    return found


# In the worker processes.


def note(path: str, text: object) -> None:
    with Path(path).open("a", encoding="ascii") as file:
        file.write(f"{text}\n")


def nothing() -> None:
    return


def double(number: int) -> int:
    return 2 * number


def add(first: int, *, second: int) -> int:
    return first + second


def process() -> int:
    return os.getpid()


def group() -> int:
    return os.getpgid(0)


async def later(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


def fail(text: str) -> None:
    raise ValueError(text)


def leave(text: str) -> None:
    sys.exit(text)


def exit_hard(code: int) -> None:
    os._exit(code)


def kill_self(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)


def segfault() -> None:
    ctypes.string_at(0)


def crash_at_first(path: str) -> str:
    """Crash, unless that has happened before."""
    if not Path(path).read_text(encoding="ascii"):
        note(path, os.getpid())
        kill_self()
    return "second"


def hang(path: str) -> None:
    note(path, os.getpid())
    threading.Event().wait()


def hang_with_program(path: str) -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    note(path, program.pid)
    threading.Event().wait()


def wait_for(path: str, text: str) -> int:
    """Go on when the test has written something."""
    note(path, os.getpid())
    while text not in Path(path).read_text(encoding="ascii"):
        pass
    return os.getpid()


def count_runs(path: str, number: int) -> int:
    note(path, number)
    return number


def count_runs_or_die(path: str, number: int, every: int) -> int:
    """Note the run; die with every so-many-th."""
    note(path, number)
    if number % every == 0:
        kill_self()
    return number


def say(text: str) -> str:
    print(text)  # noqa: T201 - the test reads it
    print(f"{text}!", file=sys.stderr)  # noqa: T201
    return text


def warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=1)


def say_and_fail(text: str) -> None:
    print(text)  # noqa: T201
    raise ValueError(text)


def close_stdout() -> None:
    sys.stdout.close()


def return_a_lock() -> Any:
    return threading.Lock()


class Fussy(Exception):
    """An exception that can be pickled, but not made again from that."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"{name} {count}")


def be_fussy() -> None:
    raise Fussy("fussy", 7)


class Broken:
    """Can be sent, and not received."""

    def __reduce__(self) -> Any:
        return _unmake, ()


def _unmake() -> Any:
    msg = "not here"
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(msg)
    return Broken()


def return_broken() -> Any:
    return Broken()


def beat_until_unwanted(path: str) -> int:
    note(path, os.getpid())
    beats = 1
    while heartbeat():
        beats += 1
    return beats


_ballast: list[bytearray] = []


def grow(size: int) -> int:
    _ballast.append(bytearray(os.urandom(1)) * size)
    return os.getpid()


def allocate(size: int) -> int:
    return len(bytearray(size))


def burn() -> None:
    while True:
        pass


_prepared: list[str] = []


def prepare(text: str = "prepared") -> None:
    _prepared.append(text)


def is_prepared() -> list[str]:
    return _prepared


def prepare_badly() -> None:
    msg = "no licence"
    raise OSError(msg)


def prepare_by_dying() -> None:
    os._exit(7)


def fork_and_die(path: str) -> None:
    """Leave a child behind that has inherited everything, and crash."""
    child = os.fork()
    if child:
        note(path, child)
        os._exit(3)
    threading.Event().wait()


def use_a_pool_there(number: int) -> Any:
    """Use a pool in a worker process."""
    from actorflow.runtime.processes.process_pool import ProcessPool  # noqa: PLC0415 - only here

    with ProcessPool(1) as pool:
        ended = one(pool, double, number)
        return ended.result, ended.pid, os.getpid()


def draw() -> float:
    import numpy as np  # noqa: PLC0415 - only here

    return float(np.random.random())  # noqa: NPY002 - the test is about this generator
