"""Capacity: the highest rate at which a policy still meets the goals, and what happens on the way.

The rate of the traffic is scaled, its pattern stays. A rate is *sustainable* if the goals are met
and the backlog does not grow; each is tried with several seeds, so near the limit some are
undecided. They make the interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import fsum, inf
from statistics import fmean
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.clients import ClientTraffic
from actorflow.lab.models.policies import policy_of
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.trace import Trace
from actorflow.lab.models.traffic import AT, CHUNK, Bursty, Constant, Message, Poisson
from actorflow.lab.run.goals import Goal, latency_limit, parse_goals
from actorflow.lab.run.intervals import mean_interval
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Traffic
    from actorflow.lab.run.result import Result

__all__ = ["Capacity", "RatePoint", "capacity"]

_RATES = ("rate", "quiet_rate", "before", "after", "start", "end", "low", "high")
_SEEDS = 5
_UNANIMOUS = 3  # runs that agree are enough
_CLOSE = 0.02  # where the search ends
_STEPS = (0.3, 0.6, 0.8, 0.9, 1.1, 1.2)  # of the curve, besides the rates that were tried
_GROWTH, _SLACK = 1.8, 0.01  # of latency, from the second quarter of a run to the last


@dataclass(frozen=True, slots=True)
class RatePoint:
    """What a policy does at one rate."""

    rate: float
    """Messages per second."""
    p99: float
    p99_interval: tuple[float, float]
    goodput: float
    """Messages per second that were in time."""
    met: int
    """In how many of `runs` the goals were met."""
    runs: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a policy can take."""

    policy: str
    goals: tuple[Goal, ...]
    rate: float
    """The highest sustainable rate, in messages per second; 0 if none is."""
    interval: tuple[float, float]
    """From the highest rate at which all runs were sustainable to the lowest at which none was."""
    curve: list[RatePoint]
    knee: float
    """The rate at which the curve of p99 turns up."""

    def __str__(self) -> str:
        low, high = self.interval
        goals = ", ".join(map(str, self.goals))
        return (
            f"{self.policy} sustains {self.rate:,.0f} messages/s ({low:,.0f} to {high:,.0f}) "
            f"with {goals}; the knee is at {self.knee:,.0f}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "policy": self.policy,
            "goals": [str(goal) for goal in self.goals],
            "rate": self.rate,
            "interval": self.interval,
            "knee": self.knee,
            "curve": [
                {
                    "rate": each.rate, "p99": each.p99, "p99_interval": each.p99_interval,
                    "goodput": each.goodput, "met": each.met, "runs": each.runs,
                }
                for each in self.curve
            ],
        }  # fmt: skip


def capacity(
    traffic: Traffic | str,
    service: Service | str,
    policy: Any,
    goals: str | Sequence[Goal],
    *,
    seed: int = 0,
    concurrency: int = 1,
    messages: int = 12_000,
    progress: Callable[[int], None] | None = None,
) -> Capacity:
    """Find the highest sustainable rate of a policy, by simulation.

    Args:
        traffic: the arrivals, as a model or as text; their rate is only where the search begins.
        service: how long the job takes, as a model or as text.
        policy: what to run, as text, class or factory.
        goals: the limits, as text (`"p99 < 50ms, no loss"`), or parsed.
        seed: of the first run at each rate; each of five has the next one.
        concurrency: how many batches may run at once.
        messages: of one run with steady traffic, about; bursts come at least five times.
        progress: called with the number of runs so far.

    """
    wanted = parse_goals(goals) if isinstance(goals, str) else tuple(goals)
    if not wanted:
        msg = "capacity needs a goal, as in 'p99 < 50ms, no loss'"
        raise BadOption(msg)
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    if isinstance(source, ClientTraffic):
        msg = "clients(...) have no rate of their own; use an arrival model such as poisson(500)"
        raise BadOption(msg)
    model = parse_service(service) if isinstance(service, str) else service
    search = _CapacitySearch(
        source, model, policy, wanted,
        seed=seed, concurrency=concurrency, messages=messages, progress=progress,
    )  # fmt: skip
    return search.run()


