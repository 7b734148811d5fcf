"""What becomes of a batch whose job raised: dropped, tried again, or searched for the poison."""

from __future__ import annotations

from dataclasses import dataclass
from random import random
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.behaviours.arguments import count, number, seconds
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.restarts import Backoff, RestartWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.runtime.worker.job.batch import Batch

_LONGEST = 30.0  # seconds that a retry waits at most, unless a `Backoff` says otherwise

__all__ = [
    "Breaker",
    "Drop",
    "FailurePolicy",
    "Isolate",
    "Retry",
    "delay_of",
    "failure_policy",
]


class FailurePolicy(Protocol):
    """Decides which batches run instead of one that failed."""

    buries: bool
    """What the policy gives up goes to the dead letters, and the worker goes on."""

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Return what to run instead, in order; `None` to give the batch up."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop the batch at once: its callers get the exception, and the executor crashes."""

    buries = False

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Return `None`."""
        return None


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the batch again, with the state it began with, up to `times` times; then like `Drop`.

    Before the first retry it waits `backoff` seconds, before each later one twice as long as
    before the last; give a `Backoff` for another factor or a maximum. `jitter` takes a random part
    off each wait: 0.5 up to a half. No thread waits, but the messages behind the batch do. Where
    the behaviour limits a rate (`Rate`, `Throttle`), retries count like other messages.

    >>> Retry(2, backoff=0.1).wait(3, 0.0)
    0.4
    """

    times: int = 1
    backoff: float | Backoff = 0.0
    jitter: float = 0.0
    buries = False

    def __post_init__(self) -> None:
        """Validate the numbers."""
        example = "Retry(3, backoff=0.1, jitter=0.5)"
        count(self.times, "times", "Retry(3)", error=BadOption)
        if not isinstance(self.backoff, Backoff):
            seconds(self.backoff, "backoff", example, error=BadOption)
        number(self.jitter, "jitter", example, least=0, most=1, error=BadOption)

    @property
    def is_immediate(self) -> bool:
        """Whether it never waits."""
        return self.backoff == 0.0

    def wait(self, retry: int, draw: float) -> float:
        """Return how long to wait before a retry, the first of which is 1.

        `draw` is the random number for the jitter, 0.0 <= draw < 1.0.
        """
        backoff = self.backoff
        if not isinstance(backoff, Backoff):
            backoff = Backoff(initial=backoff, maximum=max(_LONGEST, backoff))
        return backoff.delay(retry - 1, draw) * (1.0 - self.jitter * draw)

    def delay(self, batch: Batch) -> float:
        """Return how long a batch that has failed waits."""
        return self.wait(batch.attempt - 1, random())  # noqa: S311 - not for secrets

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Return the batch itself, as long as it has attempts left."""
        if batch.attempt > self.times + 1:
            return None
        return [batch]


@dataclass(frozen=True, slots=True)
class Isolate:
    """Halve the batch until the poison stands alone; everything else is processed, in order.

    A message that fails alone, after `retries` more attempts, becomes a dead letter. The executor
    does not crash. Finding k poisons in a batch of n costs at most 2 k log2(n) more calls.
    """

    retries: int = 0
    buries = True

    def __post_init__(self) -> None:
        """Validate `retries`."""
        count(self.retries, "retries", "Isolate(retries=1)", least=0, error=BadOption)

    def parts(self, batch: Batch) -> list[Batch] | None:
        """Return the two halves; of a single message itself, while it has attempts left."""
        if batch.size > 1 and type(batch.payload) is list:
            return batch.halves()
        return [batch] if batch.attempt <= self.retries + 1 else None


def delay_of(policy: FailurePolicy) -> Callable[[Batch], float] | None:
    """Return the function that says how long a batch waits, or `None` if none ever does."""
    if getattr(policy, "is_immediate", False):
        return None
    return getattr(policy, "delay", None)


_WORDS: dict[str, FailurePolicy] = {"drop": Drop(), "retry": Retry(), "isolate": Isolate()}


def failure_policy(given: Any) -> FailurePolicy:
    """Return the policy that a word stands for, or the one given.

    Raises:
        BadOption: it is neither; the message names what there is.

    """
    if isinstance(given, str):
        policy = _WORDS.get(given)
        if policy is None:
            msg = f"on_failure={brief(given)} is not a policy{near(given, _WORDS)}"
            raise BadOption(msg)
        return policy
    able = callable(getattr(given, "parts", None)) and hasattr(given, "buries")
    if able and not isinstance(given, type):
        return given  # type: ignore[no-any-return] # it has what a policy needs
    msg = (
        f"on_failure={brief(given)} is not a policy; write on_failure='drop', Retry(3) or "
        "Isolate(), or give an object with parts(batch) and buries"
    )
    raise BadOption(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Park a supervised worker whose executor crashes `failures` times within `within` seconds.

    A parked worker goes on accumulating, up to its bound, and costs its supervisor no restarts.
    `resume()` starts it again. With `half_open`, it is started again by itself after so many
    seconds, on trial: the first crash within `within` seconds parks it again for that time.
    """

    failures: int = 5
    within: float = 60.0
    half_open: float | None = None

    def __post_init__(self) -> None:
        """Validate `failures` and `within`."""
        example = "Breaker(failures=5, within=60.0)"
        count(self.failures, "failures", example, error=BadOption)
        seconds(self.within, "within", example, zero=False, infinite=True, error=BadOption)
        if self.half_open is not None:
            example = "Breaker(failures=5, within=60.0, half_open=10.0)"
            seconds(self.half_open, "half_open", example, zero=False, error=BadOption)

    def window(self) -> RestartWindow:
        """Return a memory for one worker's crashes: it admits all but the one that trips."""
        return RestartWindow(self.failures - 1, self.within)

    def trial(self, now: float) -> RestartWindow:
        """Return a memory that the next crash trips, unless `within` seconds go by."""
        window = self.window()
        for _ in range(self.failures - 1):
            window.admit(now)
        return window
