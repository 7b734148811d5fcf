"""A batch that is finished later, without a thread that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, in_main_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Deferred"]


class Deferred:
    """Return one from a job: the batch is done when the deferred is resolved.

    Until then the executor counts as busy and messages accumulate, but it holds no thread.
    Resolving it with an exception is as if the job had raised it, resolving it with a result as
    if the job had returned that.
    """

    __slots__ = ("_calls", "error", "resolved", "result")

    def __init__(self) -> None:
        self._calls: list[Callable[[BaseException | None, Any], None]] = []
        self.resolved = False
        """Whether it is resolved."""
        self.error: BaseException | None = None
        self.result: Any = None

    def resolve(self, error: BaseException | None = None, result: Any = None) -> None:
        """Complete the batch, or fail it with `error`. Thread-safe; the first call counts."""
        if in_main_thread():
            UNINTERRUPTIBLE.run(self._resolve, error, result)
        else:
            self._resolve(error, result)

    def _resolve(self, error: BaseException | None, result: Any) -> None:
        if self.resolved:
            return
        self.error = error
        self.result = result
        self.resolved = True
        self._settle()

    def then(self, call: Callable[[BaseException | None, Any], None]) -> None:
        """Call `call(error, result)` once it is resolved: at once if it is already."""
        self._calls.append(call)
        if self.resolved:
            self._settle()

    def _settle(self) -> None:
        """Make the calls, each once: the thread that pops one makes it."""
        while self._calls:
            try:
                call = self._calls.pop(0)
            except IndexError:
                return
            call(self.error, self.result)
