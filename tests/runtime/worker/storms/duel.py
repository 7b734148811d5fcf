"""Duels: two things happen to one worker at once, in every order of their steps.

The first one is stopped at its first line of our code (then at its second, its third, ...), the
other one happens from beginning to end, or until it needs a lock that the first one holds, and
the first goes on. Lane and clock are in the hand of the test, so nothing else moves. Afterwards
the world must be whole: nothing lost, nobody hangs.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka

import actorflow as af
from actorflow.behaviours import Queue, Throttle
from actorflow.runtime.tickets import ThreadTicket
from actorflow.runtime.worker.pair import callers
from actorflow.runtime.worker.pair.offers import help_out
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.worker.probe import is_locked
from tests.runtime.worker.storms.interleave import PATIENCE, Paused

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.lanes.lane import Runnable

EVERY = 5.0
ACTIONS = (
    "push", "push_many", "same", "ack", "block", "help", "run", "tick", "drain", "finish", "now",
    "tell", "ask", "crash", "poison", "look",
)  # fmt: skip
STATES = ("idle", "busy", "waiting", "lingering", "idling", "stopping")
_MOST = 2
"""Times that an executor may be in its lane."""
_LOSING = {"finish", "now", "crash", "poison"}
SAME = 7
"""An interned message, which everybody pushes as the very same object."""


class Poisoned(Exception):
    """What the job raises on a poisonous message."""


class Lingering:
    """A custom behaviour: three messages, or five seconds after the first."""

    def __init__(self) -> None:
        self._held: list[Any] = []
        self.waiting_since = 0.0
        self._now = 0.0

    def add(self, message: Any) -> None:
        if not self._held:
            self.waiting_since = self._now
        self._held.append(message)

    def take(self) -> list[Any]:
        held, self._held = self._held, []
        return held

    def __len__(self) -> int:
        return len(self._held)

    def ready_at(self, now: float) -> float:
        self._now = now
        return now if len(self._held) >= 3 else self.waiting_since + EVERY


class OneLane(ManualLane):
    """A lane in the hand of the test that notes how often its only executor was in it at most.

    Twice is harmless: a push may hand the token over while somebody else schedules the executor.
    """

    can_help = True

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.meanwhile: Callable[[], object] | None = None
        """Happens once, right after a token was handed over."""

    def submit(self, runnable: Runnable, /) -> None:
        super().submit(runnable)
        self.most = max(self.most, len(self))

    def claim(self, idle: list[Runnable]) -> bool:
        claimed = super().claim(idle)
        self.most = max(self.most, len(self))
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return claimed

    def step(self) -> bool:
        try:
            runnable = self._ready.popleft()
        except IndexError:
            return False
        runnable.run()
        return True


class Door:
    """A lock that signals when somebody has to wait for it."""

    def __init__(self, waited: threading.Semaphore) -> None:
        self._lock = threading.RLock()
        self._waited = waited
        self._is_owned = self._lock._is_owned  # type: ignore[attr-defined] # private
        self.release = self._lock.release

    def __repr__(self) -> str:
        return repr(self._lock)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as a lock has it
        if self._lock.acquire(blocking=False):
            return True
        self._waited.release()
        return self._lock.acquire(blocking, timeout)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Once(ThreadTicket):
    """A ticket that counts how often it is resolved."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        self.times += 1
        if self.times == 1:
            super().resolve(error, answer)


