"""The graph of a plan as a picture: boxes in layers, from left to right."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from actorflow.plans.job_record import JobStatus
from actorflow.plans.report.diagram import Diagram, title
from actorflow.plans.report.figures import FORMATS, STATUS_COLOURS, STYLE, new_figure, save
from actorflow.plans.report.layout import columns
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from actorflow.plans.report.diagram import DiagramNode

__all__ = ["Drawing"]

MOST = 80
"""Boxes; in a larger plan, jobs of one family become one box."""

_LETTER, _GAP, _LINE = 0.085, 0.7, 0.42  # inches: a letter, between two layers, a row of boxes
_WIDEST = 40  # letters of a box
_TEXTS = ("mmd", "dot", "txt")
# Of several statuses in one box, the first here gives the colour.
_RANK = (
    JobStatus.FAILED, JobStatus.RUNNING, JobStatus.SKIPPED, JobStatus.READY, JobStatus.WAITING,
    JobStatus.DONE, JobStatus.CACHED,
)  # fmt: skip


class Drawing:
    """A drawing of a plan: printed as text, shown as a picture in a notebook, saved as either.

    Needs matplotlib for pictures only; never Graphviz.
    """

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram.collapsed(MOST)

    def __str__(self) -> str:
        return str(self.diagram)

    def mermaid(self) -> str:
        """Return it in Mermaid's language, which GitHub and many editors draw."""
        return self.diagram.mermaid()

    def dot(self) -> str:
        """Return it in the language of Graphviz."""
        return self.diagram.dot()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: `.png`, `.svg`, `.pdf`, `.mmd` (Mermaid), `.dot` or `.txt`.

        Raises:
            BadOption: the name ends with none of these.
            MissingExtra: it is a picture, and matplotlib is not installed.

        """
        suffix = Path(path).suffix.lower().removeprefix(".")
        if suffix in _TEXTS:
            text = {"mmd": self.mermaid, "dot": self.dot, "txt": self.__str__}[suffix]()
            Path(path).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        elif suffix in FORMATS:
            save(self.figure(), path)
        else:
            names = ", ".join(f".{each}" for each in (*FORMATS, *_TEXTS))
            raise BadOption(f"{str(path)!r} must end with one of {names}")

    def _repr_svg_(self) -> str:
        """Return the picture for a notebook."""
        from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import

        out = io.StringIO()
        with rc_context(STYLE):
            self.figure().savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()

    def figure(self) -> Figure:
        """Return it as a figure of matplotlib."""
        arranged = columns(self.diagram)
        nodes = self.diagram.nodes
        widths = [
            max(min(len(title(nodes[at])), _WIDEST) for at in column) * _LETTER + 0.3
            for column in arranged
        ]
        height = max(map(len, arranged), default=1) * _LINE + 0.2
        figure = new_figure(sum(widths) + _GAP * len(widths) + 0.2, height)
        from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import

        with rc_context(STYLE):
            axes = figure.subplots()
            axes.set_axis_off()
            axes.set_xlim(0, max(sum(widths) + _GAP * len(widths), 1.0))
            axes.set_ylim(height, 0)
            boxes: dict[int, tuple[float, float, float]] = {}  # left, right, middle
            left = _GAP / 2
            for column, width in zip(arranged, widths, strict=True):
                for place, at in enumerate(column):
                    middle = height * (place + 0.5) / len(column)
                    boxes[at] = (left, left + width, middle)
                    _box(axes, nodes[at], boxes[at])
                left += width + _GAP
            for first, second in self.diagram.edges:
                # An edge over several layers bends, or it would hide behind the boxes between.
                bend = 0.0 if nodes[second].layer == nodes[first].layer + 1 else -0.25
                _arrow(axes, boxes[first], boxes[second], bend)
        return figure


def _box(axes: Axes, node: DiagramNode, place: tuple[float, float, float]) -> None:
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415 - an extra, and slow to import

    left, right, middle = place
    colour = next((STATUS_COLOURS[each] for each in _RANK if each in node.statuses), "#ffffff")
    axes.add_patch(
        FancyBboxPatch(
            (left, middle - 0.13), right - left, 0.26, boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=colour, edgecolor="#777777", linewidth=0.8, zorder=2,
        )
    )  # fmt: skip
    text = title(node)
    shown = text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
    # A lone $ would start a formula.
    shown = shown.replace("$", r"\$")
    axes.text((left + right) / 2, middle, shown, ha="center", va="center", fontsize=8, zorder=3)


def _arrow(
    axes: Axes, start: tuple[float, float, float], end: tuple[float, float, float], bend: float
) -> None:
    axes.annotate(
        "", xy=(end[0], end[2]), xytext=(start[1], start[2]), zorder=1, annotation_clip=False,
        arrowprops={"arrowstyle": "-|>", "color": "#888888", "linewidth": 0.8,
                    "connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
