"""Dominance: which policies another one beats in everything that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.lab.run.result import Result

__all__ = ["dominated"]

_CLOSE = 0.005  # figures that differ by less are the same


def dominated(results: Sequence[Result]) -> set[str]:
    """Return the policies that another one dominates.

    To dominate is to carry at least as many messages, to process at least as many unmerged, to be
    as good in throughput, p99 and executor time, and better in one of all these. So a policy that
    drops, replaces or merges messages never dominates one that processes each of them.
    """
    return {
        result.policy
        for result in results
        if any(_dominates(other, result) for other in results if other is not result)
    }


def _dominates(one: Result, other: Result) -> bool:
    # Each pair is (how good, how good), the higher the better, and how close counts as the same.
    # Shares of messages are compared exactly: one message lost is a loss.
    criteria = [
        (one.carried, other.carried, 0.0),
        (one.intact, other.intact, 0.0),
        (one.throughput, other.throughput, other.throughput * _CLOSE),
        (-one.latency["p99"], -other.latency["p99"], other.latency["p99"] * _CLOSE),
        (-one.busy, -other.busy, _CLOSE),
    ]
    if not one.processed:
        return False  # a latency of nothing is no latency
    return all(mine >= yours - close for mine, yours, close in criteria) and any(
        mine > yours + close for mine, yours, close in criteria
    )
