"""How the table decides for a pair, and which slot does what there is to do.

`states.advance` gets facts and returns steps. A *slot* runs one batch, hook or letter at a
time; a pair that runs one batch at a time is its own slot.

All functions run under the lock of the pair. Effects that must happen outside of it are noted in
`Effects`, and performed by `Accumulator.conclude`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import MessageOutcome, Reason
from actorflow.runtime.worker.job.answers import Again
from actorflow.runtime.worker.latency import Backlog, Probe
from actorflow.runtime.worker.pair.accumulation import LONG, NEVER
from actorflow.runtime.worker.pair.interface import BehaviourFailed, Effects, Order, Pair, SlotTask
from actorflow.runtime.worker.pair.states import (
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
    READY,
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
    Facts,
    PairAction,
    PairEvent,
    StopMode,
    Unexpected,
    advance,
)
from actorflow.runtime.worker.shape import QUEUE, fold_at

if TYPE_CHECKING:
    from actorflow.runtime.worker.job.batch import Batch
    from actorflow.runtime.worker.pair.accumulation import Accumulation

__all__ = [
    "after",
    "apply",
    "cancel_timer",
    "close",
    "cut_off",
    "fill",
    "next_task",
    "recheck_inbox",
    "reenter",
    "release_slot",
    "schedule",
    "schedule_start",
    "span_of",
    "waits",
]


_IDLE = Reason.IDLE  # looking one up in its enum is slow
_COMMON = (DONE, PUSHED, STARTED)
_FOLDS = (STARTED, PUSHED, DUE, MAIL, DONE)
_LOOKS = (*_FOLDS, STOP)
"""Events after which the held messages matter."""
_ORDERS = {
    SERVE: Order.SERVE,
    CALL_ON_IDLE: Order.ON_IDLE,
    CALL_ON_STOP: Order.ON_STOP,
}


def apply(pair: Pair, event: PairEvent, effects: Effects, slot: Any = None) -> None:
    """Let the machine decide, and perform the steps that need the lock. Under the lock.

    What the slot is to do is put into `slot.first`. A behaviour that raises is a crash, which
    the slot performs.

    Raises:
        Unexpected: the state has no row for the event, and there is no slot that could crash.

    """
    again: PairEvent | None = event
    while again is not None:
        try:
            if again in _COMMON and slot is not None and _is_common(pair, again):
                again = _go_on(pair, again, slot)
                continue
            facts, now = _facts(pair, again)
            woken = pair.state is IDLE
            transition = advance(pair.state, again, facts)
            pair.enter(transition.state, again, facts)
            again = _perform(pair, transition.steps, effects, slot, now, woken=woken)
        except Exception as error:  # of a behaviour
            if slot is None and type(error) is Unexpected:  # a bug of ours: the caller must know
                raise
            fail(pair, slot, error)
            return


def _is_common(pair: Pair, event: PairEvent) -> bool:
    """Return whether `_go_on` does what the table says after PUSHED, DONE and STARTED."""
    state = pair.state
    working = state is STARTING if event is STARTED else state is RUNNING or state is IDLE
    room = pair.active < _limit(pair) and not pair.is_exclusive
    return pair.is_timeless and working and room and not pair.mail


def _go_on(pair: Pair, event: PairEvent, slot: Any) -> PairEvent | None:
    """Apply a common event as the table does where nobody stops, writes mail or has to wait.

    Return the event that has to be looked at next. Under the lock.
    """
    core = pair.core
    woken = pair.state is IDLE
    lead, pair.first_batch_size = pair.first_batch_size, 1
    if lead and core.raw:
        if pair.is_fifo and _is_empty(core) and (pair.is_single_fifo or len(core.raw) <= LONG):
            batch = pair.cut_fifo(lead if woken else NEVER)
            if batch is not None:
                pair.enter(RUNNING, event, READY)
                pair.idle.clear()
                _hand_over(pair, slot, batch, woken=woken)
                return None
        pair.core.fold(0.0, lead if woken else None)
    if event is DONE and core.shape.folds:
        reset_threshold(pair)
    if len(core.behaviour):
        pair.enter(RUNNING, event, READY)
        pair.idle.clear()
        return None if _take(pair, slot, 0.0, woken=woken) else DONE
    pair.enter(RUNNING if pair.active else IDLE, event)
    if not pair.idle:
        pair.idle.append(pair)
    return recheck_inbox(pair)


def _is_empty(core: Accumulation) -> bool:
    """Return whether the behaviour holds nothing."""
    return core.behaviour is QUEUE or not len(core.behaviour)


def _facts(pair: Pair, event: PairEvent) -> tuple[Facts, float]:
    """Fold raw messages and return the facts for the machine. Under the lock."""
    core, settings = pair.core, pair.settings
    now = pair.timed_now()
    limit = _limit(pair)
    lead = 0
    if pair.active < limit:
        lead, pair.first_batch_size = pair.first_batch_size, 1
    takes_more = pair.mode is None and pair.exit_reason is None
    if lead and core.raw and takes_more and event in _FOLDS:
        woken = event is PUSHED and pair.state is IDLE
        pair.core.fold(now, lead if woken else None)
        if woken and pair.mail:
            pair.first_batch_size = (
                0  # mail is served first, and then the messages that have woken the executor
            )
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
        first=pair.existing_lifecycle is None or not pair.existing_lifecycle.restarts,
        hooked=settings.has_on_stop,
        mode=pair.mode,
    )
    return facts, now


def _limit(pair: Pair) -> int:
    """Return how many slots may be at work: one, while a hook runs or mail is answered."""
    if pair.is_exclusive:
        return 1
    return pair.settings.concurrency if pair.limiter is None else pair.limiter.limit


def _readiness(pair: Pair, event: PairEvent, now: float) -> tuple[bool, bool]:
    """Return whether messages are held, and whether some may leave. Under the lock.

    A behaviour that raises must not keep the pair from stopping: it counts as ready there, and
    fails once more when a batch is taken from it.
    """
    try:
        held = bool(len(pair.core.behaviour))
        if pair.is_paused and pair.mode is None:
            pair.core.due = None
            return held, False
        return held, held and pair.core.ready(now)
    except Exception:
        if event in _FOLDS:
            raise
        return True, True


def fail(pair: Pair, slot: Any, error: Exception) -> None:
    """Let a slot crash with what the behaviour raised. Under the lock.

    Without a free slot it is only reported, because busy slots meet it when they go on. It is
    also only reported if there is no executor that could crash.
    """
    steps: tuple[PairAction, ...] = ()
    if slot is not None:
        state, steps = advance(pair.state, BROKEN, Facts())
        pair.enter(state, BROKEN, Facts())
    for step in steps:
        if step is CANCEL_TIMER:
            cancel_timer(pair)
        elif step is TOKEN_OUT:
            pair.idle.clear()
        else:
            begin_task(pair, slot, BehaviourFailed(error))
    if not steps:
        pair.core.note_refusal((), error)


def _perform(  # noqa: C901 - one branch for each step
    pair: Pair,
    steps: tuple[PairAction, ...],
    effects: Effects,
    slot: Any,
    now: float,
    *,
    woken: bool,
) -> PairEvent | None:
    """Perform steps; return the event that has to be looked at next. Under the lock."""
    again: PairEvent | None = None
    for step in steps:
        if step is TAKE:
            if slot is not None and not _take(pair, slot, now, woken=woken):
                again = DONE  # all that was held has expired
        elif step is TOKEN_IN:
            if not pair.idle:
                pair.idle.append(pair)
        elif step is TOKEN_OUT:
            pair.idle.clear()
        elif step is LOOK_AGAIN:
            again = recheck_inbox(pair)
        elif step is SET_TIMER:
            if _is_full(pair):
                again = DUE  # producers that pushed meanwhile could not know
            else:
                _set_timer(pair)
        elif step is CANCEL_TIMER:
            cancel_timer(pair)
        else:
            _perform_rare(pair, step, effects, slot)
    return again


def _perform_rare(pair: Pair, step: PairAction, effects: Effects, slot: Any) -> None:
    """Perform a step that is not taken for every batch. Under the lock."""
    if step is CLOSE:
        if pair.mode is None:  # else the stop has closed it: raw messages came too late
            close(pair)
    elif step is CUT_OFF:
        cut_off(pair, effects)
    elif step is TELL_EXECUTOR:
        effects.executor_gone = True
        effects.incarnation = pair.lifecycle.restarts
    elif step is TELL_ALL:
        if pair.exit_reason is None:
            pair.exit_reason = pair.lifecycle.final_reason()
        effects.dead = True
    elif step in _ORDERS and slot is not None:
        begin_task(pair, slot, _ORDERS[step])


def begin_task(pair: Pair, slot: Any, task: SlotTask) -> None:
    """Let a slot do something. Under the lock."""
    slot.first = task
    pair.active += 1
    if pair.free_slots is not None:
        pair.is_exclusive = type(task) is Order


def _take(pair: Pair, slot: Any, now: float, *, woken: bool) -> bool:
    """Take a batch for a slot; return whether there was one. Under the lock.

    `woken`: the pair was idle, so the messages have just arrived.
    """
    core = pair.core
    free = _limit(pair) - pair.active if core.shape.spreads else 1
    batch = core.take(now, free)
    if pair.existing_offers is not None and pair.existing_offers.is_blocking:
        pair.existing_offers.admit(now)
    if batch is None:
        return False
    if pair.mode is StopMode.DRAIN and batch.reason in (Reason.IDLE, Reason.FLUSH):
        batch.reason = Reason.DRAIN
    core.in_flight += batch.size
    _hand_over(pair, slot, batch, woken=woken)
    return True


def _hand_over(pair: Pair, slot: Any, batch: Batch, *, woken: bool) -> None:
    """Let a slot run a batch that has just been taken. Under the lock."""
    if batch.reason is not _IDLE:
        pair.count_reason(batch.reason)
    moment = pair.settings.clock.now()
    slot.span = span_of(pair, batch.size, moment, woken=woken)
    if not woken:  # else others may have pushed since then, and wait for the next batch
        pair.waiting_since = moment
    slot.batch = batch
    if pair.core.sampler is not None:
        for _, ticket in batch.tickets or ():
            if type(ticket) is Probe:
                ticket.begun = moment
    begin_task(pair, slot, batch)


def span_of(pair: Pair, size: int, moment: float, *, woken: bool) -> tuple[float, float, float]:
    """Return between which moments the messages of a batch arrived, and when it is taken."""
    low, high, first = pair.waiting_since, moment, pair.core.oldest_at
    if first > low:  # the arrival of the first one is known, and the others follow evenly
        low = min(first, moment)
        high = low + (moment - low) * (size - 1) / max(size, 1)
    elif woken:
        high = low
    rest = len(pair.core) if pair.core.shape.divides else 0
    if rest and pair.backlog is None:
        pair.backlog = Backlog()
    if pair.backlog is not None:
        low, high = pair.backlog.span(size, rest, low, high)
        if not rest:
            pair.backlog = None
    return low, high, moment


def recheck_inbox(pair: Pair) -> PairEvent | None:
    """Look at the inbox after the token was put in place. Under the lock."""
    if pair.core.raw or pair.mail:
        try:
            pair.idle.pop()
        except IndexError:
            return None  # a producer has handed the token over meanwhile
        pair.first_batch_size = NEVER
        pair.waiting_since = pair.settings.clock.now()  # they have arrived just now
        return PUSHED
    if pair.state is IDLE and pair.idle_timeout() is not None:
        pair.watch_idleness()
    return None


def close(pair: Pair) -> None:
    """Take in messages pushed before the end, and hold nothing back. Under the lock.

    The token is in place by now: later pushes are refused.
    """
    core = pair.core
    try:
        if core.raw:
            pair.core.fold(pair.timed_now())
        core.behaviour.flush()
    except Exception as error:  # noqa: BLE001 - a broken behaviour must not keep anyone waiting
        core.note_refusal((), error)


def _report_abandoned(pair: Pair, slot: Any) -> None:
    """Tell the behaviour which messages of a slot have not been processed. Under the lock."""
    took = pair.settings.clock.now() - slot.span[2]
    for batch in (slot.batch, *(slot.parts or ())):
        if not batch.is_reported or batch is not slot.batch:
            pair.core.report(batch, took, MessageOutcome.ABANDONED)


def cut_off(pair: Pair, effects: Effects) -> None:
    """Ignore the outcomes of the current batches. Under the lock."""
    pair.generation += 1
    core = pair.core
    core.failed += core.in_flight
    core.in_flight = 0
    pair.active = 0
    if pair.is_exclusive:
        pair.is_exclusive = False
    for slot in pair.all_slots or (pair,):
        if slot.batch is not None:
            if core.shape.observed:
                _report_abandoned(pair, slot)
            effects.cut.append(slot.batch)
        effects.cut += slot.parts or ()
        slot.batch = slot.parts = slot.first = None
    if pair.free_slots is not None:
        pair.free_slots = list(pair.all_slots)
        if pair.limiter is not None:
            pair.limiter.reset(pair.free_slots)


def _is_full(pair: Pair) -> bool:
    """Make pushes count up to a full batch; return whether it is full. Under the lock.

    Then no timer is set, which would wake the thread of the clock for nothing.
    """
    cancel_timer(pair)
    if pair.core.due is not None:
        more = pair.core.behaviour.until_full()
        if more is not None:
            pair.threshold = min(pair.threshold, more * pair.core.shape.width)
            pair.counting[:] = (None,)
    return len(pair.core.raw) >= pair.threshold and pair.mode is None


def _set_timer(pair: Pair) -> None:
    """Set a timer for when the held messages may leave. Under the lock."""
    due = pair.core.due
    if due is not None:
        pair.timer = pair.settings.clock.call_at(due, pair.on_due)


def reset_threshold(pair: Pair) -> None:
    """Let pushes ring when there is much to fold, or not at all."""
    shape = pair.core.shape
    pair.threshold = fold_at(shape) * shape.width if shape.folds else NEVER
    if shape.timed:
        pair.counting[:] = (None,) * shape.folds


def cancel_timer(pair: Pair) -> None:
    """Wait for no moment any more. Under the lock."""
    reset_threshold(pair)
    if pair.timer is not None:
        pair.timer.cancel()
        pair.timer = None


# Slots.


def schedule(pair: Pair, event: PairEvent, effects: Effects) -> None:
    """Apply an event; free slots are submitted for what there is to do. Under the lock."""
    _schedule_slot(pair, event, effects)
    if pair.free_slots:
        fill(pair, effects)


def schedule_start(pair: Pair, effects: Effects) -> None:
    """Submit a slot that calls `on_start`. Under the lock."""
    begin_task(pair, pair, Order.ON_START)
    effects.slots.append(pair)


def _schedule_slot(pair: Pair, event: PairEvent, effects: Effects) -> bool:
    """Apply an event with one free slot; return whether it has something to do."""
    slot = free_slot(pair)
    apply(pair, event, effects, slot)
    if slot is None:
        return False
    if slot.first is None:
        release_slot(pair, slot)
        return False
    effects.slots.append(slot)
    return True


def next_task(pair: Pair, slot: Any, event: PairEvent, effects: Effects) -> SlotTask | None:
    """Let the machine decide what a slot does after an event. Under the lock."""
    apply(pair, event, effects, slot)
    task: SlotTask | None = slot.first
    slot.first = None
    if task is None:
        release_slot(pair, slot)
    if pair.free_slots:
        fill(pair, effects)
    return task


def after(pair: Pair, slot: Any, event: PairEvent = DONE) -> tuple[SlotTask | None, Effects]:
    """Return what a slot does next that has finished something. Under the lock."""
    slot.batch = None
    pair.active -= 1
    if pair.is_exclusive:
        pair.is_exclusive = False
    effects = Effects()
    if pair.limiter is not None and pair.active >= pair.limiter.limit:
        release_slot(pair, slot)  # the limit was lowered; batches under way go on
        return None, effects
    return next_task(pair, slot, event, effects), effects


def fill(pair: Pair, effects: Effects) -> None:
    """Start more batches while there is room for them. Under the lock."""
    while pair.free_slots:
        if pair.state is RUNNING:
            event = PUSHED
        elif pair.state is STOPPING:
            event = DUE
        else:
            return
        if not _schedule_slot(pair, event, effects):
            return


def free_slot(pair: Pair) -> Any:
    """Return a slot that may be given work, or `None`. Under the lock."""
    if pair.free_slots is not None:
        return pair.free_slots.pop() if pair.free_slots else None
    return pair if pair.first is None and not pair.active else None


def release_slot(pair: Pair, slot: Any) -> None:
    """Return a slot that has nothing to do. Under the lock."""
    if pair.free_slots is not None:
        pair.free_slots.append(slot)
        if pair.limiter is not None:
            pair.limiter.balance(pair.free_slots, pair.active)


# Messages that the job gets again: retries that have to wait, where their policy backs off or the
# behaviour limits a rate, and messages that it has answered with `Again`.


def waits(pair: Pair, slot: Any, generation: int, part: Batch) -> bool:
    """Return whether a batch that failed has to wait; then the slot goes on later. Under the lock.

    Its time is computed once, because the behaviour charges for each time that it is asked.
    """
    settings, core = pair.settings, pair.core
    now = settings.clock.now()
    if part.not_before is None:
        part.not_before = now
        if settings.delay is not None:
            part.not_before += settings.delay(part)
        if core.shape.paces:
            due = core.behaviour.retry_at(part.messages(), now)
            part.not_before = max(part.not_before, due)
    if part.not_before <= now:
        part.not_before = None
        return False
    settings.clock.call_at(part.not_before, partial(_run_again, pair, slot, generation))
    return True


def _run_again(pair: Pair, slot: Any, generation: int) -> None:
    """Run a batch that has waited. In the clock's thread."""
    task = pair.next_part(slot, generation)
    if task is not None:
        pair.postpone(slot, generation, task)


