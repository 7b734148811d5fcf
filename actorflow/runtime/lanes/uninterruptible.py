"""Run code that KeyboardInterrupt cannot cut in half.

Problem
    CPython runs signal handlers in the main thread, between any two bytecodes, and the handler of
    SIGINT raises KeyboardInterrupt there. If that happens while the main thread changes state that
    it shares with other threads, half of the change is made: a worker that was taken out of the
    list of idle workers and put into no queue is never run again; a lock is released by `with`,
    but the table that it protects is inconsistent.

Approach
    Signal handlers never run inside a C call, and never in another thread. So there are two ways:

    1. A change that can be written as one C call is made directly. `hand_over` pops a token and
       puts it into a queue by exhausting an iterator over C functions (`map(put, map(pop, ...))`)
       with another C function (`deque.extend`). `call_together` does the same for plain calls.
    2. Everything else is handed to a helper thread by one C call (`SimpleQueue.put`), and the main
       thread waits for the result. `UNINTERRUPTIBLE.run` and `.post` use one daemon thread for the
       whole process, for short functions. `run_in_new_thread` starts a thread for one call that
       may be slow, and can undo it.

    In any other thread each of these functions is a plain call.

Invariants
    1. `UNINTERRUPTIBLE.run(f)` calls `f` exactly once, or raises before `f` was handed over.
    2. A function that has started runs to its end, whatever happens to the caller. After an
       interrupt the caller gets KeyboardInterrupt, and the result is discarded or undone.
    3. Functions given to the helper thread run one after another, in the order of the calls.
       Therefore they must not block: all others wait for them.
    4. At most one helper thread serves the queue: it is the one that popped `_vacant`. An
       interrupt right after `start_new_thread` can at worst start a thread that ends at once.
    5. If the system refuses to start a thread, functions are called directly: an interrupt may
       then cut them in half, but nothing waits for a thread that will never exist.
    6. A forked child starts without the helper thread and without the queued functions, which the
       parent executes.

Cost
    Measured on 2 cores with CPython 3.11: `run` takes 17 us in the main thread, because it wakes
    the helper and waits, and 0.8 us in any other thread; `post` takes 0.2 us.

Alternatives
    Blocking SIGINT with `pthread_sigmask` needs two system calls for each push, and does not stop a
    handler that Python has already scheduled. Replacing the handler with `signal.signal` conflicts
    with programs that install their own.

Tests
    tests/runtime/worker/interrupts raises KeyboardInterrupt at every traced opcode of each public
    operation, in the main thread, and checks afterwards that the worker still works and that no
    message was lost or processed twice. tests/runtime/lanes does the same for the lanes and for
    this module. tests/runtime/worker/storms/mutations.py breaks the code in ways that these tests
    must notice.
"""

from __future__ import annotations

import queue
import sys
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections import deque
from functools import partial
from operator import call as _call
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.headroom import require_headroom
from actorflow.runtime.lanes.thread_start import AGENTS, PENDING, RETRY_EVERY, retry
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "UNINTERRUPTIBLE",
    "HandedOverCall",
    "Uninterruptible",
    "attend",
    "call_together",
    "exhaust",
    "hand_over",
    "hand_over_to_helper",
    "in_main_thread",
    "run_in_new_thread",
]

_main = threading.main_thread().ident


def in_main_thread() -> bool:
    """Return whether the calling thread is the one that signals interrupt."""
    return get_ident() == _main


