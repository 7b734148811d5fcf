"""The one run loop: what an executor does in its lane, step by step.

A *seat* runs one task at a time: a batch, an answer to mail, or a hook. What the user's code
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

from actorflow.runtime.actor.answers import ActorStop, reply, reply_error
from actorflow.runtime.actor.current import CURRENT
from actorflow.runtime.errors import BadJob
from actorflow.runtime.exits import Crash, Normal, Stop
from actorflow.runtime.lanes.loop import LOOP
from actorflow.runtime.log import log
from actorflow.runtime.worker.job.answers import Answers
from actorflow.runtime.worker.job.deferred import Deferred
from actorflow.runtime.worker.pair.batch import Batch
from actorflow.runtime.worker.pair.machine import StopMode
from actorflow.runtime.worker.pair.stopping import ended, request_stop, stop_from_within
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.worker.job.executor import ExecutorActor
    from actorflow.runtime.worker.pair.accumulator import Accumulator

UNKNOWN = object()
"""The outcome of a job whose caller was interrupted."""

__all__ = ["current_batch", "help_with", "pause", "run"]

_ROUNDS = (None,) * 16  # one for each task that a pair performs before it lets others run
_ONCE = (None,)
_PAUSE = 0.0

pause = partial(time.sleep, _PAUSE)
"""Let other threads have the interpreter."""


class _Raised:
    """What user code raised: a private type, which users cannot return by accident."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


_SPECIAL = (Answers, Deferred, Stop, _Raised, CoroutineType)
_ORDINARY = frozenset({int, float, str, bytes, tuple, list, dict, set})
"""Types of most states: that they are not special needs no long look."""


def run(pair: Accumulator, seat: Any = None) -> None:
    """Perform the tasks of a seat, for a while; by default, of one that is free.

    Only the lane calls this. A pair that runs one batch at a time is its own seat.
    """
    if seat is None:
        seat = pair if pair._seats is None else pair.next_seat()
        if seat is None:
            return
    before = CURRENT.set(seat)
    generation = pair.generation
    try:
        _perform(pair, seat, generation, pair.begin(seat, generation))
    except BaseException as error:  # noqa: BLE001 - a policy or behaviour, outside the job
        pair.life.crashed(generation, error)
    finally:
        CURRENT.reset(before)


def _perform(  # noqa: C901 - the run loop: what is commonest comes first
    pair: Accumulator, seat: Any, generation: int, task: Any, rounds: tuple[None, ...] = _ROUNDS
) -> None:
    """Perform tasks until there is none, one has to be waited for, or others want to run."""
    for _ in rounds:
        if type(task) is not Batch:
            if task is None:
                return
            task = _do(pair, seat, generation, task)
            continue
        outcome = call(pair, task)
        if type(outcome) is Deferred:
            if not outcome.resolved:
                outcome.then(partial(_resolved, pair, seat, generation, task))
                return
            outcome = _result_of(pair, outcome)  # no need to leave the loop
        plain = outcome is None and seat.parts is None and not pair.settings.verbose
        if not plain:
            if type(outcome) is Answers:
                task = _answer(pair, seat, generation, task, outcome)
                continue
            if not _is_state(pair, seat, outcome):
                task = _settle(pair, seat, generation, task, outcome)
                outcome = None  # the traceback of an error in it refers to this frame
                continue
        batch, task = task, pair.done(seat, generation, task, outcome)
        if batch.tickets is not None:
            batch.resolve()
    if task is not None:
        pair.postpone(seat, generation, task)


def _is_state(pair: Accumulator, seat: Any, outcome: Any) -> bool:
    """Return whether what came of a batch is the new state, and nothing has to be checked."""
    if outcome is None:
        return not pair.settings.verbose and seat.parts is None
    if pair.settings.checks or (type(outcome) not in _ORDINARY and isinstance(outcome, _SPECIAL)):
        return False
    return seat.parts is None


def call(pair: Accumulator, batch: Batch) -> Any:
    """Call the job with a batch: the only place that does. Return what came of it."""
    payload = batch.payload
    if pair.settings.reruns and type(payload) is list:
        payload = payload[:]  # it may be run again, and a job may empty it before it raises
    handle: Any = pair.handle
    try:
        return handle(payload, pair.value)
    except BaseException as error:  # noqa: BLE001 - every way out of a job ends here
        return _Raised(error)


