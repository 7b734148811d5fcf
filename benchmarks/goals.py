"""The speed that workers are meant to reach, and whether a run reached it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cases import PINNED
from benchmarks.measure import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure import Result, Results

__all__ = ["Goal", "goals"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One promise: a figure of the run beside its limit."""

    text: str
    limit: float
    at_least: bool
    unit: str
    value: float | None
    """`None`: the run did not measure it."""

    @property
    def met(self) -> bool | None:
        """Whether it was kept; `None` if nobody knows."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def goals(results: Results) -> list[Goal]:
    """Hold a run against the goals."""
    return [*_throughput(results), *_latency(results), *_population(results)]


def _row(results: Results, section: str, label: str) -> Result | None:
    return results.get(section, {}).get(label)


def _median(results: Results, section: str, label: str, figure: str) -> float | None:
    row = _row(results, section, label)
    return None if row is None else row.median(figure)


def _at_least(text: str, limit: float, value: float | None, unit: str = "x") -> Goal:
    return Goal(text=text, limit=limit, at_least=True, unit=unit, value=value)


def _at_most(text: str, limit: float, value: float | None, unit: str) -> Goal:
    return Goal(text=text, limit=limit, at_least=False, unit=unit, value=value)


def _throughput(results: Results) -> Iterator[Goal]:
    for producers in (1, 4):
        section = f"burst-{producers}"
        tail = f"{producers} producer{'s'[: producers > 1]}"

        def against(
            one: str, other: str, limit: float, *, section: str = section, tail: str = tail
        ) -> Goal:
            found = ratio(_row(results, section, one), _row(results, section, other), "rate")
            return _at_least(f"{one} / {other}, {tail}", limit, found)

        for behaviour in ("Queue", "Stack"):
            yield against(behaviour, "plain pykka", 50)
            yield against(behaviour, PINNED, 25)
            yield against(behaviour, "bare list", 0.7)
        yield against("Unique", "bare dict", 0.7)
        for behaviour in ("Priority 0..9", "Priority random"):
            rate = _median(results, section, behaviour, "rate")
            millions = None if rate is None else rate / 1e6
            yield _at_least(f"{behaviour}, {tail}", 1.0, millions, "M/s")
        for behaviour in ("Bounded(Queue) reject", "Bounded(Queue) drop_oldest"):
            yield against(behaviour, "Queue", 0.5)
    crowd = ratio(_row(results, "crowd", "Queue"), _row(results, "crowd", "plain pykka"), "rate")
    yield _at_least("1,000 workers, Queue / plain pykka", 300, crowd)
    rate = _median(results, "chunks", "push_many", "rate")
    yield _at_least("push_many in chunks of 100", 30, None if rate is None else rate / 1e6, "M/s")


def _latency(results: Results) -> Iterator[Goal]:
    block = _row(results, "round-trip", "push_block")
    bare = _row(results, "round-trip", "bare hand-off")
    yield _at_most("push_block, idle, p50 / bare hand-off", 1.1, ratio(block, bare, "p50"), "x")
    helped = _median(results, "round-trip", "push_block, help", "p50")
    yield _at_most("push_block, idle, p50, help (caller-runs)", 3, helped, "us")
    for label in ("push_ack, idle", "push_ack, busy"):
        yield _at_most(f"{label}, p50", 2, _median(results, "ack", label, "p50"), "us")


def _population(results: Results) -> Iterator[Goal]:
    rows = results.get("population", {})
    counts = sorted(row.case.options["workers"] for row in rows.values() if _is_queue(row))
    few, many = (counts[0], counts[-1]) if counts else (0, 0)
    large, small = f"Queue, {many:,}", f"Queue, {few:,}"
    at = f"at {many:,} pairs"
    for text, figure, label, limit, unit in (
        (f"spawn {at}", "spawn us", large, 12, "us"),
        (f"memory per idle pair {at}, RSS", "bytes (RSS)", large, 1_500, "bytes"),
        (
            f"memory per idle pair {at}, traced",
            "bytes (traced)",
            f"{large}, traced",
            1_500,
            "bytes",
        ),
    ):
        yield _at_most(text, limit, _median(results, "population", label, figure), unit)
    before = _median(results, "population", large, "threads before")
    after = _median(results, "population", large, "threads after")
    more = None if before is None or after is None else after - before
    yield _at_most(f"more threads for {many:,} idle pairs", 0, more, "threads")
    for figure, text in (("stop us", "all together"), ("stop p50", "one by one")):
        grown = ratio(rows.get(large), rows.get(small), figure)
        yield _at_most(f"stop of a pair, {text}: {many:,} / {few:,} pairs", 1.5, grown, "x")


def _is_queue(row: Result) -> bool:
    return row.case.subject == "Queue"
