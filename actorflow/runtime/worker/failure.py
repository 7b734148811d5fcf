"""What becomes of a batch whose job raised: dropped, tried again, or searched for the poison."""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.supervision.strategies import RestartWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actorflow.runtime.worker.accumulation import Batch

__all__ = [
    "Breaker",
    "DeadLetter",
    "DeadLetters",
    "Drop",
    "FailurePolicy",
    "Isolate",
    "Retry",
    "failure_policy",
]


class FailurePolicy(Protocol):
    """Decides what is run instead of a batch that failed."""

    buries: bool
    """What the policy gives up goes to the dead letters, and the worker goes on."""

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Give what to run instead, in order; `None` to give the batch up."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Give the batch up at once: its callers get the exception, and the executor crashes."""

    buries = False

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Give nothing."""
        return None


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the batch again, with the state it began with, up to `times` times; then as `Drop`.

    >>> Retry(2).times
    2
    """

    times: int = 1
    buries = False

    def __post_init__(self) -> None:
        """Refuse a number that is none."""
        _whole(self.times, "times", "Retry(3)", least=1)

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Give the batch itself, for as long as it has tries left."""
        if batch.failures > self.times:
            return None
        return [batch]


@dataclass(frozen=True, slots=True)
class Isolate:
    """Halve the batch until the poison stands alone; everything else is delivered, in order.

    A message that fails alone, after `retries` more tries, becomes a dead letter. The executor
    does not crash. Finding k poisons in a batch of n costs at most 2 k log2(n) more calls.
    """

    retries: int = 0
    buries = True

    def __post_init__(self) -> None:
        """Refuse a number that is none."""
        _whole(self.retries, "retries", "Isolate(retries=1)", least=0)

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Give the two halves; of a single message itself, while it has tries left."""
        if batch.size > 1 and type(batch.payload) is list:
            return batch.halves()
        return [batch] if batch.failures <= self.retries else None


def _whole(value: object, name: str, example: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        msg = f"{name}={value!r} must be a whole number >= {least}, as in {example}"
        raise BadOption(msg)


_WORDS: dict[str, FailurePolicy] = {"drop": Drop(), "retry": Retry(), "isolate": Isolate()}


def failure_policy(given: Any) -> FailurePolicy:
    """Make a policy of a word or take the one given.

    Raises:
        BadOption: it is neither; the message names what there is.

    """
    if isinstance(given, str):
        policy = _WORDS.get(given)
        if policy is None:
            msg = f"on_failure={given!r} is not a policy{near(given, _WORDS)}"
            raise BadOption(msg)
        return policy
    able = callable(getattr(given, "parts", None)) and hasattr(given, "buries")
    if able and not isinstance(given, type):
        return given  # type: ignore[no-any-return] # it has what a policy needs
    msg = (
        f"on_failure={given!r} is not a policy; write on_failure='drop', Retry(3) or Isolate(), "
        "or give an object with parts(batch) and buries"
    )
    raise BadOption(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Park a supervised worker whose executor crashes `failures` times within `within` seconds.

    A parked worker goes on accumulating, up to its bound, and uses no restarts up. `resume()`
    starts it again.
    """

    failures: int = 5
    within: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what could never trip."""
        _whole(self.failures, "failures", "Breaker(failures=5, within=60.0)", least=1)
        within: Any = self.within
        if not isinstance(within, (int, float)) or not within > 0:
            msg = f"within={self.within!r} must be a positive number of seconds, as in Breaker()"
            raise BadOption(msg)

    def window(self) -> RestartWindow:
        """Make the memory of one worker's crashes: it admits all but the one that trips."""
        return RestartWindow(self.failures - 1, self.within)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be processed, and why."""

    number: int
    message: Any
    error: BaseException
    at: float = field(default_factory=time.time)
    """When it was buried, as `time.time()` gives it."""


class DeadLetters:
    """The dead letters of one worker: read them, push them again, or throw them away.

    At most `limit` are kept; beyond that the oldest is forgotten and counted in `forgotten`.
    Safe in any thread.
    """

    def __init__(self, push: Callable[[Any], None], limit: int = 10_000) -> None:
        self._push = push
        self._letters: deque[DeadLetter] = deque()
        self._numbers = itertools.count(1)
        self.limit = limit
        self.forgotten = 0

    def bury(self, message: Any, error: BaseException) -> None:
        """Keep a message with the exception that it causes. O(1)."""
        self._letters.append(DeadLetter(next(self._numbers), message, error))
        while len(self._letters) > self.limit:
            self._letters.popleft()
            self.forgotten += 1

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(list(self._letters))

    def retry(self, letters: DeadLetter | Iterable[DeadLetter] | None = None) -> int:
        """Push one or some again, or all if it is not said which; tell how many.

        What fails again comes back here.

        Raises:
            WorkerStopped: the worker has ended; the letters are kept.

        """
        count = 0
        for letter in self._chosen(letters):
            if not self._remove(letter):
                continue
            try:
                self._push(letter.message)
            except BaseException:
                self._letters.appendleft(letter)  # the worker has ended: it is not lost for that
                raise
            count += 1
        return count

    def purge(self, letters: DeadLetter | Iterable[DeadLetter] | None = None) -> int:
        """Throw one or some away, or all if it is not said which; tell how many."""
        return sum(self._remove(letter) for letter in self._chosen(letters))

    def _chosen(self, letters: DeadLetter | Iterable[DeadLetter] | None) -> list[DeadLetter]:
        if letters is None:
            return list(self)
        return [letters] if isinstance(letters, DeadLetter) else list(letters)

    def _remove(self, letter: DeadLetter) -> bool:
        try:
            self._letters.remove(letter)
        except ValueError:
            return False  # somebody else has taken it
        return True
