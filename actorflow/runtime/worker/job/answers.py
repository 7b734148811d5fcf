"""Answers: what a job returns to give each caller its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from behaviours.errors import brief

__all__ = ["Answers"]


class Answers:
    """Return this from a job: the new state, and one answer for each message of the batch.

    Answers are in the order of the batch. An exception instance among them is raised to the
    caller of that message alone, and counts as the failure of that message; the rest of the batch
    has succeeded. What was merged into one message shares one answer.

    >>> def lengths(words, calls):
    ...     return Answers(calls + 1, [len(word) for word in words])
    >>> lengths(["a", "bcd"], 0).answers
    [1, 3]
    """

    __slots__ = ("answers", "state")

    def __init__(self, state: Any, answers: Sequence[Any]) -> None:
        self.state = state
        self.answers = answers

    def __repr__(self) -> str:
        return f"Answers({brief(self.state)}, {brief(self.answers)})"

    def problem(self, messages: Sequence[Any], concurrency: int) -> str | None:
        """Return what is wrong with these answers for these messages, if anything is."""
        given: Any = self.answers
        listed = type(given) is list or isinstance(given, Sequence)  # the latter takes long
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
