"""What a storm is made of: the weather, the behaviours and the producers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actorflow.behaviours import (
    Bounded,
    Chunk,
    Debounce,
    Expire,
    Linger,
    Priority,
    Queue,
    Stack,
    Unique,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import actorflow as af

PATIENCE = 20.0

KEYS = 7
BOUND = 64
RUSH = 16  # messages that a producer pushes in a row where speed matters
BURST = 3  # messages that a producer pushes between two lulls


class Crashed(Exception):
    """What a job raises in the middle of a storm."""


@dataclass(frozen=True)
class Weather:
    """What a storm is made of."""

    behaviour: str = "queue"
    seed: int = 0
    producers: int = 8
    messages: int = 200
    """For each producer."""
    stop: str | None = None
    """`"drain"`, `"finish"` or `"now"` in the middle; `None` to stop when all is done."""
    crash: bool = False
    reset_threshold: bool = False
    """Only plain pushes, in a rush: for millions of messages."""
    lulls: bool = False
    """Plain pushes, in bursts: before the next one everything must have been processed."""
    help: bool = False
    concurrency: int = 1
    patience: float = PATIENCE
    """Seconds that a wait may take; only a storm that has found a bug takes so long."""
    fold_at: int | None = 16
    """A smaller FOLD_AT, so that producers fold although they push little."""
    change: Callable[[af.WorkerRef], None] = lambda worker: None
    """Called with the worker before the storm begins."""


BEHAVIOURS: dict[str, Callable[[], Any]] = {
    "queue": Queue,
    "stack": Stack,
    "unique": Unique,
    "priority": Priority,
    "chunk": lambda: Chunk(Queue(), 5),
    "chunked priority": lambda: Chunk(Priority(), 5),
    "reject": lambda: Bounded(Queue(), BOUND),
    "drop_oldest": lambda: Bounded(Queue(), BOUND, when_full="drop_oldest"),
    "drop_newest": lambda: Bounded(Queue(), BOUND, when_full="drop_newest"),
    "block": lambda: Bounded(Queue(), 8, when_full="block"),
    "bounded unique": lambda: Bounded(Unique(), BOUND, when_full="reject"),
    "linger": lambda: Linger(Queue(), 0.001, size=16),
    "debounce": lambda: Debounce(Queue(), 0.0005, at_most=0.002),
    "expire": lambda: Expire(Queue(), 0.002),
}

IN_ORDER = {
    "queue", "chunk", "reject", "drop_oldest", "drop_newest", "block", "linger", "debounce",
    "expire",
}  # fmt: skip
COMPLETE = {
    "queue", "stack", "priority", "chunk", "chunked priority", "block", "linger", "debounce",
}  # fmt: skip
KEYED = {"unique", "bounded unique"}
FATES = (
    "processed", "failed", "replaced", "merged", "dropped", "expired", "dead_lettered", "held",
    "in_flight",
)  # fmt: skip


@dataclass
class Producer:
    """One producer: what it sent, in order, and how that ended."""

    number: int
    sent: list[Any] = field(default_factory=list)
    refused: set[Any] = field(default_factory=set)
    unsure: set[Any] = field(default_factory=set)
    """The worker ended before it said what became of them."""
    done: int = 0
