"""Workflows to be measured: ours, and those of DBOS, which do the same."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import actorflow as af
from benchmarks.peers.engine import check_dbos, log_dbos

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = [
    "Adds",
    "Hops",
    "OneStep",
    "Reads",
    "Statement",
    "Subject",
    "Votes",
    "Waits",
    "actorflow",
    "actorflow_on",
    "dbos",
    "dbos_logged",
    "dbos_on",
    "recorded",
]

_LONG = 600.0


class Subject(Protocol):
    """The measured operations of a library. Each call returns when its work is stored."""

    def two_steps(self, number: int) -> int:
        """Run a workflow of two steps; return its result."""

    def many_steps(self, count: int) -> int:
        """Run a workflow of many steps; return its result."""

    def reactions(self, count: int) -> Iterator[float]:
        """Send events to a running workflow; yield the seconds until its code has each."""


@af.task
def _step(number: int) -> int:
    return number


class _Two(af.Workflow[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> int:
        return self.execute(_step(self.number)) + self.execute(_step(1))


class _Many(af.Workflow[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def handle(self) -> int:
        return sum(self.execute(_step(number)) for number in range(self.count))


class _Reacts(af.Workflow[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def handle(self) -> int:
        for _ in range(self.count):
            self.wait("go")
            _reached.release()
        return self.count


class Adds(af.Workflow[int]):
    """Counts events until there are enough."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.seen = 0

    def handle(self) -> int:
        """Return how many there were."""
        self.wait("enough")
        return self.seen

    def on_event(self, event: af.Event) -> None:
        """Count one."""
        self.seen += 1


class Reads(af.Workflow[int]):
    """Reads events that were kept for it, once it is told to."""

    def handle(self) -> int:
        """Return how many there were."""
        self.wait("go")
        count = 0
        while self.receive("m", seconds=0) is not None:
            count += 1
        return count


class Votes(af.Workflow[int]):
    """Waits for a condition that holds after each event."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.votes = 0

    def handle(self) -> int:
        """Return how many there were."""
        for count in range(1, self.wanted + 1):
            self.until(lambda count=count: self.votes >= count)  # type: ignore[misc]
        return self.votes

    def on_event(self, event: af.Event) -> None:
        """Count a vote."""
        self.votes += 1


class Hops(af.Workflow[int]):
    """Begins anew a number of times, with a step in each run."""

    def __init__(self, left: int, total: int = 0) -> None:
        self.left, self.total = left, total

    def handle(self) -> int:
        """Return how many runs there were."""
        self.execute(_step(self.left))
        if self.left == 0:
            return self.total
        return self.again(Hops(self.left - 1, self.total + 1))


class OneStep(af.Workflow[int]):
    """Does one step."""

    def handle(self) -> int:
        """Return its result."""
        return self.execute(_step(1))


class Waits(af.Workflow[str]):
    """Waits three days for an event."""

    def __init__(self, order: str) -> None:
        self.order = order

    def handle(self) -> str:
        """Return the outcome."""
        return "late" if self.wait("paid", days=3) is None else "paid"


_reached = threading.Semaphore(0)


class _Actorflow:
    def __init__(self, engine: af.Engine) -> None:
        self._engine = engine

    def two_steps(self, number: int) -> int:
        return self._engine.start(_Two(number)).result(_LONG)

    def many_steps(self, count: int) -> int:
        return self._engine.start(_Many(count)).result(_LONG)

    def reactions(self, count: int) -> Iterator[float]:
        handle = self._engine.start(_Reacts(count))
        for _ in range(count):
            begin = time.perf_counter()
            handle.send("go")
            _reached.acquire()
            yield time.perf_counter() - begin
        handle.result(_LONG)


@contextmanager
def actorflow_on(where: Path | str) -> Iterator[Subject]:
    """Open an engine on a store."""
    with af.Engine(where) as engine:
        yield _Actorflow(engine)


def actorflow(folder: Path) -> AbstractContextManager[Subject]:
    """Open an engine on a SQLite file, whose commits are synced."""
    return actorflow_on(folder / "engine.db")


class Statement(NamedTuple):
    """One call of a connection."""

    text: str
    values: tuple[Any, ...]
    many: bool
    """Whether there are values for many executions."""


class _Recorder:
    """Wraps the connection of a store and records the executed statements."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.statements: list[Statement] = []

    def execute(self, text: str, values: Any = ()) -> sqlite3.Cursor:
        self.statements.append(Statement(text, tuple(values), many=False))
        return self._connection.execute(text, values)

    def executemany(self, text: str, values: Any) -> sqlite3.Cursor:
        values = [tuple(each) for each in values]
        self.statements.append(Statement(text, tuple(values), many=True))
        return self._connection.executemany(text, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@contextmanager
def recorded(folder: Path) -> Iterator[tuple[Subject, list[Statement]]]:
    """Open an engine on a SQLite file, with a list of the statements by which it writes."""
    with af.Engine(folder / "engine.db") as engine:
        store: Any = engine.parts.store
        recorder = _Recorder(store._session.connection)
        store._session.writer.use(recorder)
        yield _Actorflow(engine), recorder.statements
        store._session.writer.use(store._session.connection)


class _Dbos:
    def __init__(self, library: Any) -> None:
        self._library: Any = library.DBOS
        step = self._library.step()(_number)

        def two(number: int) -> int:
            total: int = step(number) + step(1)
            return total

        def many(count: int) -> int:
            return sum(step(number) for number in range(count))

        def reacts(count: int) -> None:
            for _ in range(count):
                self._library.recv("go", timeout_seconds=_LONG)
                _reached.release()

        workflow = self._library.workflow()
        self._two: Callable[[int], int] = workflow(two)
        self._many: Callable[[int], int] = workflow(many)
        self._reacts = workflow(reacts)

    def two_steps(self, number: int) -> int:
        return self._two(number)

    def many_steps(self, count: int) -> int:
        return self._many(count)

    def reactions(self, count: int) -> Iterator[float]:
        handle = self._library.start_workflow(self._reacts, count)
        for _ in range(count):
            begin = time.perf_counter()
            self._library.send(handle.get_workflow_id(), "now", "go")
            _reached.acquire()
            yield time.perf_counter() - begin
        handle.get_result()


def _number(number: int) -> int:
    return number


@contextmanager
def dbos_on(url: str) -> Iterator[Subject]:
    """Open DBOS on a database."""
    library = import_module("dbos")
    library.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    subject = _Dbos(library)
    library.DBOS.launch()
    try:
        yield subject
    finally:
        library.DBOS.destroy()


def dbos(folder: Path) -> AbstractContextManager[Subject]:
    """Open DBOS on a SQLite file, as it makes one: with a rollback journal."""
    return dbos_on(f"sqlite:///{folder / 'dbos.db'}")


@contextmanager
def dbos_logged(folder: Path) -> Iterator[Subject]:
    """Open DBOS on a SQLite file that was given a write-ahead log, like ours, beforehand."""
    log_dbos(folder / "dbos.db")
    with dbos(folder) as subject:
        check_dbos()
        yield subject
