"""Candidates: the policies worth trying for these goals and this traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.traffic import AT, KEY, PRIORITY
from actorflow.lab.run.goals import latency_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.lab.models.traffic import Message
    from actorflow.lab.run.goals import Goal

__all__ = ["candidates"]


def candidates(goals: Sequence[Goal], sample: Sequence[Message]) -> list[str]:
    """Return policies that could meet the goals with such traffic: about a hundred of them.

    Waits and targets are shares of the shortest latency asked for; bounds are tried only where
    the goals allow a loss, behaviours that merge or replace only where keys repeat.
    """
    limit = latency_limit(goals) or 0.1
    rate = len(sample) / max(sample[-1][AT] - sample[0][AT], 1e-3) if sample else 1.0
    texts: dict[str, None] = {}
    for leaf in _leaves(goals, sample):
        texts[leaf] = None
        for size in (1, 10, 30, 100, 300, 1000, 3000):
            texts[f"chunk({leaf}, {size})"] = None
        for share in (0.1, 0.25, 0.5, 0.7):
            texts[f"linger({leaf}, {_time(limit * share)})"] = None
        for share in (0.25, 0.5):
            texts[f"throttle({leaf}, {_time(limit * share)})"] = None
        texts[f"linger({leaf}, {_time(limit * 0.5)}, 100)"] = None
        texts[f"linger(chunk({leaf}, 100), {_time(limit * 0.25)}, 100)"] = None
        for share in (0.95, 0.8, 0.5):
            texts[f"adaptive({leaf}, {_time(limit * share)})"] = None
        if _may_lose(goals):
            for share in (0.25, 0.5, 1.0):
                size = max(int(rate * limit * share), 1)
                full = "drop_newest" if leaf in ("priority", "fair") else "drop_oldest"
                texts[f"bounded({leaf}, {size}, {full})"] = None
                texts[f"expire({leaf}, {_time(limit * share)})"] = None
    return list(texts)


def _leaves(goals: Sequence[Goal], sample: Sequence[Message]) -> list[str]:
    keys = len({message[KEY] for message in sample})
    priorities = len({message[PRIORITY] for message in sample})
    leaves = ["queue"]
    melts = not any(
        goal.figure in ("replacement", "replaced", "merged") and goal.limit == 0 for goal in goals
    )
    if melts and 1 < keys < 0.9 * len(sample):
        leaves += ["unique", "coalesce"]
    if priorities > 1 and any(goal.only for goal in goals):
        leaves.append("priority")
    if keys > 1 and any(goal.figure == "fairness" for goal in goals):
        leaves.append("fair")
    if any(goal.figure == "p50" for goal in goals):
        leaves.append("stack")
    return leaves


def _may_lose(goals: Sequence[Goal]) -> bool:
    """Return whether a goal allows some loss; by default none is allowed."""
    return any(goal.figure == "loss" and goal.limit > 0 for goal in goals)


def _time(seconds: float) -> str:
    return seconds_text(float(f"{seconds:.2g}"))
