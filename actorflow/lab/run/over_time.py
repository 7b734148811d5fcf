"""Figures over time: latency, loss and load of each stretch of a run, and the age of information.

A message counts in the stretch in which it arrived, a batch in the one in which it began.
Stretches double as the run gets longer, so that there are never more than 128.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actorflow.lab.run.histogram import Histogram
from actorflow.lab.run.intervals import half_width, samples_needed
from actorflow.lab.run.result import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["InformationAge", "OverTime", "Stretch"]

_MOST = 128
_NARROWEST = 2.0**-10  # seconds
_SECTIONS = (10, 5, 4)


@dataclass(slots=True)
class Stretch:
    """Counts of one stretch of time."""

    arrived: int = 0
    steps: Counter[int] = field(default_factory=Counter)
    """Latencies of the processed messages, as steps of a histogram."""
    total: float = 0.0
    """The sum of these latencies."""
    batches: int = 0
    taken: int = 0
    busy: float = 0.0

    def add(self, other: Stretch) -> None:
        """Add the counts of another stretch."""
        self.arrived += other.arrived
        self.steps.update(other.steps)
        self.total += other.total
        self.batches += other.batches
        self.taken += other.taken
        self.busy += other.busy


class OverTime:
    """The stretches of one run."""

    __slots__ = ("_stretches", "_width")

    def __init__(self) -> None:
        self._width = _NARROWEST
        self._stretches: dict[int, Stretch] = {}

    def arrive(self, times: Sequence[float]) -> None:
        """Count messages that have arrived at these times, in order."""
        self._widen(times[-1])
        width = self._width
        for place, count in Counter([int(at / width) for at in times]).items():
            self._at(place).arrived += count

    def finish(
        self, arrivals: Sequence[float], latencies: Sequence[float], steps: Sequence[int]
    ) -> None:
        """Count processed messages, by their time of arrival."""
        self._widen(max(arrivals))
        width = self._width
        groups: dict[int, tuple[list[int], list[float]]] = {}
        for at, latency, step in zip(arrivals, latencies, steps, strict=True):
            place = int(at / width)
            group = groups.get(place)
            if group is None:
                group = groups[place] = ([], [])
            group[0].append(step)
            group[1].append(latency)
        for place, (some, values) in groups.items():
            stretch = self._at(place)
            stretch.steps.update(some)
            stretch.total += math.fsum(values)

    def begin(self, times: Sequence[float], sizes: Sequence[int]) -> None:
        """Count batches by the time at which they began."""
        self._widen(max(times))
        for at, size in zip(times, sizes, strict=True):
            stretch = self._at(int(at / self._width))
            stretch.batches += 1
            stretch.taken += size

    def occupy(self, began: float, done: float) -> None:
        """Count the time of a call where it was spent."""
        self._widen(done)
        width = self._width
        first, last = int(began / width), int(done / width)
        if first == last:
            self._at(first).busy += done - began
            return
        for place in range(first, last + 1):
            part = min(done, (place + 1) * width) - max(began, place * width)
            self._at(place).busy += part

    def _at(self, place: int) -> Stretch:
        found = self._stretches.get(place)
        if found is None:
            found = self._stretches[place] = Stretch()
        return found

    def _widen(self, latest: float) -> None:
        while latest / self._width >= _MOST:
            self._width *= 2
            old, self._stretches = self._stretches, {}
            for place, stretch in sorted(old.items()):
                known = self._stretches.get(place // 2)
                if known is None:
                    self._stretches[place // 2] = stretch
                else:
                    known.add(stretch)

    def points(self, least: int = 1) -> list[tuple[float, int, float, float, float]]:
        """Return (from, arrived, share processed, p50, p99) of each stretch with arrivals.

        Neighbours are joined until each has `least` processed messages.
        """
        points = []
        joined, start = Stretch(), None
        for place in sorted(self._stretches):
            if start is None:
                start = place
            joined.add(self._stretches[place])
            if joined.steps.total() >= least:
                points.append(_point(start * self._width, joined))
                joined, start = Stretch(), None
        if start is not None and joined.arrived:
            points.append(_point(start * self._width, joined))
        return points

    def intervals(
        self, figures: dict[str, float], *, since: float, until: float, executors: int
    ) -> dict[str, tuple[float, float]]:
        """Return 95 % confidence intervals, from how ten sections of the run differ.

        Five or four sections are taken for figures that ten have too few messages for. A figure
        for which even those are too short gets no interval.
        """
        places = [
            place
            for place in sorted(self._stretches)
            if (place + 1) * self._width > since and place * self._width < until
        ]
        found: dict[str, tuple[float, float]] = {}
        for count in _SECTIONS:
            if len(places) < 2 * count:
                continue
            sections, seconds = self._sections(places, count)
            for name, whole in figures.items():
                if name in found:
                    continue
                values = [_figure(each, name, seconds * executors) for each in sections]
                known = [value for value in values if value is not None]
                if len(known) == count:
                    half = half_width(known, whole)
                    found[name] = (whole - half, whole + half)
        return found

    def _sections(self, places: Sequence[int], count: int) -> tuple[list[Stretch], float]:
        """Return a number of sections of the run, and how long each is."""
        share = (places[-1] + 1 - places[0]) / count
        sections = [Stretch() for _ in range(count)]
        for place in places:
            at = min(int((place - places[0]) / share), count - 1)
            sections[at].add(self._stretches[place])
        return sections, share * self._width


def _point(start: float, stretch: Stretch) -> tuple[float, int, float, float, float]:
    histogram = Histogram.of(stretch.steps)
    share = histogram.count / stretch.arrived if stretch.arrived else 0.0
    return (start, stretch.arrived, share, histogram.quantile(0.5), histogram.quantile(0.99))


def _figure(stretch: Stretch, name: str, seconds: float) -> float | None:
    """Return a figure of one section, or `None` if it has too few messages for it."""
    count = stretch.steps.total()
    if name in QUANTILES:
        if count < samples_needed(QUANTILES[name]):
            return None
        return Histogram.of(stretch.steps).quantile(QUANTILES[name])
    if name == "latency_mean":
        return stretch.total / count if count else None
    if name == "busy":
        return min(stretch.busy / seconds, 1.0)
    if name == "batch_mean":
        return stretch.taken / stretch.batches if stretch.batches else None
    return None


class InformationAge:
    """How old the newest processed message of each key is, averaged over time and keys.

    >>> age = InformationAge()
    >>> age.add(["a", "a"], [0.0, 8.0], [2.0, 1.0])  # processed at 2 and at 9
    >>> age.mean  # it grows from 2 to 9
    5.5
    """

    __slots__ = ("_known", "_span", "_total")

    def __init__(self) -> None:
        self._known: dict[Any, tuple[float, float]] = {}
        self._total = 0.0
        self._span = 0.0

    def add(
        self, keys: Sequence[Any], arrivals: Sequence[float], latencies: Sequence[float]
    ) -> None:
        """Count processed messages. O(1) each."""
        known = self._known
        total = span = 0.0
        for key, made, latency in zip(keys, arrivals, latencies, strict=True):
            now = made + latency
            before = known.get(key)
            if before is None:
                known[key] = (now, made)
            elif made > before[1]:
                since, old = before
                total += ((now - old) ** 2 - (since - old) ** 2) / 2
                span += now - since
                known[key] = (now, made)
        self._total += total
        self._span += span

    @property
    def mean(self) -> float | None:
        """The mean age in seconds; `None` if no key was processed twice."""
        return self._total / self._span if self._span > 0 else None
