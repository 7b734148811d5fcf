"""Which cases the benchmark of the workers runs, and with how many messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks import latency, loads, population
from benchmarks.loads import BEHAVIOURS, available
from benchmarks.measure import Case, Section

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FULL", "INTERVALS", "LOADS", "PINNED", "QUICK", "Scale", "missing", "sections"]

LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "burst": loads.burst,
    "crowd": loads.crowd,
    "chunks": loads.chunks,
    "round_trip": latency.round_trip,
    "ack": latency.ack,
    "paced": latency.paced,
    "population": population.population,
    "traced": population.traced,
}

PINNED = "plain pykka, one processor"
INTERVALS = {"5 ms (default)": 5e-3, "1 ms": 1e-3, "0.05 ms": 5e-5}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of everything."""

    messages: int
    crowd: int
    each: int
    samples: int
    flood_samples: int
    paced: int
    few: int
    many: int
    rounds: int
    fewer_rounds: int


FULL = Scale(
    messages=1_000_000, crowd=1_000, each=1_000, samples=2_000, flood_samples=150, paced=1_500,
    few=10_000, many=100_000, rounds=5, fewer_rounds=3,
)  # fmt: skip
QUICK = Scale(
    messages=1_000, crowd=10, each=100, samples=10, flood_samples=2, paced=10,
    few=20, many=40, rounds=2, fewer_rounds=1,
)  # fmt: skip

_SLOW_PEERS = {
    "plain pykka": ("plain pykka", 5),
    PINNED: ("plain pykka", 5),
    "two-actor pykka": ("two-actor pykka", 5),
    "asyncio queue": ("asyncio queue", 2),
    "SimpleQueue thread": ("SimpleQueue thread", 1),
    "bare list": ("bare list", 1),
    "bare dict": ("bare dict", 1),
}
"""Peers by their labels: who they are, and by what their messages are divided."""
_SLOW_BEHAVIOURS = {
    "TableUnique": 10, "Linger(Queue, 1 ms, 1,000)": 4, "Debounce(Queue, 1 ms, 5 ms)": 4,
    "Expire(Queue, 60 s)": 4,
}  # fmt: skip


def missing() -> list[str]:
    """Name the behaviours that this tree does not have, so that their rows are left out."""
    return [name for name in BEHAVIOURS if not available(name)]


def _scaled(count: int, divisor: int) -> str:
    return "" if divisor == 1 else f"{count // divisor:,} messages"