def call_helped(pair: Accumulator, batch: Batch) -> Any:
    """Like `call`, in the main thread for a caller that helps.

    Run it in a context of its own, which one C call leaves again: an interrupt cannot leave the
    main thread behind as if it was still in the job.
    """
    CURRENT.set(pair)
    return call(pair, batch)


def is_plain(outcome: Any) -> bool:
    """Return whether an outcome of the job is just the new state."""
    return not isinstance(outcome, _SPECIAL)


def conclude_help(pair: Accumulator, generation: int, batch: Batch, outcome: Any) -> None:
    """Settle a batch that a helping caller has run, and leave the rest to the lane."""
    if outcome is UNKNOWN:
        outcome = _Raised(KeyboardInterrupt("the caller that ran the job was interrupted"))
    task = _settle(pair, pair, generation, batch, outcome)
    if task is not None:
        pair.postpone(pair, generation, task)


def help_with(pair: Accumulator, generation: int, task: Any) -> None:
    """Perform one task in the thread of a caller who waits for it; leave the rest to the lane."""
    before = CURRENT.set(pair)
    try:
        _perform(pair, pair, generation, task, _ONCE)
    except BaseException as error:  # noqa: BLE001 - as in `run`
        pair.life.crashed(generation, error)
    finally:
        CURRENT.reset(before)


# Batches that end in another way than by returning a state.


def _settle(pair: Accumulator, seat: Any, generation: int, batch: Batch, outcome: Any) -> Any:
    """Finish a batch whose job raised, answers, wants to stop, or needs time; return what is next.

    Also every batch of a job whose outcome has to be checked, because it keeps no state.
    """
    if type(outcome) is Answers:  # before all others, because callers wait
        return _answer(pair, seat, generation, batch, outcome)
    if isinstance(outcome, (CoroutineType, Deferred)):
        if type(outcome) is CoroutineType and not pair.settings.asynchronous:
            outcome.close()
            outcome = _Raised(BadJob(_NEVER_AWAITED.format(pair.settings.title)))
        elif type(outcome) is Deferred and outcome.resolved:
            return _settle(pair, seat, generation, batch, _result_of(pair, outcome))
        else:
            _wait(outcome, partial(_settled_later, pair, seat, generation, batch))
            return None
    stop: Stop | None = None
    if type(outcome) is _Raised and isinstance(outcome.error, Stop):
        stop, outcome = outcome.error, None
    elif isinstance(outcome, Stop):
        stop, outcome = outcome, None
    if type(outcome) is not _Raised:
        outcome = pair.settings.checked(outcome)
    if type(outcome) is _Raised or isinstance(outcome, BadJob):
        error = outcome if isinstance(outcome, BadJob) else outcome.error
        return _recover(pair, seat, generation, batch, error)
    if stop is not None:
        pair.finished(seat, generation, batch, pair.value)
        batch.resolve()
        stop_from_within(pair, generation, stop.reason)
        return pair.next(seat, generation)
    return _processed(pair, seat, generation, batch, outcome)


def _processed(pair: Accumulator, seat: Any, generation: int, batch: Batch, state: Any) -> Any:
    if pair.settings.verbose:
        took = round(pair.settings.clock.now() - seat.span[2], 6)
        reason = batch.reason.value
        log.debug("batch", worker=repr(pair), size=batch.size, reason=reason, seconds=took)
    if seat.parts is not None:
        pair.finished(seat, generation, batch, state)
        batch.resolve()
        return pair.next_part(seat, generation)
    task = pair.done(seat, generation, batch, state)
    batch.resolve()
    return task


_NEVER_AWAITED = (
    "{} is a plain function that returned a coroutine, which nobody awaits; give the coroutine "
    "function itself, or make the job an async def"
)


def _result_of(pair: Accumulator, deferred: Deferred) -> Any:
    """Return the result of a `Deferred` that is resolved."""
    if deferred.error is not None:
        return _Raised(deferred.error)
    return None if deferred.result is None else _final(pair, deferred.result)


def _final(pair: Accumulator, outcome: Any) -> Any:
    """Return the result of a coroutine or a `Deferred`, which must not be another one."""
    if type(outcome) in (CoroutineType, Deferred):
        return _Raised(BadJob(f"the job of {pair!r} returned {brief(outcome)} in the end"))
    return outcome


