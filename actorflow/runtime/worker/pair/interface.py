# ruff: noqa: D102 - the classes that the protocols describe say what each method does
"""What the parts of a pair know of it: the tasks of its slots, and its attributes and methods.

A pair is one object with one lock, in several modules because each is one concept. The modules
below `accumulator` are given the pair, and see it through the protocols here, so that no module
imports one that imports it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from actorflow.runtime.worker.job.batch import Batch

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from actorflow.behaviours.behaviour import Reason
    from actorflow.runtime.clock import Timer
    from actorflow.runtime.errors import WorkerStopped, WouldDeadlock
    from actorflow.runtime.exits import ExitReason, Notice
    from actorflow.runtime.worker.job.dead_letters import DeadLetters
    from actorflow.runtime.worker.job.executor import Executor
    from actorflow.runtime.worker.job.limit import Limiter
    from actorflow.runtime.worker.latency import Backlog, Timing
    from actorflow.runtime.worker.options import Settings
    from actorflow.runtime.worker.pair.accumulation import Accumulation
    from actorflow.runtime.worker.pair.states import Facts, PairEvent, PairState, StopMode

__all__ = ["BehaviourFailed", "Effects", "Life", "Order", "Pair", "Slot", "SlotTask", "WaysIn"]


class Order(Enum):
    """What a slot is to do other than to process a batch."""

    SERVE = "serve"
    """Answer mail."""
    ON_START = "on_start"
    ON_IDLE = "on_idle"
    ON_STOP = "on_stop"


class BehaviourFailed:
    """What a slot is to do after the behaviour has raised: crash with that error."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


SlotTask: TypeAlias = Batch | Order | BehaviourFailed


class Slot:
    """One of several batches that may be in flight at once."""

    __slots__ = ("batch", "first", "pair", "parts", "span")

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.batch: Batch | None = None
        self.first: SlotTask | None = None
        """What it does first when the lane runs it."""
        self.parts: list[Batch] | None = None
        """What a failure policy has made of the batch and is still to be run, last one first."""
        self.span: tuple[float, float, float] | None = None
        """Between which moments the messages of the batch arrived, and when it was taken."""

    def run(self) -> None:
        """Process batches for a while. Only the lane calls this."""
        self.pair.run(self)


class Effects:
    """Effects to perform after the lock is released."""

    __slots__ = ("cut", "dead", "error", "executor_gone", "incarnation", "slots")

    def __init__(self) -> None:
        self.slots: list[Any] = []
        """To be submitted to the lane."""
        self.cut: list[Batch] = []
        """Batches that are cut off: their callers are resolved."""
        self.error: BaseException | None = None
        """The error for their callers, unless it is that the pair has ended."""
        self.executor_gone = False
        self.incarnation = 0
        """Which executor has gone, counted by restarts: it may have been replaced since."""
        self.dead = False


class Life(Protocol):
    """What the other parts know of `lifecycle.Lifecycle`."""

    supervised: bool
    durable: bool
    reason: ExitReason | None
    executor_reason: ExitReason | None
    executor_exit: ExitReason | None
    final_mode: StopMode
    restarts: int
    subject: Executor | None

    @property
    def dead_letters(self) -> DeadLetters: ...
    @property
    def executor(self) -> Any: ...
    @property
    def is_watched(self) -> bool: ...
    def crashed(
        self, generation: int, error: BaseException, batch: Batch | None = None
    ) -> None: ...
    def dead_error(self) -> WorkerStopped: ...
    def final_reason(self) -> ExitReason: ...
    def over(self) -> None: ...
    def refuse_mail(self) -> None: ...
    def start_failed(self, generation: int, reason: ExitReason) -> None: ...
    def started(self, slot: Any, generation: int) -> Any: ...
    def watch(self, notice: Notice) -> None: ...


class WaysIn(Protocol):
    """What the other parts know of `offers.Offers`."""

    @property
    def is_blocking(self) -> bool: ...
    def admit(self, now: float) -> None: ...
    def report(self) -> None: ...
    def take_blocked(self) -> list[Any]: ...


class Pair(Protocol):
    """What the other parts know of `accumulator.Accumulator`, which says what each is for."""

    active: int
    actor_ref: Any
    all_slots: tuple[Slot, ...]
    answers: bool
    backlog: Backlog | None
    batch: Batch | None
    core: Accumulation
    counting: Any
    exit_reason: ExitReason | None
    first: SlotTask | None
    first_batch_size: int
    free_slots: list[Slot] | None
    generation: int
    handle: Callable[[Any, Any], Any] | None
    idle: list[Any]
    is_exclusive: bool
    is_fifo: bool
    is_paused: bool
    is_single_fifo: bool
    is_timeless: bool
    limiter: Limiter | None
    lock: Any
    mail: deque[Any] | tuple[()]
    mode: StopMode | None
    parts: list[Batch] | None
    settings: Settings
    span: tuple[float, float, float] | None
    state: PairState
    threshold: int
    timer: Timer | None
    timing: Timing | None
    value: Any
    waiting_since: float

    @property
    def existing_lifecycle(self) -> Life | None: ...
    @property
    def existing_offers(self) -> WaysIn | None: ...
    @property
    def is_supervised(self) -> bool: ...
    @property
    def lifecycle(self) -> Life: ...
    @property
    def offers(self) -> WaysIn: ...
    def begin(self, slot: Any, generation: int) -> SlotTask | None: ...
    def begin_fifo(self, slot: Any, batch: Batch, now: float) -> None: ...
    def conclude(self, effects: Effects) -> None: ...
    def count_reason(self, reason: Reason) -> None: ...
    def cut_fifo(self, count: int) -> Batch | None: ...
    def deadlock(self) -> WouldDeadlock: ...
    def done(self, slot: Any, generation: int, batch: Batch, state: Any) -> SlotTask | None: ...
    def enter(self, state: PairState, event: PairEvent, facts: Facts = ...) -> None: ...
    def finished(self, slot: Any, generation: int, batch: Batch, state: Any) -> None: ...
    def forget_timers(self) -> None: ...
    def idle_timeout(self) -> float | None: ...
    def is_current(self) -> bool: ...
    def keep_room(self) -> bool: ...
    def next(self, slot: Any, generation: int, event: PairEvent = ...) -> SlotTask | None: ...
    def next_part(self, slot: Any, generation: int) -> SlotTask | None: ...
    def on_due(self) -> None: ...
    def postpone(self, slot: Any, generation: int, task: SlotTask) -> None: ...
    def prepare_idleness(self) -> None: ...
    def refuse_if_closed(self) -> None: ...
    def refuse_own_functions(self) -> None: ...
    def reject_all_pushes(self) -> None: ...
    def run(self, slot: Any = None) -> None: ...
    def set_paths(self) -> None: ...
    def timed_now(self) -> float: ...
    def watch_idleness(self) -> None: ...
