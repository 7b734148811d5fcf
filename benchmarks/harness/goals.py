"""The speed that workers are meant to reach, and whether a run reached it.

Each promise names a figure of one case. Most of them are ratios to a reference that was measured
in the same run, because ratios hold on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness.measure import ratio
from benchmarks.loads.calls import BY_HAND, PEER, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.measure import Results, Section

__all__ = ["Goal", "Promise", "goals", "promises", "wanted"]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A goal: a limit for the figure of one case, or for its ratio to that of another."""

    work: str
    section: str
    ours: str
    """The label of our case."""
    reference: str | None = None
    """The label of the case to compare with; `None` for an absolute limit."""
    figure: str
    unit: str
    """The unit of the figure."""
    scale: float = 1.0
    """By what the figure is divided to be in that unit."""
    limit: float
    at_least: bool


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A promise beside what a run measured; `None` stands for what it did not measure."""

    promise: Promise
    ours: float | None
    reference: float | None
    ratio: float | None

    @property
    def met(self) -> bool | None:
        """Whether the promise was kept; `None` if it was not measured."""
        value = self.ours if self.promise.reference is None else self.ratio
        if value is None:
            return None
        limit = self.promise.limit
        return value >= limit if self.promise.at_least else value <= limit


def goals(results: Results) -> list[Goal]:
    """Return each promise with the figures of a run."""
    return [_goal(promise, results) for promise in promises()]


def wanted(section: Section) -> set[str]:
    """Return the labels of the cases in a section that some promise refers to."""
    own = [promise for promise in promises() if promise.section == section.name]
    return {label for promise in own for label in (promise.ours, promise.reference) if label}


def _goal(promise: Promise, results: Results) -> Goal:
    rows = results.get(promise.section, {})
    ours = rows.get(promise.ours)
    reference = None if promise.reference is None else rows.get(promise.reference)

    def middle(row: object) -> float | None:
        found = None if row is None else row.median(promise.figure)  # type: ignore[attr-defined]
        return None if found is None else found / promise.scale

    return Goal(
        promise=promise,
        ours=middle(ours),
        reference=middle(reference),
        ratio=ratio(ours, reference, promise.figure),
    )


def promises() -> list[Promise]:
    """Return all promises, in the order of the report."""
    return [*_bursts(), *_crowds(), *_latency(), *_population(), *_calls()]


def _rate(work: str, section: str, ours: str, reference: str, limit: float) -> Promise:
    return Promise(
        work=work, section=section, ours=ours, reference=reference, limit=limit, at_least=True,
        figure="rate", unit="M/s", scale=1e6,
    )  # fmt: skip


def _bursts() -> Iterator[Promise]:
    for ours, reference, producers, limit in (
        ("Queue", "bare list", (1, 4), 0.85),
        ("Stack", "bare list", (1, 4), 0.85),
        ("Unique", "bare dict", (1, 4), 0.9),
        ("Bounded(Queue) reject", "bare list", (4,), 0.7),
        ("Bounded(Queue) drop_oldest", "bare list", (4,), 0.7),
        ("Linger(Queue, 1 ms, 1,000)", "Queue", (1, 4), 0.6),
        ("Queue", "batching thread", (4,), 0.9),
    ):
        for count in producers:
            work = f"burst {ours} / {reference}, {count} producer{'s'[: count > 1]}"
            yield _rate(work, f"burst-{count}", ours, reference, limit)
    for ours, limit in (("Coalesce", 2.0), ("TableUnique", 0.5)):
        yield Promise(
            work=f"burst {ours}, 1 producer", section="burst-1", ours=ours, figure="rate",
            unit="M/s", scale=1e6, limit=limit, at_least=True,
        )  # fmt: skip


def _crowds() -> Iterator[Promise]:
    for section, work, reference, limit in (
        ("crowd-1000", "1,000 workers x 1,000", "bare list", 0.45),
        ("crowd-10000", "10,000 workers x 100", "asyncio queue", 1.2),
        ("crowd-100000", "100,000 workers x 10", "asyncio queue", 1.0),
    ):
        yield _rate(f"{work} / {reference}", section, "Queue", reference, limit)


def _at_most(
    work: str, section: str, ours: str, limit: float, *,
    figure: str = "p50", unit: str = "us", reference: str | None = None,
) -> Promise:  # fmt: skip
    return Promise(
        work=work, section=section, ours=ours, reference=reference, limit=limit, at_least=False,
        figure=figure, unit=unit,
    )  # fmt: skip


def _latency() -> Iterator[Promise]:
    trips = "round-trip"
    yield _at_most(
        "push_block on an idle worker, p50 / bare hand-off",
        trips, "push_block", 1.6, reference="bare hand-off",
    )  # fmt: skip
    for thread in ("other", "main"):
        ours = f"push_block, help, {thread} thread"
        yield _at_most(f"push_block, help=True, hot, {thread} thread, p50", trips, ours, 3)
    yield _at_most(
        "one way, paced, p50 / SimpleQueue hop",
        "paced", "Queue", 1.4, reference="SimpleQueue thread",
    )  # fmt: skip
    yield _at_most("ask, p50 / push_block, p50", trips, "ask", 1.1, reference="push_block")


def _population() -> Iterator[Promise]:
    for work, figure, limit, unit in (
        ("spawn at 100,000 pairs", "spawn us", 9, "us"),
        ("memory per idle pair, RSS", "bytes (RSS)", 1_050, "bytes"),
        ("stop of an idle worker, one by one, p50", "stop p50", 15, "us"),
    ):
        yield _at_most(work, "population", "Queue", limit, figure=figure, unit=unit)


def _calls() -> Iterator[Promise]:
    for section, cost in (("calls", "trivial"), ("calls-1ms", "1 ms per call")):
        yield Promise(
            work=f"@af.batched / {PEER}, 16 threads, {cost}",
            section=section, ours="af.batched, 16, 5 ms", reference=f"{PEER}, 16, 5 ms",
            figure="rate", unit="k/s", scale=1e3, limit=3, at_least=True,
        )  # fmt: skip
    for what, ours, limit in (
        ("4 threads", "ask", 0.9),
        ("8 threads", "ask", 0.9),
        (f"{TASKS} tasks", "af.batched", 0.7),
        (f"{TASKS} tasks, 1 ms", "af.batched", 0.95),
    ):
        yield Promise(
            work=f"{ours} / {BY_HAND}, {what}", section="by-hand", ours=f"{ours}, {what}",
            reference=f"{BY_HAND}, {what}", figure="rate", unit="k/s", scale=1e3, limit=limit,
            at_least=True,
        )  # fmt: skip
