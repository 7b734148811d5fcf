"""Labels for the points of a figure: every point gets one, and none covers another."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

__all__ = ["Label", "place"]

_GAP = 7.0  # points between a point and its label
_MARKER = 4.5  # half the width of a point
_PAD = 2.0  # points of room at both ends of a label
_STEP = (12.0, 4.0)  # points between two places that are tried, across and up
_CROSSING = 60.0  # points of distance that a line across another label is worth
_NEAR = 9.0  # points up to which a label needs no line

_Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Label:
    """The text beside one point."""

    x: float
    y: float
    text: str
    colour: str
    important: bool = True
    """Important labels are placed first, and so nearer."""


def place(axes: Axes, labels: Sequence[Label], size: float = 7.0) -> None:
    """Write labels beside their points, each where there is room, with a line if that is far.

    The figure must be complete, apart from these labels: its layout is computed here, and labels
    do not change it.
    """
    if not labels:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra

    figure: Any = axes.get_figure(root=True)
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    figure.draw_without_rendering()
    scale = 72 / figure.dpi
    frame = axes.get_window_extent(renderer)
    room = (frame.x0 * scale, frame.y0 * scale, frame.x1 * scale, frame.y1 * scale)
    spots = [tuple(axes.transData.transform((each.x, each.y)) * scale) for each in labels]
    taken = [(x - _MARKER, y - _MARKER, x + _MARKER, y + _MARKER) for x, y in spots]
    lines: list[tuple[float, float, float, float]] = []
    order = sorted(range(len(labels)), key=lambda at: (not labels[at].important, -spots[at][1]))
    for at in order:
        label, (x, y) = labels[at], spots[at]
        note = axes.annotate(
            label.text, (label.x, label.y), xytext=(0, 0), textcoords="offset points",
            ha="left", va="bottom", fontsize=size, color=label.colour, zorder=4,
            linespacing=1.05,
        )  # fmt: skip
        extent = note.get_window_extent(renderer)
        # Letters are a little wider at some resolutions than at others.
        wide, high = extent.width * scale * 1.05 + 2 * _PAD, extent.height * scale
        box = _best((x, y), (wide, high), room, taken, lines)
        taken.append(box)
        note.remove()
        far = _distance((x, y), box) > _NEAR
        placed = axes.annotate(
            label.text, (label.x, label.y), xytext=(box[0] + _PAD - x, box[1] - y),
            textcoords="offset points", ha="left", va="bottom", fontsize=size,
            color=label.colour, zorder=4, linespacing=1.05, annotation_clip=False,
        )  # fmt: skip
        placed.set_in_layout(False)
        if far:
            end = _nearest((x, y), box)
            lines.append((x, y, *end))
            line = axes.annotate(
                "", (label.x, label.y), xytext=(end[0] - x, end[1] - y),
                textcoords="offset points", zorder=1, annotation_clip=False,
                arrowprops={"arrowstyle": "-", "lw": 0.6, "color": "#888888", "shrinkA": 0,
                            "shrinkB": 3},
            )  # fmt: skip
            line.set_in_layout(False)


def _best(
    spot: tuple[float, float],
    size: tuple[float, float],
    room: _Box,
    taken: Sequence[_Box],
    lines: Sequence[_Box],
) -> _Box:
    """Return the nearest free place for a label, or else the one that covers least."""
    free: tuple[float, _Box] | None = None
    least: tuple[float, _Box] | None = None
    for cost, box in _places(spot, size, room):
        if free is not None and cost >= free[0]:
            break  # they come in the order of their cost
        covered = sum(_overlap(box, other) for other in taken)
        if covered:
            if least is None or covered < least[0]:
                least = (covered, box)
            continue
        crossed = sum(_crosses(line, box) for line in lines)
        if _distance(spot, box) > _NEAR:
            ends = (*spot, *_nearest(spot, box))
            crossed += sum(_crosses(ends, other) for other in taken if not _within(spot, other))
        whole = cost + _CROSSING * crossed
        if free is None or whole < free[0]:
            free = (whole, box)
    found = free or least
    return found[1] if found is not None else (*spot, spot[0] + size[0], spot[1] + size[1])


def _places(
    spot: tuple[float, float], size: tuple[float, float], room: _Box
) -> list[tuple[float, _Box]]:
    """Return places for a label inside the room with their costs, the cheapest first.

    The cost is the distance, and a little for each that is not right beside the point.
    """
    x, y = spot
    wide, high = size
    beside = [(x + _GAP, y - high / 2, 0.0), (x - _GAP - wide, y - high / 2, 1.0)]
    beside += [(x - wide / 2, y + _GAP, 2.0), (x - wide / 2, y - _GAP - high, 2.0)]
    columns = int(max(room[2] - room[0] - wide, 0) / _STEP[0]) + 1
    rows = int(max(room[3] - room[1] - high, 0) / _STEP[1]) + 1
    everywhere = (
        (room[0] + column * _STEP[0], room[1] + row * _STEP[1], 4.0)
        for column, row in itertools.product(range(columns), range(rows))
    )
    boxes = (
        (more, (left, bottom, left + wide, bottom + high))
        for left, bottom, more in itertools.chain(beside, everywhere)
        if left >= room[0] and left + wide <= room[2]
        if bottom >= room[1] and bottom + high <= room[3]
    )
    places = ((_distance(spot, box), more, box) for more, box in boxes)
    return sorted((away + more, box) for away, more, box in places if away >= _GAP - 0.1)


def _within(spot: tuple[float, float], box: _Box) -> bool:
    return box[0] <= spot[0] <= box[2] and box[1] <= spot[1] <= box[3]


def _nearest(spot: tuple[float, float], box: _Box) -> tuple[float, float]:
    """Return the point of a box that is nearest to a spot."""
    return min(max(spot[0], box[0]), box[2]), min(max(spot[1], box[1]), box[3])


def _distance(spot: tuple[float, float], box: _Box) -> float:
    x, y = _nearest(spot, box)
    return float(((x - spot[0]) ** 2 + (y - spot[1]) ** 2) ** 0.5)


def _overlap(one: _Box, other: _Box) -> float:
    """Return the area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return wide * high if wide > 0 and high > 0 else 0.0


def _crosses(line: _Box, box: _Box) -> bool:
    """Return whether a line from (0, 1) to (2, 3) goes through a box."""
    first, last = 0.0, 1.0  # the part of the line that may be inside
    for axis in (0, 1):
        start, end = line[axis], line[axis + 2]
        low, high = box[axis], box[axis + 2]
        if max(start, end) <= low or min(start, end) >= high:
            return False
        if start != end:
            enters, leaves = sorted(((low - start) / (end - start), (high - start) / (end - start)))
            first, last = max(first, enters), min(last, leaves)
    return first < last