class Arena:
    """One worker, and what two actions do to it."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.lane = OneLane()
        self.clock = VirtualClock()
        self.processed: list[Any] = []
        self.batches: list[list[Any]] = []
        self.accepted: list[Any] = []
        self.refused: list[Any] = []
        self.tickets: dict[Any, Once] = {}
        self.questions: list[Any] = []
        self.done: set[str] = set()
        self.ends = 0
        self.wrong: list[str] = []
        self._inside = threading.Lock()
        self._number = 100
        arena = self

        class Job(af.Executor):
            def handle(self, batch: list[Any]) -> None:
                arena.handle(batch)

            def handle_message(self, message: Any) -> Any:
                if message == "crash":
                    raise Poisoned
                return message

            def on_stop(self) -> None:
                arena.ends += 1

        behaviour: Any = {"waiting": lambda: Throttle(Queue(), EVERY), "lingering": Lingering}
        self.worker = af.spawn(
            Job,
            behaviour=behaviour.get(state, Queue),
            executor=self.lane,
            clock=self.clock,
            help=True,
            idle_timeout=EVERY if state == "idling" else None,
        )
        self.over = threading.Semaphore(0)
        self.worker.actor.lock = Door(self.over)  # type: ignore[assignment]
        callers._MARKING = Door(self.over)  # type: ignore[assignment]
        self._begin()

    def _begin(self) -> None:
        """Bring the worker into its state."""
        if self.state in {"busy", "stopping"}:
            self.do("push")
            self.do("push")
        elif self.state in {"waiting", "lingering"}:
            self.do("push")
            self.lane.run()
            self.do("push")
            self.lane.run()
        if self.state == "stopping":
            self.do("drain")

    def handle(self, batch: list[Any]) -> None:
        """Process a batch: the job."""
        if not self._inside.acquire(blocking=False):
            self.wrong.append("the job runs twice at once")
            return
        try:
            if "poison" in batch:
                raise Poisoned
            self.processed += batch
            self.batches.append(batch[:])
        finally:
            self._inside.release()

    def try_out(self, action: str) -> Callable[[], None]:
        """Perform an action; return when it is over, or waits for the lock.

        The returned function waits for its end.
        """

        def do() -> None:
            try:
                self.do(action)
            except Exception as error:  # noqa: BLE001 - a bug, whatever it is
                self.wrong.append(f"{action} raised {error!r}")
            finally:
                self.over.release()

        def finish() -> None:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{action} hangs"

        if not (is_locked(self.worker.actor.lock) or is_locked(callers._MARKING)):
            do()
            return lambda: None
        thread = threading.Thread(target=do, daemon=True)
        thread.start()
        assert self.over.acquire(timeout=PATIENCE), f"{action} hangs"
        return finish

    # Events.

    def do(self, action: str) -> None:
        """Perform an action."""
        self.done.add(action)
        getattr(self, f"_{action}", self._send)(*(() if hasattr(self, f"_{action}") else (action,)))

    def _fresh(self) -> Any:
        self._number += 1
        return f"m{self._number}"

    def _send(self, action: str) -> None:
        message: Any = {"same": SAME, "poison": "poison"}.get(action) or self._fresh()
        ways: dict[str, Callable[[], Any]] = {
            "ack": lambda: self.worker.actor.offers.offer(message),
            "block": lambda: self._wait_for(message),
            "help": lambda: self._wait_for(message, helping=True),
        }
        self._note([message], ways.get(action, lambda: self.worker.push(message)))

    def _push_many(self) -> None:
        messages = [self._fresh(), SAME, self._fresh()]
        if self.state == "lingering":  # there they go in one by one
            for message in messages:
                self._note([message], lambda one=message: self.worker.push_many([one]))  # type: ignore[misc]
        else:
            self._note(messages, lambda: self.worker.push_many(messages))

    def _wait_for(self, message: Any, *, helping: bool = False) -> None:
        """Do what `push_block` does before it waits."""
        pair, ticket = self.worker.actor, self._ticket(message)
        if helping and help_out(pair, message, ticket):
            return
        if pair.core.shape.accepts_all:
            self.worker._append(message, ticket)
        else:
            pair.offers.offer(message, ticket)

    def _ticket(self, message: Any) -> Once:
        return self.tickets.setdefault(message, Once())

    def _note(self, messages: list[Any], push: Callable[[], Any]) -> None:
        try:
            push()
        except af.WorkerStopped:
            self.refused += messages
            for message in messages:
                self.tickets.pop(message, None)
        else:
            self.accepted += messages

    def _run(self) -> None:
        self.lane.run()

    def _tick(self) -> None:
        self.clock.advance(2 * EVERY)

    def _drain(self) -> None:
        self.worker.stop(block=False)

    def _finish(self) -> None:
        self.worker.stop(drain=False, block=False)

    def _now(self) -> None:
        self.worker.stop(now=True, block=False)

    def _tell(self) -> None:
        with suppress(pykka.ActorDeadError):
            self.worker.executor.tell("hello")

    def _crash(self) -> None:
        with suppress(pykka.ActorDeadError):
            self.worker.executor.tell("crash")

    def _ask(self) -> None:
        with suppress(pykka.ActorDeadError):
            self.questions.append(self.worker.executor.ask("hello", block=False))

    def _look(self) -> None:
        self.worker.statistics()
        len(self.worker)

    # Invariants.

    def settle(self) -> None:
        """Run everything that is still to come."""
        for _ in range(4):
            self.lane.run()
            self.clock.advance(10 * EVERY)

    def check(self) -> list[str]:
        """Return the problems found."""
        self.settle()
        worker, say = self.worker, self.wrong.append
        stopped = self.state in {"stopping", "idling"} or bool(self.done & {"drain", *_LOSING})
        if not stopped:
            self._check_alive()
        if self.lane.most > _MOST:
            say(f"it was in its lane {self.lane.most} times")
        if worker.exit_reason is None:
            say("it does not end")
        elif self.ends > 1 or (self.ends == 0 and not self.done & {"crash", "poison", "now"}):
            say(f"on_stop was called {self.ends} times")
        self._check_messages()
        self._check_waiters()
        try:
            worker.push("late")
        except af.WorkerStopped:
            if worker.actor.core.raw:
                say(f"nobody looks after {worker.actor.core.raw}")
        else:
            say("it takes messages after its end")
        return self.wrong

    def _check_alive(self) -> None:
        """Check a worker that nobody has stopped; then stop it."""
        worker, say = self.worker, self.wrong.append
        if len(worker):
            say("it is idle although messages wait")
        if worker.exit_reason is not None:
            say(f"it ended: {worker.exit_reason}")
            return
        self.do("push")
        if len(self.lane) != 1 and self.state not in {"waiting", "lingering"}:
            say(f"a push puts it into its lane {len(self.lane)} times")
        self.settle()
        self.do("drain")
        self.settle()

    def _check_messages(self) -> None:
        say = self.wrong.append
        for message in set(self.accepted) | set(self.refused):
            times, taken = self.processed.count(message), self.accepted.count(message)
            if times > taken or (times < taken and not self.done & _LOSING):
                say(f"{message} was accepted {taken} times and processed {times} times")
        woken = self.state in {"busy", "stopping"}
        spoiled = self.done & {"now", "crash", "tell", "ask"}  # mail is served before
        # It was idle, and the first push has woken it: that message is in flight, alone.
        if woken and not spoiled and self.batches[:1] != [["m101"]]:
            say(f"the first batch of {self.batches} should be m101 alone")
        fresh = [message for message in self.processed if type(message) is str]
        if len(fresh) != len(set(fresh)):
            say("repeated")

    def _check_waiters(self) -> None:
        say = self.wrong.append
        for message, ticket in self.tickets.items():
            if ticket.times != 1:
                say(f"the ticket of {message} was resolved {ticket.times} times")
            elif ticket.error is None and message not in self.processed:
                say(f"{message} was not processed, but its caller was answered")
            elif ticket.error is not None and message in self.processed and "now" not in self.done:
                say(f"{message} was processed, but its caller got {ticket.error!r}")
        for question in self.questions:
            try:
                question.get(timeout=0)
            except pykka.Timeout:
                say("an ask was never answered")
            except pykka.ActorDeadError:
                continue


_ALSO = (Arena.handle.__code__,)


def duel(
    state: str,
    first: str,
    second: str,
    third: str | None = None,
    *,
    opcodes: bool = False,
    begin: int = 0,
    stride: int = 1,
) -> list[str]:
    """Perform an action while another one stands still at each of its places in turn.

    Or at every `stride`-th place. A third thing happens when the first one goes on and has handed
    the token over, if it does. Return what failed.
    """
    wrong: list[str] = []
    for place in range(begin, 100_000, stride):
        arena = Arena(state)
        paused = Paused(partial(arena.do, first), place, also=_ALSO, opcodes=opcodes)
        finish = arena.try_out(second)
        if third is not None:
            arena.lane.meanwhile = partial(arena.do, third)
        paused.finish()
        finish()
        if paused.error is not None:
            arena.wrong.append(f"{first} raised {paused.error!r}")
        wrong += [f"{first} at {paused.where}, {second}: {what}" for what in arena.check()]
        if paused.where is None:
            break
    return wrong
