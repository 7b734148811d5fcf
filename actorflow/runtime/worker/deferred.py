"""A batch that is finished later, without a thread that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Deferred"]


class Deferred:
    """Return one from a job: the batch is done when the deferred is resolved.

    Until then the executor counts as busy and messages accumulate, but it holds no thread.
    Resolving it with an exception is as if the job had raised it, resolving it with a result as
    if the job had returned that.
    """

    __slots__ = ("_calls", "_done", "error", "result")

    def __init__(self) -> None:
        self._calls: list[Callable[[BaseException | None, Any], None]] = []
        self._done = False
        self.error: BaseException | None = None
        self.result: Any = None

    @property
    def resolved(self) -> bool:
        """Whether it is resolved."""
        return self._done

    def resolve(self, error: BaseException | None = None, result: Any = None) -> None:
        """Say that the batch is done, or why it failed. Thread-safe; the first call counts."""
        if self._done:
            return
        self.error = error
        self.result = result
        self._done = True
        self._settle()

    def then(self, call: Callable[[BaseException | None, Any], None]) -> None:
        """Call `call(error, result)` once it is resolved: at once if it is already."""
        self._calls.append(call)
        if self._done:
            self._settle()

    def _settle(self) -> None:
        """Make the calls, each once: the thread that pops one makes it."""
        while self._calls:
            try:
                call = self._calls.pop(0)
            except IndexError:
                return
            call(self.error, self.result)
