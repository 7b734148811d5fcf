"""The threads that wait for an answer of one supervisor: each is answered exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Caller", "PendingCallers"]


class Caller(ThreadTicket):
    """One thread that waits for an answer."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: tuple[str, tuple[Any, ...]] = ("", ())
        """The request and its arguments, for the text of an error."""


class PendingCallers:
    """A set of callers. Thread-safe: the thread that removes a caller answers it."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: set[Caller] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self) -> Caller:
        """Return a new caller. It is refused with the others from now on."""
        caller = Caller()
        self._waiting.add(caller)
        return caller

    def discard(self, caller: Caller) -> None:
        """Forget a caller that has stopped waiting."""
        self._waiting.discard(caller)

    def answer(
        self, caller: Caller, answer: Any = None, *, error: BaseException | None = None
    ) -> None:
        """Answer a caller, unless it has been answered or has stopped waiting."""
        try:
            self._waiting.remove(caller)
        except KeyError:
            return
        caller.resolve(error, answer)

    def refuse(self, error: Callable[[], BaseException]) -> None:
        """Answer all callers with an error, each with its own."""
        for caller in list(self._waiting):
            self.answer(caller, error=error())
