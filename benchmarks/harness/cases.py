"""The cases of the worker benchmark, and how many messages each of them carries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.harness.measure import Case, Section
from benchmarks.loads import calls, latency, population, throughput
from benchmarks.loads.throughput import BEHAVIOURS, available

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FULL", "INTERVALS", "LOADS", "PINNED", "QUICK", "Scale", "missing", "sections"]

LOADS: dict[str, Callable[..., dict[str, float]]] = {
    "burst": throughput.burst,
    "crowd": throughput.crowd,
    "chunks": throughput.chunks,
    "round_trip": latency.round_trip,
    "ack": latency.ack,
    "paced": latency.paced,
    "calls": calls.calls,
    "asked": calls.asked,
    "gathered": calls.gathered,
    "population": population.population,
    "traced": population.traced,
}

PINNED = "plain pykka, one processor"
INTERVALS = {"5 ms (default)": 5e-3, "1 ms": 1e-3, "0.05 ms": 5e-5}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the loads are, and how often they run."""

    messages: int
    crowds: tuple[tuple[int, int], ...]
    """Numbers of workers, and of messages for each of them."""
    samples: int
    flood_samples: int
    paced: int
    workers: int
    """Idle workers."""
    seconds: float
    """How long callers call a batched function."""
    rounds: int
    fewer_rounds: int


FULL = Scale(
    messages=1_000_000, crowds=((1_000, 1_000), (10_000, 100), (100_000, 10)), samples=2_000,
    flood_samples=150, paced=1_500, workers=100_000, seconds=1.0, rounds=5, fewer_rounds=3,
)  # fmt: skip
QUICK = Scale(
    messages=1_000, crowds=((10, 100), (10, 10), (20, 5)), samples=10, flood_samples=2, paced=10,
    workers=40, seconds=0.05, rounds=2, fewer_rounds=1,
)  # fmt: skip
_CROWDS = (1_000, 10_000, 100_000)  # as the sections are named, whatever the scale

_SLOW_PEERS = {
    "plain pykka": ("plain pykka", 5),
    PINNED: ("plain pykka", 5),
    "two-actor pykka": ("two-actor pykka", 5),
    "asyncio queue": ("asyncio queue", 2),
    "SimpleQueue thread": ("SimpleQueue thread", 1),
    "batching thread": ("batching thread", 1),
    "bare list": ("bare list", 1),
    "bare dict": ("bare dict", 1),
}
"""Peers by their labels: their names, and by what their number of messages is divided."""
_SLOW_BEHAVIOURS = {"TableUnique": 10}


def missing() -> list[str]:
    """Return the names of subjects that are not installed, so that their rows are left out."""
    absent = [name for name in BEHAVIOURS if not available(name)]
    return absent if calls.has_peer() else [*absent, calls.PEER]


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


def _crowd(scale: Scale, number: int) -> Section:
    workers, each = scale.crowds[number]
    divisors = {"Queue": 1, "asyncio queue": 1, "bare list": 1}
    if number == 0:
        divisors["plain pykka"] = 50  # a thread each, so not for more of them
    cases = [
        Case(
            label=subject,
            load="crowd",
            subject=subject,
            options={"workers": workers, "each": max(each // divisor, 1)},
            note="" if divisor == 1 else f"{each // divisor:,} messages each",
        )
        for subject, divisor in divisors.items()
    ]
    title = f"{workers:,} workers x {each:,} messages, round robin"
    return Section(
        name=f"crowd-{_CROWDS[number]}", title=title, cases=tuple(cases), rounds=scale.rounds
    )


def _chunks(scale: Scale) -> Section:
    options = {"messages": 10 * scale.messages, "size": 100}
    cases = tuple(
        Case(label=label, load="chunks", subject=subject, options=options)
        for label, subject in (("push_many", "Queue"), ("bare list, extend", "bare list"))
    )
    title = f"{10 * scale.messages:,} messages in chunks of 100"
    return Section(name="chunks", title=title, cases=cases, rounds=scale.rounds)


def _round_trips(scale: Scale) -> Section:
    notes = {
        "push_block, help, other thread": "the caller runs the job",
        "push_block, help, main thread": "signals may interrupt it, so the job runs elsewhere",
    }
    subjects = ("push_block", "ask", *notes, "bare hand-off", "pykka ask")
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
        for subject in ("push_block", "push_block, help, other thread", "bare hand-off")
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
    def case(label: str, subject: str, load: str, workers: int, note: str = "") -> Case:
        options = {"workers": workers}
        note = f"{workers:,}" + (note and f", {note}")
        return Case(label=label, load=load, subject=subject, options=options, note=note)

    count = scale.workers
    cases = (
        case("Queue", "Queue", "population", count),
        case("Queue, fewer", "Queue", "population", count // 10),
        case("Queue, traced", "Queue", "traced", count, "slow: every allocation is traced"),
        case("plain pykka", "plain pykka", "population", max(count // 100, 2), "a thread each"),
    )
    title = "Idle workers"
    return Section(name="population", title=title, cases=cases, rounds=scale.fewer_rounds)


def _calls(scale: Scale, *, costly: bool) -> Section:
    settings: dict[str, dict[str, Any]] = {
        "16, 5 ms": {"size": 16, "wait": 0.005},
        "64, 5 ms": {"size": 64, "wait": 0.005},
        "defaults": {"size": None},
    }
    notes = {
        "16, 5 ms": "the largest batch holds all callers",
        "64, 5 ms": "no batch is ever full, so each waits 5 ms",
        "defaults": "",
    }
    cases = tuple(
        Case(
            label=f"{subject}, {name}",
            load="calls",
            subject=subject,
            options={"seconds": scale.seconds, "costly": costly, **options},
            note=notes[name],
        )
        for name, options in settings.items()
        for subject in ("af.batched", calls.PEER)
        if subject != calls.PEER or calls.has_peer()
    )
    cost = "1 ms per call" if costly else "trivial"
    return Section(
        name="calls-1ms" if costly else "calls",
        title=f"A batched function ({cost}) called by {calls.CALLERS} threads: largest batch, wait",
        cases=cases,
        rounds=scale.fewer_rounds,
    )


def _by_hand(scale: Scale) -> Section:
    """Return what callers get from us, and from the code that they would write by hand."""
    cases = [
        Case(
            label=f"{label}, {callers} threads",
            load="asked",
            subject=label,
            options={"seconds": scale.seconds, "callers": callers},
        )
        for callers in (4, 8)
        for label in ("ask", calls.BY_HAND)
    ]
    cases += [
        Case(
            label=f"{label}, {calls.TASKS} tasks{', 1 ms' if costly else ''}",
            load="gathered",
            subject=label,
            options={"seconds": scale.seconds, "costly": costly},
        )
        for costly in (False, True)
        for label in ("af.batched", calls.BY_HAND)
    ]
    return Section(
        name="by-hand",
        title="Callers of a worker, and of a batching thread or task written by hand",
        cases=tuple(cases),
        rounds=scale.rounds,
    )


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
    """Return all sections, in the order of the report."""
    if rounds is not None:
        scale = replace(scale, rounds=rounds, fewer_rounds=rounds)
    return [
        _bursts(scale, 1),
        _bursts(scale, 4),
        *(_crowd(scale, number) for number in range(len(_CROWDS))),
        _chunks(scale),
        _round_trips(scale),
        _flood(scale),
        _acks(scale),
        _paced(scale),
        _population(scale),
        _calls(scale, costly=False),
        _calls(scale, costly=True),
        _by_hand(scale),
        _switch(scale),
    ]