def _bursts(scale: Scale, producers: int) -> Section:
    cases = []
    rows = {name: (name, _SLOW_BEHAVIOURS.get(name, 1)) for name in BEHAVIOURS if available(name)}
    for label, (subject, divisor) in (rows | _SLOW_PEERS).items():
        cases.append(
            Case(
                label=label,
                load="burst",
                subject=subject,
                options={"messages": scale.messages // divisor, "producers": producers},
                pinned=label == PINNED,
                note=_scaled(scale.messages, divisor),
            )
        )
    title = f"Burst of {scale.messages:,} messages, {producers} producer{'s'[: producers > 1]}"
    return Section(name=f"burst-{producers}", title=title, cases=tuple(cases), rounds=scale.rounds)


def _crowd(scale: Scale) -> Section:
    divisors = {"Queue": 1, "plain pykka": 50, "asyncio queue": 5, "bare list": 1}
    cases = [
        Case(
            label=subject,
            load="crowd",
            subject=subject,
            options={"workers": scale.crowd, "each": scale.each // divisor},
            note="" if divisor == 1 else f"{scale.each // divisor:,} messages each",
        )
        for subject, divisor in divisors.items()
    ]
    title = f"{scale.crowd:,} workers x {scale.each:,} messages, round robin"
    return Section(name="crowd", title=title, cases=tuple(cases), rounds=scale.rounds)


def _chunks(scale: Scale) -> Section:
    options = {"messages": 10 * scale.messages, "size": 100}
    cases = tuple(
        Case(label=label, load="chunks", subject=subject, options=options)
        for label, subject in (("push_many", "Queue"), ("bare list, extend", "bare list"))
    )
    title = f"{10 * scale.messages:,} messages in chunks of 100"
    return Section(name="chunks", title=title, cases=cases, rounds=scale.rounds)


def _round_trips(scale: Scale) -> Section:
    notes = {"push_block, help": "caller-runs"}
    subjects = ("push_block", "push_block, help", "bare hand-off", "pykka ask")
    cases = tuple(
        Case(
            label=subject, load="round_trip", subject=subject,
            options={"samples": scale.samples}, note=notes.get(subject, ""),
        )
        for subject in subjects
    )  # fmt: skip
    return Section(
        name="round-trip",
        title="Round trip to an idle worker, us",
        cases=cases,
        rounds=scale.rounds,
    )


def _flood(scale: Scale) -> Section:
    options = {"samples": scale.flood_samples, "flood": True}
    cases = tuple(
        Case(label=subject, load="round_trip", subject=subject, options=options)
        for subject in ("push_block", "push_block, help", "bare hand-off")
    )
    title = "Round trip while another thread floods, us"
    return Section(name="flood", title=title, cases=cases, rounds=scale.fewer_rounds)


def _acks(scale: Scale) -> Section:
    cases = tuple(
        Case(label=subject, load="ack", subject=subject, options={"samples": scale.samples})
        for subject in ("push_ack, idle", "push_ack, busy", "bare put, idle thread")
    )
    return Section(name="ack", title="push_ack, us", cases=cases, rounds=scale.rounds)


def _paced(scale: Scale) -> Section:
    cases = tuple(
        Case(
            label=subject, load="paced", subject=subject,
            options={"messages": scale.paced, "every": 0.001},
        )
        for subject in ("Queue", "plain pykka", "SimpleQueue thread", "bare list")
    )  # fmt: skip
    title = "One way at 1,000 messages/s, us"
    return Section(name="paced", title=title, cases=cases, rounds=scale.fewer_rounds)


def _population(scale: Scale) -> Section:
    def case(subject: str, load: str, workers: int, note: str = "") -> Case:
        label = f"{subject}, {workers:,}" + (", traced" if load == "traced" else "")
        return Case(
            label=label, load=load, subject=subject, options={"workers": workers}, note=note
        )

    cases = (
        case("Queue", "population", scale.few),
        case("Queue", "population", scale.many),
        case("Queue", "traced", scale.many, "slow: every allocation is traced"),
        case("plain pykka", "population", scale.few // 10, "a thread each"),
    )
    title = "Idle workers"
    return Section(name="population", title=title, cases=cases, rounds=scale.fewer_rounds)


def _switch(scale: Scale) -> Section:
    cases = []
    for label, interval in INTERVALS.items():
        for producers in (1, 4):
            options = {"messages": scale.messages, "producers": producers, "interval": interval}
            cases.append(
                Case(
                    label=f"{label}: Queue, {producers} producer{'s'[: producers > 1]}",
                    load="burst", subject="Queue", options=options,
                )
            )  # fmt: skip
        options = {"samples": scale.flood_samples, "flood": True, "interval": interval}
        cases.append(
            Case(
                label=f"{label}: push_block, flood", load="round_trip", subject="push_block",
                options=options,
            )
        )  # fmt: skip
    title = "sys.setswitchinterval: throughput against round trips under flood"
    return Section(name="switch", title=title, cases=tuple(cases), rounds=scale.fewer_rounds)


def sections(scale: Scale, *, rounds: int | None = None) -> list[Section]:
    """Give all sections, in the order of the report."""
    if rounds is not None:
        scale = replace(scale, rounds=rounds, fewer_rounds=rounds)
    return [
        _bursts(scale, 1),
        _bursts(scale, 4),
        _crowd(scale),
        _chunks(scale),
        _round_trips(scale),
        _flood(scale),
        _acks(scale),
        _paced(scale),
        _population(scale),
        _switch(scale),
    ]