class _CapacitySearch:
    def __init__(
        self,
        traffic: Traffic,
        service: Service,
        policy: Any,
        goals: tuple[Goal, ...],
        *,
        seed: int,
        concurrency: int,
        messages: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._traffic = traffic
        self._policy = policy_of(policy)
        self._simulate = partial(
            simulate, service=service, policy=self._policy, concurrency=concurrency
        )
        self._goals = goals
        self._messages = messages
        self._seed = seed
        self._progress = progress
        self._runs = 0
        self._within = latency_limit(goals) or 0.1
        self._known: dict[float, RatePoint] = {}
        self._rate = _rate_of(traffic, seed)

    def run(self) -> Capacity:
        good, bad = self._bracket()
        sure, never = good, bad
        while bad - good > _CLOSE * bad and good > 0:
            middle = (good + bad) / 2
            point = self._try(middle)
            if 2 * point.met > point.runs:
                good = middle
            else:
                bad = middle
            tried = sorted(self._known.values(), key=lambda each: each.rate)
            sure = max((each.rate for each in tried if each.met == each.runs), default=0.0)
            never = min((each.rate for each in tried if not each.met), default=inf)
        found = (good + bad) / 2 if good else 0.0
        if found:
            for step in _STEPS:
                self._try(found * step)
        curve = sorted(self._known.values(), key=lambda each: each.rate)
        curve = [each for each in curve if not found or each.rate <= 1.5 * found]
        low, high = min(sure, found), max(never, found)
        knee = _knee([each for each in curve if each.rate <= high])
        return Capacity(self._policy.name, self._goals, found, (low, high), curve, knee)

    def _bracket(self) -> tuple[float, float]:
        """Return a rate that is sustainable and one that is not, a factor of two apart."""
        rate = self._rate
        if self._is_good(rate):
            while self._is_good(rate * 2):
                rate *= 2
                if rate > 1e9:  # noqa: PLR2004
                    msg = f"{self._policy.name} meets the goals at any rate; add one it can miss"
                    raise BadOption(msg)
            return rate, rate * 2
        while rate > self._rate / 1e6:
            rate /= 2
            if self._is_good(rate):
                return rate, rate * 2
        return 0.0, rate

    def _is_good(self, rate: float) -> bool:
        point = self._try(rate)
        return 2 * point.met > point.runs

    def _try(self, rate: float) -> RatePoint:
        """Run at a rate with several seeds."""
        known = self._known.get(rate)
        if known is not None:
            return known
        scaled = scaled_traffic(self._traffic, rate / self._rate, self._messages / rate)
        results: list[Result] = []
        met = 0
        for number in range(_SEEDS):
            result = self._simulate(traffic=scaled, seed=self._seed + number)
            results.append(result)
            met += self._sustains(result)
            self._runs += 1
            if self._progress is not None:
                self._progress(self._runs)
            if number + 1 == _UNANIMOUS and met in (0, _UNANIMOUS):
                break
        tails = [each.latency["p99"] for each in results]
        found = self._known[rate] = RatePoint(
            rate=rate,
            p99=fmean(tails),
            p99_interval=mean_interval(tails),
            goodput=fmean(each.goodput(self._within) for each in results),
            met=met,
            runs=len(results),
        )
        return found

    def _sustains(self, result: Result) -> bool:
        """Return whether the goals were met, and the backlog did not grow."""
        if not all(goal.is_met(result) for goal in self._goals):
            return False
        points = [each for each in result.time_series if each[1]]
        if len(points) < 8 or result.lost:  # noqa: PLR2004 - what sheds load has no backlog
            return True
        # The median grows from quarter to quarter only where the backlog does.
        quarter = len(points) // 4
        second, last = (
            fsum(each[3] for each in some) / quarter
            for some in (points[quarter : 2 * quarter], points[-quarter:])
        )
        return last < _GROWTH * second + _SLACK * result.duration


@dataclass(frozen=True, slots=True)
class _Faster:
    """Any traffic, with its time compressed."""

    traffic: Traffic
    factor: float

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        for chunk in self.traffic.chunks(seed):
            yield [(key, priority, size, at / self.factor) for key, priority, size, at in chunk]


def scaled_traffic(traffic: Any, factor: float, seconds: float) -> Any:
    """Return traffic with its rate scaled; steady models and bursts last about so long."""
    names = [name for name in _RATES if hasattr(traffic, name)]
    if isinstance(traffic, Trace):
        return replace(traffic, speed=traffic.speed * factor)
    if not names or not hasattr(traffic, "duration"):
        return _Faster(traffic, factor)
    changed = {name: getattr(traffic, name) * factor for name in names}
    if isinstance(traffic, Poisson | Constant):
        changed["duration"] = max(seconds, 0.1)
    elif isinstance(traffic, Bursty):
        cycle = traffic.on + traffic.off
        changed["duration"] = max(min(5 * cycle, traffic.duration), seconds)
    return replace(traffic, **changed)


def _rate_of(traffic: Traffic, seed: int) -> float:
    """Return the mean rate of traffic, from its first messages."""
    first = last = None
    count = 0
    for chunk in traffic.chunks(seed):
        first = chunk[0][AT] if first is None else first
        last = chunk[-1][AT]
        count += len(chunk)
        if count >= 4 * CHUNK:
            break
    if first is None or last is None or last <= first:
        msg = "there are not two messages in this traffic; make it longer, or raise its rate"
        raise BadOption(msg)
    return count / (last - first)


def _knee(curve: Sequence[RatePoint]) -> float:
    """Return the rate at which the curve is farthest below the straight line between its ends."""
    if len(curve) < 3:  # noqa: PLR2004
        return curve[0].rate if curve else 0.0
    first, last = curve[0], curve[-1]
    wide = last.rate - first.rate or 1.0
    high = last.p99 - first.p99 or 1.0

    def below(point: RatePoint) -> float:
        return (point.rate - first.rate) / wide - (point.p99 - first.p99) / high

    return max(curve, key=below).rate
