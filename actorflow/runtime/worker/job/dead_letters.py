"""Dead letters: messages that could not be processed, kept with the reason."""

from __future__ import annotations

import itertools
import time
from _thread import allocate_lock
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["DeadLetter", "DeadLetters"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be processed, and why."""

    number: int
    message: Any
    error: BaseException
    at: float = field(default_factory=time.time)
    """When it was dead-lettered, as `time.time()` returns it."""


class DeadLetters:
    """The dead letters of one worker: read them, push them again, or throw them away.

    At most `limit` are kept; beyond that the oldest is forgotten and counted in `forgotten`.
    Thread-safe.
    """

    def __init__(self, push: Callable[[Any], None], limit: int = 10_000) -> None:
        self._push = push
        self._lock = allocate_lock()
        self._letters: dict[int, DeadLetter] = {}  # by number, oldest first
        self._numbers = itertools.count(1)
        self.limit = limit
        self.forgotten = 0

    def bury(self, message: Any, error: BaseException) -> None:
        """Keep a message with the exception that it causes. O(1)."""
        letter = DeadLetter(next(self._numbers), message, error)
        with self._lock:
            self._letters[letter.number] = letter
            while len(self._letters) > self.limit:
                del self._letters[next(iter(self._letters))]
                self.forgotten += 1

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[DeadLetter]:
        with self._lock:
            return iter(list(self._letters.values()))

    def retry(self, letters: DeadLetter | Iterable[DeadLetter] | None = None) -> int:
        """Push one, some or (by default) all of them again; return how many.

        Each is pushed once, even if several threads retry. What fails again comes back here.

        Raises:
            WorkerStopped: the worker has ended; dead letters are kept.

        """
        count = 0
        for letter in self._chosen(letters):
            if not self._remove(letter):
                continue
            try:
                self._push(letter.message)
            except BaseException:
                with self._lock:  # it is not lost because the worker has ended
                    self._letters = dict(sorted({**self._letters, letter.number: letter}.items()))
                raise
            count += 1
        return count

    def purge(self, letters: DeadLetter | Iterable[DeadLetter] | None = None) -> int:
        """Throw one, some or (by default) all of them away; return how many."""
        return sum(self._remove(letter) for letter in self._chosen(letters))

    def _chosen(self, letters: DeadLetter | Iterable[DeadLetter] | None) -> list[DeadLetter]:
        if letters is None:
            return list(self)
        return [letters] if isinstance(letters, DeadLetter) else list(letters)

    def _remove(self, letter: DeadLetter) -> bool:
        """Remove a letter; return whether this call did."""
        with self._lock:
            return self._letters.pop(letter.number, None) is not None
