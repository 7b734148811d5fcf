"""Goals of a policy, parsed from text such as `p99 < 50ms, no loss, goodput(50ms) > 99%`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from actorflow.lab.models.notation import (
    BadNotation,
    Share,
    TimeNumber,
    check_unit,
    parse,
    seconds_text,
)
from actorflow.lab.run.result import QUANTILES
from actorflow.runtime.errors import near

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.lab.run.result import Result

__all__ = ["Goal", "figure_text", "latency_limit", "parse_goals"]

_LATENCIES = (*QUANTILES, "max")
_COUNTS: dict[str, Callable[[Result], int]] = {
    "loss": lambda result: result.lost,
    "replacement": lambda result: result.replaced + result.merged,
    "replaced": lambda result: result.replaced,
    "merged": lambda result: result.merged,
    "dropped": lambda result: result.dropped,
    "rejected": lambda result: result.rejected,
    "expired": lambda result: result.expired,
    "failed": lambda result: result.failed,
    "abandoned": lambda result: result.abandoned,
}
_FIGURES: dict[str, Callable[[Result], float]] = {
    "mean": lambda result: result.latency_mean,
    "oldest": lambda result: result.oldest,
    "busy": lambda result: result.busy,
    "fairness": lambda result: result.fairness,
    "throughput": lambda result: result.throughput,
    "depth": lambda result: result.peak_depth,
    "memory": lambda result: result.memory,
    "batch": lambda result: result.batch_mean,
    "batches": lambda result: result.batches / result.duration,
    "age": lambda result: math.inf if result.age is None else result.age,
    "cost": lambda result: result.cost,
}
_GOODPUT = "goodput"
_REPLACEMENTS = ("replacement", "replaced")
_TIMES = {*_LATENCIES, "mean", "oldest", "age"}
_SHARES = {*_COUNTS, "busy", _GOODPUT}
_KNOWN = (*_LATENCIES, *_FIGURES, *_COUNTS, _GOODPUT)
_GOAL = re.compile(
    r"(?P<figure>[a-z][a-z0-9.]*)\s*(?:\((?P<only>[^)]*)\))?\s*(?P<sign><=|>=|<|>)\s*(?P<limit>.+)"
)
_ONLY = re.compile(r"priority\s*(?P<sign>>=|=)\s*(?P<least>-?\d+(?:\.\d+)?)|(?P<high>high)")


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit that a policy has to meet."""

    figure: str
    sign: str
    """`<`, `<=`, `>` or `>=`."""
    limit: float
    only: str = ""
    """`priority>=9`, `priority=9` or `high`: the latencies of these messages alone.

    For `goodput`, the time within which a message must be processed.
    """

    counts_replaced: bool = False
    """For `loss`: whether a replaced message is lost. It is, unless a goal allows replacement."""

    def __str__(self) -> str:
        if self.figure in _COUNTS and self.limit == 0:
            return f"no {self.figure}"
        return f"{self.name} {self.sign} {figure_text(self.figure, self.limit)}"

    @property
    def name(self) -> str:
        """The figure, and the messages that it is about."""
        return f"{self.figure}({self.only})" if self.only else self.figure

    def value(self, result: Result) -> float:
        """Return the figure of a result that the goal is about. Counts are shares of all.

        A time is infinite if nothing was processed: doing nothing is not being fast.
        """
        if self.figure in _COUNTS:
            count = _COUNTS[self.figure](result) + self.counts_replaced * result.replaced
            return count / max(result.arrived, 1)
        if self.figure == _GOODPUT:
            return result.within(float(parse(self.only)))  # type: ignore[arg-type]
        if self.only:
            # Each of these priorities has to meet it, so the worst of them counts.
            return max(
                (
                    table[self.figure] if table["count"] else math.inf
                    for table in self._chosen(result)
                ),
                default=math.inf,
            )
        if self.figure in _TIMES and not result.processed:
            return math.inf
        if self.figure in _LATENCIES:
            return result.latency[self.figure]
        return _FIGURES[self.figure](result)

    def point(self) -> tuple[float, float] | None:
        """Return the time and the share of messages that it asks for, if it is about both."""
        if self.figure in QUANTILES and not self.only:
            return self.limit, QUANTILES[self.figure]
        if self.figure == _GOODPUT:
            return float(parse(self.only)), self.limit  # type: ignore[arg-type]
        return None

    def _chosen(self, result: Result) -> list[dict[str, float]]:
        known = sorted(result.priorities)
        if self.only == "high":
            return [result.priorities[priority] for priority in known[-1:]]
        sign, least = self.only[len("priority") :].partition("=")[::2]
        wanted = float(least)
        return [
            result.priorities[priority]
            for priority in known
            if priority == wanted or (sign == ">" and priority > wanted)
        ]

    def is_met(self, result: Result) -> bool:
        """Return whether a result meets the goal."""
        value = self.value(result)
        if self.limit == 0 and self.figure in _COUNTS:
            return value == 0
        if self.sign in ("<", "<="):
            return value < self.limit or (self.sign == "<=" and value == self.limit)
        return value > self.limit or (self.sign == ">=" and value == self.limit)

    def miss(self, result: Result) -> float:
        """Return by how much a result misses the goal, as a share of the limit; 0 if it is met."""
        if self.is_met(result):
            return 0.0
        value = self.value(result)
        away = value - self.limit if self.sign in ("<", "<=") else self.limit - value
        return max(away, 1e-6) / (self.limit or 1.0)

    def reached(self, result: Result) -> Goal:
        """Return the goal with a limit that this result meets: two digits, on the safe side."""
        value = self.value(result)
        if self.is_met(result) or not math.isfinite(value):
            return self
        up = self.sign in ("<", "<=")
        return replace(self, limit=_rounded(value * (1.01 if up else 0.99), up=up))


