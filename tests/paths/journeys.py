"""The paths through the package whose costs are limited, each ready to be taken many times."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import actorflow as af
from tests.paths.tracer import Cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from actorflow.engine.engine import BareEngine

__all__ = ["JOURNEYS", "Journey"]

_LONG = 30.0  # seconds that a path takes at most, on any machine


class Journey(NamedTuple):
    """A path, and what it may cost."""

    title: str
    limit: Cost
    prepare: Callable[[Path, str], AbstractContextManager[Callable[[], object]]]
    """Called with an empty folder and the address of a server, if `needs_server`."""
    needs_server: bool = False
    warm: int = 40
    """How often it is taken before it is counted."""


def _append(batch: list[int], state: int) -> int:
    return state + len(batch)


@contextmanager
def _push_block(folder: Path, _server: str) -> Iterator[Callable[[], object]]:
    with af.Engine(folder / "store.db") as engine:
        yield partial(engine.worker("w", _append, state=0).push_block, 1)


_FLOW = "sequence\n  task 'alice' 'a'\n  task 'bob' 'b'"


@contextmanager
def _flow(folder: Path, _server: str) -> Iterator[Callable[[], object]]:
    with af.Engine(folder / "store.db") as engine:
        for name in ("alice", "bob"):
            engine.tasker(name, lambda _task: None)
        yield lambda: engine.wait(engine.launch(_FLOW), timeout=_LONG)


@af.task
def _step(number: int) -> int:
    return number + 1


class _TwoSteps(af.Workflow[int]):
    def handle(self) -> int:
        return int(self.execute(_step(self.execute(_step(0)))))


@contextmanager
def _workflow(folder: Path, _server: str) -> Iterator[Callable[[], object]]:
    with af.Engine(folder / "store.db") as engine:
        engine.workflows.register(_TwoSteps)
        yield lambda: engine.start(_TwoSteps()).result(timeout=_LONG)


def _twice(number: int) -> int:
    return 2 * number


@contextmanager
def _plan(_folder: Path, _server: str) -> Iterator[Callable[[], object]]:
    def run() -> None:
        plan = af.Plan()
        for number in range(10):
            plan.job(_twice, number)
        plan.run(workers=1)

    yield run


@contextmanager
def _two_engines(_folder: Path, server: str) -> Iterator[Callable[[], object]]:
    with ExitStack() as stack:
        engines: list[BareEngine] = [stack.enter_context(af.Engine(server)) for _ in range(2)]
        for number in itertools.count():
            workers = [engine.worker(f"w-{number}", _append, state=0) for engine in engines]
            engines[1].resume()
            workers[0].push_block(1)  # returns when one of the two has processed it
            if engines[0].parts.ownership.runs(f"w-{number}"):
                break
        yield partial(workers[0].push_block, 1)


class _Crashes(af.Executor):
    """Tells when it is ready; any message ends it."""

    started: threading.Event

    def on_start(self) -> None:
        self.started.set()

    def handle(self, batch: Any) -> Any:
        raise ValueError(batch)


@contextmanager
def _restart(_folder: Path, _server: str) -> Iterator[Callable[[], object]]:
    started = _Crashes.started = threading.Event()
    with af.Supervisor([af.Worker("w", _Crashes)], max_restarts=1_000, within=0.001) as tree:
        worker = tree.which_child("w").ref

        def crash() -> None:
            started.clear()
            worker.push(None)
            started.wait(_LONG)

        yield crash


JOURNEYS = {
    "push_block": Journey("durable `push_block`, SQLite", Cost(110, 33, 148), _push_block),
    "flow": Journey("two-task flow, launch to end", Cost(970, 92, 1_140), _flow),
    "workflow": Journey("two-step workflow, start to result", Cost(1_180, 99, 1_325), _workflow),
    "plan": Journey("plan of 10 jobs", Cost(1_420, 50, 1_330), _plan, warm=3),
    "two_engines": Journey(
        "`push_block` on Postgres, two engines",
        Cost(184, 40, 198),
        _two_engines,
        needs_server=True,
    ),
    "restart": Journey("crash to restart of a supervised worker", Cost(190, 21, 166), _restart),
}
