"""A kind of execution in the hand of a test."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Message, Options, Outcome, TimerFired
from actorflow.engine.stores.memory import MemoryStore
from actorflow.runtime.worker.pair.states import PairState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.kind import Context, Envelope
    from actorflow.engine.stores.protocol import Store

PATIENCE = 10.0
"""Seconds that a test waits for something that must happen."""

_LISTS = (
    "messages", "timers", "cancelled_timers", "tasks", "cancelled_tasks",
    "withdrawn_tasks", "children", "cancelled_children", "watches", "cancelled_watches", "history",
)  # fmt: skip


class Script:
    """Runs what the test says: `step(state, message) -> Outcome or state`, message by message.

    The message is the body of a message or timer, else the envelope itself. Its state is a list.
    Each batch is noted in `batches`, each message counted.
    """

    def __init__(
        self, step: Callable[[Any, Any], Any] | None = None, name: str = "script", **options: Any
    ) -> None:
        self.name = name
        self._step = step or (lambda state, message: [*state, message])
        self._options = Options(**options)
        self.batches: list[Any] = []
        self._seen = threading.Condition()
        self.count = 0

    def options(self, execution: str) -> Options:
        return self._options

    def decode(self, data: bytes | None) -> Any:
        return [] if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        return bodies.encode(state)

    def run(self, context: Context, state: Any, batch: Sequence[Envelope]) -> Outcome:
        told = [each.body if isinstance(each, (Message, TimerFired)) else each for each in batch]
        self.batches.append(told)
        total = Outcome(state=state)
        for message in told:
            made = self._step(total.state, message)
            outcome = made if isinstance(made, Outcome) else Outcome(state=made)
            total.state, total.status = outcome.state, outcome.status
            total.result, total.error = outcome.result, outcome.error
            for field in _LISTS:
                getattr(total, field).extend(getattr(outcome, field))
        with self._seen:
            self.count += len(batch)
            self._seen.notify_all()
        return total

    def wait(self, count: int) -> None:
        """Wait until so many messages have been run."""
        with self._seen:
            assert self._seen.wait_for(lambda: self.count >= count, PATIENCE), self.batches


class Kept(MemoryStore):
    """A store in memory that one engine after the other is opened on."""

    def close(self) -> None:
        """Keep everything."""


def collect(batch: list[Any], state: list[Any]) -> list[Any]:
    """Append the batch to the state: a job."""
    return [*state, *batch]


def state_of(engine: BareEngine, execution: str) -> Any:
    data = engine.parts.row(execution).state
    return None if data is None else bodies.decode(data)


def rows(where: BareEngine | Store, table: str) -> list[Any]:
    """Return the rows of a table."""
    store: Any = where.parts.store if hasattr(where, "parts") else where
    read: dict[str, Callable[[], Any]] = {
        "messages": lambda: store.pending(limit=100_000).rows,
        "timers": lambda: store.due(100_000),
        "tasks": lambda: store.open(limit=100_000).rows,
        "watches": lambda: store.watches(limit=100_000).rows,
        "dead": lambda: store.dead(limit=100_000).rows,
    }
    found: list[Any] = read[table]()
    return found


def until(engine: BareEngine, happened: Callable[[], Any]) -> None:
    """Wait until something is so, between the commits of the writer."""
    end = time.monotonic() + PATIENCE
    while not happened():
        flush(engine)
        assert time.monotonic() < end, "it never happens"


def inbox(engine: BareEngine, execution: str) -> Any:
    """Return the worker of a live execution."""
    live = engine.parts.table.find(execution)
    assert live is not None
    assert live.port is not None
    return live.port.worker


def flush(engine: BareEngine) -> None:
    """Wait until the writer has done all that it has been given so far."""
    done = threading.Event()
    engine.parts.writer.call(done.set)
    assert done.wait(PATIENCE)


def quiet(engine: BareEngine) -> None:
    """Wait until nothing runs any more, and the writer has done all that it has been given."""
    end = time.monotonic() + PATIENCE
    while True:
        flush(engine)
        if not engine.parts.writer.waiting and not any(
            not (live.lane is None or live.lane.is_clear)
            or (live.port is not None and live.port.worker.status is PairState.RUNNING)
            for live in list(engine.parts.table._live.values())
        ):
            flush(engine)
            return
        assert time.monotonic() < end, "something runs on and on"
