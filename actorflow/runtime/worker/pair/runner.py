"""The one run loop: what an executor does in its lane, step by step.

A *slot* runs one task at a time: a batch, an answer to mail, or a hook. What the user's code
returns may have to be waited for (a coroutine, a `Deferred`); then the loop ends here and goes on
when that is done. No thread waits.
"""

from __future__ import annotations

import inspect
import sys
import time
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import MessageOutcome
from actorflow.behaviours.errors import brief
from actorflow.runtime.actor.answers import ActorStop, reply, reply_error
from actorflow.runtime.errors import BadJob
from actorflow.runtime.exits import Crash, Normal, Stop
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.log import log
from actorflow.runtime.registry import CURRENT
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, let_callers_run
from actorflow.runtime.worker.job.answers import Again, Answers
from actorflow.runtime.worker.job.batch import Batch
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.pair.accumulation import LONG, NEVER
from actorflow.runtime.worker.pair.interface import Effects
from actorflow.runtime.worker.pair.requests import ended, preempted, request_stop, stop_from_within
from actorflow.runtime.worker.pair.states import IDLE, PUSHED, RUNNING, StopMode
from actorflow.runtime.worker.pair.transitions import fill, reenter, schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.worker.pair.interface import Pair, Slot

UNKNOWN = object()
"""The outcome of a job whose caller was interrupted."""

__all__ = ["current_batch", "help_with", "pause", "run"]

_ROUNDS = (None,) * 16  # one for each task that a pair performs before it lets others run
_ONCE = (None,)

pause = partial(time.sleep, 0.0)
"""Let other threads have the interpreter."""