def _rounded(value: float, *, up: bool) -> float:
    if value <= 0:
        return 0.0
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    digits = math.ceil(value / scale) if up else math.floor(value / scale)
    return float(f"{digits * scale:.2g}")


def parse_goals(text: str) -> tuple[Goal, ...]:
    """Read goals, separated by commas.

    A loss includes replaced messages, unless one of the goals is about replacement.

    Raises:
        BadNotation: one cannot be read; the message shows where, and near names.

    >>> [str(goal) for goal in parse_goals("p99 < 50ms, no loss, busy < 80%")]
    ['p99 < 50ms', 'no loss', 'busy < 80%']
    """
    goals = []
    at = 0
    for piece in text.split(","):
        start = at + len(piece) - len(piece.lstrip())
        goals.append(_goal(text, piece.strip(), start))
        at += len(piece) + 1
    if any(goal.figure in _REPLACEMENTS for goal in goals):
        return tuple(goals)
    return tuple(
        replace(goal, counts_replaced=True) if goal.figure == "loss" else goal for goal in goals
    )


def _goal(text: str, piece: str, at: int) -> Goal:
    words = piece.lower().split()
    if len(words) == 2 and words[0] == "no":  # noqa: PLR2004
        if words[1] not in _COUNTS:
            raise BadNotation(text, at, f"no {words[1]!r} to count{near(words[1], _COUNTS)}")
        return Goal(words[1], "<=", 0.0)
    found = _GOAL.fullmatch(piece)
    if found is None:
        raise BadNotation(text, at, "expected a goal like 'p99 < 50ms' or 'no loss'")
    figure, only = found["figure"], found["only"] or ""
    if figure not in _KNOWN:
        raise BadNotation(text, at, f"there is no figure {figure!r}{near(figure, _KNOWN)}")
    if figure == _GOODPUT:
        _check_within(text, only, at)
    elif only:
        only = only.replace(" ", "")
        if figure not in _LATENCIES or not _ONLY.fullmatch(only):
            why = "only latencies have priorities: p99(priority>=9), p50(priority=0), max(high)"
            raise BadNotation(text, at, why)
    return Goal(figure, found["sign"], _limit(text, figure, found, at), only)


def _check_within(text: str, only: str, at: int) -> None:
    """Validate the time of a goodput."""
    within = parse(only) if only else None
    if not isinstance(within, TimeNumber):
        why = "goodput is the share of all messages in time; write for example goodput(50ms) > 99%"
        raise BadNotation(text, at, why)


def _limit(text: str, figure: str, found: re.Match[str], at: int) -> float:
    """Return the limit of a goal, which has the unit of its figure."""
    place = at + found.start("limit")
    limit = parse(found["limit"])
    if not isinstance(limit, int | float) or not 0 <= limit < math.inf:
        raise BadNotation(text, place, f"expected a number like {_EXAMPLES[_unit(figure)]}")
    if figure in _TIMES and isinstance(limit, Share):
        why = f"{figure} {limit * 100:g}% is not a time; write for example {figure} < 50ms"
        raise BadNotation(text, place, why)
    check_unit(text, place, figure, limit, timed=figure in _TIMES)
    if figure in _SHARES and not isinstance(limit, Share) and limit >= 1:
        why = f"{figure} is a share of all messages or time; write {limit:g}%"
        raise BadNotation(text, place, why)
    if _unit(figure) == "count" and isinstance(limit, Share):
        raise BadNotation(text, place, f"{figure} is not a share; write a number without %")
    return float(limit)


_EXAMPLES = {"time": "50ms", "share": "80%", "count": "1000", "index": "0.9"}


def _unit(figure: str) -> str:
    if figure in _TIMES:
        return "time"
    if figure in _SHARES:
        return "share"
    return "index" if figure == "fairness" else "count"


def figure_text(figure: str, value: float) -> str:
    """Return a figure in its unit."""
    if figure in _TIMES:
        return seconds_text(value)
    if figure in _SHARES:
        return f"{value * 100:.3g}%"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004


def latency_limit(goals: Sequence[Goal]) -> float | None:
    """Return the shortest time that the goals ask for, if any."""
    times = [goal.limit for goal in goals if goal.figure in _TIMES and goal.sign[0] == "<"]
    times += [float(parse(goal.only)) for goal in goals if goal.figure == _GOODPUT]  # type: ignore[arg-type]
    return min(times, default=None)
