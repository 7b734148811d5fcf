"""How the machine decides for a pair, and which seat does what there is to do.

The machine is given facts and answers with steps. A *seat* runs one batch, hook or letter at a
time; a pair that runs one batch at a time is its own seat.

All functions run under the lock of the pair. What has to happen outside of it is noted in
`Effects`, and done by `Accumulator.conclude`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.runtime.worker.metrics import Backlog
from actorflow.runtime.worker.pair.accumulation import LONG, NEVER, QUEUE, fold_at
from actorflow.runtime.worker.pair.batch import Batch
from actorflow.runtime.worker.pair.machine import (
    BROKEN,
    CALL_ON_IDLE,
    CALL_ON_STOP,
    CANCEL_TIMER,
    CLOSE,
    CUT_OFF,
    DONE,
    DUE,
    IDLE,
    LOOK_AGAIN,
    MAIL,
    PUSHED,
    RUNNING,
    SERVE,
    SET_TIMER,
    STARTED,
    STARTING,
    STOP,
    STOPPING,
    TAKE,
    TELL_ALL,
    TELL_EXECUTOR,
    TOKEN_IN,
    TOKEN_OUT,
    Event,
    Facts,
    Step,
    StopMode,
    Unexpected,
    advance,
)
from behaviours.base import Reason

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulation import Accumulation
    from actorflow.runtime.worker.pair.accumulator import Accumulator

__all__ = [
    "Effects",
    "Failed",
    "Order",
    "Seat",
    "Task",
    "after",
    "apply",
    "cancel_timer",
    "catch_up",
    "close",
    "cut_off",
    "fill",
    "leave",
    "look_again",
    "next_task",
    "schedule",
    "schedule_start",
    "span_of",
]


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
        self.pair.run(self)


class Effects:
    """What is done after the lock is free."""

    __slots__ = ("cut", "dead", "error", "executor_gone", "incarnation", "seats")

    def __init__(self) -> None:
        self.seats: list[Any] = []
        """To be submitted to the lane."""
        self.cut: list[Batch] = []
        """Cut off: their callers are told."""
        self.error: BaseException | None = None
        """What they are told, if it is not that the pair has ended."""
        self.executor_gone = False
        self.incarnation = 0
        """Which executor has gone, counted by restarts: it may have been replaced since."""
        self.dead = False


_IDLE = Reason.IDLE  # looking one up in its enum takes long
_COMMON = (DONE, PUSHED, STARTED)
_FOLDS = (STARTED, PUSHED, DUE, MAIL, DONE)
_LOOKS = (*_FOLDS, STOP)
"""Events after which it matters what is held."""
_ORDERS = {
    SERVE: Order.SERVE,
    CALL_ON_IDLE: Order.ON_IDLE,
    CALL_ON_STOP: Order.ON_STOP,
}


def apply(pair: Accumulator, event: Event, effects: Effects, seat: Any = None) -> None:
    """Let the machine decide, and perform the steps that need the lock. Under the lock.

    What the seat is to do is put into `seat.first`. A behaviour that raises is a crash, which
    the seat performs.

    Raises:
        Unexpected: the state has no row for the event, and there is no seat that could crash.

    """
    again: Event | None = event
    while again is not None:
        try:
            if again in _COMMON and seat is not None and _is_common(pair, again):
                again = _go_on(pair, again, seat)
                continue
            facts, now = _facts(pair, again)
            woken = pair.state is IDLE
            transition = advance(pair.state, again, facts)
            pair.state = transition.state
            again = _perform(pair, transition.steps, effects, seat, now, woken=woken)
        except Exception as error:  # of a behaviour
            if seat is None and type(error) is Unexpected:  # a bug of ours: the caller must know
                raise
            fail(pair, seat, error)
            return


def _is_common(pair: Accumulator, event: Event) -> bool:
    """Return whether `_go_on` does what the table says after PUSHED, DONE and STARTED."""
    state = pair.state
    working = state is STARTING if event is STARTED else state is RUNNING or state is IDLE
    room = pair.active < pair.settings.concurrency and not pair._exclusive
    return pair._timeless and working and room and not pair.mail


def _go_on(pair: Accumulator, event: Event, seat: Any) -> Event | None:
    """Apply a common event as the table does where nobody stops, writes mail or has to wait.

    Return the event that has to be looked at next. Under the lock.
    """
    core = pair.core
    woken = pair.state is IDLE
    lead, pair._lead = pair._lead, 1
    if lead and core.raw:
        if pair._line and _is_empty(core) and (pair._plain or len(core.raw) <= LONG):
            batch = pair._cut(lead if woken else NEVER)
            if batch is not None:
                pair.state = RUNNING
                pair.idle.clear()
                _hand_over(pair, seat, batch, woken=woken)
                return None
        pair._fold(0.0, lead if woken else None)
    if event is DONE and core.shape.folds:
        calm(pair)
    if len(core.behaviour):
        pair.state = RUNNING
        pair.idle.clear()
        return None if _take(pair, seat, 0.0, woken=woken) else DONE
    pair.state = RUNNING if pair.active else IDLE
    if not pair.idle:
        pair.idle.append(pair)
    return look_again(pair)


def _is_empty(core: Accumulation) -> bool:
    """Return whether the behaviour holds nothing."""
    return core.behaviour is QUEUE or not len(core.behaviour)


def _facts(pair: Accumulator, event: Event) -> tuple[Facts, float]:
    """Fold what is raw and return what the machine must know. Under the lock."""
    core, settings = pair.core, pair.settings
    now = pair._now()
    limit = _limit(pair)
    lead = 0
    if pair.active < limit:
        lead, pair._lead = pair._lead, 1
    takes_more = pair.mode is None and pair.exit_reason is None
    if lead and core.raw and takes_more and event in _FOLDS:
        woken = event is PUSHED and pair.state is IDLE
        pair._fold(now, lead if woken else None)
        if woken and pair.mail:
            pair._lead = 0  # mail is served first, and then what has woken the executor, alone
    held = ready = False
    if event in _LOOKS:
        held, ready = _readiness(pair, event, now)
    facts = Facts(
        running=pair.active,
        limit=limit,
        held=held,
        ready=ready,
        mail=bool(pair.mail),
        supervised=pair.is_supervised,
        first=pair._life is None or not pair._life.restarts,
        hooked=settings.has_on_stop,
        mode=pair.mode,
    )
    return facts, now


def _limit(pair: Accumulator) -> int:
    """Return how many seats may be at work: one, while a hook runs or mail is answered."""
    return 1 if pair._exclusive else pair.settings.concurrency


def _readiness(pair: Accumulator, event: Event, now: float) -> tuple[bool, bool]:
    """Return whether messages are held, and whether some may leave. Under the lock.

    A behaviour that raises must not keep the pair from stopping: it counts as ready there, and
    fails once more when a batch is taken from it.
    """
    try:
        held = bool(len(pair.core.behaviour))
        return held, held and pair.core.ready(now)
    except Exception:
        if event in _FOLDS:
            raise
        return True, True


def fail(pair: Accumulator, seat: Any, error: Exception) -> None:
    """Let a seat crash with what the behaviour raised. Under the lock.

    Without a free seat it is only reported, because those that are at work meet it when they go
    on; and so it is where there is no executor that could crash.
    """
    steps: tuple[Step, ...] = ()
    if seat is not None:
        pair.state, steps = advance(pair.state, BROKEN, Facts())
    for step in steps:
        if step is CANCEL_TIMER:
            cancel_timer(pair)
        elif step is TOKEN_OUT:
            pair.idle.clear()
        else:
            begin_task(pair, seat, Failed(error))
    if not steps:
        pair.core.note_refusal((), error)


def _perform(  # noqa: C901 - one branch for each step
    pair: Accumulator,
    steps: tuple[Step, ...],
    effects: Effects,
    seat: Any,
    now: float,
    *,
    woken: bool,
) -> Event | None:
    """Perform steps; return the event that has to be looked at next. Under the lock."""
    again: Event | None = None
    for step in steps:
        if step is TAKE:
            if seat is not None and not _take(pair, seat, now, woken=woken):
                again = DONE  # all that was held has expired
        elif step is TOKEN_IN:
            if not pair.idle:
                pair.idle.append(pair)
        elif step is TOKEN_OUT:
            pair.idle.clear()
        elif step is LOOK_AGAIN:
            again = look_again(pair)
        elif step is SET_TIMER:
            if _is_full(pair):
                again = DUE  # those who pushed meanwhile could not know
            else:
                _set_timer(pair)
        elif step is CANCEL_TIMER:
            cancel_timer(pair)
        else:
            _perform_rare(pair, step, effects, seat)
    return again


def _perform_rare(pair: Accumulator, step: Step, effects: Effects, seat: Any) -> None:
    """Perform a step that is not taken for every batch. Under the lock."""
    if step is CLOSE:
        if pair.mode is None:  # else the stop has closed it: what is raw now came too late
            close(pair)
    elif step is CUT_OFF:
        cut_off(pair, effects)
    elif step is TELL_EXECUTOR:
        effects.executor_gone = True
        effects.incarnation = pair.life.restarts
    elif step is TELL_ALL:
        if pair.exit_reason is None:
            pair.exit_reason = pair.life.final_reason()
        effects.dead = True
    elif step in _ORDERS and seat is not None:
        begin_task(pair, seat, _ORDERS[step])


def begin_task(pair: Accumulator, seat: Any, task: Task) -> None:
    """Let a seat do something. Under the lock."""
    seat.first = task
    pair.active += 1
    if pair._seats is not None:
        pair._exclusive = type(task) is Order


def _take(pair: Accumulator, seat: Any, now: float, *, woken: bool) -> bool:
    """Take a batch for a seat; return whether there was one. Under the lock.

    `woken`: the pair was idle, so the messages have just arrived.
    """
    core = pair.core
    batch = core.take(now)
    if pair._intake is not None and pair._intake.is_blocking:
        pair._intake.admit(now)
    if batch is None:
        return False
    if pair.mode is StopMode.DRAIN and batch.reason in (Reason.IDLE, Reason.FLUSH):
        batch.reason = Reason.DRAIN
    core.in_flight += batch.size
    _hand_over(pair, seat, batch, woken=woken)
    return True


def _hand_over(pair: Accumulator, seat: Any, batch: Batch, *, woken: bool) -> None:
    """Let a seat run a batch that has just been taken. Under the lock."""
    if batch.reason is not _IDLE:
        pair._count_reason(batch.reason)
    moment = pair.settings.clock.now()
    seat.span = span_of(pair, batch.size, moment, woken=woken)
    if not woken:  # else others may have pushed since then, and wait for the next batch
        pair._since = moment
    seat.batch = batch
    begin_task(pair, seat, batch)


def span_of(
    pair: Accumulator, size: int, moment: float, *, woken: bool
) -> tuple[float, float, float]:
    """Return between which moments the messages of a batch arrived, and when it is taken."""
    low, high, first = pair._since, moment, pair.core.oldest_at
    if first > low:  # the arrival of the first one is known, and the others follow evenly
        low = min(first, moment)
        high = low + (moment - low) * (size - 1) / max(size, 1)
    elif woken:
        high = low
    rest = len(pair.core) if pair.core.shape.divides else 0
    if rest and pair._backlog is None:
        pair._backlog = Backlog()
    if pair._backlog is not None:
        low, high = pair._backlog.span(size, rest, low, high)
        if not rest:
            pair._backlog = None
    return low, high, moment


def look_again(pair: Accumulator) -> Event | None:
    """Look at the inbox after the token was put in place. Under the lock."""
    if pair.core.raw or pair.mail:
        try:
            pair.idle.pop()
        except IndexError:
            return None  # a producer has handed the token over meanwhile
        pair._lead = NEVER
        pair._since = pair.settings.clock.now()  # they have arrived just now
        return PUSHED
    if pair.state is IDLE and pair._idle_timeout() is not None:
        pair._watch_idleness()
    return None


def close(pair: Accumulator) -> None:
    """Take in what came before the end, and hold nothing back. Under the lock.

    The token is in place by now: whoever pushes later is refused.
    """
    core = pair.core
    try:
        if core.raw:
            pair._fold(pair._now())
        core.behaviour.flush()
    except Exception as error:  # noqa: BLE001 - a broken behaviour must not keep anyone waiting
        core.note_refusal((), error)


def cut_off(pair: Accumulator, effects: Effects) -> None:
    """Ignore what is under way from now on. Under the lock."""
    pair.generation += 1
    core = pair.core
    core.failed += core.in_flight
    core.in_flight = 0
    pair.active = 0
    if pair._exclusive:
        pair._exclusive = False
    for seat in pair._every or (pair,):
        if seat.batch is not None:
            effects.cut.append(seat.batch)
        effects.cut += seat.parts or ()
        seat.batch = seat.parts = seat.first = None
    if pair._seats is not None:
        pair._seats = list(pair._every)


def _is_full(pair: Accumulator) -> bool:
    """Make pushes count what is missing; return whether it is there already. Under the lock.

    Then no timer is set, which would wake the thread of the clock for nothing.
    """
    cancel_timer(pair)
    if pair.core.due is not None:
        more = pair.core.behaviour.until_full()
        if more is not None:
            pair._ring_at = min(pair._ring_at, more * pair.core.shape.width)
            pair._counting[:] = (None,)
    return len(pair.core.raw) >= pair._ring_at and pair.mode is None


def _set_timer(pair: Accumulator) -> None:
    """Go on when what is held may leave. Under the lock."""
    due = pair.core.due
    if due is not None:
        pair._timer = pair.settings.clock.call_at(due, pair._on_due)


def calm(pair: Accumulator) -> None:
    """Let pushes ring when there is much to fold, or not at all."""
    shape = pair.core.shape
    pair._ring_at = fold_at(shape) * shape.width if shape.folds else NEVER
    if shape.timed:
        pair._counting[:] = (None,) * shape.folds


def cancel_timer(pair: Accumulator) -> None:
    """Wait for no moment any more. Under the lock."""
    calm(pair)
    if pair._timer is not None:
        pair._timer.cancel()
        pair._timer = None


# Seats.


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
