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

The commonest transitions are inlined in `begin` and `done`; tests/runtime/worker/test_inlined.py
proves them equal to the table.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections import deque
from typing import TYPE_CHECKING, Any

from actorflow.runtime.actor.current import CURRENT
from actorflow.runtime.errors import WouldDeadlock
from actorflow.runtime.exits import Normal
from actorflow.runtime.lanes.shelter import SHELTER
from actorflow.runtime.registry import ROSTER
from actorflow.runtime.worker import runner
from actorflow.runtime.worker.accumulation import LONG, NEVER, Accumulation
from actorflow.runtime.worker.batch import Batch
from actorflow.runtime.worker.idleness import Idleness
from actorflow.runtime.worker.intake import FOLD_AT, Intake
from actorflow.runtime.worker.life import Life
from actorflow.runtime.worker.machine import (
    BROKEN,
    CALL_ON_IDLE,
    CALL_ON_STOP,
    CANCEL_TIMER,
    CLOSE,
    CUT_OFF,
    DEAD,
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
    STOPPING,
    TAKE,
    TELL_ALL,
    TELL_EXECUTOR,
    TOKEN_IN,
    TOKEN_OUT,
    WAITING,
    Event,
    Facts,
    PairState,
    Step,
    StopMode,
    advance,
)
from actorflow.runtime.worker.metrics import Backlog, Timing
from actorflow.runtime.worker.seat import Effects, Failed, Nobody, Order, Seat, Task
from behaviours.base import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from actorflow.runtime.clock import Timer
    from actorflow.runtime.exits import ExitReason
    from actorflow.runtime.worker.batch import Ticket
    from actorflow.runtime.worker.options import Settings
    from behaviours.base import Behaviour

__all__ = ["Accumulator"]

NORMAL = Normal()
_IDLE, _SIZE = Reason.IDLE, Reason.SIZE  # looking one up in its enum takes long
_FOLDS = (STARTED, PUSHED, DUE, MAIL, DONE)


_ORDERS = {
    SERVE: Order.SERVE,
    CALL_ON_IDLE: Order.ON_IDLE,
    CALL_ON_STOP: Order.ON_STOP,
}


_SPARE = 64
"""Tokens of a pair that takes no more messages. See `Accumulator._bar`."""

_DEAD_TOKENS: list[Any] = [Nobody()] * _SPARE