def _resolved(  # noqa: PLR0917 - the last two are what a `Deferred` passes
    pair: Accumulator,
    seat: Any,
    generation: int,
    batch: Batch,
    error: BaseException | None,
    result: Any,
) -> None:
    """Go on after a `Deferred`, in the thread that has resolved it."""
    if error is not None or not _is_state(pair, seat, result):
        outcome = result if error is None else _Raised(error)
        _settled_later(pair, seat, generation, batch, outcome)
        return
    try:
        task = pair.done(seat, generation, batch, result)
        if batch.tickets is not None:
            batch.resolve()
    except BaseException as failure:  # noqa: BLE001 - as in `run`: a behaviour
        pair.life.crashed(generation, failure, batch)
        return
    if task is not None:
        pair.postpone(seat, generation, task)


def _settled_later(
    pair: Accumulator, seat: Any, generation: int, batch: Batch, outcome: Any
) -> None:
    """Go on after a coroutine or a `Deferred`, in the thread that has finished it."""
    try:
        task = _settle(pair, seat, generation, batch, _final(pair, outcome))
    except BaseException as error:  # noqa: BLE001 - as in `run`: a policy or behaviour
        pair.life.crashed(generation, error, batch)
        return
    if task is not None:
        pair.postpone(seat, generation, task)


def _answer(pair: Accumulator, seat: Any, generation: int, batch: Batch, given: Answers) -> Any:
    """Resolve each caller with its own answer; exceptions among them fail those messages alone."""
    messages = batch.messages()
    problem = given.problem(messages, pair.settings.concurrency)
    if problem is not None:
        return _recover(pair, seat, generation, batch, BadJob(problem))
    answers = given.answers
    failures = [at for at, one in enumerate(answers) if isinstance(one, BaseException)]
    if failures:
        parts = batch.singles(failures)
        failed: list[Batch] = []
        for at, part in zip(failures, parts, strict=True):
            part.attempt += 1
            again = pair.settings.policy.parts(part)
            if again:
                failed += again
            else:
                _give_up(pair, generation, part, answers[at])
        seat.parts = [*(seat.parts or ()), *reversed(failed)]
    if seat.parts is None:
        task = pair.done(seat, generation, batch, given.state)
        batch.answer(answers)
        return task
    pair.finished(seat, generation, batch, given.state)
    batch.answer(answers)
    return pair.next_part(seat, generation)


def _is_contained(error: BaseException) -> bool:
    """Return whether a failure policy deals with it; SystemExit and the like end the executor.

    Awaiting what somebody else has cancelled is a failure of the batch, although no `Exception`.
    """
    if isinstance(error, Exception):
        return True
    asyncio = sys.modules.get("asyncio")  # nobody raises what is not loaded
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def _recover(
    pair: Accumulator, seat: Any, generation: int, batch: Batch, error: BaseException
) -> Any:
    """Deal with a batch that failed, as the policy says; return what is next."""
    if generation != pair.generation:
        return None
    policy = pair.settings.policy
    batch.attempt += 1
    contained = _is_contained(error)
    parts = policy.parts(batch) if contained and pair.settings.reruns else None
    if parts:
        seat.parts = [*(seat.parts or ()), *reversed(parts)]
        return pair.next_part(seat, generation)
    if policy.buries and contained:
        _give_up(pair, generation, batch, error)
        return pair.next_part(seat, generation)
    pair.life.crashed(generation, error, batch)
    return None


def _give_up(pair: Accumulator, generation: int, batch: Batch, error: BaseException) -> None:
    """Count messages whose failure is theirs alone, and tell their callers."""
    buries = pair.settings.policy.buries and _is_contained(error)
    if not pair.lost(generation, batch, buried=buries):
        return
    if buries:
        for message in batch.messages():
            pair.life.dead_letters.bury(message, error)
        if not pair.life.durable:  # its owner knows the message by another name
            log.error(
                "message dead-lettered", worker=repr(pair), error=brief(error), exc_info=error
            )
    batch.resolve(error)


# Mail and hooks.


