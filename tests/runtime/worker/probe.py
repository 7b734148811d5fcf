"""Jobs under the control of a test, which sees each batch begin and decides when it ends."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import actorflow as af

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0
"""Seconds that a test waits for an expected event; only a failing test waits so long."""

LANES = ("pool", "thread", "asyncio")


class Probe:
    """A job whose batches the test sees begin, and lets end.

    `lane` says where it runs: on the pool, in a thread of its own, or (as a coroutine) on the loop.
    """

    def __init__(self, lane: str = "pool") -> None:
        self.lane = lane
        self.batches: list[Any] = []
        self.workers: list[af.WorkerRef] = []
        self._begun: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._gate = threading.Semaphore(0)
        self._held: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()
        self._passes = 0
        self._is_open = False
        self._outcomes: deque[Any] = deque()

    def spawn(self, **options: Any) -> af.WorkerRef:
        """Start a worker with this job."""
        if self.lane == "asyncio":
            worker = af.spawn(self.acall, **options)
        else:
            worker = af.spawn(self.call, **{"executor": self.lane, **options})
        self.workers.append(worker)
        return worker

    def call(self, batch: Any, state: Any) -> Any:
        """Act as the job, as a function."""
        outcome = self._begin(batch)
        if not self._is_open:
            assert self._gate.acquire(timeout=PATIENCE), "nobody let the batch end"
        return self._end(outcome, state)

    async def acall(self, batch: Any, state: Any) -> Any:
        """Act as the job, as a coroutine function."""
        outcome = self._begin(batch)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._is_open or self._passes:
                self._passes = max(0, self._passes - 1)
                future.set_result(None)
            else:
                self._held.append((loop, future))
        await asyncio.wait_for(future, PATIENCE)
        return self._end(outcome, state)

    def _begin(self, batch: Any) -> Any:
        outcome = self._outcomes.popleft() if self._outcomes else None
        self.batches.append(batch)
        self._begun.put(batch)
        return outcome

    def _end(self, outcome: Any, state: Any) -> Any:
        if isinstance(outcome, BaseException) and not isinstance(outcome, af.Stop):
            raise outcome
        return state if outcome is None else outcome

    def then(self, *outcomes: Any) -> None:
        """Set how the next batches end: an exception is raised, anything else is the new state."""
        self._outcomes.extend(outcomes)

    def begun(self) -> Any:
        """Wait until the next batch begins, and return it."""
        return self._begun.get(timeout=PATIENCE)

    def let_end(self, count: int = 1) -> None:
        """Allow so many batches to end: the one that has begun first, or the next ones."""
        for _ in range(count):
            with self._lock:
                if self.lane != "asyncio":
                    self._gate.release()
                elif self._held:
                    loop, future = self._held.popleft()
                    loop.call_soon_threadsafe(_release, future)
                else:
                    self._passes += 1

    def open(self) -> None:
        """Allow all batches to end, those to come too."""
        self._is_open = True
        self.let_end(100)

    def close(self) -> None:
        """Stop all workers of this probe."""
        self.open()
        for worker in self.workers:
            worker.stop(now=True)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Caller:
    """A thread that makes one call and remembers how that ended."""

    def __init__(self, function: Any, *arguments: Any, **options: Any) -> None:
        self._call = (function, arguments, options)
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        function, arguments, options = self._call
        try:
            self.result = function(*arguments, **options)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.done.set()

    def wait(self) -> Caller:
        """Wait until the call has ended."""
        assert self.done.wait(PATIENCE), "the call did not end"
        self._thread.join(PATIENCE)
        return self

    def value(self) -> Any:
        """Wait; return the result of the call, or raise its exception."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.result


class FakeTicket:
    """A ticket that notes how often and how it was resolved."""

    def __init__(self) -> None:
        self.answers: list[BaseException | None] = []

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        self.answers.append(error)

    @property
    def answer(self) -> BaseException | None:
        """The one answer."""
        (answer,) = self.answers
        return answer


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something that another thread does has happened; there is no event for it."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.0005)


def until_accumulated(worker: af.WorkerRef, count: int) -> None:
    """Wait until so many messages are accumulated: callers in other threads have got so far."""
    until(lambda: len(worker) >= count, f"{count} messages should be accumulated")


def ended(worker: af.WorkerRef) -> Any:
    """Wait until the worker has ended, and return the reason."""
    assert worker.actor_stopped.wait(PATIENCE), "the worker did not end"
    return worker.exit_reason


def is_locked(lock: Any) -> bool:
    """Return whether any thread holds the lock: an `RLock` tells only by its repr."""
    return repr(lock).startswith("<locked")
