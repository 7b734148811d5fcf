"""Calls that no signal cuts in two, and that may take long.

`SHELTER` is for short ones: its thread is everybody's. A call apart has a thread of its own.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.shelter import Call, in_main_thread
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_apart"]


class _Undoable(Call):
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
        self._left = [None]  # atomic flag: the thread that pops it undoes what nobody waits for

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
            threading.Thread(target=self._undo_once, name="actorflow-apart", daemon=True).start()

    def _undo_once(self) -> None:
        try:
            self._left.pop()
        except IndexError:
            return
        what = brief(self.function)
        if self._error is not None:
            log.error("what was interrupted has failed", call=what, exc_info=self._error)
        elif self._undo is not None:
            try:
                self._undo(self._result)
            except BaseException:  # noqa: BLE001 - nobody waits for it
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
    call = _Undoable(function, args, undo)
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
    return call.outcome()
