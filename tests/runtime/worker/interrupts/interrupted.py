"""A process whose main thread pushes and is interrupted by SIGINT, round after round.

    python -m tests.runtime.worker.interrupts.interrupted BEHAVIOUR ROUNDS SEED [MUTATION]

Each round spawns a worker in a `with` block and pushes in every way there is until a signal comes,
which may interrupt the pushes, the end of the block or the code after it. Afterwards the worker
must have ended and its counts must add up. Each problem is printed on a line, and the exit status
is 1; a round that hangs ends the process with the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow.behaviours import (
    Bounded,
    Coalesce,
    Debounce,
    Expire,
    Linger,
    Priority,
    Queue,
    Stack,
    Unique,
)
from actorflow.runtime.lanes.pool import ThreadPool
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE
from actorflow.runtime.worker import shape
from actorflow.runtime.worker.pair import offers
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0
"""Seconds after which a round counts as hanging."""
KEYS = 7
BOUND = 5

Message = tuple[int, int]


def key(message: Message) -> int:
    return message[0]


def merge(old: Message, new: Message) -> Message:
    return (old[0], new[1])


BEHAVIOURS: dict[str, Callable[[], Any]] = {
    "queue": Queue,
    "stack": Stack,
    "priority": lambda: Priority(key),
    "unique": lambda: Unique(key),
    "coalesce": lambda: Coalesce(key, merge),
    "linger": lambda: Linger(Queue(), 0.001, size=100),
    "debounce": lambda: Debounce(Queue(), 0.0005, at_most=0.002),
    "expire": lambda: Expire(Queue(), 0.001),
    "nested": lambda: Bounded(Linger(Unique(key), 0.001), BOUND, when_full="drop_oldest"),
    "reject": lambda: Bounded(Queue(), BOUND),
    "drop_oldest": lambda: Bounded(Queue(), BOUND, when_full="drop_oldest"),
    "drop_newest": lambda: Bounded(Queue(), BOUND, when_full="drop_newest"),
    "block": lambda: Bounded(Queue(), BOUND, when_full="block"),
    "unique reject": lambda: Bounded(Unique(key), BOUND),
    "unique drop_oldest": lambda: Bounded(Unique(key), BOUND, when_full="drop_oldest"),
    "unique drop_newest": lambda: Bounded(Unique(key), BOUND, when_full="drop_newest"),
    "unique block": lambda: Bounded(Unique(key), BOUND, when_full="block"),
}

COMPLETE = {"queue", "stack", "priority", "linger", "debounce", "block"}
"""Whatever they have taken is processed."""
NEWEST = {"unique", "coalesce"}
"""Of whatever they have taken, the newest message of each key is processed."""


class Signals:
    """Sends one signal after a delay: SIGINT by a thread, or SIGALRM by the system.

    A thread can only send while it has the interpreter lock, so its signals find the main thread
    where that gives up the lock: in blocking calls, and at the end of a time slice. The timer of
    the system strikes anywhere. Both signals have the same handler.
    """

    def __init__(self) -> None:
        self._delays: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._send, name="signals", daemon=True).start()

    def _send(self) -> None:
        while True:
            time.sleep(self._delays.get())
            os.kill(os.getpid(), signal.SIGINT)

    def after(self, delay: float, *, timer: bool) -> None:
        """Send one after so many seconds."""
        if timer:
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        else:
            self._delays.put(delay)


class Round:
    """One worker, and what its pusher has seen of it."""

    def __init__(self, behaviour: str, dice: random.Random, *, lively: bool) -> None:
        self.behaviour = behaviour
        self.dice = dice
        self.lively = lively
        """Push one message at a time to a worker that is mostly idle."""
        self.begun: list[Message] = []
        self.taken: list[Message] = []
        """Those whose push returned normally."""
        self.processed: list[Message] = []
        self.limit = dice.choice((3, 100, 10**9))
        """Pushes after which the block ends, if no signal has come: then it strikes the end."""
        self.slow = 0.0 if lively else dice.choice((0.0, 0.0, 0.0005, 0.002))
        self.worker: af.WorkerRef | None = None

    def job(self, batch: list[Message], _state: Any) -> af.Answers:
        self.processed += batch
        if self.slow:
            time.sleep(self.slow)
        return af.Answers(None, [message[1] for message in batch])

    def run(self, signals: Signals) -> bool:
        """Push until interrupted; return whether the interrupt arrived."""
        options: Any = {"help": True} if self.dice.random() < 0.2 else {}
        try:
            with af.spawn(self.job, behaviour=BEHAVIOURS[self.behaviour](), **options) as worker:
                self.worker = worker
                signals.after(self.dice.random() * 0.003, timer=self.dice.random() < 0.5)
                while len(self.begun) < self.limit:
                    self._push(worker)
            for _ in range(1_000):  # a signal just before a sleep does not cut it short
                time.sleep(0.002)
        except KeyboardInterrupt:
            return True
        return False

    def _fresh(self, count: int) -> list[Message]:
        start = len(self.begun)
        fresh = [(number % KEYS, number) for number in range(start, start + count)]
        self.begun += fresh
        return fresh

    def _push(self, worker: af.WorkerRef) -> None:
        way = self.dice.random()
        if self.lively:
            (message,) = self._fresh(1)
            worker.push(message)
            self.taken.append(message)
            while not worker.is_idle:
                time.sleep(0)
            return
        if way < 0.9:
            for message in self._fresh(50):
                worker.push(message)
                self.taken.append(message)
            return
        if way < 0.95:
            fresh = self._fresh(20)
            worker.push_many(fresh)
            self.taken += fresh
            return
        (message,) = self._fresh(1)
        try:
            if way < 0.97:
                worker.push_ack(message)
            elif way < 0.99:
                worker.push_block(message)
            else:
                answer = worker.ask(message, timeout=PATIENCE)
                assert answer is not None or self.behaviour == "coalesce", answer
        except (af.Rejected, af.Displaced):
            return
        self.taken.append(message)

    def problems(self) -> list[str]:
        """Return the problems found after the round."""
        worker = self.worker
        if worker is None:
            return []
        worker.stop(timeout=PATIENCE / 2)
        wrong = []
        try:
            check_law(worker)
        except AssertionError as error:
            wrong.append(f"the counts do not add up: {error}")
        counts = worker.statistics()
        if worker.is_alive():
            wrong.append("the worker has not ended")
        if counts.held or counts.in_flight:
            wrong.append(f"{counts.held} held and {counts.in_flight} in flight after the end")
        known = counts.accepted + counts.rejected
        if not len(self.taken) <= known <= len(self.begun):
            wrong.append(f"{len(self.taken)} taken, {len(self.begun)} begun, {known} known")
        handed = len(self.processed)  # a job that a helping pusher runs may be interrupted itself
        if not counts.processed <= handed <= counts.processed + counts.failed:
            wrong.append(f"{counts.processed} counted, {handed} processed")
        return wrong + self._lost()

    def _lost(self) -> list[str]:
        seen = set(self.processed)
        if len(seen) != len(self.processed):
            return ["messages were processed twice"]
        if self.behaviour in COMPLETE:
            lost = [message for message in self.taken if message not in seen]
            return [f"lost: {lost[:5]}"] if lost else []
        if self.behaviour in NEWEST:
            newest: dict[int, int] = {}
            for message in self.processed:
                newest[message[0]] = max(message[1], newest.get(message[0], -1))
            lost = [one for one in dict(self.taken).items() if newest.get(one[0], -1) < one[1]]
            return [f"lost the newest: {lost[:5]}"] if lost else []
        return []


# Safeguards taken away, to show that the rounds notice.


def split_hand_over() -> None:
    """Take the token first and put it into the lane's queue later."""
    claim = ThreadPool.claim

    def claim_in_steps(self: ThreadPool, idle: list[Any]) -> bool:
        try:
            token = idle.pop()
        except IndexError:
            return False
        for _ in range(300):  # a window that a signal finds within some rounds
            pass
        return claim(self, [token])

    ThreadPool.claim = claim_in_steps  # type: ignore[method-assign]


