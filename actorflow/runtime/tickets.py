"""Callers that wait: one object for a thread, one for a task of any asyncio loop.

A ticket is resolved with an error or with an answer. The first resolution counts, and any later one
does nothing: an interrupt may make a thread repeat a step.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from _thread import TIMEOUT_MAX, allocate_lock
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import kind_of
from actorflow.runtime.errors import BadOption, LoopBlocked
from actorflow.runtime.lanes.pool import HERE
from actorflow.runtime.lanes.serial_lane import SERIAL_LANE
from actorflow.runtime.lanes.thread_start import PENDING, RETRY_EVERY, retry
from actorflow.runtime.lanes.uninterruptible import attend

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

__all__ = [
    "AsyncTicket",
    "FutureTicket",
    "ThreadTicket",
    "check_timeout",
    "refuse_in_event_loop",
    "resolve_many",
]


def check_timeout(timeout: Any) -> None:
    """Validate a timeout that is not `None`.

    Raises:
        BadOption: it is not a number.

    """
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout != timeout:  # noqa: PLR0124 - NaN
        msg = f"timeout={timeout!r} must be a number of seconds, or None to wait forever"
        raise BadOption(msg)


def refuse_in_event_loop(who: object, instead: str) -> None:
    """Refuse to block a thread that runs an event loop.

    Raises:
        LoopBlocked: it does; the message says what to await `instead`.

    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - does not raise
        msg = f"waiting for {who!r} here would block the event loop; write `await {instead}`"
        raise LoopBlocked(msg)


class ThreadTicket:
    """A thread that waits. A bare lock: an `Event` costs more than the whole hand-over."""

    __slots__ = ("_lock", "abandoned", "outcomes")

    def __init__(self) -> None:
        self.abandoned = False
        """Whether the caller has given up: its message need not be processed any more."""
        self._lock: Any = None  # made by the thread that is going to wait
        # An append is atomic: an interrupt or another thread finds no outcome, or a complete one.
        self.outcomes: list[tuple[BaseException | None, Any]] = []
        """The error and the answer that it was resolved with. The first entry counts."""

    @property
    def resolved(self) -> bool:
        """Whether the wait is over."""
        return bool(self.outcomes)

    @property
    def error(self) -> BaseException | None:
        """What to raise to the caller; `None` before the resolution, and without an error."""
        return self.outcomes[0][0] if self.outcomes else None

    @property
    def answer(self) -> Any:
        """What to return to the caller; `None` before the resolution, and without an answer."""
        return self.outcomes[0][1] if self.outcomes else None

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Release the waiting thread with an error or an answer. Thread-safe, idempotent."""
        self.outcomes.append((error, answer))
        if self._lock is None:
            return  # a caller that is about to wait checks the outcomes once more
        try:
            self._lock.release()
        except RuntimeError:  # resolved before, and nobody has waited yet
            return

    def prepare(self) -> None:
        """Do now what `wait` would do first.

        A thread that has just woken another one had better block soon: until then it holds the
        interpreter lock, on which the other one falls asleep again.
        """
        lock = allocate_lock()
        lock.acquire()
        self._lock = lock

    def wait(self, timeout: float | None) -> bool:
        """Wait until resolved; return whether it was in time. For one thread at a time."""
        if self.outcomes:
            return True
        if self._lock is None:
            self.prepare()
            if self.outcomes:
                return True
        slot = HERE.thread
        if slot is not None:
            if slot.waits is not None:
                return slot.waits(self, timeout)
            SERIAL_LANE.pass_on()
        if PENDING:
            return self._wait_and_retry(timeout)
        acquire = self._lock.acquire
        if timeout is None:
            return bool(acquire())
        if not 0.0 <= timeout <= TIMEOUT_MAX:
            timeout = min(max(timeout, 0.0), TIMEOUT_MAX)
        return bool(acquire(True, timeout))  # noqa: FBT003 - by name takes longer

    def _wait_and_retry(self, timeout: float | None) -> bool:
        """Like `wait`, while the system refuses threads: there may be no other to try again."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = RETRY_EVERY if end is None else min(RETRY_EVERY, end - time.monotonic())
            if self._lock.acquire(timeout=max(left, 0.0)):
                return True
            if end is not None and time.monotonic() >= end:
                return False
            attend(retry)


_MANY = 100  # timeouts of different length that are kept apart for one event loop
_LATE = object()  # the result of a future whose time is up
_TABLE = "_actorflow_deadlines"  # attribute of an event loop


