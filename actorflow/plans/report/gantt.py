"""A Gantt picture of a run: a row for each worker, a bar for each job. White space is waste."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from actorflow.plans.job_record import JobStatus
from actorflow.plans.report.diagram import family
from actorflow.plans.report.figures import COLOURS, FAILED, STYLE, new_figure
from actorflow.plans.report.text import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from actorflow.plans.job_record import JobRecord

__all__ = ["gantt", "worker_rows"]

_WIDTH, _ROW, _MARGIN = 10.0, 0.34, 1.5  # inches
_TALLEST = 16.0
_LETTER = 0.075  # inches of a letter in a bar
_NAMED = len(COLOURS) - 1  # families with a colour of their own; the others share the last


class WorkerRow(NamedTuple):
    """One worker, and what it ran, in order."""

    worker: str
    jobs: tuple[JobRecord, ...]


def worker_rows(records: Iterable[JobRecord]) -> list[WorkerRow]:
    """Return the workers in the order of their names, each with the last attempts it ran."""
    found: dict[str, list[JobRecord]] = {}
    for record in records:
        if record.worker is not None and record.started is not None and record.ended is not None:
            found.setdefault(record.worker, []).append(record)
    return [
        WorkerRow(worker, tuple(sorted(found[worker], key=_start)))
        for worker in sorted(found, key=lambda name: (len(name), name))
    ]


def _start(record: JobRecord) -> float:
    return record.started or 0.0


class Figures(Protocol):
    """What a picture needs of a report."""

    @property
    def records(self) -> Sequence[JobRecord]: ...
    @property
    def elapsed(self) -> float: ...
    @property
    def parallelism(self) -> float: ...
    @property
    def width(self) -> int: ...
    @property
    def unused(self) -> float: ...


def gantt(report: Figures) -> Figure:
    """Draw a run: who ran what when. Needs matplotlib.

    Jobs of one family (`fit[0]`, `fit[1]` ...) have one colour; failed jobs are red. Only
    last attempts are known, so earlier ones are white.
    """
    rows = worker_rows(report.records)
    figure = new_figure(_WIDTH, min(_MARGIN + _ROW * max(len(rows), 1), _TALLEST))
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import

    with rc_context(STYLE):
        axes = figure.subplots()
        colours = _colours(rows)
        end = max(report.elapsed, 1e-9)
        for height, lane in enumerate(rows):
            _draw(axes, height, lane, colours, end)
        axes.set_xlim(0, end)
        axes.set_ylim(len(rows) - 0.4, -0.6)  # the first worker is at the top
        axes.set_yticks(range(len(rows)), [lane.worker for lane in rows])
        axes.set_ylabel("worker")
        axes.set_xlabel("seconds")
        axes.set_title(_title(report))
        _legend(figure, colours, failed=any(_failed(job) for lane in rows for job in lane.jobs))
    return figure


def _draw(axes: Axes, height: int, lane: WorkerRow, colours: Mapping[str, str], end: float) -> None:
    by_colour: dict[str, list[tuple[float, float]]] = {}
    for job in lane.jobs:
        start = job.started or 0.0
        by_colour.setdefault(_colour(job, colours), []).append((start, job.seconds))
        if job.seconds / end * _WIDTH > _LETTER * len(job.name):
            axes.text(
                start + job.seconds / 2, height, job.name, ha="center", va="center",
                fontsize=7, color="white", clip_on=True,
            )  # fmt: skip
    for colour, bars in by_colour.items():
        axes.broken_barh(
            bars, (height - 0.4, 0.8), facecolors=colour, edgecolor="white", linewidth=0.3
        )


def _colours(rows: Sequence[WorkerRow]) -> dict[str, str]:
    """Return the colour of each family, the slowest families first."""
    seconds: dict[str, float] = {}
    for lane in rows:
        for job in lane.jobs:
            if not _failed(job):
                name = family(job.name)
                seconds[name] = seconds.get(name, 0.0) + job.seconds
    order = sorted(seconds, key=lambda name: -seconds[name])
    return {name: COLOURS[min(at, _NAMED)] for at, name in enumerate(order)}


def _colour(job: JobRecord, colours: Mapping[str, str]) -> str:
    return FAILED if _failed(job) else colours[family(job.name)]


def _failed(job: JobRecord) -> bool:
    return job.status is JobStatus.FAILED


def _title(report: Figures) -> str:
    return (
        f"{seconds_text(report.elapsed)}, parallelism {report.parallelism:.1f} of {report.width}, "
        f"{report.unused:.0%} of the workers' time unused (white)"
    )


def _legend(figure: Figure, colours: Mapping[str, str], *, failed: bool) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - an extra, and slow to import

    named = list(colours.items())
    handles = [Patch(color=colour, label=name) for name, colour in named[:_NAMED]]
    if len(named) > _NAMED:
        others = f"{len(named) - _NAMED} others"
        handles.append(Patch(color=COLOURS[_NAMED], label=others))
    if failed:
        handles.append(Patch(color=FAILED, label="failed"))
    if len(handles) > 1:
        figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8)
