"""Calls that no signal cuts in two, and that may take long.

`SHELTER` is for short ones: its thread is everybody's. A call apart has a thread of its own.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.shelter import in_main_thread
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_apart"]


class _Call:
    """A function that a thread of its own executes while the main thread waits."""

    __slots__ = (
        "_args", "_ended", "_function", "_given_up", "_left", "_undo", "done", "error", "result",
    )  # fmt: skip

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        undo: Callable[[Any], object] | None,
    ) -> None:
        self._function = function
        self._args = args
        self._undo = undo
        self._ended = self._given_up = False
        self._left = [None]  # atomic flag: the thread that pops it undoes what nobody waits for
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = allocate_lock()
        self.done.acquire()

    def execute(self) -> None:
        """Call the function, keep its outcome, and release the caller. Never raises."""
        try:
            self.result = self._function(*self._args)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            self.error = error
        self._ended = True
        self.done.release()
        if self._given_up:
            self._undo_once()

    def give_up(self) -> None:
        """Have the outcome undone, by the thread if it has not come to its end yet."""
        self._given_up = True
        if self._ended:
            threading.Thread(target=self._undo_once, name="actorflow-apart", daemon=True).start()

    def _undo_once(self) -> None:
        if self._undo is None or self.error is not None or not self._left:
            return
        try:
            self._left.pop()
        except IndexError:
            return
        try:
            self._undo(self.result)
        except BaseException:  # noqa: BLE001 - nobody waits for it
            what = brief(self._function)
            log.error("what was interrupted cannot be undone", call=what, exc_info=True)


def run_apart(
    function: Callable[..., Any], *args: Any, undo: Callable[[Any], object] | None = None
) -> Any:
    """Execute `function(*args)` where no signal interrupts it; return or raise its outcome.

    In the main thread, this waits for a thread that is started for the call; in any other, and
    where none can be started, the function is called directly. KeyboardInterrupt while waiting is
    raised at once: the function runs to its end, and what it returns is given to `undo`.
    """
    if not in_main_thread() or sys.is_finalizing():
        return function(*args)
    call = _Call(function, args, undo)
    thread = threading.Thread(target=call.execute, name="actorflow-apart", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError:  # limits of the process, or the interpreter is about to end
            return function(*args)
        call.done.acquire()
    except BaseException:
        call.give_up()
        raise
    if call.error is None:
        return call.result
    try:
        raise call.error
    finally:
        del call  # the traceback refers to this frame, and the call to the error
