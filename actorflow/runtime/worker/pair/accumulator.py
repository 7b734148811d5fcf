"""The accumulator: the half of a pair that takes every message, whatever the executor does.

It is the shell around two pure parts: `Accumulation` holds the messages, the table in `states`
decides in which state the pair is. The shell holds the lock, the lane and the clock, and decides
nothing. How a pair begins, crashes and ends is in `lifecycle`, what the executor does in `runner`.

A push appends to the plain list `raw` and looks at the token in `idle`. Where there is one it
calls `wake`, which hands the token to the lane in one C call; everybody else has nothing more to
do. The token is only a hint: what keeps two threads from running one executor is `active`, which
changes under the lock alone.

Interrupts. KeyboardInterrupt can strike the main thread between any two bytecodes. So the main
thread changes shared state only by single C calls (append to a list, hand a token over); all that
takes more, and all that calls user code, runs in a lane's thread or in a helper thread.

The commonest transitions are inlined in `begin` and `done`;
tests/runtime/worker/pair/test_inlined.py proves them equal to the table.
"""

from __future__ import annotations

from _thread import RLock
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.behaviour import MessageOutcome, Reason
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.lanes.headroom import require_headroom
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.log import log
from actorflow.runtime.registry import ACTORS, CURRENT
from actorflow.runtime.worker.job.batch import Batch
from actorflow.runtime.worker.job.preemption import watch
from actorflow.runtime.worker.latency import Backlog, LatencySampler, Timing, may_reorder
from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.accumulation import LONG, NEVER, Accumulation
from actorflow.runtime.worker.pair.interface import Effects, Slot, SlotTask
from actorflow.runtime.worker.pair.lifecycle import Lifecycle
from actorflow.runtime.worker.pair.offers import Offers, refuse_late, take_back
from actorflow.runtime.worker.pair.requests import SPARE, Idleness
from actorflow.runtime.worker.pair.states import (
    DONE,
    DUE,
    IDLE,
    NOTHING_HELD,
    PUSHED,
    READY,
    RUNNING,
    STARTED,
    STARTING,
    Facts,
    PairEvent,
    PairState,
    StopMode,
)
from actorflow.runtime.worker.pair.transitions import (
    after,
    cancel_timer,
    fill,
    next_task,
    recheck_inbox,
    release_slot,
    schedule,
    span_of,
    waits,
)
from actorflow.runtime.worker.shape import QUEUE, fold_at

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Hashable, Sequence

    from actorflow.behaviours.behaviour import Behaviour
    from actorflow.runtime.clock import Timer
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.job.limit import Limiter
    from actorflow.runtime.worker.options import Settings

__all__ = ["Accumulator"]

_IDLE, _SIZE = Reason.IDLE, Reason.SIZE  # looking one up in its enum is slow


