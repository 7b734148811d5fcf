"""Which policies another one beats in everything that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.lab.run.result import Result

__all__ = ["dominated"]

_CLOSE = 0.005  # throughputs that differ by less are the same


def dominated(results: Sequence[Result]) -> set[str]:
    """Name the policies that another one beats in throughput, p99 and busy share at once.

    As good in all of them and better in one is a beating; so is the same policy's being lossy.
    """
    return {
        result.policy
        for result in results
        if any(_beats(other, result) for other in results if other is not result)
    }


def _beats(one: Result, other: Result) -> bool:
    pairs = [
        (one.throughput, other.throughput * (1 - _CLOSE), other.throughput * (1 + _CLOSE)),
        (
            -one.latency["p99"],
            -other.latency["p99"] * (1 + _CLOSE),
            -other.latency["p99"] * (1 - _CLOSE),
        ),
        (-one.busy, -other.busy - _CLOSE, -other.busy + _CLOSE),
        (-one.lost, -other.lost, -other.lost),
    ]
    return all(mine >= least for mine, least, _ in pairs) and any(
        mine > most for mine, _, most in pairs
    )