def reenter(pair: Pair, generation: int, batch: Batch, answers: Any, count: int) -> None:
    """Put the messages that the job has answered with `Again` back into the behaviour."""
    places = {at for at in range(count) if type(answers[at]) is Again}
    if not places:
        return
    callers: dict[int, list[Any]] = {at: [] for at in places}
    kept = []
    while batch.tickets:
        at, ticket = batch.tickets.pop()
        if at in places:
            callers[at].append(ticket)
        else:
            kept.append((at, ticket))
    if batch.tickets is not None:
        batch.tickets += reversed(kept)
    refused: list[tuple[Any, Exception]] = []
    with pair.lock:
        if generation != pair.generation:
            gone = pair.lifecycle.dead_error()
            refused = [(ticket, gone) for tickets in callers.values() for ticket in tickets]
        else:
            now = pair.timed_now()
            pair.core.fold(now)
            for at in sorted(places):
                tickets = tuple(callers[at])
                message = answers[at].message
                try:
                    pair.core.reenter(message, tickets, now)
                except Exception as error:  # noqa: BLE001 - a refusal concerns this message alone
                    refused += [(ticket, error) for ticket in tickets]
                    if not tickets:
                        pair.core.note_refusal((message,), error)
    for ticket, why in refused:
        ticket.resolve(why)