class HandedOverCall:
    """A function that another thread executes while the caller waits."""

    __slots__ = ("_args", "_error", "_result", "done", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self._args = args
        self._result: Any = None
        self._error: BaseException | None = None
        self.done = allocate_lock()
        """What the caller waits for."""
        self.done.acquire()

    def execute(self) -> None:
        """Call the function, keep its outcome, and release the caller. Never raises."""
        try:
            self._result = self.function(*self._args)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            self._error = error
        self.done.release()

    def outcome(self) -> Any:
        """Return or raise what the function did, once it is done."""
        if self._error is None:
            return self._result
        # Its traceback refers to the caller's frame, and that to this call.
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error


class Uninterruptible:
    """One daemon thread, started on first use, that executes short functions for the main thread.

    Functions run one after another, in the order in which they were handed over. They must not
    block: every other call waits for them.
    """

    def __init__(self) -> None:
        self._reset()
        after_fork(self._after_fork)

    def _reset(self) -> None:
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        # Atomic flag: the thread that pops it serves the inbox, and any other ends at once. So an
        # interrupt right after `start_new_thread` cannot lead to two threads.
        self._vacant: list[None] = [None]

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Execute `function(*args)` where no signal interrupts it; return or raise its outcome.

        In the main thread, this waits for the helper thread; in any other thread, and where the
        helper thread cannot be started, the function is called directly. KeyboardInterrupt while
        waiting is raised at once: the function has not started and never will, or runs to its end.
        """
        if get_ident() != _main or (self._vacant and not self._start()) or sys.is_finalizing():
            return function(*args)
        call = HandedOverCall(function, args)
        self._inbox.put(call.execute)
        call.done.acquire()
        return call.outcome()

    def post(self, function: Callable[[], object]) -> None:
        """Execute `function()` in the helper thread, some time after this has returned.

        Thread-safe; in whichever thread it is called, the function is handed over by one C call.
        What it raises is logged. Only where the helper thread cannot be started is the function
        called directly.
        """
        if (self._vacant and not self._start()) or sys.is_finalizing():
            _guarded(function)
        else:
            self._inbox.put(function)

    def poster(self) -> Callable[[Any], object] | None:
        """Return a C function that hands over a function to call; `None` without a thread."""
        if (self._vacant and not self._start()) or sys.is_finalizing():
            return None
        return self._inbox.put

    def poke(self) -> None:
        """Make the thread look for attempts that are pending. Thread-safe."""
        if not self._vacant:
            self._inbox.put(_do_nothing)

    def _start(self) -> bool:
        """Start the thread; return whether that was possible."""
        try:
            start_new_thread(self._serve, (self._inbox, self._vacant))
        except RuntimeError:  # limits of the process or of the machine; the next call tries again
            return False
        return True

    def _serve(
        self, inbox: queue.SimpleQueue[Callable[[], object] | None], vacant: list[None]
    ) -> None:
        try:
            vacant.pop()
        except IndexError:
            return
        threading.current_thread().name = "actorflow-helper"
        get = inbox.get
        while True:
            try:
                function = get(timeout=RETRY_EVERY if PENDING else None)
            except queue.Empty:
                retry()
                continue
            if function is None:
                return
            _guarded(function)
            del function  # it may refer to much, and the next one may come late

    def _after_fork(self) -> None:
        """Start afresh: the thread does not exist here, and its calls are made in the parent."""
        global _main  # noqa: PLW0603 - the thread that forked is the main thread of the child
        _main = get_ident()
        old = self._inbox
        self._reset()
        while not old.empty():
            old.get()
        old.put(None)  # if it was the helper thread that forked, it ends


def _do_nothing() -> None:
    pass


def _guarded(function: Callable[[], object]) -> None:
    try:
        function()
    except BaseException:  # noqa: BLE001 - one bad function must not end the thread
        log.critical("uninterruptible function raised", function=brief(function), exc_info=True)


UNINTERRUPTIBLE = Uninterruptible()
"""The helper thread of the process."""

AGENTS.append(UNINTERRUPTIBLE.poke)


def attend(function: Callable[[], None]) -> None:
    """Call a function that never raises where no signal interrupts it.

    In the main thread it is only handed over, so this never blocks.
    """
    if get_ident() == _main:
        UNINTERRUPTIBLE.post(function)
    else:
        function()


# Changes made by one C call.
#
# A token is the right to run an actor. The thread that takes it out of a list must put it into the
# queue of a lane.

exhaust = deque[Any](maxlen=0).extend
"""Run an iterator to its end, in C."""


def hand_over(tokens: list[Any], put: Callable[[Any], object]) -> bool:
    """Pop a token and put it; return whether there was one. Atomic if `put` is a C function."""
    try:
        exhaust(map(put, map(list.pop, (tokens,))))
    except IndexError:
        return False
    return True


def call_together(*functions: Callable[[], object]) -> None:
    """Call C functions one after the other. No signal strikes between two of them."""
    exhaust(map(_call, functions))


def hand_over_to_helper(tokens: list[Any], function: Callable[[Any], object]) -> bool:
    """Pop a token and pass it to `function` in the helper thread; return whether there was one."""
    require_headroom()  # or the token may be popped, and not be put
    put = UNINTERRUPTIBLE.poster()
    if put is None:  # no thread can be started, so this is all that can be done
        return hand_over(tokens, function)
    try:
        exhaust(map(put, map(partial(partial, function), map(list.pop, (tokens,)))))
    except IndexError:
        return False
    return True


# Slow calls.


class _Undoable(HandedOverCall):
    """A call whose outcome is undone if the caller does not wait for it any longer."""

    __slots__ = ("_ended", "_given_up", "_left", "_undo")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        undo: Callable[[Any], object] | None,
    ) -> None:
        super().__init__(function, args)
        self._undo = undo
        self._ended = self._given_up = False
        self._left = [None]  # atomic flag: the thread that pops it undoes an abandoned call

    def execute(self) -> None:
        """Call the function and release the caller, or undo what it did. Never raises."""
        super().execute()
        self._ended = True
        if self._given_up:
            self._undo_once()

    def give_up(self) -> None:
        """Arrange that the outcome is undone: by the thread, if it has not come to its end yet."""
        self._given_up = True
        if self._ended:
            threading.Thread(
                target=self._undo_once, name="actorflow-uninterruptible", daemon=True
            ).start()

    def _undo_once(self) -> None:
        try:
            self._left.pop()
        except IndexError:
            return
        what = brief(self.function)
        if self._error is not None:
            log.error("interrupted call failed", call=what, exc_info=self._error)
        elif self._undo is not None:
            try:
                self._undo(self._result)
            except BaseException:  # noqa: BLE001 - nobody waits for it
                log.error("interrupted call cannot be undone", call=what, exc_info=True)


def run_in_new_thread(
    function: Callable[..., Any], *args: Any, undo: Callable[[Any], object] | None = None
) -> Any:
    """Execute `function(*args)` where no signal interrupts it; return or raise its outcome.

    In the main thread, this waits for a thread that is started for the call; in any other, and
    where none can be started, the function is called directly. KeyboardInterrupt while waiting is
    raised at once: the function runs to its end, and what it returns is given to `undo`.
    """
    if not in_main_thread() or sys.is_finalizing():
        return function(*args)
    call = _Undoable(function, args, undo)
    thread = threading.Thread(target=call.execute, name="actorflow-uninterruptible", daemon=True)
    try:
        try:
            # An interrupt in `Thread.start` itself can become a RuntimeError, because it releases a
            # lock that the `with` around it releases again.
            UNINTERRUPTIBLE.run(thread.start)
        except RuntimeError:  # limits of the process, or the interpreter is about to end
            return function(*args)
        call.done.acquire()
    except BaseException:
        call.give_up()
        raise
    return call.outcome()
