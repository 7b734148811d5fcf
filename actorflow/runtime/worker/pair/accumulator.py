"""The accumulator: the half of a pair that takes every message, whatever the executor does.

It is the shell around two pure parts: `Accumulation` holds the messages, `machine` decides in
which state the pair is. The shell holds the lock, the lane and the clock, and decides nothing.
How a pair begins, crashes and ends is in `Life`, what the executor does in `runner`.

A push appends to the plain list `raw` and looks at the token in `idle`. Where there is one it
calls `wake`, which hands the token to the lane in one C call; everybody else has nothing more to
do. The token is only a hint: what keeps two threads from running one executor is `active`, which
changes under the lock alone.

Interrupts. KeyboardInterrupt can strike the main thread between any two bytecodes. So the main
thread changes shared state only by single C calls (append to a list, hand a token over); all that
takes more, and all that calls user code, runs in a lane's thread or in the shelter.

The commonest transitions are inlined in `begin` and `done`;
tests/runtime/worker/pair/test_inlined.py proves them equal to the table.
"""

from __future__ import annotations

from _thread import RLock
from typing import TYPE_CHECKING, Any

from actorflow.runtime.actor.current import CURRENT
from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.registry import ROSTER
from actorflow.runtime.worker.metrics import Backlog, Timing
from actorflow.runtime.worker.pair import runner
from actorflow.runtime.worker.pair.accumulation import LONG, NEVER, QUEUE, Accumulation, fold_at
from actorflow.runtime.worker.pair.batch import Batch
from actorflow.runtime.worker.pair.idleness import Idleness
from actorflow.runtime.worker.pair.intake import Intake, refuse_late, take_back
from actorflow.runtime.worker.pair.life import Life
from actorflow.runtime.worker.pair.machine import (
    DONE,
    DUE,
    IDLE,
    PUSHED,
    RUNNING,
    STARTING,
    Event,
    PairState,
    StopMode,
)
from actorflow.runtime.worker.pair.stopping import SPARE
from actorflow.runtime.worker.pair.transitions import (
    Effects,
    Seat,
    Task,
    after,
    cancel_timer,
    fill,
    leave,
    look_again,
    next_task,
    schedule,
    span_of,
)
from behaviours.base import Reason
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Hashable, Sequence

    from actorflow.runtime.clock import Timer
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.options import Settings
    from actorflow.runtime.worker.pair.batch import Ticket
    from behaviours.base import Behaviour

__all__ = ["Accumulator"]

_IDLE, _SIZE = Reason.IDLE, Reason.SIZE  # looking one up in its enum takes long


