"""`Split`: one question in several messages, and one answer made of theirs."""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING, Any, Generic

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import TypeVar

    from actorflow.runtime.worker.job.batch import Ticket

    Message_co = TypeVar("Message_co", covariant=True, default=Any)
    Joined_co = TypeVar("Joined_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Message_co = TypeVar("Message_co", covariant=True)
    Joined_co = TypeVar("Joined_co", covariant=True)

__all__ = ["Split", "part_tickets"]


class Split(Generic[Message_co, Joined_co]):
    """Ask with several messages, whose answers are joined: `worker.ask(Split(parts, join))`.

    The parts are messages like others: the behaviour orders them, and they share batches with the
    messages of other callers. An idle worker gets them as one batch. `join` is called with the list
    of their answers, in the order of the parts. If one of them fails, the caller gets its
    exception, and parts that have not left yet are withdrawn, as they are when the caller gives up.

    >>> import actorflow as af
    >>> def lengths(words, _):
    ...     return af.Answers(None, [len(word) for word in words])
    >>> with af.spawn(lengths) as worker:
    ...     worker.ask(af.Split(["a", "bcd"], join=sum))
    4
    """

    __slots__ = ("join", "parts")

    def __init__(self, parts: Iterable[Message_co], join: Callable[[list[Any]], Joined_co]) -> None:
        if isinstance(parts, (str, bytes)):
            msg = f"parts={brief(parts)} is one text; write Split([part, part], join)"
            raise BadOption(msg)
        given: Any = join
        if not callable(given):
            msg = f"join={brief(join)} must be a function of the answers, as in Split(parts, sum)"
            raise BadOption(msg)
        self.parts = list(parts)
        self.join = join

    def __repr__(self) -> str:
        return f"Split({brief(self.parts)}, {brief(self.join)})"


def part_tickets(split: Split, ticket: Ticket) -> list[tuple[Any, Ticket]]:
    """Return the parts with a ticket for each, which together resolve the ticket of the caller.

    Without parts, it is resolved now.
    """
    whole = _Whole(split, ticket)
    if not split.parts:
        whole.join()
    return [(part, _Part(whole, at)) for at, part in enumerate(split.parts)]


class _Whole:
    """Collects the answers of the parts, in the threads that answer them."""

    __slots__ = ("_answers", "_join", "_left", "_lock", "abandoned", "ticket")

    def __init__(self, split: Split, ticket: Ticket) -> None:
        self._answers: list[Any] = [None] * len(split.parts)
        self._join = split.join
        self._left = len(split.parts)
        self._lock = allocate_lock()
        self.abandoned = False
        """Whether a part has failed, so that the others are not needed."""
        self.ticket = ticket

    def resolved(self, at: int, error: BaseException | None, answer: Any) -> None:
        """Note the answer to a part; resolve the caller after the first error or the last one."""
        with self._lock:
            if self.abandoned:
                return
            self._answers[at] = answer
            self._left -= 1
            self.abandoned = error is not None
            if self._left and error is None:
                return
        if error is not None:
            self.ticket.resolve(error)
        else:
            self.join()

    def join(self) -> None:
        """Resolve the caller with the joined answer, or with what joining raises."""
        try:
            answer = self._join(self._answers)
        except Exception as error:  # noqa: BLE001 - of the caller's function: the caller gets it
            self.ticket.resolve(error)
        else:
            self.ticket.resolve(None, answer)


class _Part:
    """The ticket of one part."""

    __slots__ = ("_at", "_whole")

    def __init__(self, whole: _Whole, at: int) -> None:
        self._whole = whole
        self._at = at

    @property
    def abandoned(self) -> bool:
        """Whether the answer is not needed: another part has failed, or the caller is gone."""
        return self._whole.abandoned or getattr(self._whole.ticket, "abandoned", False)

    def resolve(self, error: BaseException | None = None, answer: Any = None) -> None:
        """Note the answer. Thread-safe; called once."""
        self._whole.resolved(self._at, error, answer)