class _Deadlines:
    """The futures of one event loop that have the same time to wait, in the order of their ends.

    One timer serves all of them, because a timer of its own would cost each caller more than the
    rest of its wait. It is never cancelled, but refers to no future that is not pending.
    """

    __slots__ = ("_ends", "_loop", "_set", "_timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._loop = loop
        self._timeout = timeout
        self._ends: dict[asyncio.Future[Any], float] = {}
        self._set = False

    def add(self, future: asyncio.Future[Any]) -> None:
        """End a future with `_LATE` unless it is removed in time. O(1)."""
        end = self._ends[future] = self._loop.time() + self._timeout
        if not self._set:
            self._set = True
            self._loop.call_at(end, self._on_due)

    def remove(self, future: asyncio.Future[Any]) -> None:
        """Forget a future. O(1)."""
        self._ends.pop(future, None)

    def _on_due(self) -> None:
        now = self._loop.time()
        due: list[asyncio.Future[Any]] = []
        self._set = False
        for future, end in self._ends.items():
            if end > now:
                self._set = True
                self._loop.call_at(end, self._on_due)
                break
            due.append(future)
        for future in due:
            del self._ends[future]
            if not future.done():
                future.set_result(_LATE)


def _deadlines(loop: asyncio.AbstractEventLoop, timeout: float) -> _Deadlines:
    """Return the table of a loop for that timeout.

    It is an attribute of the loop, so that it dies with it. A weak dictionary would keep the loop
    alive, because futures refer to their loop.
    """
    own: dict[float, _Deadlines] | None = getattr(loop, _TABLE, None)
    if own is None:
        own = {}
        try:
            setattr(loop, _TABLE, own)
        except AttributeError:  # a loop with slots: each wait gets a timer of its own
            return _Deadlines(loop, timeout)
    found = own.get(timeout)
    if found is None:
        if len(own) >= _MANY:
            own.clear()  # each keeps itself alive for as long as it has a timer
        found = own[timeout] = _Deadlines(loop, timeout)
    return found


class AsyncTicket:
    """A task that waits. Create it on the event loop that the task runs on."""

    __slots__ = ("abandoned", "future", "loop")

    def __init__(self) -> None:
        self.abandoned = False
        """Whether the caller has given up: its message need not be processed any more."""
        import asyncio  # noqa: PLC0415 - most programs never need it

        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    @property
    def answer(self) -> Any:
        """What to return to the caller. Read it after a successful `wait`."""
        answer = self.future.result()
        return None if answer is _LATE else answer

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Release the waiting task with an error or an answer. Thread-safe, idempotent."""
        try:
            self.loop.call_soon_threadsafe(self.settle, error, answer)
        except RuntimeError:  # the loop is closed, so nobody waits any more
            return

    async def wait(self, timeout: float | None) -> bool:
        """Wait until resolved; return whether it was in time. Cancellation leaves nothing behind.

        Raises:
            BaseException: what it was resolved with.

        """
        future = self.future
        if PENDING:
            self._retry()
        if timeout is None or future.done():
            return await future is not _LATE
        deadlines = _deadlines(self.loop, timeout)
        deadlines.add(future)
        try:
            return await future is not _LATE
        finally:
            deadlines.remove(future)

    def _retry(self) -> None:
        """Try again to start threads for as long as this task waits and the system refuses them."""
        if PENDING and not self.future.done():
            attend(retry)
            self.loop.call_later(RETRY_EVERY, self._retry)

    def settle(self, error: BaseException | None, answer: Any = None) -> None:
        """End the future, unless it was cancelled, is late, or has ended. On the loop."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(answer)
        else:
            self.future.set_exception(_acceptable(error))


class FutureTicket:
    """A caller that waits, if ever, for a `pykka.Future`."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        from pykka._threading import ThreadingFuture  # noqa: PLC0415 - few callers need it

        self.future: Any = ThreadingFuture()

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """End the future with an error or an answer. Thread-safe, idempotent."""
        with contextlib.suppress(queue.Full):  # what pykka raises if it has ended
            if error is None:
                self.future.set(answer)
            else:
                self.future.set_exception((type(error), error, error.__traceback__))


def _acceptable(error: BaseException) -> BaseException:
    """Return the error, wrapped if a future cannot hold it."""
    from asyncio import CancelledError  # noqa: PLC0415 - as above

    if not isinstance(error, (StopIteration, CancelledError)):
        return error
    # A future refuses the one, and the other would look as if the waiting task was cancelled.
    wrapped = RuntimeError(f"the job raised {kind_of(error)}")
    wrapped.__cause__ = error
    return wrapped


def resolve_many(outcomes: Iterable[tuple[Any, ...]]) -> None:
    """Resolve many tickets; each event loop is woken once for all of its tickets.

    Args:
        outcomes: `(ticket, error)` or `(ticket, error, answer)` for each ticket.

    """
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Any, ...]]] = {}
    for outcome in outcomes:
        ticket = outcome[0]
        if type(ticket) is AsyncTicket:
            loops.setdefault(ticket.loop, []).append(outcome)
        else:
            ticket.resolve(*outcome[1:])
    for loop, own in loops.items():
        try:
            loop.call_soon_threadsafe(_settle_all, own)
        except RuntimeError:  # the loop is closed, so nobody waits any more
            continue


_TURN = 0.002  # seconds that a lane waits at most for an event loop


def let_callers_run(ticket: Any) -> None:
    """Wait a moment for callers that were just resolved, so that they can call again.

    For a task: until its event loop has run all tasks that were woken, unless this is the thread
    of a loop. For a thread: give way.
    """
    if type(ticket) is not AsyncTicket:
        time.sleep(0.0)
        return
    asyncio = sys.modules["asyncio"]
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - does not raise
        return
    lock = allocate_lock()
    lock.acquire()
    loop = ticket.loop
    try:  # behind the tasks, which the loop wakes in its next round
        loop.call_soon_threadsafe(loop.call_soon, lock.release)
    except RuntimeError:  # it is closed
        return
    lock.acquire(timeout=_TURN)


def _settle_all(outcomes: list[tuple[Any, ...]]) -> None:
    for outcome in outcomes:
        if len(outcome) == 2 and outcome[1] is None:  # noqa: PLR2004 - no error, no answer: inlined
            future = outcome[0].future
            if not future.done():
                future.set_result(None)
        else:
            outcome[0].settle(*outcome[1:])
