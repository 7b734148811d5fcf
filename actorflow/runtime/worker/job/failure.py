"""What becomes of a batch whose job raised: dropped, tried again, or searched for the poison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.runtime.errors import BadOption, near
from actorflow.runtime.supervision.family import RestartWindow
from behaviours.arguments import count, seconds
from behaviours.errors import brief

if TYPE_CHECKING:
    from actorflow.runtime.worker.pair.batch import Batch

__all__ = [
    "Breaker",
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

    >>> Retry(2).times
    2
    """

    times: int = 1
    buries = False

    def __post_init__(self) -> None:
        """Validate `times`."""
        count(self.times, "times", "Retry(3)", error=BadOption)

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
    `resume()` starts it again.
    """

    failures: int = 5
    within: float = 60.0

    def __post_init__(self) -> None:
        """Validate `failures` and `within`."""
        example = "Breaker(failures=5, within=60.0)"
        count(self.failures, "failures", example, error=BadOption)
        seconds(self.within, "within", example, zero=False, infinite=True, error=BadOption)

    def window(self) -> RestartWindow:
        """Return a memory for one worker's crashes: it admits all but the one that trips."""
        return RestartWindow(self.failures - 1, self.within)
