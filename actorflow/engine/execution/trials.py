"""One message at a time is tried again that may have ended the process before.

After a crash nobody knows which of the messages that were being processed has caused it. If they
were all processed at the same time again, the next crash would count against all of them, and after
a few the innocent ones would be given up as well.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.core import Core
    from actorflow.engine.execution.live import Live

__all__ = ["Trials"]

_LONG = 0.2  # seconds after which the next trial begins: a job may take long, or a behaviour wait


class Trials:
    """Executions with such a message, and the one whose turn it is. For the writer's thread.

    Args:
        core: for its clock and its writer.
        go_on: makes an execution whose turn has come read on in the store.

    """

    def __init__(self, core: Core, go_on: Callable[[Live], None]) -> None:
        self._core = core
        self._go_on = go_on
        self._waiting: deque[Live] = deque()
        self._alarm: Any = None
        self.current: Live | None = None
        """The execution whose message is being tried."""

    def admit(self, live: Live) -> bool:
        """Begin a trial of an execution; return false if another has its turn, so that it waits."""
        if self.current is None:
            self.current = live
            clock = self._core.clock
            late = partial(self._core.writer.call, partial(self.end, live))
            self._alarm = clock.call_at(clock.now() + _LONG, late)
        elif self.current is not live and live not in self._waiting:
            self._waiting.append(live)
        return self.current is live

    def end(self, live: Live) -> None:
        """End the trial of an execution, if it has its turn, and begin the next one."""
        if self.current is not live:
            return
        self.current = None
        self._alarm.cancel()
        if self._waiting:
            # Later: what the last commit has stored is to be delivered before anything is read.
            self._core.writer.call(self._begin_next)

    def _begin_next(self) -> None:
        while self._waiting and self.current is None:
            self._go_on(self._waiting.popleft())
