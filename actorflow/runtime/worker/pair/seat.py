"""What is under way in a pair: its seats, their tasks, and what is done outside the lock."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.batch import Batch

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = ["Effects", "Failed", "Nobody", "Order", "Seat", "Task"]


class Order(Enum):
    """What a seat is to do other than to process a batch."""

    SERVE = "serve"
    """Answer mail."""
    ON_START = "on_start"
    ON_IDLE = "on_idle"
    ON_STOP = "on_stop"


class Failed:
    """What a seat is to do after the behaviour has raised: crash with that error."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


Task: TypeAlias = Batch | Order | Failed


class Seat:
    """One of several batches that may be in flight at once."""

    __slots__ = ("batch", "first", "pair", "parts", "span")

    def __init__(self, pair: Accumulator) -> None:
        self.pair = pair
        self.batch: Batch | None = None
        self.first: Task | None = None
        """What it does first when the lane runs it."""
        self.parts: list[Batch] | None = None
        """What a failure policy has made of the batch and is still to be run, last one first."""
        self.span: tuple[float, float, float] | None = None
        """Between which moments the messages of the batch arrived, and when it was taken."""

    def run(self) -> None:
        """Process batches for a while. Only the lane calls this."""
        runner.run(self.pair, self)


class Effects:
    """What is done after the lock is free."""

    __slots__ = ("cut", "dead", "error", "executor_gone", "seats")

    def __init__(self) -> None:
        self.seats: list[Any] = []
        """To be submitted to the lane."""
        self.cut: list[Batch] = []
        """Cut off: their callers are told."""
        self.error: BaseException | None = None
        """What they are told, if it is not that the pair has ended."""
        self.executor_gone = False
        self.dead = False


class Nobody:
    """The token of a pair that has ended: true like any other, and does nothing if it is run."""

    __slots__ = ()

    def run(self) -> None:
        """Do nothing."""
