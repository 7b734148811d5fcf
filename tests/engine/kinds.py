"""A kind of execution in the hand of a test."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Outcome
from actorflow.runtime.worker.machine import PairState

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import Engine

PATIENCE = 20.0
"""Seconds that a test waits for something that must happen."""


class Script:
    """Runs what the test says: `step(state, message) -> Outcome or state`, message by message.

    Its state is a list. Each batch is noted in `batches`, each message counted.
    """

    def __init__(
        self, step: Callable[[Any, Any], Any] | None = None, name: str = "script", **options: Any
    ) -> None:
        self.name = name
        self._step = step or (lambda state, message: [*state, message])
        self._options = options
        self.batches: list[Any] = []
        self._seen = threading.Condition()
        self.count = 0

    def options(self, execution: str) -> dict[str, Any]:
        return self._options

    def decode(self, data: bytes | None) -> Any:
        return [] if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        return bodies.encode(state)

    def run(
        self, execution: str, state: Any, batch: list[Any], keep_going: Callable[[], bool]
    ) -> Outcome:
        self.batches.append(batch)
        total = Outcome(state=state)
        for message in batch:
            made = self._step(total.state, message)
            outcome = made if isinstance(made, Outcome) else Outcome(state=made)
            total.state, total.status = outcome.state, outcome.status
            for field in (
                "messages", "timers", "cancelled_timers", "tasks", "cancelled_tasks", "leftover",
                "history",
            ):  # fmt: skip
                getattr(total, field).extend(getattr(outcome, field))
        with self._seen:
            self.count += len(batch)
            self._seen.notify_all()
        return total

    def wait(self, count: int) -> None:
        """Wait until so many messages have been run."""
        with self._seen:
            assert self._seen.wait_for(lambda: self.count >= count, PATIENCE), self.batches


def state_of(engine: Engine, execution: str) -> Any:
    data = engine.row(execution).state
    return None if data is None else bodies.decode(data)


def flush(engine: Engine) -> None:
    """Wait until the writer has done all that it has been given so far."""
    done = threading.Event()
    engine.writer.call(done.set)
    assert done.wait(PATIENCE)


def quiet(engine: Engine) -> None:
    """Wait until nothing runs any more, and the writer has done all that it has been given."""
    end = time.monotonic() + PATIENCE
    while True:
        flush(engine)
        if not engine.writer.waiting and not any(
            live.port.worker.status is PairState.RUNNING
            for live in list(engine.host._live.values())
        ):
            return
        assert time.monotonic() < end, "something runs on and on"
