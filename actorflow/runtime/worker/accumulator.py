"""The accumulator: the half of a worker that takes every message, whatever the executor does.

It is an actor whose code runs in its callers' threads, under its own lock: accumulating is so
short that a hop to another thread would cost more than the work. Its inbox is the plain list
`core.raw`, which a push appends to without any lock. The token in `idle` says that the executor
has nothing to do: who sees it calls `wake`, everybody else has only to append.

The states of the pair, all changed under the lock, and the token with them. So whoever holds the
lock knows whether somebody is already on the way to the executor, and it is submitted once:

* idle: the token is in place, `running` is false;
* running: the executor is in its lane, the token is out;
* waiting: messages are held but may not leave yet (throttle, linger): the token is out and
  `timer` is set;
* alone: the executor has ended and the accumulator goes on (see `lifecycle.py`): the token is
  out, so messages accumulate and nobody is woken;
* stopping: `stopping` says how, the token is in place for good, so that each push takes the slow
  path, where it is refused; the executor goes on for as long as the mode says;
* dead: `exit_reason` is set.
"""

from __future__ import annotations

import logging
import time
from _thread import allocate_lock
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from pykka import messages

from actorflow.runtime.actor.actor import CURRENT
from actorflow.runtime.errors import Full, WorkerStopped, WouldBlock, WouldDeadlock
from actorflow.runtime.log import log
from actorflow.runtime.worker.accounts import Accounts
from actorflow.runtime.worker.accumulation import Accumulation, Batch
from actorflow.runtime.worker.orders import Order, StopMode
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from pykka._envelope import Envelope

    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.lanes.lane import Lane
    from actorflow.runtime.worker.accumulation import Ticket
    from actorflow.runtime.worker.executor import Executor
    from actorflow.runtime.worker.failure import FailurePolicy
    from behaviours.base import Behaviour

__all__ = ["FOLD_AT", "Accumulator"]

FOLD_AT = 256
"""Raw messages at which a producer folds them itself, for behaviours that shrink or have a bound.

A bound can be exceeded by what is raw: at most `4 * FOLD_AT` messages, and for each producer what
it pushes in one call. What is handed to the job, and what `push_ack` accepts, is within the bound.
"""

Step: TypeAlias = Batch | Order | Exception
"""What an executor does next. An exception is a crash: the behaviour has failed."""

_PROXY = (messages.ProxyCall, messages.ProxyGetAttr, messages.ProxySetAttr)


class Core(Accumulation):
    """The accumulation of an accumulator, which hears of what is refused."""

    __slots__ = ("_owner",)

    def __init__(self, behaviour: Behaviour, owner: Accumulator) -> None:
        super().__init__(behaviour)
        self._owner = owner

    def _report(self, messages: Sequence[Any], error: Exception) -> None:
        self._owner.refused(messages, error)