class Accumulator:
    """Takes messages for one executor. See the module for how it works."""

    __slots__ = (
        "__dict__", "__weakref__", "_lead", "_line", "_plain", "_ring_at", "_seats", "_since",
        "_spawned", "_timeless", "_timer", "_timing", "active", "actor_ref", "batch",
        "core", "exit_reason", "first", "generation", "handle", "idle", "lock", "mail", "mode",
        "parts", "settings", "span", "state", "value",
    )  # fmt: skip

    actor_ref: Any
    """The worker's ref."""
    # What most pairs never need has a default in the class, and costs an instance nothing.
    _life: Life | None = None
    _intake: Intake | None = None
    _idleness: Idleness | None = None
    _backlog: Backlog | None = None
    _every: tuple[Seat, ...] = ()
    _exclusive: bool = False
    _counting: Any = ()  # a list where time plays a role

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
        """Seats that are at work, or about to be."""
        self.generation = 0
        """Changes when the executor is cut off: results of an older one are ignored."""
        self._lead = 1
        """How many messages the push that took the token has appended."""
        self._since = self._spawned = settings.clock.now()
        """When a batch was last taken, or the executor was woken since (if time plays no role)."""
        self._line = self.core.portion > 0
        """Whether batches are cut from `raw`, without the behaviour and the table."""
        self._plain = settings.concurrency == 1 and self.core.shape.turns is not None
        """Whether all that is raw is one batch, too."""
        self._timeless = not self.core.shape.timed
        """Whether what is held may always leave."""
        self._timer: Timer | None = None
        self._timing: Timing | None = None
        shape = self.core.shape
        self._ring_at = fold_at(shape) * shape.width if shape.folds else NEVER
        """The length of `raw` at which a push makes the accumulator look, or fold."""
        if self.core.shape.timed:  # not empty while pushes have to compare that length at all
            self._counting = [None] * self.core.shape.folds
        # A pair that runs one batch at a time is its own seat.
        self.first: Task | None = None
        self.batch: Batch | None = None
        self.parts: list[Batch] | None = None
        self.span: tuple[float, float, float] | None = None
        self._seats: list[Seat] | None = None
        """Free seats, where several batches may be in flight."""
        if settings.concurrency > 1:
            self._every = tuple(Seat(self) for _ in range(settings.concurrency))
            self._seats = list(self._every)

    @property
    def pair(self) -> Accumulator:
        """The pair itself: it can be its own seat."""
        return self

    @property
    def life(self) -> Life:
        """How the pair begins, is supervised and ends."""
        return self._life or self.__dict__.setdefault("_life", Life(self))

    @property
    def intake(self) -> Intake:
        """How messages get in where a plain push is not enough."""
        return self._intake or self.__dict__.setdefault("_intake", Intake(self))

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
        return self._life is not None and self._life.supervised

    def is_current(self) -> bool:
        """Return whether this very pair runs the code that asks."""
        current = CURRENT.get()
        return current is self or (type(current) is Seat and current.pair is self)

    # Taking messages in.

    def wake(self, pushed: Sequence[Any]) -> None:
        """Schedule the executor after a push that found it idle. Thread-safe.

        Raises:
            WorkerStopped: the worker has ended, or is stopping and did not take the message.
            WouldDeadlock: user code of the behaviour uses its own worker.

        """
        if self.lock._is_owned():  # type: ignore[attr-defined] # as `threading.Condition` does
            take_back(self, pushed)
            raise self._deadlock()
        if self.mode is None and self.exit_reason is None:
            if self.settings.is_real or not self.core.shape.timed:
                now = self.settings.now
                self._since = now()
                self.settings.lane.claim(self.idle)
            else:
                SHELTER.run(self._wake_timed)
        if self.mode is None and self.exit_reason is None:
            return
        if SHELTER.run(refuse_late, self, pushed):
            raise self.life.dead_error()

    def _wake_timed(self) -> None:
        """Begin, or set the timer, before the push returns.

        For tests, where time and the lane stand still until somebody moves them.
        """
        with self.lock:
            effects = Effects()
            if self.idle and self.mode is None and self.exit_reason is None:
                if self._seats is None:
                    self.idle.clear()
                schedule(self, PUSHED, effects)
        self.conclude(effects)

    def _bar(self) -> None:
        """Put the token in place for good: each push takes the slow path. Under the lock.

        A producer that has found the pair alive a moment ago may still take a token, and puts it
        back only after it has noticed. There are enough for all such producers, so that others
        never find none meanwhile, and take that for a busy executor.
        """
        self.idle.extend([self] * SPARE)

    def _fold(self, now: float, count: int | None = None) -> None:
        """Move raw messages into the behaviour. Under the lock; runs user code."""
        self.core.fold(now, count)

    def _now(self) -> float:
        return self.settings.clock.now() if self.core.shape.timed else 0.0

    def _refuse_if_closed(self) -> None:
        if self.mode is not None or self.exit_reason is not None:
            raise self.life.dead_error()

    def _refuse_own_functions(self) -> None:
        """Refuse code that uses the worker which calls it under its lock.

        That is a function of its behaviour, or a finalizer or signal handler that strikes there.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined] # as `threading.Condition` does
            raise self._deadlock()

    def _deadlock(self) -> WouldDeadlock:
        msg = "a function of its behaviour (key, weight, merge) uses it"
        return WouldDeadlock(f"{self!r} would wait for itself: {msg}")

    # The hot path: the rows "pushed" and "done" of the table, inlined for a plain line.

    run = runner.run  # itself, because every call before the job takes its time

    def next_seat(self) -> Seat | None:
        """Return a free seat with something to do, where there are several."""
        effects = Effects()
        with self.lock:
            seat = self._begin_seat(effects)
        self.conclude(effects)
        return seat

    def _begin_seat(self, effects: Effects) -> Seat | None:
        """Return a free seat with something to do, where there are several. Under the lock."""
        core = self.core
        working = self.state is IDLE or self.state is RUNNING
        at_rest = not (self.mail or self._exclusive or len(core.behaviour))
        if self._line and self._seats and working and at_rest and len(core.raw) <= LONG:
            count = NEVER if self.active else self._lead
            self._lead = 1
            batch = self._cut(count)
            if batch is not None:
                seat = self._seats.pop()
                self._begin_line(seat, batch, self.settings.clock.now())
                seat.first = batch
                if self._keep_room():
                    fill(self, effects)
                return seat
        schedule(self, PUSHED, effects)
        return effects.seats.pop(0) if effects.seats else None

    def begin(self, seat: Any, generation: int) -> Task | None:
        """Return what the seat does first; `None` if it was submitted for nothing."""
        with self.lock:
            if generation != self.generation:
                return None  # what was begun since then has been submitted by itself
            task: Task | None = seat.first
            if task is not None or self._seats is not None:
                seat.first = None
                return task
            if self._line and self.state is IDLE and not (self.active or self.mail):
                count, self._lead = self._lead, 1
                batch = self._cut(count)
                if batch is not None:
                    now = self.settings.now
                    if self.core.shape.divides:
                        self._begin_line(self, batch, now())
                    else:  # the same, inlined
                        since = self._since
                        self.span = (since, since, now())
                        self.batch = batch
                        self.state = RUNNING
                        self.active = 1
                    self.idle.clear()
                    return batch
            effects = Effects()
            task = next_task(self, seat, PUSHED, effects)
        self.conclude(effects)
        return task

    def _begin_line(self, seat: Any, batch: Batch, now: float) -> None:
        """Let a seat run a batch that was cut from a line, after a push. Under the lock."""
        since = self._since
        woken = self.state is IDLE
        seat.span = (since, since if woken else now, now)
        seat.batch = batch
        if self.core.shape.divides:
            self._divide(seat, now, woken=woken)
        if woken:  # so it has just arrived, and what comes now waits since then
            self.state = RUNNING
        else:
            self._since = now
        self.active += 1

    def _divide(self, seat: Any, now: float, *, woken: bool) -> None:
        """Note for which reason, and when what it consists of arrived, a part of a line leaves."""
        if self.core.raw or self._backlog is not None:
            seat.span = span_of(self, seat.batch.size, now, woken=woken)
        if seat.batch.reason is not _IDLE:
            self._count_reason(seat.batch.reason)

    def _cut(self, count: int) -> Batch | None:
        """Take a batch of at most `count` messages of a line straight from `raw`. Under the lock.

        Like `fold` and `take`, where the behaviour holds nothing.
        """
        core = self.core
        raw, portion = core.raw, core.portion
        payload = raw[: count if count < portion else portion]  # noqa: FURB136 - `min` takes longer
        size = len(payload)
        if not size:
            return None
        del raw[:size]
        if core.shape.turns:
            payload.reverse()
        # Marks come before their items: looked at after the cut, none is missed.
        tickets = core.unwrap(payload) if core.marks else None
        core.folded += size  # `_batch`, inlined
        core.in_flight += size
        core.batches += 1
        return Batch(payload, size, tickets, _SIZE if size == portion else _IDLE)

    def _batch(self, payload: list[Any], tickets: list[tuple[int, Ticket]] | None) -> Batch:
        """Count messages that leave a line, and return them as a batch. Under the lock."""
        core = self.core
        size = len(payload)
        core.folded += size
        core.in_flight += size
        core.batches += 1
        return Batch(payload, size, tickets, _SIZE if size == core.portion else _IDLE)

    def _keep_room(self) -> bool:
        """Put the token in place if there are free seats; return whether they have work already.

        Under the lock, where there are several.
        """
        self.idle.clear()
        if not self._seats:
            return False
        if not (self.core.raw or self.mail):
            self.idle.append(self)
            return look_again(self) is not None
        return True

    def done(  # noqa: C901 - the hot path, inlined on purpose
        self, seat: Any, generation: int, batch: Batch, state: Any
    ) -> Task | None:
        """Account for a batch that was processed, and return what the seat does next.

        Only the lane calls this. The callers of the batch are told afterwards, so that a woken
        caller does not contend with this thread for the interpreter.
        """
        task: Task | None
        now = self.settings.now
        end = now()
        with self.lock:
            if generation != self.generation:
                return None  # it was cut off meanwhile, and all have been told
            self.value = state
            core = self.core
            core.processed += batch.size
            core.in_flight -= batch.size
            timing = self._timing
            if timing is None:
                timing = self._timing = Timing()
            timing.finished(core.batches, batch.size, seat.span, end)
            raw = core.raw
            if (
                not self._line
                or self.state is not RUNNING
                or self.mail
                or (core.behaviour is not QUEUE and len(core.behaviour))
                or (not self._plain and len(raw) > LONG)
            ):
                if core.shape.observed:
                    core.behaviour.observe(batch.size, end - seat.span[2])
                task, effects = after(self, seat)
            elif raw:
                self._lead = 1
                seat.batch = task = self._cut(NEVER)
                seat.span = (self._since, end, end)
                if core.shape.divides:
                    self._divide(seat, end, woken=False)
                self._since = end
                if self._seats is None or not self._keep_room():
                    return task
                effects = Effects()
                fill(self, effects)
            else:
                seat.batch = None
                self._lead = 1
                self.active -= 1
                if not self.active:
                    self.state = IDLE
                if not self.idle:
                    self.idle.append(self)
                if not (raw or self.mail):
                    if self._seats is not None:
                        self._seats.append(seat)
                    return None
                effects = Effects()
                task = self._resume(seat, effects)
        self.conclude(effects)
        return task

    def _resume(self, seat: Any, effects: Effects) -> Task | None:
        """Look at the inbox once more after the token was put in place. Under the lock."""
        event = look_again(self)
        if event is not None:
            return next_task(self, seat, event, effects)
        leave(self, seat)  # a producer has handed the token over meanwhile
        if self._seats:
            fill(self, effects)
        return None

    def _count_reason(self, reason: Reason) -> None:
        timing = self._timing = self._timing or Timing()
        timing.count_reason(reason)

    # The general path.

    def next(self, seat: Any, generation: int, event: Event = DONE) -> Task | None:
        """Return what the seat does after a hook, an answer to mail or a failed batch."""
        with self.lock:
            if generation != self.generation:
                return None
            task, effects = after(self, seat, event)
        self.conclude(effects)
        return task

    def finished(self, seat: Any, generation: int, batch: Batch, state: Any) -> None:
        """Account for a batch that was processed, or a part of one, before the seat goes on."""
        end = self.settings.clock.now()
        with self.lock:
            if generation == self.generation:
                self.value = state
                self.core.processed += batch.size
                self.core.in_flight -= batch.size
                timing = self._timing = self._timing or Timing()
                timing.finished(self.core.batches, batch.size, seat.span, end)

    def lost(self, generation: int, batch: Batch, *, buried: bool) -> bool:
        """Account for messages that failed; return whether they are still in flight."""
        with self.lock:
            if generation != self.generation:
                return False
            self.core.in_flight -= batch.size
            if buried:
                self.core.dead_lettered += batch.size
            else:
                self.core.failed += batch.size
        return True

    def next_part(self, seat: Any, generation: int) -> Task | None:
        """Return what is left of a batch that failed, or what comes after it."""
        with self.lock:
            if generation != self.generation:
                return None
            if seat.parts:
                part: Batch = seat.parts.pop()
                part.reason = Reason.RETRY
                seat.batch = part
                return part
            seat.parts = None
            task, effects = after(self, seat)
        self.conclude(effects)
        return task

    def postpone(self, seat: Any, generation: int, task: Task) -> None:
        """Let others run before the seat goes on with a task."""
        with self.lock:
            if generation != self.generation:
                return
            seat.first = task
        self.settings.lane.submit(seat)

    def open(self) -> None:
        """Begin to take messages, where there is no `on_start` and nobody to tell."""
        ROSTER.add(self)
        self.state = IDLE
        self.idle.append(self)

    def _idle_timeout(self) -> float | None:
        subject = None if self._life is None else self._life.subject
        return self.settings.idle_timeout if subject is None else subject.idle_timeout

    def _watch_idleness(self) -> None:
        """Call `on_idle` once the pair has been idle for long. Under the lock."""
        if self._idleness is None:
            self._idleness = Idleness(self)
        self._idleness.watch()

    def _prepare_idleness(self) -> None:
        """Take the general path from now on if there is an idle timeout to watch."""
        if self._idle_timeout() is not None:
            self._plain = self._line = False

    def _on_due(self) -> None:
        """Go on after a wait. In the clock's thread, or in that of a producer."""
        with self.lock:
            effects = Effects()
            schedule(self, DUE, effects)
        self.conclude(effects)

    def _forget_timers(self) -> None:
        """Cancel what was to happen later. Under the lock."""
        cancel_timer(self)
        if self._idleness is not None:
            self._idleness.cancel()

    def conclude(self, effects: Effects) -> None:
        """Do what is done outside the lock."""
        for seat in effects.seats:
            self.settings.lane.submit(seat)
        if effects.executor_gone or effects.dead or effects.cut or self.core.refusals:
            self.life.conclude(effects)

    def _ahead(self) -> int:
        """Return how many raw messages are in flight, because they have woken the executor.

        Under the lock.
        """
        if self.state is IDLE and not self.idle and not self.active:
            return min(self._lead, self.core.raw_count())
        return 0

    def status(self) -> PairState:
        """Return the state as it is for those who have pushed. Thread-safe."""
        woken = self.state is IDLE and not self.idle
        return RUNNING if woken else self.state

    def _unlink(self) -> None:
        """Forget what refers back to this pair, which has retired."""
        self.value = self.handle = self.actor_ref = None
        self.__dict__.pop("_life", None)
        self.__dict__.pop("_intake", None)

    def _forked(self) -> None:
        """Mark the pair as dead in a forked child. In its only thread."""
        self.lock = RLock()
        self.life.forked()
