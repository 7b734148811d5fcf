"""A thread that no signal interrupts, for what must not be left half done.

Python runs signal handlers in the main thread, between any two of its bytecodes, and the handler
of SIGINT raises KeyboardInterrupt there. A change of shared state that takes more than one C call
can therefore be cut in two in the main thread, and only there. `SHELTER.run` executes such a
change in a thread of its own; in any other thread it is a plain call.
"""

from __future__ import annotations

import queue
import sys
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from typing import TYPE_CHECKING, Any

from actorflow.runtime.fork import after_fork
from actorflow.runtime.lanes.starting import AGENTS, PENDING, RETRY_EVERY, retry
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SHELTER", "Call", "Shelter", "attend", "in_main_thread"]

_main = threading.main_thread().ident


def in_main_thread() -> bool:
    """Return whether the calling thread is the one that signals interrupt."""
    return get_ident() == _main


class Call:
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


class Shelter:
    """One daemon thread, started on first use, that executes short functions for the main thread.

    Functions run one after another, in the order in which they were handed over. They must not
    block: everything else that is sheltered waits for them.
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

        In the main thread, this waits for the shelter's thread; in any other thread, and where the
        shelter's thread cannot be started, the function is called directly. KeyboardInterrupt while
        waiting is raised at once: the function has not started and never will, or runs to its end.
        """
        if get_ident() != _main or (self._vacant and not self._start()) or sys.is_finalizing():
            return function(*args)
        call = Call(function, args)
        self._inbox.put(call.execute)
        call.done.acquire()
        return call.outcome()

    def post(self, function: Callable[[], object]) -> None:
        """Execute `function()` in the shelter's thread, some time after this has returned.

        Thread-safe; in whichever thread it is called, the function is handed over by one C call.
        What it raises is logged. Only where the shelter's thread cannot be started is the function
        called directly.
        """
        if (self._vacant and not self._start()) or sys.is_finalizing():
            _guarded(function)
        else:
            self._inbox.put(function)

    def door(self) -> Callable[[Any], object] | None:
        """Return a C function that hands over what is to be called; `None` without a thread."""
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
        threading.current_thread().name = "actorflow-shelter"
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
        old.put(None)  # if it was the shelter's own thread that forked, it ends


def _do_nothing() -> None:
    pass


def _guarded(function: Callable[[], object]) -> None:
    try:
        function()
    except BaseException:  # noqa: BLE001 - one bad function must not end the thread
        log.critical("sheltered function raised", function=brief(function), exc_info=True)


SHELTER = Shelter()
"""The shelter of the process."""

AGENTS.append(SHELTER.poke)


def attend(function: Callable[[], None]) -> None:
    """Call a function that never raises where no signal interrupts it.

    In the main thread it is only handed over, so this never blocks.
    """
    if get_ident() == _main:
        SHELTER.post(function)
    else:
        function()
