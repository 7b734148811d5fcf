"""The options of a run, validated once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.arguments import count, flag, function, seconds
from actorflow.behaviours.errors import brief
from actorflow.plans.scheduler import CRASHES_MAX, OnFailure
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.plans.cache_protocol import Cache

__all__ = ["BUDGET", "RunOptions", "cores"]

BUDGET = 64 << 20
"""Bytes of arguments that are out at the same time, unless told otherwise."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a plan is run. See `Plan.run`."""

    workers: int = field(default_factory=cores)
    renew_after: int | None = None
    renew_after_seconds: float | None = None
    max_rss: int | None = None
    setup: Callable[[], object] | None = None
    launcher: Any = "forkserver"
    on_failure: str = OnFailure.STOP
    retries: int = 0
    crashes_max: int = CRASHES_MAX
    resources: Mapping[str, int] = field(default_factory=dict)
    budget: int = BUDGET
    cache: Cache | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Validate the options."""
        example = "plan.run({})"
        count(self.workers, "workers", example.format("workers=4"), error=BadOption)
        if self.on_failure not in tuple(OnFailure):
            words = " or ".join(repr(str(each)) for each in OnFailure)
            msg = f"on_failure={brief(self.on_failure)} must be {words}"
            raise BadOption(msg)
        count(self.retries, "retries", example.format("retries=2"), least=0, error=BadOption)
        count(self.crashes_max, "crashes_max", example.format("crashes_max=3"), error=BadOption)
        count(self.budget, "budget", example.format("budget=64 << 20"), error=BadOption)
        flag(self.quiet, "quiet", example.format("quiet=True"), error=BadOption)
        for name in ("renew_after", "max_rss"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name, example.format(f"{name}=100"), error=BadOption)
        if self.renew_after_seconds is not None:
            seconds(
                self.renew_after_seconds,
                "renew_after_seconds",
                example.format("renew_after_seconds=600"),
                zero=False,
                error=BadOption,
            )
        if self.setup is not None:
            function(self.setup, "setup", example.format("setup=load_model"), error=BadOption)
        given: object = self.resources
        if not isinstance(given, Mapping):
            msg = f'resources={brief(given)} must be a dict, as in plan.run(resources={{"gpu": 1}})'
            raise BadOption(msg)
        for name, amount in self.resources.items():
            count(
                amount,
                f"resources[{name!r}]",
                example.format('resources={"gpu": 1}'),
                error=BadOption,
            )
