"""A supervision tree as a program: `run(tree)` starts it, heeds signals, and ends with a code."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any

from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption, StartFailed
from actorflow.runtime.exits import Crash, Killed, Shutdown
from actorflow.runtime.log import log
from actorflow.runtime.supervision.actions import Why
from actorflow.runtime.supervision.supervisor import Supervisor, SupervisorRef

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

__all__ = ["ExitCode", "run"]


_LOOK = 0.1  # seconds between two looks whether a signal has come


class ExitCode(IntEnum):
    """How a tree that ran in the foreground ended; give it to `sys.exit`."""

    OK = 0
    """It was asked to stop, or was done, and all children stopped in order."""
    FAILED = 1
    """It gave up: too many restarts, or a crash."""
    NOT_STARTED = 2
    """A child did not start."""
    FORCED = 3
    """It was cut off: the deadline passed, or a second signal came."""


def run(
    tree: Supervisor | SupervisorRef,
    *,
    deadline: float | None = 30.0,
    signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> ExitCode:
    """Run a tree until it ends or a signal comes. Only in the main thread.

    The first signal drains and stops the children in order, within `deadline` seconds (`None`
    for no limit); a second one, or the deadline, ends everything at once. Afterwards no thread
    of ours keeps the interpreter alive: `sys.exit(af.run(tree))` ends the program.

    Raises:
        BadOption: not a tree, or not called in the main thread, where alone signals can be heeded.

    """
    if threading.current_thread() is not threading.main_thread():
        msg = "run(tree) heeds signals, which Python allows in the main thread only; use start()"
        raise BadOption(msg)
    given: object = tree
    if not isinstance(given, (Supervisor, SupervisorRef)):
        msg = f"run({given!r:.200}) needs a tree; write run(Supervisor([Worker('a', job), ...]))"
        raise BadOption(msg)
    if deadline is not None and not deadline >= 0:
        msg = f"deadline={deadline!r} must be a number of seconds >= 0, or None for no limit"
        raise BadOption(msg)
    foreground = _Foreground(deadline)
    before: dict[signal.Signals, Any] = {}
    try:
        for number in signals:
            before[number] = signal.signal(number, foreground.on_signal)
        return foreground.run(tree)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Event(Enum):
    SIGNAL = auto()
    STARTED = auto()
    DEADLINE = auto()
    ENDED = auto()


class _Foreground:
    """One run: what came, and how it ended.

    Everything that happens is put into one queue and dealt with in the main thread, which does
    nothing else. A signal handler may interrupt anything, so all it does is to put.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._events: queue.SimpleQueue[_Event | BaseException] = queue.SimpleQueue()
        self._tree: SupervisorRef | None = None
        self._asked = 0
        self._forced = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Note a signal. In the main thread, in the middle of anything."""
        self._events.put(_Event.SIGNAL)

    def run(self, tree: Supervisor | SupervisorRef) -> ExitCode:
        """Start the tree if need be, and wait for its end."""
        if isinstance(tree, Supervisor):
            # Not here: a start that hangs must not keep signals from being heeded.
            threading.Thread(
                target=self._start, args=(tree,), name="actorflow-start", daemon=True
            ).start()
        else:
            self._tree = tree
            self._events.put(_Event.STARTED)
        while (code := self._heed(self._next())) is None:
            pass
        return code

    def _next(self) -> _Event | BaseException:
        """Wait for what comes next. A signal that arrives just before a wait does not end it."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=_LOOK)

    def _start(self, tree: Supervisor) -> None:
        try:
            self._tree = tree.start()
        except BaseException as error:  # noqa: BLE001 - given to the main thread
            self._events.put(error)
        else:
            self._events.put(_Event.STARTED)

    def _heed(self, event: _Event | BaseException) -> ExitCode | None:
        """Do what is due; give the code if that was the end."""
        match event:
            case _Event.SIGNAL:
                self._asked += 1
                log.info("signal", count=self._asked)
                if self._asked > 1:
                    return self._force()
                self._stop()
            case _Event.STARTED:
                self._watch()
            case _Event.DEADLINE:
                return self._force()
            case _Event.ENDED:
                return self._code()
            case StartFailed() as error:
                log.error("tree did not start", error=str(error), exc_info=error)
                return ExitCode.NOT_STARTED
            case BaseException() as error:
                raise error
        return None

    def _watch(self) -> None:
        tree = self._tree
        if tree is not None:
            tree.actor.watch(lambda _actor, _reason: self._events.put(_Event.ENDED))
            if self._asked:  # a signal came while it was starting
                tree.actor.shut_down(Shutdown("signal"))

    def _stop(self) -> None:
        if self._tree is not None:
            self._tree.actor.shut_down(Shutdown("signal"))
        if self._deadline is not None:
            SYSTEM.call_at(SYSTEM.now() + self._deadline, lambda: self._events.put(_Event.DEADLINE))

    def _force(self) -> ExitCode | None:
        """End everything at once; a tree that is still starting is left behind."""
        log.warning("stopping now", tree=repr(self._tree))
        self._forced = True
        if self._tree is None:
            return ExitCode.FORCED
        self._tree.kill()
        return None

    def _code(self) -> ExitCode:
        actor: Any = self._tree and self._tree.actor
        if self._forced and isinstance(actor.exit_reason, Killed):
            return ExitCode.FORCED
        if actor.why is Why.TOO_MANY_RESTARTS or isinstance(actor.exit_reason, Crash | Killed):
            return ExitCode.FAILED
        return ExitCode.OK
