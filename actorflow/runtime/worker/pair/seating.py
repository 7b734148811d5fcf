"""Who does the work of a pair: seats, each of which runs one batch, hook or letter at a time.

A pair that runs one batch at a time is its own seat. All functions run under its lock.
"""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any

from actorflow.runtime.worker.pair.accumulation import NEVER
from actorflow.runtime.worker.pair.machine import (
    DONE,
    DUE,
    IDLE,
    PUSHED,
    RUNNING,
    STOPPING,
    WAITING,
    Event,
)
from actorflow.runtime.worker.pair.seat import Effects, Order, Task
from actorflow.runtime.worker.pair.transitions import apply, begin_task, fail

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = [
    "after",
    "catch_up",
    "fill",
    "fold_for_producer",
    "leave",
    "look",
    "next_task",
    "schedule",
    "schedule_start",
]


def schedule(pair: Accumulator, event: Event, effects: Effects) -> None:
    """Apply an event; free seats are submitted for what there is to do. Under the lock."""
    _schedule_seat(pair, event, effects)
    if pair._seats:
        fill(pair, effects)


def schedule_start(pair: Accumulator, effects: Effects) -> None:
    """Submit a seat that calls `on_start`. Under the lock."""
    begin_task(pair, pair, Order.ON_START)
    effects.seats.append(pair)


def _schedule_seat(pair: Accumulator, event: Event, effects: Effects) -> bool:
    """Apply an event with one free seat; return whether it has something to do."""
    seat = free_seat(pair)
    apply(pair, event, effects, seat)
    if seat is None:
        return False
    if seat.first is None:
        leave(pair, seat)
        return False
    effects.seats.append(seat)
    return True


def next_task(pair: Accumulator, seat: Any, event: Event, effects: Effects) -> Task | None:
    """Let the machine decide what a seat does after an event. Under the lock."""
    apply(pair, event, effects, seat)
    task: Task | None = seat.first
    seat.first = None
    if task is None:
        leave(pair, seat)
    if pair._seats:
        fill(pair, effects)
    return task


def after(pair: Accumulator, seat: Any, event: Event = DONE) -> tuple[Task | None, Effects]:
    """Return what a seat does next that has finished something. Under the lock."""
    seat.batch = None
    pair.active -= 1
    if pair._exclusive:
        pair._exclusive = False
    effects = Effects()
    return next_task(pair, seat, event, effects), effects


def fill(pair: Accumulator, effects: Effects) -> None:
    """Start more batches while there is room for them. Under the lock."""
    while pair._seats:
        if pair.state is RUNNING:
            event = PUSHED
        elif pair.state is STOPPING:
            event = DUE
        else:
            return
        if not _schedule_seat(pair, event, effects):
            return


def free_seat(pair: Accumulator) -> Any:
    """Return a seat that may be given work, or `None`. Under the lock."""
    if pair._seats is not None:
        return pair._seats.pop() if pair._seats else None
    return pair if pair.first is None and not pair.active else None


def leave(pair: Accumulator, seat: Any) -> None:
    """Return a seat that has nothing to do. Under the lock."""
    if pair._seats is not None:
        pair._seats.append(seat)


def look(pair: Accumulator, effects: Effects) -> None:
    """Do what messages that were just accumulated make possible. Under the lock."""
    pair._lead = NEVER
    if pair.state is IDLE:
        if not pair.core.shape.timed:
            pair._since = pair.settings.clock.now()
        schedule(pair, PUSHED, effects)
    elif pair.state is WAITING:
        schedule(pair, DUE, effects)
    elif pair._seats:
        fill(pair, effects)
    pair._lead = 1


def catch_up(pair: Accumulator) -> Effects:
    """Begin for an executor that was woken but has not begun. Under the lock.

    The messages that woke it are in flight for whoever looks next, as they are for the one
    who pushed them.
    """
    effects = Effects()
    if pair.state is IDLE and not pair.idle and not pair.active:
        schedule(pair, PUSHED, effects)
        if pair._seats is None:
            effects.seats.clear()  # it is in its lane already
    return effects


def fold_for_producer(pair: Accumulator, now: float, effects: Effects) -> Exception | None:
    """Fold what is raw on behalf of a producer; if the behaviour raises, the pair crashes.

    Return what it raised: the producer has nothing to do with it. Under the lock.
    """
    pair._owner = get_ident()
    try:
        pair.core.fold(now)
        pair.core.note_time(now)
    except Exception as error:  # noqa: BLE001 - of a behaviour
        seat = free_seat(pair)
        fail(pair, seat, error)
        if seat is not None and seat.first is not None:
            effects.seats.append(seat)
        elif seat is not None:
            leave(pair, seat)
        return error
    finally:
        pair._owner = 0
    return None
