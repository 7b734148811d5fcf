"""A batch that is finished later, without a thread that waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Deferred"]


class Deferred:
    """Return one from `Executor.handle`: the batch is done when it is resolved.

    Until then the executor counts as busy and messages accumulate, but it holds no thread.
    Resolving it with an exception is as if `handle` had raised it.
    """

    __slots__ = ("_calls", "_done", "error")

    def __init__(self) -> None:
        self._calls: list[Callable[[BaseException | None], None]] = []
        self._done = False
        self.error: BaseException | None = None

    def resolve(self, error: BaseException | None = None) -> None:
        """Say that the batch is done, or why it failed. Called once, from any thread."""
        self.error = error
        self._done = True
        self._settle()

    def then(self, call: Callable[[BaseException | None], None]) -> None:
        """Have `call(error)` called once it is resolved: at once if it is already."""
        self._calls.append(call)
        if self._done:
            self._settle()

    def _settle(self) -> None:
        """Make the calls, each once: whoever pops one makes it."""
        while self._calls:
            try:
                call = self._calls.pop(0)
            except IndexError:
                return
            call(self.error)