class _Raised:
    """What user code raised: a private type, which users cannot return by accident."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


_SPECIAL = (Answers, Deferred, Stop, _Raised, CoroutineType)
_ORDINARY = frozenset({int, float, str, bytes, tuple, list, dict, set})
"""Types of most states: that they are not special needs no long look."""


def run(pair: Pair, slot: Any = None) -> None:
    """Perform the tasks of a slot, for a while; by default, of one that is free.

    Only the lane calls this. A pair that runs one batch at a time is its own slot.
    """
    if slot is None:
        slot = pair if pair.free_slots is None else _next_slot(pair)
        if slot is None:
            return
    before = CURRENT.set(slot)
    generation = pair.generation
    try:
        _perform(pair, slot, generation, pair.begin(slot, generation))
    except BaseException as error:  # noqa: BLE001 - a policy or behaviour, outside the job
        pair.lifecycle.crashed(generation, error)
    finally:
        CURRENT.reset(before)


def _next_slot(pair: Pair) -> Slot | None:
    """Return a free slot with something to do, where there are several."""
    effects = Effects()
    with pair.lock:
        slot = _begin_slot(pair, effects)
    pair.conclude(effects)
    return slot


def _begin_slot(pair: Pair, effects: Effects) -> Slot | None:
    """Return a free slot with something to do, where there are several. Under the lock."""
    core = pair.core
    working = pair.state is IDLE or pair.state is RUNNING
    at_rest = not (pair.mail or pair.is_exclusive or len(core.behaviour))
    if pair.is_fifo and pair.free_slots and working and at_rest and len(core.raw) <= LONG:
        count = NEVER if pair.active else pair.first_batch_size
        pair.first_batch_size = 1
        batch = pair.cut_fifo(count)
        if batch is not None:
            slot = pair.free_slots.pop()
            pair.begin_fifo(slot, batch, pair.settings.clock.now())
            slot.first = batch
            if pair.keep_room():
                fill(pair, effects)
            return slot
    schedule(pair, PUSHED, effects)
    return effects.slots.pop(0) if effects.slots else None


def _perform(  # noqa: C901 - the run loop: the commonest case comes first
    pair: Pair, slot: Any, generation: int, task: Any, rounds: tuple[None, ...] = _ROUNDS
) -> None:
    """Perform tasks until none is left, one has to be waited for, or others want to run."""
    for _ in rounds:
        if type(task) is not Batch:
            if task is None:
                return
            task = _do(pair, slot, generation, task)
            continue
        outcome = call(pair, task)
        if type(outcome) is Deferred:
            if not outcome.resolved:
                outcome.then(partial(_resolved, pair, slot, generation, task))
                return
            outcome = _result_of(pair, outcome)  # no need to leave the loop
        plain = outcome is None and slot.parts is None and not pair.settings.verbose
        if not plain:
            if type(outcome) is Answers:
                task = _answer(pair, slot, generation, task, outcome)
                continue
            if not _is_state(pair, slot, outcome):
                task = _settle(pair, slot, generation, task, outcome)
                outcome = None  # the traceback of an error in it refers to this frame
                continue
        batch, task = task, pair.done(slot, generation, task, outcome)
        if batch.tickets is not None:
            batch.resolve()
    if task is not None:
        pair.postpone(slot, generation, task)


def _is_state(pair: Pair, slot: Any, outcome: Any) -> bool:
    """Return whether the outcome of a batch is the new state, and needs no checks."""
    if outcome is None:
        return not pair.settings.verbose and slot.parts is None
    if pair.settings.checks or (type(outcome) not in _ORDINARY and isinstance(outcome, _SPECIAL)):
        return False
    return slot.parts is None


def call(pair: Pair, batch: Batch) -> Any:
    """Call the job with a batch: the only place that does. Return the outcome."""
    payload = batch.payload
    if pair.settings.reruns and type(payload) is list:
        payload = payload[:]  # it may be run again, and a job may empty it before it raises
    handle: Any = pair.handle
    try:
        return handle(payload, pair.value)
    except BaseException as error:  # noqa: BLE001 - every way out of a job ends here
        return _Raised(error)


def call_helped(pair: Pair, batch: Batch) -> Any:
    """Like `call`, in the main thread for a caller that helps.

    Run it in a context of its own, which one C call leaves again: an interrupt cannot leave the
    main thread behind as if it was still in the job.
    """
    CURRENT.set(pair)
    return call(pair, batch)


def is_plain(outcome: Any) -> bool:
    """Return whether an outcome of the job is just the new state."""
    return not isinstance(outcome, _SPECIAL)


def conclude_help(pair: Pair, generation: int, batch: Batch, outcome: Any) -> None:
    """Settle a batch that a helping caller has run, and leave the rest to the lane."""
    if outcome is UNKNOWN:
        outcome = _Raised(KeyboardInterrupt("the caller that ran the job was interrupted"))
    task = _settle(pair, pair, generation, batch, outcome)
    if task is not None:
        pair.postpone(pair, generation, task)


def help_with(pair: Pair, generation: int, task: Any) -> None:
    """Perform one task in the thread of a caller who waits for it; leave the rest to the lane."""
    before = CURRENT.set(pair)
    try:
        _perform(pair, pair, generation, task, _ONCE)
    except BaseException as error:  # noqa: BLE001 - as in `run`
        pair.lifecycle.crashed(generation, error)
    finally:
        CURRENT.reset(before)


# Batches that end in another way than by returning a state.


def _settle(pair: Pair, slot: Any, generation: int, batch: Batch, outcome: Any) -> Any:
    """Finish a batch whose job raised, answers, wants to stop, or needs time; return the next task.

    Also every batch of a job whose outcome has to be checked, because it keeps no state.
    """
    if type(outcome) is Answers:  # before all others, because callers wait
        return _answer(pair, slot, generation, batch, outcome)
    if isinstance(outcome, (CoroutineType, Deferred)):
        if type(outcome) is CoroutineType and not pair.settings.asynchronous:
            outcome.close()
            outcome = _Raised(BadJob(_NEVER_AWAITED.format(pair.settings.title)))
        elif type(outcome) is Deferred and outcome.resolved:
            return _settle(pair, slot, generation, batch, _result_of(pair, outcome))
        else:
            _wait(outcome, partial(_settled_later, pair, slot, generation, batch))
            return None
    stop: Stop | None = None
    if type(outcome) is _Raised and issubclass(type(outcome.error), Stop):
        stop, outcome = outcome.error, None  # type: ignore[assignment] # it is one
    elif isinstance(outcome, Stop):
        stop, outcome = outcome, None
    if type(outcome) is not _Raised:
        outcome = pair.settings.checked(outcome)
    if type(outcome) is _Raised or isinstance(outcome, BadJob):
        error = outcome if isinstance(outcome, BadJob) else outcome.error
        return _recover(pair, slot, generation, batch, error)
    if stop is not None:
        pair.finished(slot, generation, batch, pair.value)
        batch.resolve()
        stop_from_within(pair, generation, stop.reason)
        return pair.next(slot, generation)
    return _processed(pair, slot, generation, batch, outcome)


def _processed(pair: Pair, slot: Any, generation: int, batch: Batch, state: Any) -> Any:
    if pair.settings.verbose:
        took = round(pair.settings.clock.now() - slot.span[2], 6)
        reason = batch.reason.value
        log.debug("batch", worker=repr(pair), size=batch.size, reason=reason, seconds=took)
    if slot.parts is not None:
        pair.finished(slot, generation, batch, state)
        batch.resolve()
        return pair.next_part(slot, generation)
    task = pair.done(slot, generation, batch, state)
    batch.resolve()
    return task


_NEVER_AWAITED = (
    "{} is a plain function that returned a coroutine, which nobody awaits; give the coroutine "
    "function itself, or make the job an async def"
)


def _result_of(pair: Pair, deferred: Deferred) -> Any:
    """Return the result of a `Deferred` that is resolved."""
    if deferred.error is not None:
        return _Raised(deferred.error)
    return None if deferred.result is None else _final(pair, deferred.result)


def _final(pair: Pair, outcome: Any) -> Any:
    """Return the result of a coroutine or a `Deferred`, which must not be another one."""
    if type(outcome) in (CoroutineType, Deferred):
        return _Raised(BadJob(f"the job of {pair!r} returned {brief(outcome)} in the end"))
    return outcome


def _resolved(  # noqa: PLR0917 - the last two are what a `Deferred` passes
    pair: Pair,
    slot: Any,
    generation: int,
    batch: Batch,
    error: BaseException | None,
    result: Any,
) -> None:
    """Go on after a `Deferred`, in the thread that has resolved it."""
    if error is not None or not _is_state(pair, slot, result):
        outcome = result if error is None else _Raised(error)
        _settled_later(pair, slot, generation, batch, outcome)
        return
    try:
        task = pair.done(slot, generation, batch, result)
        if batch.tickets is not None:
            batch.resolve()
    except BaseException as failure:  # noqa: BLE001 - as in `run`: a behaviour
        pair.lifecycle.crashed(generation, failure, batch)
        return
    if task is not None:
        pair.postpone(slot, generation, task)


def _settled_later(pair: Pair, slot: Any, generation: int, batch: Batch, outcome: Any) -> None:
    """Go on after a coroutine or a `Deferred`, in the thread that has finished it."""
    try:
        task = _settle(pair, slot, generation, batch, _final(pair, outcome))
    except BaseException as error:  # noqa: BLE001 - as in `run`: a policy or behaviour
        pair.lifecycle.crashed(generation, error, batch)
        return
    if task is not None:
        pair.postpone(slot, generation, task)


def _answer(pair: Pair, slot: Any, generation: int, batch: Batch, given: Answers) -> Any:
    """Resolve each caller with its own answer; exceptions among them fail those messages alone."""
    problem = given.problem(batch.items(), pair.settings.concurrency)
    count = len(batch.messages())  # what fills up the batch has no caller
    if count < batch.size and batch.tickets and batch.tickets[0][0] >= count:
        problem = _REMOVED.format(count)
    if problem is not None:
        return _recover(pair, slot, generation, batch, BadJob(problem))
    answers = given.answers
    if not pair.answers:
        pair.answers = True
    special = [at for at in range(count) if isinstance(answers[at], (BaseException, Again))]
    failures = [at for at in special if isinstance(answers[at], BaseException)]
    if len(failures) < len(special):
        reenter(pair, generation, batch, answers, count)
    if failures:
        parts = batch.singles(failures)
        failed: list[Batch] = []
        outcomes = [MessageOutcome.PROCESSED] * count
        for at, part in zip(failures, parts, strict=True):
            part.attempt += 1
            again = pair.settings.policy.parts(part)
            outcomes[at] = MessageOutcome.RETRIED if again else MessageOutcome.FAILED
            if again:
                failed += again
            else:
                _give_up(pair, generation, part, answers[at])
        batch.outcomes = outcomes
        slot.parts = [*(slot.parts or ()), *reversed(failed)]
    if slot.parts is None and not _several_wait(pair, batch):
        task = pair.done(slot, generation, batch, given.state)
        batch.answer(answers)
        return task
    if slot.parts is None:  # callers that were just answered ask again, and join the next batch
        pair.finished(slot, generation, batch, given.state)
        caller = batch.tickets[0][1] if batch.tickets else None
        batch.answer(answers)
        let_callers_run(caller)
        return pair.next(slot, generation)
    pair.finished(slot, generation, batch, given.state)
    batch.answer(answers)
    return pair.next_part(slot, generation)


_REMOVED = (
    "the job has removed messages from its batch, and its {} answers cannot be matched with the "
    "callers; let it change a copy, as in left = list(batch)"
)


def _several_wait(pair: Pair, batch: Batch) -> bool:
    """Return whether several callers wait, for this batch or the next one.

    Taking the next batch before they are woken would split them into two groups that take turns.
    """
    tickets = batch.tickets
    if not tickets or type(tickets[0][1]) not in (ThreadTicket, AsyncTicket):
        return False
    return pair.limiter is None and (len(tickets) > 1 or bool(pair.core.raw))


def _is_contained(error: BaseException) -> bool:
    """Return whether a failure policy deals with it; SystemExit and the like end the executor.

    Awaiting a task that others cancelled is a failure of the batch, although no `Exception`.
    """
    if isinstance(error, Exception):
        return True
    asyncio = sys.modules.get("asyncio")  # cannot be raised before it is loaded
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def _recover(pair: Pair, slot: Any, generation: int, batch: Batch, error: BaseException) -> Any:
    """Deal with a batch that failed, as the policy says; return the next task."""
    if generation != pair.generation:
        return None
    contained = _is_contained(error)
    if batch.cancelled and contained:
        return preempted(pair, slot, generation, batch, error)
    policy = pair.settings.policy
    batch.attempt += 1
    parts = policy.parts(batch) if contained and pair.settings.reruns else None
    if parts:
        _report_failure(pair, slot, generation, batch, MessageOutcome.RETRIED)
        slot.parts = [*(slot.parts or ()), *reversed(parts)]
        return pair.next_part(slot, generation)
    _report_failure(pair, slot, generation, batch, MessageOutcome.FAILED)
    if policy.buries and contained:
        _give_up(pair, generation, batch, error)
        return pair.next_part(slot, generation)
    pair.lifecycle.crashed(generation, error, batch)
    return None


def _report_failure(
    pair: Pair, slot: Any, generation: int, batch: Batch, outcome: MessageOutcome
) -> None:
    """Tell a behaviour that learns from calls that one has failed."""
    if pair.core.shape.observed:
        end = pair.settings.clock.now()
        with pair.lock:
            if generation == pair.generation:
                pair.core.report(batch, end - slot.span[2], outcome)


def _count_failed(pair: Pair, generation: int, batch: Batch, *, buried: bool) -> bool:
    """Count messages that failed; return whether they were still in flight."""
    core = pair.core
    with pair.lock:
        if generation != pair.generation:
            return False
        core.in_flight -= batch.size
        if buried:
            core.dead_lettered += batch.size
        else:
            core.failed += batch.size
    return True


def _give_up(pair: Pair, generation: int, batch: Batch, error: BaseException) -> None:
    """Count messages whose failure is theirs alone, and tell their callers."""
    buries = pair.settings.policy.buries and _is_contained(error)
    if not _count_failed(pair, generation, batch, buried=buries):
        return
    if buries:
        for message in batch.messages():
            pair.lifecycle.dead_letters.bury(message, error)
        if not pair.lifecycle.durable:  # its owner knows the message by another name
            log.error(
                "message dead-lettered", worker=repr(pair), error=brief(error), exc_info=error
            )
    batch.resolve(error)


# Mail and hooks.


def _do(pair: Pair, slot: Any, generation: int, task: Any) -> Any:
    """Perform a task other than a batch; return the next task."""
    kind = getattr(task, "value", None)
    subject = pair.lifecycle.subject
    if kind is None:
        pair.lifecycle.crashed(generation, task.error)
        return None
    if kind == "serve":
        return _serve(pair, slot, generation)
    hook: Callable[[], Any] = getattr(subject, kind, Stop if kind == "on_idle" else lambda: None)
    after = {"on_idle": _idled, "on_start": _started, "on_stop": _stopped}[kind]
    return _call(pair, hook, partial(after, pair, slot, generation), slot, generation)


def _call(
    pair: Pair,
    hook: Callable[[], Any],
    after: Callable[[Any], Any],
    slot: Any,
    generation: int,
) -> Any:
    """Call user code other than the job; `after(outcome)` returns the next task."""
    try:
        outcome = hook()
    except BaseException as error:  # noqa: BLE001 - `after` knows what it means
        outcome = _Raised(error)
    if inspect.isawaitable(outcome) and pair.settings.asynchronous:
        _wait(outcome, partial(_go_on_later, pair, slot, generation, after))
        return None
    return after(outcome)


def _go_on_later(
    pair: Pair, slot: Any, generation: int, after: Callable[[Any], Any], outcome: Any
) -> None:
    task = after(outcome)
    if task is _NEXT:
        task = _serve(pair, slot, generation)
    if task is not None:
        pair.postpone(slot, generation, task)


def _reason(outcome: Any) -> Any:
    """Return why a hook wants the executor to end, if it does."""
    if type(outcome) is _Raised:
        if isinstance(outcome.error, Stop):
            return outcome.error.reason
        return Crash(outcome.error)
    return outcome.reason if isinstance(outcome, Stop) else None


def _started(pair: Pair, slot: Any, generation: int, outcome: Any) -> Any:
    reason = _reason(outcome)
    if reason is None:
        return pair.lifecycle.started(slot, generation)
    pair.lifecycle.start_failed(generation, reason)
    return None


def _idled(pair: Pair, slot: Any, generation: int, outcome: Any) -> Any:
    reason = _reason(outcome)
    if isinstance(reason, Crash):
        pair.lifecycle.crashed(generation, reason.exception)
        return None
    if reason is not None:  # messages that have arrived meanwhile are not lost
        stop_from_within(pair, generation, reason, StopMode.DRAIN)
    return pair.next(slot, generation)


def _stopped(pair: Pair, _slot: Any, generation: int, outcome: Any) -> None:
    if type(outcome) is _Raised:
        error = outcome.error
        log.error("on_stop failed", worker=repr(pair), error=brief(error), exc_info=error)
    ended(pair, generation)


def _serve(pair: Pair, slot: Any, generation: int) -> Any:
    """Answer messages from `tell`, `ask` or a proxy, one after the other."""
    while pair.mail and generation == pair.generation:
        executor = pair.lifecycle.executor
        try:
            with pair.lock:  # an executor that is killed takes no mail, and what it took is refused
                if generation != pair.generation:
                    break
                envelope = pair.mail.popleft()
                if type(envelope.message) is not ActorStop:
                    executor.asked = envelope.reply_to
        except IndexError:
            break  # the callers have been resolved
        if type(envelope.message) is ActorStop:
            _stop_asked(pair, envelope.reply_to)
            continue
        after = partial(_served, pair, generation, executor, envelope.reply_to)
        task = _call(pair, partial(executor.receive, envelope.message), after, slot, generation)
        if task is not _NEXT:
            return task
    return pair.next(slot, generation)


_NEXT = object()


def _served(pair: Pair, generation: int, executor: Any, reply_to: Any, outcome: Any) -> Any:
    """Pass an answer on; return the next task: more mail, or nothing after a crash."""
    executor.asked = None
    reason = _reason(outcome)
    if reason is None:
        if reply_to is not None:
            reply(reply_to, outcome)
    elif isinstance(reason, Crash):
        error = reason.exception
        if reply_to is not None:
            reply_error(reply_to, error)
        contained = _is_contained(error) and executor.ask_failures == "reply"
        if reply_to is None or not contained:
            pair.lifecycle.crashed(generation, error)
            return None
    elif generation == pair.generation:
        stop_from_within(pair, generation, reason)
        _stop_asked(pair, reply_to)
    return _NEXT


def _stop_asked(pair: Pair, reply_to: Any) -> None:
    """Drain and end, as pykka's stop message asks; answer when that is done."""
    if reply_to is not None:
        pair.lifecycle.watch(lambda _ref, _reason: reply(reply_to, None))
    request_stop(pair, StopMode.DRAIN, Normal())


# Waiting without a thread.


def _wait(outcome: Any, then: Callable[[Any], None]) -> None:
    """Call `then` with the result of a coroutine or a `Deferred`."""
    if type(outcome) is Deferred:
        outcome.then(partial(_deferred, then))
    else:
        LOOP.spawn(partial(_await, outcome, then, CURRENT.get()))


def _deferred(then: Callable[[Any], None], error: BaseException | None, result: Any) -> None:
    then(result if error is None else _Raised(error))


async def _await(outcome: Any, then: Callable[[Any], None], slot: Any) -> None:
    CURRENT.set(slot)
    result: Any
    try:
        result = await outcome
    except BaseException as error:  # noqa: BLE001 - `then` knows what it means
        result = _Raised(error)
    then(result)


def current_batch() -> Batch | None:
    """Return the batch that the calling job is processing; `None` outside a job.

    `reason` says why it left, `attempt` how often it was tried.
    """
    slot = CURRENT.get()
    return getattr(slot, "batch", None)
