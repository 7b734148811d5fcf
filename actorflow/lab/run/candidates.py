"""Candidates: the policies worth trying for these goals and this traffic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from actorflow.behaviours.errors import BadBehaviour
from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.policies import policy_of
from actorflow.lab.models.traffic import AT, KEY, PRIORITY
from actorflow.lab.run.goals import latency_limit
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actorflow.lab.models.traffic import Message
    from actorflow.lab.run.goals import Goal

__all__ = ["candidates", "names_replacement", "neighbours", "wrapped"]

_CHUNKS = (1, 10, 30, 100, 300, 1000, 3000)
_NUMBER = re.compile(r"(?<=[ (=])(\d+(?:\.\d+)?)(us|ms|s)?(?=[,)])")
_FACTORS = (0.5, 0.8, 1.25, 2.0)
_REPLACEMENTS = ("replacement", "replaced", "merged")


def candidates(goals: Sequence[Goal], sample: Sequence[Message]) -> list[str]:
    """Return policies that could meet the goals with such traffic, about a hundred or two.

    Waits and targets are shares of the shortest latency asked for. Bounds, from 1 up, and what
    else loses messages are tried only where the goals allow a loss, alone and with limits of the
    batch; behaviours that merge or replace only where keys repeat and the goals allow it.
    """
    limit = latency_limit(goals) or 0.1
    rate = len(sample) / max(sample[-1][AT] - sample[0][AT], 1e-3) if sample else 1.0
    texts: dict[str, None] = {}
    for leaf in _leaves(goals, sample):
        texts[leaf] = None
        texts |= dict.fromkeys(f"chunk({leaf}, {size})" for size in _CHUNKS)
        for share in (0.1, 0.25, 0.5, 0.7):
            texts[f"linger({leaf}, {_time(limit * share)})"] = None
        for share in (0.25, 0.5):
            texts[f"throttle({leaf}, {_time(limit * share)})"] = None
        texts[f"linger({leaf}, {_time(limit * 0.5)}, 100)"] = None
        texts[f"linger(chunk({leaf}, 100), {_time(limit * 0.25)}, 100)"] = None
        for share in (0.95, 0.8, 0.5):
            texts[f"adaptive({leaf}, {_time(limit * share)})"] = None
        if _allows_loss(goals):
            texts |= dict.fromkeys(_shedding(leaf, limit, rate))
    return [text for text in texts if _can_be_built(text)]


def _shedding(leaf: str, limit: float, rate: float) -> Iterable[str]:
    """Yield policies that lose messages: alone, and around limits of the batch."""
    full = "drop_newest" if leaf in ("priority", "fair") else "drop_oldest"
    rooms = sorted({1, 4, 16, *(max(int(rate * limit * share), 1) for share in (0.25, 0.5, 1.0))})
    inner = [leaf, *(f"chunk({leaf}, {size})" for size in (1, 10, 100))]
    inner.append(f"linger({leaf}, {_time(limit * 0.25)})")
    for each in inner:
        for room in rooms:
            yield f"bounded({each}, {room}, {full})"
        for share in (0.25, 0.5, 0.8):
            yield f"expire({each}, {_time(limit * share)})"
    yield f"bounded({leaf}, 1, reject)"
    yield f"deadline({leaf}, {_time(limit)})"
    yield f"deadline({leaf}, {_time(limit * 0.8)})"
    yield f"codel(chunk({leaf}, 10), {_time(limit * 0.25)}, {_time(limit)})"
    yield f"expire(bounded(chunk({leaf}, 10), {rooms[-1]}, {full}), {_time(limit * 0.5)})"


def wrapped(text: str, goals: Sequence[Goal], rate: float) -> list[str]:
    """Return a policy with one more behaviour around it, in each way that can work."""
    limit = latency_limit(goals) or 0.1
    found = [f"chunk({text}, {size})" for size in (1, 8, 64)]
    for share in (0.2, 0.5):
        found.append(f"linger({text}, {_time(limit * share)})")
        found.append(f"throttle({text}, {_time(limit * share)})")
    found.append(f"adaptive({text}, {_time(limit * 0.8)})")
    found.append(f"bucket({text})" if "(" not in text else f"pad_to({text}, 64)")
    if _allows_loss(goals):
        for room in (1, max(int(rate * limit * 0.5), 2)):
            found += [f"bounded({text}, {room}, {full})" for full in ("drop_oldest", "reject")]
        found.append(f"expire({text}, {_time(limit * 0.6)})")
        found.append(f"deadline({text}, {_time(limit)})")
        found.append(f"codel({text}, {_time(limit * 0.25)}, {_time(limit)})")
        found.append(f"lifo({text}, {max(int(rate * limit * 0.5), 2)})")
    return [each for each in found if _can_be_built(each)]


def neighbours(text: str) -> list[str]:
    """Return the policy with one of its numbers a little smaller or larger, for each of them.

    >>> neighbours("chunk(queue, 2)")
    ['chunk(queue, 1)', 'chunk(queue, 4)']
    """
    found: dict[str, None] = {}
    for match in _NUMBER.finditer(text):
        number, unit = float(match[1]), match[2]
        for factor in _FACTORS:
            if unit:
                scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]
                shown = _time(number * factor * scale)
            else:
                shown = f"{max(round(number * factor), 1)}"
            found[text[: match.start()] + shown + text[match.end() :]] = None
    found.pop(text, None)
    return [each for each in found if _can_be_built(each)]


def _leaves(goals: Sequence[Goal], sample: Sequence[Message]) -> list[str]:
    """Return the behaviours to begin with: what suits the keys and priorities of the messages."""
    keys = len({message[KEY] for message in sample})
    priorities = len({message[PRIORITY] for message in sample})
    found = ["queue"]
    if 1 < keys < 0.9 * len(sample):
        if _allows_replacement(goals):
            found.append("unique")
        if _allows_merging(goals):
            found.append("coalesce")
    if priorities > 1 and any(goal.only and goal.figure != "goodput" for goal in goals):
        found.append("priority")
    if keys > 1 and any(goal.figure == "fairness" for goal in goals):
        found.append("fair")
    if any(goal.figure in ("p50", "goodput") for goal in goals):
        found.append("stack")
    return found


def _allows_loss(goals: Sequence[Goal]) -> bool:
    """Return whether a goal allows some loss; by default none is allowed."""
    return any(
        (goal.figure == "loss" and goal.limit > 0) or goal.figure == "goodput" for goal in goals
    )


def _allows_replacement(goals: Sequence[Goal]) -> bool:
    """Return whether newer messages may replace older ones: not if nothing may be lost."""
    asked = [goal for goal in goals if goal.figure in _REPLACEMENTS]
    if asked:
        return all(goal.limit > 0 for goal in asked)
    return not any(goal.figure == "loss" and goal.limit == 0 for goal in goals)


def names_replacement(goals: Sequence[Goal]) -> bool:
    """Return whether a goal says how many messages may be replaced; else they count as lost."""
    return any(goal.figure in ("replacement", "replaced") for goal in goals)


def _allows_merging(goals: Sequence[Goal]) -> bool:
    """Return whether messages may be merged: nothing is lost by that."""
    return not any(goal.figure in _REPLACEMENTS and goal.limit == 0 for goal in goals)


def _can_be_built(text: str) -> bool:
    try:
        policy_of(text)
    except (ActorflowError, BadBehaviour, ValueError):
        return False
    return True


def _time(seconds: float) -> str:
    return seconds_text(float(f"{seconds:.2g}"))