def _do(pair: Accumulator, seat: Any, generation: int, task: Any) -> Any:
    """Perform a task that is no batch; return what is next."""
    kind = getattr(task, "value", None)
    subject = pair.life.subject
    if kind is None:
        pair.life.crashed(generation, task.error)
        return None
    if kind == "serve":
        return _serve(pair, seat, generation)
    hook: Callable[[], Any] = getattr(subject, kind, Stop if kind == "on_idle" else _nothing)
    after = {"on_idle": _idled, "on_start": _started, "on_stop": _stopped}[kind]
    return _call(pair, hook, partial(after, pair, seat, generation), seat, generation)


def _nothing() -> None:
    return


def _call(
    pair: Accumulator,
    hook: Callable[[], Any],
    after: Callable[[Any], Any],
    seat: Any,
    generation: int,
) -> Any:
    """Call user code other than the job; `after(outcome)` says what is next."""
    try:
        outcome = hook()
    except BaseException as error:  # noqa: BLE001 - `after` knows what it means
        outcome = _Raised(error)
    if inspect.isawaitable(outcome) and pair.settings.asynchronous:
        _wait(outcome, partial(_go_on_later, pair, seat, generation, after))
        return None
    return after(outcome)


def _go_on_later(
    pair: Accumulator, seat: Any, generation: int, after: Callable[[Any], Any], outcome: Any
) -> None:
    task = after(outcome)
    if task is _NEXT:
        task = _serve(pair, seat, generation)
    if task is not None:
        pair.postpone(seat, generation, task)


def _reason(outcome: Any) -> Any:
    """Return why a hook wants the executor to end, if it does."""
    if type(outcome) is _Raised:
        if isinstance(outcome.error, Stop):
            return outcome.error.reason
        return Crash(outcome.error)
    return outcome.reason if isinstance(outcome, Stop) else None


def _started(pair: Accumulator, seat: Any, generation: int, outcome: Any) -> Any:
    reason = _reason(outcome)
    if reason is None:
        return pair.life.started(seat, generation)
    pair.life.start_failed(generation, reason)
    return None


def _idled(pair: Accumulator, seat: Any, generation: int, outcome: Any) -> Any:
    reason = _reason(outcome)
    if isinstance(reason, Crash):
        pair.life.crashed(generation, reason.exception)
        return None
    if reason is not None:  # what has arrived meanwhile is not lost
        stop_from_within(pair, generation, reason, StopMode.DRAIN)
    return pair.next(seat, generation)


def _stopped(pair: Accumulator, _seat: Any, generation: int, outcome: Any) -> None:
    if type(outcome) is _Raised:
        error = outcome.error
        log.error("on_stop failed", worker=repr(pair), error=brief(error), exc_info=error)
    ended(pair, generation)


def _serve(pair: Accumulator, seat: Any, generation: int) -> Any:
    """Answer what came by `tell`, `ask` or a proxy, one after the other."""
    while pair.mail and generation == pair.generation:
        executor = pair.life.executor
        try:
            with pair.lock:  # an executor that is killed takes no mail, and what it took is refused
                if generation != pair.generation:
                    break
                envelope = pair.mail.popleft()
                if type(envelope.message) is not ActorStop:
                    executor.asked = envelope.reply_to
        except IndexError:
            break  # those who wait have been told
        if type(envelope.message) is ActorStop:
            _stop_asked(pair, envelope.reply_to)
            continue
        after = partial(_served, pair, generation, executor, envelope.reply_to)
        task = _call(pair, partial(executor.receive, envelope.message), after, seat, generation)
        if task is not _NEXT:
            return task
    return pair.next(seat, generation)


_NEXT = object()


def _served(
    pair: Accumulator, generation: int, executor: ExecutorActor, reply_to: Any, outcome: Any
) -> Any:
    """Pass an answer on; return what is next: more mail, or nothing after a crash."""
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
            pair.life.crashed(generation, error)
            return None
    elif generation == pair.generation:
        stop_from_within(pair, generation, reason)
        _stop_asked(pair, reply_to)
    return _NEXT


def _stop_asked(pair: Accumulator, reply_to: Any) -> None:
    """Drain and end, as pykka's stop message asks; answer when that is done."""
    if reply_to is not None:
        pair.life.watch(lambda _ref, _reason: reply(reply_to, None))
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


async def _await(outcome: Any, then: Callable[[Any], None], seat: Any) -> None:
    CURRENT.set(seat)
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
    seat = CURRENT.get()
    return getattr(seat, "batch", None)
