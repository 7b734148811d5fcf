"""What type checkers know of the checks in `actorflow.testing`. See `worker_types`."""

from __future__ import annotations

from typing import Any

from actorflow.behaviours import Base, Bounded, Queue
from actorflow.engine.kinds.cron import CronKind
from actorflow.engine.stores.memory import MemoryStore
from actorflow.testing import check_batching, check_behaviour, check_kind, check_store


class Hooks(Base):
    def transform(self, messages: Any) -> Any:
        return messages[0]


class Own:
    def __init__(self) -> None:
        self.held: list[Any] = []

    def add(self, message: Any) -> None:
        self.held.append(message)

    def take(self) -> list[Any]:
        taken, self.held = self.held, []
        return taken

    def __len__(self) -> int:
        return len(self.held)


class Incomplete:
    def add(self, message: Any) -> None:
        """Accept a message, and never hand it over."""


def behaviours() -> None:
    check_behaviour(Queue)
    check_behaviour(Hooks)
    check_behaviour(Own)
    check_behaviour(lambda: Bounded(Queue(), 3), max_examples=10)
    check_behaviour(Incomplete)  # type: ignore[arg-type]
    check_behaviour(Queue())  # type: ignore[arg-type]
    check_behaviour(Queue, max_examples="ten")  # type: ignore[arg-type]


def kinds() -> None:
    check_kind(CronKind, max_examples=10)
    check_kind(Own)  # type: ignore[arg-type]


def stores() -> None:
    check_store(MemoryStore, max_examples=10)
    check_store(Own)  # type: ignore[arg-type]


def jobs(batch: list[int], state: int) -> int:
    return state + sum(batch)


def batching() -> None:
    check_batching(jobs, [1, 2, 3], state=0)
    check_batching(jobs, ["text"], state=0)  # type: ignore[arg-type]
    check_batching(jobs, [1, 2, 3], state="zero")  # type: ignore[arg-type]
