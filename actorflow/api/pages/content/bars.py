"""Geometry of bar charts: where each bar begins and how long it is, in thousandths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Bar", "laid_out", "shares", "stream"]

FULL = 1_000
_LEAST = 4  # so that a short one is visible


class Bar(NamedTuple):
    """Something that took time."""

    name: str
    status: str
    begin: float
    end: float
    title: str = ""


def laid_out(spans: Sequence[Bar]) -> list[dict[str, Any]]:
    """Return the bars of a Gantt chart.

    >>> [(bar["x"], bar["width"]) for bar in laid_out([Bar("a", "", 0, 1), Bar("b", "", 1, 4)])]
    [(0, 250), (250, 750)]
    """
    if not spans:
        return []
    first = min(each.begin for each in spans)
    total = max(each.end for each in spans) - first or 1.0
    found = []
    for each in spans:
        width = max(_LEAST, round(FULL * (each.end - each.begin) / total))
        x = min(round(FULL * (each.begin - first) / total), FULL - width)
        found.append({**each._asdict(), "x": x, "width": width, "seconds": each.end - each.begin})
    return found


def shares(counts: Mapping[Any, float]) -> list[dict[str, Any]]:
    """Return one bar for each count, the largest as long as the chart.

    >>> shares({"idle": 1, "size": 4})
    [{'name': 'idle', 'value': 1, 'width': 250}, {'name': 'size', 'value': 4, 'width': 1000}]
    """
    most = max(counts.values(), default=0) or 1
    return [
        {"name": str(name), "value": value, "width": round(FULL * value / most)}
        for name, value in counts.items()
    ]


def stream(batches: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the batches of a worker beside each other in time; gaps are idle time.

    Batches that ran at the same time are in different rows.

    >>> found = stream([{"ago": 4, "took": 1, "size": 7}, {"ago": 2, "took": 2, "size": 9}])
    >>> found["seconds"], [(bar["x"], bar["width"]) for bar in found["lanes"][0]]
    (4, [(0, 250), (500, 500)])
    """
    if not batches:
        return {"seconds": 0, "lanes": [], "busy": 0.0}
    first = max(each["ago"] for each in batches)
    last = min(each["ago"] - each["took"] for each in batches)
    seconds = first - last or 1.0
    lanes: list[list[dict[str, Any]]] = []
    ends: list[float] = []
    for each in sorted(batches, key=lambda each: -each["ago"]):
        begin = first - each["ago"]
        end = begin + each["took"]
        lane = next((number for number, at in enumerate(ends) if at <= begin), len(ends))
        if lane == len(ends):
            ends.append(0.0)
            lanes.append([])
        ends[lane] = end
        x, width = round(FULL * begin / seconds), max(1, round(FULL * each["took"] / seconds))
        lanes[lane].append({"x": min(x, FULL - 1), "width": width, "size": each["size"]})
    busy = sum(each["took"] for each in batches) / seconds / len(lanes)
    return {"seconds": seconds, "lanes": lanes, "busy": busy}