def fold_in_main_thread() -> None:
    """Fold in the thread of the producer, whichever that is."""

    class Direct:
        def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
            if function.__name__ in ("_fold_now", "_fold_blocking"):
                return function(*arguments)
            return UNINTERRUPTIBLE.run(function, *arguments)

        def poster(self) -> Callable[[Callable[[], Any]], Any]:
            return self.run

    vars(offers)["UNINTERRUPTIBLE"] = Direct()
    vars(shape)["FOLD_AT"] = 8  # folds are short, so let there be many


MUTATIONS: dict[str, Callable[[], None]] = {
    "split hand-over": split_hand_over,
    "fold in the main thread": fold_in_main_thread,
}


def main(behaviour: str, rounds: int, seed: str, mutation: str | None = None) -> int:
    """Run the rounds; return the exit status."""
    for one_of_both in (signal.SIGINT, signal.SIGALRM):
        signal.signal(one_of_both, signal.default_int_handler)
    sys.setswitchinterval(1e-4)  # else the signals would come at the ends of time slices
    patience = PATIENCE
    if mutation is not None:
        MUTATIONS[mutation]()
        patience = 3.0
    signals = Signals()
    for number in range(rounds):
        faulthandler.dump_traceback_later(patience, exit=True)
        dice = random.Random(f"{behaviour}/{seed}/{number}")
        lively = mutation == "split hand-over" or dice.random() < 0.2
        one = Round(behaviour, dice, lively=lively)
        arrived = one.run(signals)
        wrong = one.problems()
        if not arrived:
            wrong.append("the interrupt has vanished")
        if wrong:
            print(f"round {number}:", *wrong, sep="\n  ")  # noqa: T201 - read by the test
            return 1
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