class Accumulator:
    """Takes messages for one executor. See the module for how it works."""

    __slots__ = (
        "__dict__", "__weakref__", "_lead", "_line", "_owner", "_plain", "_ring_at", "_seats",
        "_since", "_spawned", "_timeless", "_timer", "_timing", "active", "actor_ref", "batch",
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

    def __init__(self, settings: Settings, behaviour: Behaviour, state: Any) -> None:
        self.settings = settings
        self.core = Accumulation(behaviour)
        self.lock = allocate_lock()
        self.idle: list[Accumulator] = []
        self.state = STARTING
        self.exit_reason: ExitReason | None = None
        """Why the pair ended; `None` while it lives."""
        self.mode: StopMode | None = None
        """How it stops, once it has been asked to."""
        self.mail: deque[Any] | tuple[()] = ()
        """Envelopes for the executor, which are served between two batches."""
        self.handle: Callable[[Any, Any], Any] | None = settings.handle
        self.value = state
        """The state of the job."""
        self.active = 0
        """Seats that are at work, or about to be."""
        self.generation = 0
        """Changes when the executor is cut off: what an older one comes to is ignored."""
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
        self._owner = 0
        self._timer: Timer | None = None
        self._timing: Timing | None = None
        self._ring_at = FOLD_AT * self.core.shape.width if self.core.shape.folds else NEVER
        """The length of `raw` at which a push makes the accumulator look, or fold."""
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
        return f"worker {name!r}" if name is not None else f"worker of {self.settings.title}"

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
            WouldDeadlock: user code of the behaviour pushes to its own worker.

        """
        if self._owner == get_ident():
            self._take_back(pushed)
            raise self._deadlock()
        if self._takes_messages():
            if self.settings.is_real or not self.core.shape.timed:
                self._since = self.settings.clock.now()
                self.settings.lane.claim(self.idle)
            else:
                SHELTER.run(self._wake_timed)
            if self._takes_messages():
                return
        if SHELTER.run(self._refuse_late, pushed):
            raise self.life.dead_error()

    def _takes_messages(self) -> bool:
        return self.mode is None and self.exit_reason is None

    def _wake_timed(self) -> None:
        """Begin, or set the timer, before the push returns.

        For tests, where time and the lane stand still until somebody moves them.
        """
        with self.lock:
            effects = Effects()
            if self.idle and self.mode is None and self.exit_reason is None:
                if self._seats is None:
                    self.idle.clear()
                self.schedule(PUSHED, effects)
        self.conclude(effects)

    def _bar(self) -> None:
        """Put the token in place for good: each push takes the slow path. Under the lock.

        A producer that has found the pair alive a moment ago may still take a token, and puts it
        back only after it has noticed. There are enough for all such producers, so that others
        never find none meanwhile, and take that for a busy executor.
        """
        self.idle.extend([self] * _SPARE)

    def _refuse_late(self, pushed: Sequence[Any]) -> bool:
        """Take messages back that came after the stop; return whether they did."""
        with self.lock:
            if len(self.idle) < _SPARE:
                self.idle.append(self)
            return self._take_back(pushed)

    def _take_back(self, pushed: Sequence[Any]) -> bool:
        """Remove what was pushed from `raw`; return whether it was all there. Under the lock.

        What is still raw after a stop came after it: what came before has been folded. The very
        same object may have been pushed by others too, so each pusher removes as many as it has
        pushed. Producers only append, so places hold under the lock.
        """
        raw = self.core.raw
        width = self.core.shape.width
        wanted: dict[int, int] = {}
        for message in pushed:
            wanted[id(message)] = wanted.get(id(message), 0) + 1
        places = []
        for at in range(len(raw) - 1, -1, -width):
            one = raw[at]
            if wanted.get(id(one)):
                wanted[id(one)] -= 1
                places.append(at)
        if not pushed or len(places) < len(pushed):
            return False
        for at in places:
            del raw[at - width + 1 : at + 1]
        return True

    def _fold(self, now: float, count: int | None = None) -> None:
        """Move raw messages into the behaviour. Under the lock; runs user code."""
        self._owner = get_ident()
        try:
            self.core.fold(now, count)
        finally:
            self._owner = 0

    def _now(self) -> float:
        return self.settings.clock.now() if self.core.shape.timed else 0.0

    def _refuse_if_closed(self) -> None:
        if self.mode is not None or self.exit_reason is not None:
            raise self.life.dead_error()

    def _refuse_own_functions(self) -> None:
        """Refuse a key, weight or merge function that pushes to the worker that calls it."""
        if self._owner == get_ident():
            raise self._deadlock()

    def _deadlock(self) -> WouldDeadlock:
        msg = "a function of its behaviour (key, weight, merge) pushes to it"
        return WouldDeadlock(f"{self!r} would wait for itself: {msg}")

    # The hot path: the rows "pushed" and "done" of the table, inlined for a plain line.

    def run(self) -> None:
        """Process batches for a while. Only the lane calls this."""
        if self._seats is None:
            runner.run(self, self)
            return
        effects = Effects()
        with self.lock:
            seat = self._begin_seat(effects)
        self.conclude(effects)
        if seat is not None:
            runner.run(self, seat)

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
                    self._fill(effects)
                return seat
        self.schedule(PUSHED, effects)
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
                    self._begin_line(self, batch, self.settings.clock.now())
                    self.idle.clear()
                    return batch
            effects = Effects()
            task = self._next(seat, PUSHED, effects)
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
            seat.span = self._span(seat.batch.size, now, woken=woken)
        if seat.batch.reason is not _IDLE:
            self._count_reason(seat.batch.reason)

    def _cut(self, count: int) -> Batch | None:
        """Take a batch of at most `count` messages of a line straight from `raw`. Under the lock.

        Like `fold` and `take`, where the behaviour holds nothing.
        """
        core = self.core
        raw, portion = core.raw, core.portion
        payload = raw[: min(count, portion)]
        if not payload:
            return None
        del raw[: len(payload)]
        if core.shape.turns:
            payload.reverse()
        # Marks come before their items: looked at after the cut, none is missed.
        return self._batch(payload, core.unwrap(payload) if core.marks else None)

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
            return self._look_again() is not None
        return True

    def done(  # noqa: C901 - the hot path, inlined on purpose
        self, seat: Any, generation: int, batch: Batch, state: Any
    ) -> Task | None:
        """Account for a batch that was processed, and return what the seat does next.

        Only the lane calls this. The callers of the batch are told afterwards, so that a woken
        caller does not contend with this thread for the interpreter.
        """
        task: Task | None
        end = self.settings.clock.now()
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
                or len(core.behaviour)
                or (len(raw) > LONG and not self._plain)
            ):
                if core.shape.observed:
                    core.behaviour.observe(batch.size, end - seat.span[2])
                task, effects = self._after(seat)
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
                self._fill(effects)
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
        event = self._look_again()
        if event is not None:
            return self._next(seat, event, effects)
        self._leave(seat)  # a producer has handed the token over meanwhile
        if self._seats:
            self._fill(effects)
        return None

    def _count_reason(self, reason: Reason) -> None:
        if self._timing is None:
            self._timing = Timing()
        self._timing.count_reason(reason)

    # The general path.

    def next(self, seat: Any, generation: int, event: Event = DONE) -> Task | None:
        """Return what the seat does after a hook, an answer to mail or a failed batch."""
        with self.lock:
            if generation != self.generation:
                return None
            task, effects = self._after(seat, event)
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
                if self._timing is None:
                    self._timing = Timing()
                self._timing.finished(self.core.batches, batch.size, seat.span, end)

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
            task, effects = self._after(seat)
        self.conclude(effects)
        return task

    def postpone(self, seat: Any, generation: int, task: Task) -> None:
        """Let others run before the seat goes on with a task."""
        with self.lock:
            if generation != self.generation:
                return
            seat.first = task
        self.settings.lane.submit(seat)

    def _after(self, seat: Any, event: Event = DONE) -> tuple[Task | None, Effects]:
        """Return what a seat does next that has finished something. Under the lock."""
        seat.batch = None
        self.active -= 1
        if self._exclusive:
            self._exclusive = False
        effects = Effects()
        return self._next(seat, event, effects), effects

    def _limit(self) -> int:
        """Return how many seats may be at work: one, while a hook runs or mail is answered."""
        return 1 if self._exclusive else self.settings.concurrency

    def _leave(self, seat: Any) -> None:
        """Return a seat that has nothing to do. Under the lock."""
        if self._seats is not None:
            self._seats.append(seat)

    def _next(self, seat: Any, event: Event, effects: Effects) -> Task | None:
        """Let the machine decide what a seat does after an event. Under the lock."""
        self.apply(event, effects, seat)
        task: Task | None = seat.first
        seat.first = None
        if task is None:
            self._leave(seat)
        if self._seats:
            self._fill(effects)
        return task

    def open(self) -> None:
        """Begin to take messages, where there is no `on_start` and nobody to tell."""
        ROSTER.add(self)
        self.state = IDLE
        self.idle.append(self)

    def _schedule_start(self, effects: Effects) -> None:
        """Submit a seat that calls `on_start`. Under the lock."""
        self._begin_task(self, Order.ON_START)
        effects.seats.append(self)

    def schedule(self, event: Event, effects: Effects) -> None:
        """Apply an event; free seats are submitted for what there is to do. Under the lock."""
        self._schedule_seat(event, effects)
        if self._seats:
            self._fill(effects)

    def _schedule_seat(self, event: Event, effects: Effects) -> bool:
        """Apply an event with one free seat; return whether it has something to do."""
        seat = self._free_seat()
        self.apply(event, effects, seat)
        if seat is None:
            return False
        if seat.first is None:
            self._leave(seat)
            return False
        effects.seats.append(seat)
        return True

    def _free_seat(self) -> Any:
        if self._seats is not None:
            return self._seats.pop() if self._seats else None
        return self if self.first is None and not self.active else None

    def _fill(self, effects: Effects) -> None:
        """Start more batches while there is room for them. Under the lock."""
        while self._seats:
            if self.state is RUNNING:
                event = PUSHED
            elif self.state is STOPPING:
                event = DUE
            else:
                return
            if not self._schedule_seat(event, effects):
                return

    def _catch_up(self) -> Effects:
        """Begin for an executor that was woken but has not begun. Under the lock.

        The messages that woke it are in flight for whoever looks next, as they are for the one
        who pushed them.
        """
        effects = Effects()
        if self.state is IDLE and not self.idle and not self.active:
            self.schedule(PUSHED, effects)
            if self._seats is None:
                effects.seats.clear()  # it is in its lane already
        return effects

    def _look(self, effects: Effects) -> None:
        """Do what messages that were just accumulated make possible. Under the lock."""
        self._lead = NEVER
        if self.state is IDLE:
            if not self.core.shape.timed:
                self._since = self.settings.clock.now()
            self.schedule(PUSHED, effects)
        elif self.state is WAITING:
            self.schedule(DUE, effects)
        elif self._seats:
            self._fill(effects)
        self._lead = 1

    def _facts(self, event: Event) -> tuple[Facts, float]:
        """Fold what is raw and return what the machine must know. Under the lock."""
        core, settings = self.core, self.settings
        now = self._now()
        limit = self._limit()
        lead = 0
        if self.active < limit:
            lead, self._lead = self._lead, 1
        takes_more = self.mode is None and self.exit_reason is None
        if lead and core.raw and takes_more and event in _FOLDS:
            woken = event is PUSHED and self.state is IDLE
            self._fold(now, lead if woken else None)
            if woken and self.mail:
                self._lead = 0  # mail is served first, and then what has woken the executor, alone
        held, ready = self._readiness(event, now)
        facts = Facts(
            running=self.active,
            limit=limit,
            held=held,
            ready=ready,
            mail=bool(self.mail),
            supervised=self.is_supervised,
            first=self._life is None or not self._life.restarts,
            hooked=settings.has_on_stop,
            mode=self.mode,
        )
        return facts, now

    def _readiness(self, event: Event, now: float) -> tuple[bool, bool]:
        """Return whether messages are held, and whether some may leave. Under the lock.

        A behaviour that raises must not keep the pair from crashing or stopping: it counts as
        ready there, and fails once more when a batch is taken from it.
        """
        try:
            held = bool(len(self.core.behaviour))
            return held, held and self.core.ready(now)
        except Exception:
            if event in _FOLDS:
                raise
            return True, True

    def apply(self, event: Event, effects: Effects, seat: Any = None) -> None:
        """Let the machine decide, and perform the steps that need the lock. Under the lock.

        What the seat is to do is put into `seat.first`. A behaviour that raises is a crash, which
        the seat performs.
        """
        again: Event | None = event
        while again is not None:
            try:
                if (again is DONE or again is PUSHED) and seat is not None and self._is_common():
                    again = self._go_on(again, seat)
                    continue
                facts, now = self._facts(again)
                woken = self.state is IDLE
                transition = advance(self.state, again, facts)
                self.state = transition.state
                again = self._perform(transition.steps, effects, seat, now, woken=woken)
            except Exception as error:  # noqa: BLE001 - of a behaviour
                self._fail(seat, error)
                return

    def _is_common(self) -> bool:
        """Return whether `_go_on` does what the table says after PUSHED and DONE."""
        working = self.state is RUNNING or self.state is IDLE
        room = self.active < self.settings.concurrency and not self._exclusive
        return self._timeless and working and room and not self.mail

    def _go_on(self, event: Event, seat: Any) -> Event | None:
        """Apply PUSHED or DONE as the table does where nobody stops, writes mail or has to wait.

        Return the event that has to be looked at next. Under the lock.
        """
        core = self.core
        woken = self.state is IDLE
        lead, self._lead = self._lead, 1
        if lead and core.raw:
            self._fold(0.0, lead if woken else None)
        if event is DONE and core.shape.folds:
            self._calm()
        if len(core.behaviour):
            self.state = RUNNING
            self.idle.clear()
            return None if self._take(seat, 0.0, woken=woken) else DONE
        self.state = RUNNING if self.active else IDLE
        if not self.idle:
            self.idle.append(self)
        return self._look_again()

    def _fail(self, seat: Any, error: Exception) -> None:
        """Let a seat crash with what the behaviour raised. Under the lock.

        Without a free seat it is only reported, because those that are at work meet it when they go
        on; and so it is where there is no executor that could crash.
        """
        steps: tuple[Step, ...] = ()
        if seat is not None:
            self.state, steps = advance(self.state, BROKEN, Facts())
        for step in steps:
            if step is CANCEL_TIMER:
                self._cancel_timer()
            elif step is TOKEN_OUT:
                self.idle.clear()
            else:
                self._begin_task(seat, Failed(error))
        if not steps:
            self.core.note_refusal((), error)

    def prepare(self, now: float, effects: Effects) -> Exception | None:
        """Fold what is raw on behalf of a producer; if the behaviour raises, the pair crashes.

        Return what it raised: the producer has nothing to do with it. Under the lock.
        """
        self._owner = get_ident()
        try:
            self.core.fold(now)
            self.core.note_time(now)
        except Exception as error:  # noqa: BLE001 - of a behaviour
            seat = self._free_seat()
            self._fail(seat, error)
            if seat is not None and seat.first is not None:
                effects.seats.append(seat)
            elif seat is not None:
                self._leave(seat)
            return error
        finally:
            self._owner = 0
        return None

    def _perform(  # noqa: C901 - one branch for each step
        self,
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
                if seat is not None and not self._take(seat, now, woken=woken):
                    again = DONE  # all that was held has expired
            elif step is TOKEN_IN:
                if not self.idle:
                    self.idle.append(self)
            elif step is TOKEN_OUT:
                self.idle.clear()
            elif step is LOOK_AGAIN:
                again = self._look_again()
            elif step is SET_TIMER:
                self._set_timer()
                if len(self.core.raw) >= self._ring_at and self.mode is None:
                    again = DUE  # those who pushed meanwhile could not know
            elif step is CANCEL_TIMER:
                self._cancel_timer()
            else:
                self._perform_rare(step, effects, seat)
        return again

    def _perform_rare(self, step: Step, effects: Effects, seat: Any) -> None:
        """Perform a step that is not taken for every batch. Under the lock."""
        if step is CLOSE:
            if self.mode is None:  # else the stop has closed it: what is raw now came too late
                self._close()
        elif step is CUT_OFF:
            self._cut_off(effects)
        elif step is TELL_EXECUTOR:
            effects.executor_gone = True
        elif step is TELL_ALL:
            if self.exit_reason is None:
                self.exit_reason = self.life.final_reason()
            effects.dead = True
        elif step in _ORDERS and seat is not None:
            self._begin_task(seat, _ORDERS[step])

    def _begin_task(self, seat: Any, task: Task) -> None:
        seat.first = task
        self.active += 1
        if self._seats is not None:
            self._exclusive = type(task) is Order

    def _take(self, seat: Any, now: float, *, woken: bool) -> bool:
        """Take a batch for a seat; return whether there was one. Under the lock.

        `woken`: the pair was idle, so the messages have just arrived.
        """
        core = self.core
        batch = core.take(now)
        if self._intake is not None and self._intake.is_blocking:
            self._owner = get_ident()
            try:
                self._intake.admit(now)
            finally:
                self._owner = 0
        if batch is None:
            return False
        if self.mode is StopMode.DRAIN and batch.reason in (Reason.IDLE, Reason.FLUSH):
            batch.reason = Reason.DRAIN
        if batch.reason is not _IDLE:
            self._count_reason(batch.reason)
        moment = self.settings.clock.now()
        seat.span = self._span(batch.size, moment, woken=woken)
        if not woken:  # else others may have pushed since then, and wait for the next batch
            self._since = moment
        seat.batch = batch
        core.in_flight += batch.size
        self._begin_task(seat, batch)
        return True

    def _span(self, size: int, moment: float, *, woken: bool) -> tuple[float, float, float]:
        """Return between which moments the messages of a batch arrived, and when it is taken."""
        low, high, first = self._since, moment, self.core.oldest_at
        if first > low:  # the arrival of the first one is known, and the others follow evenly
            low = min(first, moment)
            high = low + (moment - low) * (size - 1) / max(size, 1)
        elif woken:
            high = low
        rest = len(self.core) if self.core.shape.divides else 0
        if rest and self._backlog is None:
            self._backlog = Backlog()
        if self._backlog is not None:
            low, high = self._backlog.span(size, rest, low, high)
            if not rest:
                self._backlog = None
        return low, high, moment

    def _look_again(self) -> Event | None:
        """Look at the inbox after the token was put in place. Under the lock."""
        if self.core.raw or self.mail:
            try:
                self.idle.pop()
            except IndexError:
                return None  # a producer has handed the token over meanwhile
            self._lead = NEVER
            self._since = self.settings.clock.now()  # they have arrived just now
            return PUSHED
        if self.state is IDLE and self._idle_timeout() is not None:
            if self._idleness is None:
                self._idleness = Idleness(self)
            self._idleness.watch()
        return None

    def _idle_timeout(self) -> float | None:
        subject = None if self._life is None else self._life.subject
        return self.settings.idle_timeout if subject is None else subject.idle_timeout

    def _watch_idleness(self) -> None:
        """Take the general path from now on if there is an idle timeout to watch."""
        if self._idle_timeout() is not None:
            self._plain = self._line = False

    def _set_timer(self) -> None:
        self._cancel_timer()
        due = self.core.due
        if due is not None:
            more = self.core.behaviour.until_full()
            if more is not None:
                self._ring_at = min(self._ring_at, more * self.core.shape.width)
            self._timer = self.settings.clock.call_at(due, self._on_due)

    def _calm(self) -> None:
        """Let pushes ring when there is much to fold, or not at all."""
        shape = self.core.shape
        self._ring_at = FOLD_AT * shape.width if shape.folds else NEVER

    def _cancel_timer(self) -> None:
        self._calm()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_due(self) -> None:
        """Go on after a wait. In the clock's thread, or in that of a producer."""
        with self.lock:
            effects = Effects()
            self.schedule(DUE, effects)
        self.conclude(effects)

    def _close(self) -> None:
        """Take in what came before the end, and hold nothing back. Under the lock.

        The token is in place by now: whoever pushes later is refused.
        """
        core = self.core
        try:
            if core.raw:
                self._fold(self._now())
            core.behaviour.flush()
        except Exception as error:  # noqa: BLE001 - a broken behaviour must not keep anyone waiting
            core.note_refusal((), error)

    def _cut_off(self, effects: Effects) -> None:
        """Ignore what is under way from now on. Under the lock."""
        self.generation += 1
        core = self.core
        core.failed += core.in_flight
        core.in_flight = 0
        self.active = 0
        if self._exclusive:
            self._exclusive = False
        for seat in self._every or (self,):
            if seat.batch is not None:
                effects.cut.append(seat.batch)
            effects.cut += seat.parts or ()
            seat.batch = seat.parts = seat.first = None
        if self._seats is not None:
            self._seats = list(self._every)

    def _forget_timers(self) -> None:
        """Cancel what was to happen later. Under the lock."""
        self._cancel_timer()
        if self._idleness is not None:
            self._idleness.cancel()

    def conclude(self, effects: Effects) -> None:
        """Do what is done outside the lock."""
        for seat in effects.seats:
            self.settings.lane.submit(seat)
        if effects.executor_gone or effects.dead or effects.cut or self.core.has_refusals:
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

    def retire(self) -> bool:
        """End at once, in this thread, if nothing is going on and there is nobody to tell.

        Return whether that was so. An interrupt leaves it either alive or dead.
        """
        if self.settings.has_on_stop or self.settings.name is not None:
            return False
        try:
            with self.lock:
                life = self._life
                if not self.idle or self.state is not IDLE or self.mode is not None:
                    return False
                if self.core.raw or self.mail or self.active or len(self.core.behaviour):
                    return False
                if (self._intake is not None and self._intake.is_blocking) or (
                    life is not None and (life.is_watched or (life.supervised and not life.durable))
                ):
                    return False
                self.exit_reason = NORMAL
                if not self.idle:  # a producer took the token before it could know
                    self.exit_reason = None
                    return False
                self.state = DEAD
            self._finish_retiring()
        except BaseException:
            if self.exit_reason is NORMAL:
                SHELTER.run(self._finish_retiring)
            raise
        return True

    def _finish_retiring(self) -> None:
        """Do what is left once the reason is set. Idempotent."""
        self.state = DEAD
        ROSTER.discard(self)
        self.settings.lane.release()
        self.idle[:] = _DEAD_TOKENS
        life = self._life  # one that is made from now on knows that the pair has ended
        if life is not None:
            life.over()

    def _unlink(self) -> None:
        """Forget what refers back to this pair, which has retired."""
        self.value = self.handle = self.actor_ref = None
        self.__dict__.pop("_life", None)

    def _forked(self) -> None:
        """Mark the pair as dead in a forked child. In its only thread."""
        self.lock = allocate_lock()
        self.life.forked()

    # Mail.

    def post(self, envelope: Any) -> None:
        """Put an envelope in for the executor; it is served before the next batch. Thread-safe."""
        if type(self.mail) is tuple:
            SHELTER.run(self._make_mail)
        self.mail.append(envelope)  # type: ignore[union-attr]
        if self.idle:
            if self._takes_messages():
                self.settings.lane.claim(self.idle)
                if not self._takes_messages():
                    SHELTER.run(self._refuse_late, ())  # the token was in place for good
        elif self.state is WAITING:
            SHELTER.run(self._on_mail)

    def _make_mail(self) -> None:
        with self.lock:
            if type(self.mail) is tuple:
                self.mail = deque()

    def _on_mail(self) -> None:
        with self.lock:
            effects = Effects()
            self.schedule(MAIL, effects)
        self.conclude(effects)
