"""Where the nodes of a diagram stand: layers from left to right, with few crossings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.plans.report.diagram import Diagram

__all__ = ["columns", "crossings"]

_SWEEPS = 8


def columns(diagram: Diagram) -> list[list[int]]:
    """Return the nodes of each layer from top to bottom.

    Nodes move to the middle of their neighbours, layer by layer, forwards and backwards; the
    arrangement with the fewest crossings is kept.
    """
    count = max((node.layer for node in diagram.nodes), default=-1) + 1
    current: list[list[int]] = [[] for _ in range(count)]
    for at, node in enumerate(diagram.nodes):
        current[node.layer].append(at)
    before: list[list[int]] = [[] for _ in diagram.nodes]
    after: list[list[int]] = [[] for _ in diagram.nodes]
    for first, second in diagram.edges:
        before[second].append(first)
        after[first].append(second)
    best, fewest = [list(each) for each in current], crossings(diagram, current)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        forwards = sweep % 2 == 0
        order = range(1, count) if forwards else range(count - 2, -1, -1)
        for layer in order:
            _arrange(current, layer, before if forwards else after)
        found = crossings(diagram, current)
        if found < fewest:
            best, fewest = [list(each) for each in current], found
    return best


def _arrange(current: list[list[int]], layer: int, neighbours: Sequence[Sequence[int]]) -> None:
    height = {
        at: (place + 0.5) / len(column) for column in current for place, at in enumerate(column)
    }

    def middle(at: int) -> float:
        near = neighbours[at]
        return sum(height[each] for each in near) / len(near) if near else height[at]

    current[layer].sort(key=middle)


def crossings(diagram: Diagram, arranged: Sequence[Sequence[int]]) -> int:
    """Return how many pairs of edges between the same two layers cross."""
    place = {at: number for column in arranged for number, at in enumerate(column)}
    between: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for first, second in diagram.edges:
        layers = (diagram.nodes[first].layer, diagram.nodes[second].layer)
        between.setdefault(layers, []).append((place[first], place[second]))
    return sum(_inversions(sorted(pairs)) for pairs in between.values())


def _inversions(pairs: Sequence[tuple[int, int]]) -> int:
    """Return how many of the pairs, sorted by their first, are out of order by their second."""
    count = 0
    seen: list[tuple[int, int]] = []
    for left, right in pairs:
        count += sum(1 for earlier, end in seen if earlier < left and end > right)
        seen.append((left, right))
    return count