class Accumulator(Accounts):
    """Takes messages for one executor. See the module for how it works."""

    __slots__ = (
        "_first",
        "busy",
        "clock",
        "core",
        "executor",
        "idle",
        "in_flight",
        "job",
        "lane",
        "lock",
        "maker",
        "marked",
        "name",
        "policy",
        "processed",
        "running",
        "sizes",
        "spawned",
        "state",
        "stopping",
        "timer",
    )  # fmt: skip

    # What most workers never need has a default in the class, and no place of its own.
    warned = False
    unreported: Sequence[tuple[int, Exception]] = ()
    _idle_due = 0.0
    _idle_told = -1

    def __init__(
        self,
        behaviour: Behaviour,
        maker: Callable[[Any], Executor],
        job: Any,
        *,
        state: Any,
        lane: Lane,
        clock: Clock,
        name: Hashable | None,
        policy: FailurePolicy,
    ) -> None:
        self.core = Core(behaviour, self)
        self.lock = allocate_lock()
        self.idle: list[None] = []
        self.lane = lane
        self.clock = clock
        self.name = name
        self.maker = maker
        self.job = job
        self.state = state
        self.policy = policy
        self.running = True  # until the executor has started
        self.stopping: StopMode | None = None
        self.timer: Timer | None = None
        self._first: Step | None = None
        self.in_flight: Batch | None = None
        self.spawned = time.perf_counter()
        self.busy = 0.0
        self.processed = 0
        self.sizes: list[int] | None = None
        self.marked: tuple[int, float] | None = None

    # Taking messages in.

    def put(self, envelope: Envelope[Any]) -> None:
        """Take what pykka's refs send: a `tell` is a push, an `ask` is a push_ack."""
        reply_to = envelope.reply_to
        if self.exit_reason is not None:
            raise self.dead_error()
        if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001
            self.stop_asked(reply_to)
        elif reply_to is None and not isinstance(envelope.message, _PROXY):
            self.actor_ref.push(envelope.message)
        else:
            self._handle(envelope)

    def on_receive(self, message: Any) -> None:
        """Accumulate the message; the answer means that it was."""
        self.offer(message)

    def _crash(self, error: BaseException) -> None:
        """Leave a failure of an `ask` to its caller: the accumulator goes on."""

    def offer(
        self, message: Any, ticket: Ticket | None = None, timeout: float | None = None
    ) -> float | None:
        """Accumulate one message at once, in the caller's thread; give what is left of `timeout`.

        Raises:
            Rejected: the behaviour refuses it.
            WorkerStopped: the worker has ended or is stopping.
            WouldDeadlock: it would wait for room that only this caller can make.

        """
        begin = None
        left = timeout
        while (waiter := self.try_offer(message, ticket, ThreadTicket)) is not None:
            if begin is None:
                begin = time.monotonic()
            if not self.lane.wait(waiter, left):
                self.forget_blocked(waiter)
                raise Full(len(self.core.behaviour))
            if waiter.error is not None:
                raise waiter.error
            if timeout is not None:
                left = timeout - (time.monotonic() - begin)
        return left

    def try_offer(self, message: Any, ticket: Ticket | None, make: Callable[[], Any]) -> Any | None:
        """Accumulate one message, or give what to wait for until there is room."""
        with self.lock:
            awake: Executor | None = None
            waiter = None
            if self._offer_alone(message, ticket):
                awake = self.executor
            else:
                waiter = self._offer(message, ticket, make)
                awake = self._rouse() if waiter is None else None
        if self.unreported:
            self.report_refusals()
        if awake is not None:
            self.lane.submit(awake)
        return waiter

    def _offer_alone(self, message: Any, ticket: Ticket | None) -> bool:
        """Give a message to an idle executor at once; tell whether it was idle. Under the lock."""
        if not self.idle or self.stopping is not None or self.executor._inbox:  # noqa: SLF001
            return False
        batch = self.core.offer_alone(message, ticket)
        if batch is None:
            return False
        self.idle.pop()
        self.running = True
        self._first = self.in_flight = batch
        return True

    def _offer(self, message: Any, ticket: Ticket | None, make: Callable[[], Any]) -> Any | None:
        """Do as `try_offer`, but leave an idle executor alone. Under the lock."""
        if self.stopping is not None or self.exit_reason is not None:
            raise self.dead_error()
        core = self.core
        now = self.clock.now() if core.timed else 0.0
        core.fold(now)
        try:
            core.offer(message, ticket, now)
        except WouldBlock:
            if CURRENT.get() is self.executor:
                msg = f"{self!r} is full, and its own job waits for room: nobody would make it"
                raise WouldDeadlock(msg) from None
            core.unoffer()
            waiter = make()
            if self.blocked is None:
                self.blocked = deque()
            self.blocked.append(waiter)
            return waiter
        if self.timer is not None and core.stamped:
            self._retime(now)
        return None

    def offer_many(self, pairs: Sequence[tuple[Any, Ticket]]) -> list[tuple[Ticket, Exception]]:
        """Accumulate messages with their tickets together; give those that are refused.

        An idle worker gets them as one batch. Never waits for room: a behaviour that asks for
        that refuses instead.

        Raises:
            WorkerStopped: the worker has ended or is stopping; none was taken.

        """
        with self.lock:
            if self.stopping is not None or self.exit_reason is not None:
                raise self.dead_error()
            try:
                alone = len(pairs) == 1 and self._offer_alone(*pairs[0])
            except Exception as error:  # noqa: BLE001 - told to the caller
                return [(pairs[0][1], error)]
            refused = [] if alone else self._offer_all(pairs)
            awake = self.executor if alone else self._rouse()
        if awake is not None:
            self.lane.submit(awake)
        return refused

    def _offer_all(self, pairs: Sequence[tuple[Any, Ticket]]) -> list[tuple[Ticket, Exception]]:
        """Do as `offer_many`, but leave an idle executor alone. Under the lock."""
        core = self.core
        now = self.clock.now() if core.timed else 0.0
        core.fold(now)
        refused = core.offer_many(pairs, now)
        if self.timer is not None and core.stamped:
            self._retime(now)
        return refused

    def forget_blocked(self, waiter: Any) -> None:
        """Give up waiting for room."""
        with self.lock:
            if self.blocked and waiter in self.blocked:
                self.blocked.remove(waiter)

    def push_eagerly(self, message: Any) -> None:
        """Push where the time of arrival counts or the pusher may have to wait."""
        try:
            self.offer(message)
        except (WorkerStopped, WouldDeadlock):
            raise
        except Exception as error:  # noqa: BLE001 - a push is a cast: counted and logged
            self.refused((message,), error)
            self.report_refusals()

    def fold_early(self) -> None:
        """Fold in the producer's thread, so that what shrinks stays small."""
        if self.lock.acquire(blocking=len(self.core.raw) > 4 * FOLD_AT):
            try:
                if self.stopping is None and self.exit_reason is None:
                    self.core.fold()
            finally:
                self.lock.release()
            if self.unreported:
                self.report_refusals()

    def refused(self, messages: Sequence[Any], error: Exception) -> None:
        """Note messages that were refused and have nobody who waits. Under the lock.

        They are logged once the lock is free: a logging handler may push to this very worker.
        """
        if not isinstance(error, Full) or log.enabled(logging.DEBUG):
            self.unreported = [*self.unreported, (len(messages), error)]

    def report_refusals(self) -> None:
        """Log what was refused. Not under the lock."""
        noted, self.unreported = self.unreported, ()
        for count, error in noted:
            if isinstance(error, Full) or self.warned:
                log.debug("rejected", worker=repr(self), count=count, error=str(error))
                continue
            self.warned = True
            log.warning(
                "message rejected; further ones are only counted",
                worker=repr(self), count=count, error=str(error),
            )  # fmt: skip

    # Scheduling.

    def wake(self, pushed: Sequence[Any]) -> None:
        """Be called by a push that saw the token, with what it has appended. Any thread.

        Raises:
            WorkerStopped: the worker has ended, or is stopping and did not take the message.

        """
        with self.lock:
            if self.stopping is not None or self.exit_reason is not None:
                late = self._take_back(pushed)
                awake = None
            else:
                late = False
                awake = self._rouse()
        if self.unreported:
            self.report_refusals()
        if late:
            raise self.dead_error()
        if awake is not None:
            self.lane.submit(awake)

    def _take_back(self, pushed: Sequence[Any]) -> bool:
        """Take messages back that came after the stop; tell whether they did. Under the lock.

        What is still raw by now came after: what came before has been folded, all of it. The very
        same object may have been pushed by others too, so each pusher takes back as many as it
        has pushed. Producers only append, so places hold under the lock.
        """
        raw = self.core.raw
        wanted: dict[int, int] = {}
        for message in pushed:
            wanted[id(message)] = wanted.get(id(message), 0) + 1
        places = []
        for at in range(len(raw) - 1, -1, -1):
            if wanted.get(id(raw[at])):
                wanted[id(raw[at])] -= 1
                places.append(at)
        if not pushed or len(places) < len(pushed):
            return False
        for at in places:
            del raw[at]
        return True

    def _rouse(self) -> Executor | None:
        """Wake the executor if it is idle; give it if it is to be submitted. Under the lock."""
        if not self.idle or self.stopping is not None or self.exit_reason is not None:
            return None
        self.idle.pop()
        return self._lead()

    def _lead(self) -> Executor | None:
        """Find a first step for an executor that does nothing; give it if any. Under the lock."""
        self._first = self._step()
        return None if self._first is None else self.executor

    def proceed(self, executor: Executor) -> None:
        """Go on after a batch that a caller has processed, in the lane if there is more."""
        with self.lock:
            awake = None if executor.is_cut_off else self._lead()
        if awake is not None:
            self.lane.submit(awake)

    def offer_and_help(self, message: Any, ticket: Ticket | None) -> None:
        """Accumulate a message; process the batch in this very thread if the executor is idle."""
        while True:
            batch = None
            with self.lock:
                waiter, awake = None, None
                if self._offer_alone(message, ticket):
                    awake = self.executor
                else:
                    waiter = self._offer(message, ticket, ThreadTicket)
                    awake = self._rouse() if waiter is None else None
                if type(self._first) is Batch and awake is not None:
                    batch, self._first = self._first, None
            if waiter is None:
                break
            self.lane.wait(waiter, None)
            if waiter.error is not None:
                raise waiter.error
        if batch is not None and awake is not None:
            awake.help(batch)
        elif awake is not None:
            self.lane.submit(awake)

    def call_executor(self) -> None:
        """See to it that the executor looks at its inbox. Any thread."""
        with self.lock:
            if self.timer is not None:
                self._cancel_timer()
                awake = self._lead()
            else:
                awake = self._rouse()
        if awake is not None:
            self.lane.submit(awake)

    def first_step(self, executor: Executor) -> Step | None:
        """Give the executor what was found when it was woken."""
        with self.lock:
            if executor.is_cut_off:
                return None
            step, self._first = self._first, None
            if type(step) is Batch and self.exit_reason is not None:
                self.discarded += step.size  # stopped at once, before it had begun
                return None
            return step

    def postpone(self, executor: Executor, step: Step) -> None:
        """Keep a step for the next time that the executor runs, unless it was cut off."""
        with self.lock:
            if not executor.is_cut_off:  # else its successor would run what was given up
                self._first = step

    def next_step(self, executor: Executor) -> Step | None:
        """Find what the executor does next; `None` if nothing: then it is idle, or waits.

        Only the executor that is running may call this. A behaviour of the user's that raises
        gives the exception itself, with which the executor crashes.
        """
        with self.lock:
            step = None if executor.is_cut_off else self._step()
        if self.unreported:
            self.report_refusals()
        return step

    def _step(self) -> Step | None:
        """Find what is next. Under the lock.

        Going idle puts the token back and looks again afterwards, so no message is left behind.
        """
        try:
            while True:
                step = self._find_step()
                if step is not None or not self._has_more():
                    return step
        except Exception as error:  # noqa: BLE001 - given to the executor
            return error

    def _find_step(self) -> Step | None:
        """Find what is next, or become idle or waiting. Under the lock."""
        core = self.core
        self.running = True
        if self.executor._inbox:  # noqa: SLF001
            return Order.SERVE
        if self._must_end():
            return Order.END
        now = self.clock.now() if core.timed else 0.0
        if core.raw and self.stopping is None:
            core.fold(now)
        batch = self.in_flight = core.take(now)
        if self.blocked:
            self._unblock()
        if batch is not None:
            return batch
        if core.due is not None:
            self.running = False
            self.timer = self.clock.call_at(core.due, self._on_due)
            return None
        if self.stopping is not None:
            return Order.END
        self.running = False
        self.idle.append(None)
        if self.executor.idle_timeout is not None:
            self._watch_idleness()
        return None

    def _must_end(self) -> bool:
        """Tell whether the executor ends without looking at what is accumulated."""
        if self.suspending or self.exit_reason is not None:
            return True
        return self.stopping is not None and self.stopping is not StopMode.DRAIN

    def _has_more(self) -> bool:
        """Look again after becoming idle or waiting; tell whether to go on. Under the lock.

        A producer that appended before the token was back did not see it, so the inbox must be
        looked at after.
        """
        if self.timer is not None:
            if not self.executor._inbox:  # noqa: SLF001
                return False
            self._cancel_timer()
            return True
        if not self.core.raw and not self.executor._inbox:  # noqa: SLF001
            return False
        self.idle.pop()
        return True

    def _on_due(self) -> None:
        """Go on after a wait. In the clock's thread."""
        with self.lock:
            if self.timer is None:
                return
            self._cancel_timer()
            awake = self._lead()
        if awake is not None:
            self.lane.submit(awake)

    def _retime(self, now: float) -> None:
        """Look whether what has just arrived changes when the batch may leave. Under the lock."""
        batch = self.core.take(now)
        due = self.core.due
        if batch is not None:
            self._cancel_timer()
            self.running = True
            self._first = self.in_flight = batch
            self.lane.submit(self.executor)
            if self.blocked:
                self._unblock()
        elif due is not None and self.timer is not None and due < self.timer.when:
            self._cancel_timer()  # one that comes too early looks again, which costs less
            self.timer = self.clock.call_at(due, self._on_due)

    def _cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _unblock(self) -> None:
        """Let the pushers that wait for room try again. Under the lock."""
        blocked, self.blocked = self.blocked, None
        for waiter in blocked or ():
            waiter.resolve()

    def _watch_idleness(self) -> None:
        """Have `on_idle` called unless something happens. Under the lock."""
        if self._idle_told == self.core.taken:
            return  # once for each stretch
        when = self._idle_due = self.clock.now() + (self.executor.idle_timeout or 0.0)
        timer = self._idle_timer
        if timer is None or when < timer.when:  # an earlier one looks again when its time comes
            if timer is not None:
                timer.cancel()
            self._idle_timer = self.clock.call_at(when, self._on_idle_due)

    def _on_idle_due(self) -> None:
        """See whether the worker has been idle all the time. In the clock's thread."""
        with self.lock:
            self._idle_timer = None
            if not self.idle or self.stopping is not None or self.exit_reason is not None:
                return
            if self.clock.now() < self._idle_due:  # it was busy meanwhile
                self._idle_timer = self.clock.call_at(self._idle_due, self._on_idle_due)
                return
            self._idle_told = self.core.taken
            self.idle.pop()
            if self.core.raw:
                awake = self._lead()
            else:
                self.running = True
                self._first = Order.IDLE
                awake = self.executor
        if awake is not None:
            self.lane.submit(awake)