class Accumulator:
    """Takes messages for one executor. See the module for how it works."""

    __slots__ = (
        "__dict__", "__weakref__", "active", "actor_ref", "batch", "core", "exit_reason", "first",
        "first_batch_size", "free_slots", "generation", "handle", "idle", "is_fifo",
        "is_single_fifo", "is_timeless", "lock", "mail", "mode", "parts", "settings", "span",
        "spawned", "state", "threshold", "timer", "timing", "value", "waiting_since",
    )  # fmt: skip

    actor_ref: Any
    """The worker's ref."""
    # What most pairs never need has a default in the class, and costs an instance nothing.
    existing_lifecycle: Lifecycle | None = None
    existing_offers: Offers | None = None
    _idleness: Idleness | None = None
    backlog: Backlog | None = None
    limiter: Limiter | None = None
    all_slots: tuple[Slot, ...] = ()
    is_exclusive: bool = False
    answers: bool = False
    """Whether the job has answered a message, or the user was warned that it does not."""
    is_paused: bool = False
    """Whether no batch is taken for now."""
    counting: Any = ()  # a list where time plays a role

    def __init__(self, settings: Settings, behaviour: Behaviour, state: Any) -> None:
        self.settings = settings
        self.core = Accumulation(behaviour)
        self.lock = RLock()
        self.idle: list[Accumulator] = []
        self.state = STARTING
        self.exit_reason: ExitReason | None = None
        """Why the pair ended; `None` while it lives."""
        self.mode: StopMode | None = None
        """How it stops, once it has been asked to."""
        self.mail: deque[Any] | tuple[()] = ()
        """Envelopes for the executor, served between two batches; see `ExecutorActor.put`."""
        self.handle: Callable[[Any, Any], Any] | None = settings.handle
        self.value = state
        """The state of the job."""
        self.active = 0
        """Slots that are at work, or about to be."""
        self.generation = 0
        """Changes when the executor is cut off: results of an older one are ignored."""
        self.first_batch_size = 1
        """How many messages the push that took the token has appended."""
        self.waiting_since = self.spawned = settings.clock.now()
        """When a batch was last taken, or the executor was woken since (if time plays no role)."""
        self.set_paths()
        self.timer: Timer | None = None
        self.timing: Timing | None = None
        shape = self.core.shape
        self.threshold = fold_at(shape) * shape.width if shape.folds else NEVER
        """The length of `raw` at which a push makes the accumulator look, or fold."""
        if self.core.shape.timed:  # not empty while pushes have to compare that length at all
            self.counting = [None] * self.core.shape.folds
        # A pair that runs one batch at a time is its own slot.
        self.first: SlotTask | None = None
        self.batch: Batch | None = None
        self.parts: list[Batch] | None = None
        self.span: tuple[float, float, float] | None = None
        self.free_slots: list[Slot] | None = None
        """Free slots, where several batches may be in flight."""
        if settings.concurrency > 1:
            self.all_slots = tuple(Slot(self) for _ in range(settings.concurrency))
            self.free_slots = list(self.all_slots)
        if settings.limit is not None and self.free_slots is not None:
            self.limiter = settings.limit.start()
            self.limiter.balance(self.free_slots, 0)

    def set_paths(self) -> None:
        """Find out which fast paths are open. Under the lock, unless it is new."""
        core, is_open = self.core, not self.is_paused
        self.is_fifo = is_open and core.portion > 0 and self.settings.limit is None
        """Whether batches are cut from `raw`, without the behaviour and the table."""
        single = self.settings.concurrency == 1 and core.shape.turns is not None
        self.is_single_fifo = is_open and single
        """Whether all raw messages also make one batch."""
        self.is_timeless = is_open and not core.shape.timed
        """Whether held messages may always leave."""
        if core.shape.leaves or core.sampler is not None:
            self._set_sampler()

    def _set_sampler(self) -> None:
        """Time some messages if they may overtake each other, unless an owner reads all tickets."""
        core = self.core
        fits = core.shape.tracks and not self.lifecycle.durable and may_reorder(core.behaviour)
        core.sampler = (core.sampler or LatencySampler(self.settings.clock, self)) if fits else None
        if core.shape.preempts:
            watch(self)

    @property
    def pair(self) -> Accumulator:
        """The pair itself: it can be its own slot."""
        return self

    @property
    def lifecycle(self) -> Lifecycle:
        """How the pair begins, is supervised and ends."""
        return self.existing_lifecycle or self.__dict__.setdefault(
            "existing_lifecycle", Lifecycle(self)
        )

    @property
    def offers(self) -> Offers:
        """How messages get in where a plain push is not enough."""
        return self.existing_offers or self.__dict__.setdefault("existing_offers", Offers(self))

    @property
    def name(self) -> Hashable | None:
        """The name it was spawned under."""
        return self.settings.name

    def __repr__(self) -> str:
        name = self.settings.name
        return f"worker {brief(name)}" if name is not None else f"worker of {self.settings.title}"

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor starts another executor after a crash."""
        return self.existing_lifecycle is not None and self.existing_lifecycle.supervised

    def is_current(self) -> bool:
        """Return whether this very pair runs the code that asks."""
        current = CURRENT.get()
        return current is self or (type(current) is Slot and current.pair is self)

    def enter(self, state: PairState, event: PairEvent, facts: Facts = NOTHING_HELD) -> None:
        """Change the state after an event. Under the lock; nothing else changes it.

        The general path passes the facts for which it has asked the table. The hot path has not
        asked: it passes `READY` if it has a batch at hand, else `NOTHING_HELD`.
        `actorflow.testing.checked_pairs` replaces this method by one that compares both with the
        table.
        """
        self.state = state

    # Taking messages in.

    def wake(self, pushed: Sequence[Any]) -> None:
        """Schedule the executor after a push that found it idle. Thread-safe.

        Raises:
            WorkerStopped: the worker has ended, or is stopping and did not take the message.
            WouldDeadlock: user code of the behaviour uses its own worker.

        """
        if self.lock._is_owned():  # type: ignore[attr-defined] # noqa: SLF001 - as `Condition` does
            take_back(self, pushed)
            raise self.deadlock()
        if self.mode is None and self.exit_reason is None:
            if self.settings.is_real or not self.core.shape.timed:
                now = self.settings.now
                self.waiting_since = now()
                try:
                    self.settings.lane.claim(self.idle)
                except MemoryError:  # it may have been popped; one too many does no harm
                    self.idle.append(self)
                    raise
            else:
                require_headroom()
                UNINTERRUPTIBLE.run(self._wake_timed)
        if self.mode is None and self.exit_reason is None:
            return
        if UNINTERRUPTIBLE.run(refuse_late, self, pushed):
            raise self.lifecycle.dead_error()

    def _wake_timed(self) -> None:
        """Begin, or set the timer, before the push returns.

        For tests, where time and the lane stand still until somebody moves them.
        """
        with self.lock:
            effects = Effects()
            if self.idle and self.mode is None and self.exit_reason is None:
                if self.free_slots is None:
                    self.idle.clear()
                schedule(self, PUSHED, effects)
        self.conclude(effects)

    def reject_all_pushes(self) -> None:
        """Put the token in place for good: each push takes the slow path. Under the lock.

        A producer that has found the pair alive a moment ago may still take a token, and puts it
        back only after it has noticed. There are enough for all such producers, so that others
        never find none meanwhile, and take that for a busy executor.
        """
        self.idle.extend([self] * SPARE)

    def timed_now(self) -> float:
        """Return the time if it plays a role, else 0."""
        return self.settings.clock.now() if self.core.shape.timed else 0.0

    def refuse_if_closed(self) -> None:
        """Raise `WorkerStopped` if the pair takes no more messages."""
        if self.mode is not None or self.exit_reason is not None:
            raise self.lifecycle.dead_error()

    def refuse_own_functions(self) -> None:
        """Refuse code that uses the worker which calls it under its lock.

        That is a function of its behaviour, or a finalizer or signal handler that strikes there.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined] # noqa: SLF001 - as `Condition` does
            raise self.deadlock()

    def unanswered(self) -> Any:
        """Return `None`; log it, once, if the job has never answered anybody. Thread-safe."""
        if not self.answers:
            self.answers = True
            log.warning(
                "ask returned None, because the job does not answer; "
                "return Answers(state, [one answer for each message]) from it, or use push_block",
                worker=repr(self),
            )
        return None

    def deadlock(self) -> WouldDeadlock:
        """Return the error for a call that would wait for itself."""
        msg = "a function of its behaviour (key, weight, merge) uses it"
        return WouldDeadlock(f"{self!r} would wait for itself: {msg}")

    # The hot path: the rows "pushed" and "done" of the table, inlined for a plain line.

    run = runner.run  # itself, because every call before the job takes its time

    def begin(self, slot: Any, generation: int) -> SlotTask | None:
        """Return what the slot does first; `None` if it was submitted for nothing."""
        with self.lock:
            if generation != self.generation:
                return None  # later work has been submitted by itself
            task: SlotTask | None = slot.first
            if task is not None or self.free_slots is not None:
                slot.first = None
                return task
            if self.is_fifo and self.state is IDLE and not (self.active or self.mail):
                count, self.first_batch_size = self.first_batch_size, 1
                batch = self.cut_fifo(count)
                if batch is not None:
                    now = self.settings.now
                    if self.core.shape.divides:
                        self.begin_fifo(self, batch, now())
                    else:  # the same, inlined
                        since = self.waiting_since
                        self.span = (since, since, now())
                        self.batch = batch
                        self.enter(RUNNING, PUSHED, READY)
                        self.active = 1
                    self.idle.clear()
                    return batch
            effects = Effects()
            task = next_task(self, slot, PUSHED, effects)
        self.conclude(effects)
        return task

    def begin_fifo(self, slot: Any, batch: Batch, now: float) -> None:
        """Let a slot run a batch that was cut from a line, after a push. Under the lock."""
        since = self.waiting_since
        woken = self.state is IDLE
        slot.span = (since, since if woken else now, now)
        slot.batch = batch
        if self.core.shape.divides:
            self._divide(slot, now, woken=woken)
        if woken:  # so it has just arrived, and later messages wait from now on
            self.enter(RUNNING, PUSHED, READY)
        else:
            self.waiting_since = now
        self.active += 1

    def _divide(self, slot: Any, now: float, *, woken: bool) -> None:
        """Note for which reason, and when what it consists of arrived, a part of a line leaves."""
        if self.core.raw or self.backlog is not None:
            slot.span = span_of(self, slot.batch.size, now, woken=woken)
        if slot.batch.reason is not _IDLE:
            self.count_reason(slot.batch.reason)

    def cut_fifo(self, count: int) -> Batch | None:
        """Take a batch of at most `count` messages of a line straight from `raw`. Under the lock.

        Like `fold` and `take`, where the behaviour holds nothing.
        """
        core = self.core
        raw, portion = core.raw, core.portion
        payload = raw[: count if count < portion else portion]  # noqa: FURB136 - `min` takes longer
        size = full = len(payload)
        if not size:
            return None
        del raw[:size]
        if core.shape.turns:
            payload.reverse()
        # Marks come before their items: looked at after the cut, none is missed.
        tickets = None
        if core.marks:
            tickets = core.unwrap(payload)
            size = len(payload)
            if not size:  # all callers have given up
                return self.cut_fifo(count)
        core.folded += size  # `offers._count_batch`, inlined
        core.in_flight += size
        core.batches += 1
        return Batch(payload, size, tickets, _SIZE if full == portion else _IDLE)

    def keep_room(self) -> bool:
        """Put the token in place if there are free slots; return whether they have work already.

        Under the lock, where there are several.
        """
        self.idle.clear()
        if not self.free_slots:
            return False
        if not (self.core.raw or self.mail):
            self.idle.append(self)
            return recheck_inbox(self) is not None
        return True

    def done(  # noqa: C901, PLR0912 - the hot path, inlined on purpose
        self, slot: Any, generation: int, batch: Batch, state: Any
    ) -> SlotTask | None:
        """Account for a batch that was processed, and return what the slot does next.

        Only the lane calls this. The callers of the batch are resolved afterwards, so that a woken
        caller does not contend with this thread for the interpreter.
        """
        task: SlotTask | None
        now = self.settings.now
        end = now()
        with self.lock:
            if generation != self.generation:
                return None  # it was cut off meanwhile, and all have been told
            self.value = state
            core = self.core
            core.processed += batch.size
            core.in_flight -= batch.size
            timing = self.timing
            if timing is None:
                timing = self.timing = Timing()
            timing.finished(core.batches, batch.size, slot.span, end)
            raw = core.raw
            if (
                not self.is_fifo
                or self.state is not RUNNING
                or self.mail
                or (core.behaviour is not QUEUE and len(core.behaviour))
                or (not self.is_single_fifo and len(raw) > LONG)
            ):
                if core.shape.observed:
                    core.report(
                        batch, end - slot.span[2], batch.outcomes or MessageOutcome.PROCESSED
                    )
                if self.limiter is not None:
                    self.limiter.finished(end - slot.span[2], self.active, self.free_slots)
                task, effects = after(self, slot)
            elif raw and (task := self.cut_fifo(NEVER)) is not None:
                self.first_batch_size = 1
                slot.batch = task
                slot.span = (self.waiting_since, end, end)
                if core.shape.divides:
                    self._divide(slot, end, woken=False)
                self.waiting_since = end
                if self.free_slots is None or not self.keep_room():
                    return task
                effects = Effects()
                fill(self, effects)
            else:
                slot.batch = None
                self.first_batch_size = 1
                self.active -= 1
                if not self.active:
                    self.enter(IDLE, DONE)
                if not self.idle:
                    self.idle.append(self)
                if not (raw or self.mail):
                    if self.free_slots is not None:
                        self.free_slots.append(slot)
                    return None
                effects = Effects()
                task = self._resume(slot, effects)
        self.conclude(effects)
        return task

    def _resume(self, slot: Any, effects: Effects) -> SlotTask | None:
        """Look at the inbox once more after the token was put in place. Under the lock."""
        event = recheck_inbox(self)
        if event is not None:
            return next_task(self, slot, event, effects)
        release_slot(self, slot)  # a producer has handed the token over meanwhile
        if self.free_slots:
            fill(self, effects)
        return None

    def count_reason(self, reason: Reason) -> None:
        """Count why a batch left. Under the lock."""
        timing = self.timing = self.timing or Timing()
        timing.count_reason(reason)

    # The general path.

    def next(self, slot: Any, generation: int, event: PairEvent = DONE) -> SlotTask | None:
        """Return what the slot does after a hook, an answer to mail or a failed batch."""
        with self.lock:
            if generation != self.generation:
                return None
            task, effects = after(self, slot, event)
        self.conclude(effects)
        return task

    def finished(self, slot: Any, generation: int, batch: Batch, state: Any) -> None:
        """Account for a batch that was processed, or a part of one, before the slot goes on."""
        end = self.settings.clock.now()
        with self.lock:
            if generation == self.generation:
                self.value = state
                self.core.processed += batch.size
                self.core.in_flight -= batch.size
                timing = self.timing = self.timing or Timing()
                timing.finished(self.core.batches, batch.size, slot.span, end)
                if self.core.shape.observed:
                    outcome = batch.outcomes or MessageOutcome.PROCESSED
                    self.core.report(batch, end - slot.span[2], outcome)

    def next_part(self, slot: Any, generation: int) -> SlotTask | None:
        """Return the rest of a batch that failed, or the task after it."""
        with self.lock:
            if generation != self.generation:
                return None
            if slot.parts:
                part: Batch = slot.parts[-1]
                pauses = self.settings.delay is not None or self.core.shape.paces
                if pauses and waits(self, slot, generation, part):
                    return None
                slot.parts.pop()
                part.reason = Reason.RETRY
                part.is_reported = False
                if self.core.shape.observed:
                    slot.span = (*slot.span[:2], self.settings.clock.now())
                slot.batch = part
                return part
            slot.parts = None
            task, effects = after(self, slot)
        self.conclude(effects)
        return task

    def postpone(self, slot: Any, generation: int, task: SlotTask) -> None:
        """Let others run before the slot goes on with a task."""
        with self.lock:
            if generation != self.generation:
                return
            slot.first = task
        self.settings.lane.submit(slot)

    def open(self) -> None:
        """Begin to take messages, where there is no `on_start` and nobody to tell."""
        ACTORS.add(self)
        self.enter(IDLE, STARTED)
        self.idle.append(self)

    def idle_timeout(self) -> float | None:
        """Return after how many seconds without work `on_idle` is called."""
        subject = None if self.existing_lifecycle is None else self.existing_lifecycle.subject
        return self.settings.idle_timeout if subject is None else subject.idle_timeout

    def watch_idleness(self) -> None:
        """Call `on_idle` once the pair has been idle for its timeout. Under the lock."""
        if self._idleness is None:
            self._idleness = Idleness(self)
        self._idleness.watch()

    def prepare_idleness(self) -> None:
        """Take the general path from now on if there is an idle timeout to watch."""
        if self.idle_timeout() is not None:
            self.is_single_fifo = self.is_fifo = False

    def on_due(self) -> None:
        """Go on after a wait. In the clock's thread, or in that of a producer."""
        with self.lock:
            effects = Effects()
            schedule(self, DUE, effects)
        self.conclude(effects)

    def forget_timers(self) -> None:
        """Cancel all timers. Under the lock."""
        cancel_timer(self)
        if self._idleness is not None:
            self._idleness.cancel()

    def conclude(self, effects: Effects) -> None:
        """Perform the effects outside the lock."""
        for slot in effects.slots:
            self.settings.lane.submit(slot)
        if effects.executor_gone or effects.dead or effects.cut or self.core.refusals:
            self.lifecycle.conclude(effects)

    def withdraw_abandoned(self) -> None:
        """Withdraw the messages of callers that have given up, before somebody counts them."""
        if self.core.given_up:
            UNINTERRUPTIBLE.run(self._withdraw)

    def _withdraw(self) -> None:
        with self.lock:
            self.core.withdraw_abandoned()

    def ahead(self) -> int:
        """Return how many raw messages are in flight, because they have woken the executor.

        Under the lock.
        """
        if self.state is IDLE and not self.idle and not self.active:
            return min(self.first_batch_size, self.core.raw_count())
        return 0

    def status(self) -> PairState:
        """Return the state as producers see it. Thread-safe."""
        woken = self.state is IDLE and not self.idle
        return RUNNING if woken else self.state

    def unlink(self) -> None:
        """Forget what refers back to this pair, which has retired."""
        self.value = self.handle = self.actor_ref = None
        self.__dict__.pop("existing_lifecycle", None)
        self.__dict__.pop("existing_offers", None)

    def forked(self) -> None:
        """Mark the pair as dead in a forked child. In its only thread."""
        self.lock = RLock()
        self.lifecycle.forked()
