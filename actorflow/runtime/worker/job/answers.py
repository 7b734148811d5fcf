"""Answers: what a job returns to give each caller its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from actorflow.behaviours.errors import brief

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    State_co = TypeVar("State_co", covariant=True, default=Any)
    Answer_co = TypeVar("Answer_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    State_co = TypeVar("State_co", covariant=True)
    Answer_co = TypeVar("Answer_co", covariant=True)

__all__ = ["Again", "Answers"]


class Again:
    """An answer that asks for the message once more: its callers go on waiting.

    The message, or another one in its place, goes back into the behaviour behind newer arrivals,
    and comes with a later batch. So a job that works in steps has each step on a full batch, and a
    short request does not wait for the long ones that came with it.

    >>> def step(requests, _):
    ...     answers = []
    ...     for text, left in requests:
    ...         done = left == 1
    ...         answers.append(text + "." if done else Again((text + ".", left - 1)))
    ...     return Answers(None, answers)
    >>> step([("a", 1), ("b", 2)], None).answers
    ['a.', Again(('b.', 1))]
    """

    __slots__ = ("message",)

    def __init__(self, message: Any) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"Again({brief(self.message)})"


class Answers(Generic[State_co, Answer_co]):
    """Return this from a job: the new state, and one answer for each message of the batch.

    Answers are in the order of the batch. An exception instance among them is raised to the
    caller of that message alone, and counts as the failure of that message; the rest of the batch
    has succeeded. `Again` among them asks for a message once more. Messages that were merged
    into one share one answer.

    >>> def lengths(words, calls):
    ...     return Answers(calls + 1, [len(word) for word in words])
    >>> lengths(["a", "bcd"], 0).answers
    [1, 3]
    """

    __slots__ = ("answers", "state")

    def __init__(
        self, state: State_co, answers: Sequence[Answer_co | BaseException | Again]
    ) -> None:
        self.state = state
        self.answers: Sequence[Any] = answers

    def __repr__(self) -> str:
        return f"Answers({brief(self.state)}, {brief(self.answers)})"

    def problem(self, messages: Sequence[Any], concurrency: int) -> str | None:
        """Return the fault of these answers for these messages, or `None`."""
        given: Any = self.answers
        listed = type(given) is list or isinstance(given, Sequence)  # the latter is slow
        if not listed or isinstance(given, (str, bytes)):
            return (
                f"Answers(state, answers) needs a list with one answer for each message, "
                f"not {brief(self.answers)}"
            )
        if len(self.answers) != len(messages):
            return (
                f"the job returned {len(self.answers)} answers for a batch of {len(messages)}; "
                "return one for each message, in the order of the batch"
            )
        if concurrency > 1 and self.state is not None:
            return (
                f"a job with concurrency={concurrency} keeps no state, but returned "
                f"{brief(self.state)}; return Answers(None, answers)"
            )
        return None
