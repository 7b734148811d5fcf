"""`help=True`: a caller that waits for an idle worker runs the batch itself.

A part of the accumulator, whose private names it shares. A caller in the main thread can be
interrupted between any two bytecodes; the shelter then finishes what it has begun.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.shelter import SHELTER, in_main_thread
from actorflow.runtime.worker.metrics import Timing
from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.batch import Batch
from actorflow.runtime.worker.pair.machine import IDLE, PUSHED, RUNNING
from actorflow.runtime.worker.pair.transitions import Effects, Task, apply, schedule

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.accumulator import Accumulator
    from actorflow.runtime.worker.pair.batch import Ticket

__all__ = ["help_out"]


def help_out(pair: Accumulator, message: Any, ticket: Ticket | None) -> bool:
    """Process a message in this thread, if the executor is idle; return whether it did."""
    if pair.lock._is_owned():  # type: ignore[attr-defined] # `_refuse_own_functions`, inlined
        raise pair._deadlock()
    if in_main_thread():
        return pair._plain and _help_in_main_thread(pair, message, ticket)
    effects = None
    with pair.lock:
        if pair.mode is not None or pair.exit_reason is not None:
            raise pair.life.dead_error()
        if pair.state is not IDLE or not pair.idle or pair.core.raw or pair.mail:
            return False
        if pair._seats is not None:
            return False
        task: Task | None
        if pair._plain:
            core = pair.core
            task = Batch([message], 1, None if ticket is None else [(0, ticket)])
            _begin_help(pair, task, core.folded + 1, core.batches + 1)
        elif pair._line:
            now = pair._since = pair.settings.clock.now()
            task = pair._batch([message], None if ticket is None else [(0, ticket)])
            pair._begin_line(pair, task, now)
            pair.idle.clear()
        else:
            pair._since = pair.settings.clock.now()
            pair.core.offer(message, ticket, pair._now())
            pair.idle.clear()
            effects = Effects()
            apply(pair, PUSHED, effects, pair)
            task, pair.first = pair.first, None
        generation = pair.generation
    if task is not None:
        runner.help_with(pair, generation, task)
    if effects is not None:
        pair.conclude(effects)
    return True


def _help_in_main_thread(  # noqa: C901 - steps that an interrupt can strike between
    pair: Accumulator, message: Any, ticket: Ticket | None
) -> bool:
    """Like `help`, for a plain line, in steps that an interrupt can strike between.

    While the batch is in flight nobody else changes what is set here, so the shelter can set
    it once more. An interrupt in the job itself is a failure of the job.
    """
    core = pair.core
    batch = Batch([message], 1, None if ticket is None else [(0, ticket)])
    generation = pair.generation
    folded, processed, batches = core.folded + 1, core.processed + 1, core.batches + 1
    outcome: Any = runner.UNKNOWN
    try:
        with pair.lock:
            if pair.state is not IDLE or pair.mode is not None or not pair.idle:
                return False
            if core.raw or pair.mail or pair.active or core.folded + 1 != folded:
                return False
            if generation != pair.generation:
                return False
            try:
                begun = _begin_help(pair, batch, folded, batches)
            except BaseException:  # the job has not been called: as if nothing had happened
                _end_help(pair)
                core.folded, core.batches = folded - 1, batches - 1
                raise
        outcome = copy_context().run(runner.call_helped, pair, batch)
        clock = pair.settings.now
        end = clock()
        if (outcome is None or runner.is_plain(outcome)) and not pair.settings.checks:
            with pair.lock:
                if generation == pair.generation and pair.mode is None:
                    pair.value = outcome
                    core.processed, core.in_flight = processed, 0
                    if not (core.raw or pair.mail):
                        try:
                            _end_help(pair)
                        except BaseException:
                            _end_help(pair)
                            raise
                        # Last: an interrupt costs this measurement, and nothing else.
                        if pair._timing is None:
                            pair._timing = Timing()
                        pair._timing.finished(batches, 1, (begun, begun, begun), end)
        if pair.batch is batch or core.raw or pair.mail:
            SHELTER.run(_finish_help, pair, batch, generation, outcome, processed)
    except BaseException:  # not `finally`, which an interrupt could strike before it begins
        SHELTER.run(_finish_help, pair, batch, generation, outcome, processed)
        raise
    batch.resolve()
    return True


def _begin_help(pair: Accumulator, batch: Batch, folded: int, batches: int) -> float:
    """Note that a helping caller runs a batch, and return the time. Under the lock."""
    pair.batch = batch
    pair.state, pair.active, pair.core.in_flight = RUNNING, 1, 1
    pair.core.folded, pair.core.batches = folded, batches
    clock = pair.settings.now
    now = pair._since = clock()
    pair.span = (now, now, now)
    pair.idle.clear()
    return now


def _end_help(pair: Accumulator) -> None:
    """Go idle after a helping caller. Under the lock; idempotent."""
    pair.batch, pair.active, pair.core.in_flight = None, 0, 0
    pair.state = IDLE
    pair.idle[:] = (pair,)


def _finish_help(
    pair: Accumulator, batch: Batch, generation: int, outcome: Any, processed: int
) -> None:
    """Finish what `_help_in_main_thread` has begun. In the shelter."""
    with pair.lock:
        effects = Effects()
        unfinished = pair.batch is batch and generation == pair.generation
        if not unfinished:
            if pair.state is IDLE and pair.idle and (pair.core.raw or pair.mail):
                pair.idle.clear()
                schedule(pair, PUSHED, effects)
        else:  # set once more, whatever was set before the interrupt
            pair.state, pair.active, pair.core.in_flight = RUNNING, 1, batch.size
            pair.core.processed = processed - 1
            pair.idle.clear()
            now = pair.settings.clock.now()
            pair.span = pair.span or (now, now, now)
    if unfinished:
        runner.conclude_help(pair, generation, batch, outcome)
    else:
        pair.conclude(effects)
