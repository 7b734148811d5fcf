"""A job of a plan, and its options."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypedDict

from actorflow.behaviours.arguments import count, flag, seconds
from actorflow.behaviours.errors import brief
from actorflow.plans.errors import BadPlan
from actorflow.runtime.errors import near

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT", "Job", "JobOptions", "OptionsGiven", "options_of"]

MEMORY = "memory"
"""The resource that limits each worker process, instead of being shared by all."""


class _Names(Protocol):
    """Whatever knows the name of a job by its number."""

    def name(self, index: int) -> str: ...


class Job:
    """One job of a plan: pass it to another job as an argument to hand over its result."""

    __slots__ = ("blueprint", "index")

    def __init__(self, blueprint: _Names, index: int) -> None:
        self.blueprint = blueprint
        self.index = index
        """Its number in the plan."""

    @property
    def name(self) -> str:
        """Its name in the plan."""
        return self.blueprint.name(self.index)

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        msg = (
            f"job {self.name!r} is inside something that is sent to a worker, where it means "
            "nothing: pass it as an argument, or inside a list, tuple or dictionary"
        )
        raise BadPlan(msg)


class OptionsGiven(TypedDict, total=False):
    """The options of a job as they are given."""

    priority: int
    retries: int | None
    timeout: float | None
    weight: int
    resources: Mapping[str, Any] | None
    cache: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of a job."""

    priority: int = 0
    """Ready jobs with a higher priority start first."""
    retries: int | None = None
    """How often it is tried again after it has failed; `None` leaves it to the run."""
    timeout: float | None = None
    """Seconds for one attempt; then its process is killed."""
    weight: int = 1
    """How many of the workers' places it takes: 2 for a job that keeps two cores busy."""
    uses: Mapping[str, int] = field(default_factory=dict)
    """What it takes of the resources that the run limits."""
    memory: tuple[int, ...] = ()
    """Bytes that its process may use: the last number is for all later attempts."""
    cache: bool = True
    """False: it is run even if it is up to date."""


DEFAULT = JobOptions()
_KNOWN = tuple(each.name for each in fields(JobOptions) if each.name not in ("uses", "memory"))


def options_of(given: OptionsGiven) -> JobOptions:
    """Validate options.

    Raises:
        BadPlan: one is unknown, or has a value that cannot work.

    """
    example = "plan.job(fit, data, {})"
    unknown = [name for name in given if name not in (*_KNOWN, "resources")]
    if unknown:
        msg = f"a job has no option {unknown[0]!r}{near(unknown[0], (*_KNOWN, 'resources'))}"
        raise BadPlan(msg)
    priority: Any = given.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        msg = f"priority={brief(priority)} must be a whole number, as in plan.job(fit, priority=1)"
        raise BadPlan(msg)
    retries = given.get("retries")
    if retries is not None:
        count(retries, "retries", example.format("retries=2"), least=0, error=BadPlan)
    timeout = given.get("timeout")
    if timeout is not None:
        timeout = seconds(
            timeout, "timeout", example.format("timeout=60"), zero=False, error=BadPlan
        )
    weight = given.get("weight", 1)
    count(weight, "weight", example.format("weight=2"), error=BadPlan)
    cache = given.get("cache", True)
    flag(cache, "cache", example.format("cache=False"), error=BadPlan)
    uses, memory = _resources(given.get("resources"))
    return JobOptions(
        priority=priority,
        retries=retries,
        timeout=timeout,
        weight=weight,
        uses=uses,
        memory=memory,
        cache=cache,
    )


def _resources(given: Any) -> tuple[dict[str, int], tuple[int, ...]]:
    if given is None:
        return {}, ()
    example = 'resources={"gpu": 1, "memory": 2 * 1024**3}'
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        msg = f"resources={brief(given)} must be a dictionary of amounts by name, as in {example}"
        raise BadPlan(msg)
    uses = dict(given)
    memory: Any = uses.pop(MEMORY, ())
    limits = tuple(memory) if isinstance(memory, (list, tuple)) else (memory,)
    for each in limits:
        count(each, f"resources[{MEMORY!r}]", example, error=BadPlan)
    for name, amount in uses.items():
        count(amount, f"resources[{name!r}]", example, error=BadPlan)
    return uses, limits
