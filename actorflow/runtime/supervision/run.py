"""A supervision tree as a program: `run(tree)` starts it, handles signals, and returns a code."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import BadOption, StartFailed
from actorflow.runtime.exits import Crash, Killed, Normal, Shutdown
from actorflow.runtime.log import log
from actorflow.runtime.supervision.actions import Why
from actorflow.runtime.supervision.supervisor import Supervisor, SupervisorRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from actorflow.runtime.clock import Timer
    from actorflow.runtime.exits import ExitReason

__all__ = ["ExitCode", "run"]


_POLL = 0.1  # seconds between two checks for a signal


class ExitCode(IntEnum):
    """How a tree that ran in the foreground ended; pass it to `sys.exit`."""

    OK = 0
    """It was asked to stop, or was done, and all children stopped in order."""
    FAILED = 1
    """It gave up (too many restarts), crashed or was killed."""
    NOT_STARTED = 2
    """A child did not start."""
    FORCED = 3
    """It was killed: the deadline passed, or a second signal came."""


def run(
    tree: Supervisor | SupervisorRef,
    *,
    deadline: float | None = 30.0,
    signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> ExitCode:
    """Run a tree until it ends or a signal comes. Only in the main thread.

    The first signal drains and stops the children in order, within `deadline` seconds (`None`
    for no limit); a second one, or the deadline, kills everything at once. Afterwards no thread
    of actorflow keeps the interpreter alive: `sys.exit(af.run(tree))` ends the program. The last
    line in the log says why the tree ended.

    Raises:
        BadOption: not a tree, or not called in the main thread, the only one that gets signals.

    """
    if threading.current_thread() is not threading.main_thread():
        msg = "run(tree) handles signals, which only the main thread can in Python; use start()"
        raise BadOption(msg)
    given: object = tree
    if not isinstance(given, (Supervisor, SupervisorRef)):
        msg = f"run({brief(given)}) needs a tree; write run(Supervisor([Worker('a', job), ...]))"
        raise BadOption(msg)
    if deadline is not None and not _is_span(deadline):
        msg = (
            f"deadline={brief(deadline)}: deadline must be a number of seconds, zero or more, or "
            "None for no limit, as in run(tree, deadline=30.0)"
        )
        raise BadOption(msg)
    foreground = _Foreground(deadline)
    before: dict[signal.Signals, Any] = {}
    try:
        for number in signals:
            before[number] = signal.signal(number, foreground.on_signal)
        return foreground.run(tree)
    finally:
        foreground.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_span(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


class _ForegroundEvent(Enum):
    SIGNAL = auto()
    STARTED = auto()
    DEADLINE = auto()
    ENDED = auto()


class _Foreground:
    """One call of `run`.

    Everything that happens is put into one queue and handled in the main thread, which does
    nothing else. A signal handler may interrupt anything, so all it does is put.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._events: queue.SimpleQueue[_ForegroundEvent | BaseException] = queue.SimpleQueue()
        self._tree: SupervisorRef | None = None
        self._timer: Timer | None = None
        self._signals = 0
        self._forced = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Queue a signal. In the main thread, between any two bytecodes."""
        self._events.put(_ForegroundEvent.SIGNAL)

    def run(self, tree: Supervisor | SupervisorRef) -> ExitCode:
        """Start the tree if necessary, and wait for its end."""
        if isinstance(tree, Supervisor):
            # In another thread: signals must be handled even if the start hangs.
            threading.Thread(
                target=self._start, args=(tree,), name="actorflow-start", daemon=True
            ).start()
        else:
            self._tree = tree
            self._events.put(_ForegroundEvent.STARTED)
        while (code := self._handle(self._next())) is None:
            pass
        return code

    def close(self) -> None:
        """Cancel the deadline, which would keep the tree in memory, and stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._tree is not None:
            self._tree.unwatch(self._on_end)

    def _next(self) -> _ForegroundEvent | BaseException:
        """Return the next event. A signal that arrives just before a wait does not end the wait."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=_POLL)

    def _start(self, tree: Supervisor) -> None:
        try:
            self._tree = tree.start()
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            self._events.put(error)
        else:
            self._events.put(_ForegroundEvent.STARTED)

    def _handle(self, event: _ForegroundEvent | BaseException) -> ExitCode | None:
        """Handle an event; return the exit code if that was the end."""
        match event:
            case _ForegroundEvent.SIGNAL:
                self._signals += 1
                _say(log.info, "signal", count=self._signals)
                if self._signals > 1:
                    return self._force()
                self._stop()
            case _ForegroundEvent.STARTED:
                self._watch()
            case _ForegroundEvent.DEADLINE:
                return self._force()
            case _ForegroundEvent.ENDED:
                return self._code()
            case StartFailed() as error:
                _say(log.error, "tree did not start", error=brief(error), exc_info=error)
                return ExitCode.NOT_STARTED
            case BaseException() as error:
                raise error
        return None

    def _watch(self) -> None:
        tree = self._tree
        if tree is not None:
            tree.watch(self._on_end)
            if self._signals:  # one came while the tree was starting
                tree.stop(Shutdown("signal"), block=False)

    def _on_end(self, _tree: SupervisorRef, _reason: ExitReason) -> None:
        self._events.put(_ForegroundEvent.ENDED)

    def _stop(self) -> None:
        if self._tree is not None:
            self._tree.stop(Shutdown("signal"), block=False)
        if self._deadline is not None:
            when = SYSTEM.now() + self._deadline
            self._timer = SYSTEM.call_at(when, lambda: self._events.put(_ForegroundEvent.DEADLINE))

    def _force(self) -> ExitCode | None:
        """Kill the tree; one that is still starting is abandoned."""
        _say(log.warning, "stopping now", tree=brief(self._tree))
        self._forced = True
        if self._tree is None:
            return ExitCode.FORCED
        self._tree.kill()
        return None

    def _code(self) -> ExitCode:
        """Log why the tree has ended, and return the code for it."""
        tree: Any = self._tree
        reason = tree.exit_reason or Normal()
        if self._forced and isinstance(reason, Killed):
            code = ExitCode.FORCED
        elif tree.actor.why is Why.TOO_MANY_RESTARTS or isinstance(reason, Crash | Killed):
            code = ExitCode.FAILED
        else:
            code = ExitCode.OK
        write = log.info if code is ExitCode.OK else log.error
        _say(write, "tree ended", tree=tree.actor.title, reason=reason.describe(), code=code.name)
        return code


def _say(write: Callable[..., None], event: str, **facts: Any) -> None:
    """Log an event; a log handler that raises must not end the run before the tree."""
    with contextlib.suppress(Exception):
        write(event, **facts)
