"""The seam between a run and its cache: what the scheduler asks, and the answers.

`actorflow.plans.cache` implements it. The scheduler calls it in its own worker thread, one job at a
time, when all inputs of the job are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.plans.results import Value

__all__ = ["Cache", "Hit", "Input", "JobSpec", "Miss"]


@dataclass(frozen=True, slots=True)
class Input:
    """Stands in the arguments of a job for the result of another one, or for an item of a map."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job as a cache sees it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    """The arguments, with an `Input` in the place of each upstream job, also inside containers."""
    kwargs: Mapping[str, Any]
    cache: bool = True
    """False: `cache=False` was given, so it always runs."""


@dataclass(frozen=True, slots=True)
class Hit:
    """The job is up to date: here is its result."""

    value: Value
    reason: str = "up to date"


@dataclass(frozen=True, slots=True)
class Miss:
    """The job has to run; `key` is what `store` gets with its result."""

    reason: str
    """Such as "argument `alpha` changed"."""
    key: str | None = None
    """`None`: the result is not to be stored."""


class Cache(Protocol):
    """Skips jobs that are up to date."""

    def lookup(self, job: JobSpec, inputs: Mapping[str, Value]) -> Hit | Miss:
        """Return the stored result, or why the job has to run.

        `inputs` has the value of each `Input` of the job, by name.
        """

    def store(self, job: JobSpec, key: str, value: Value) -> None:
        """Keep a result; its file, if it has one, is gone when the run ends."""
