"""Pictures: they are drawn, hold what they should, and come out the same each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from actorflow.plans.job_record import JobRecord, JobStatus
from actorflow.plans.report.diagram import Diagram
from actorflow.plans.report.drawing import Drawing
from actorflow.plans.report.gantt import gantt
from actorflow.plans.report.report import Report
from actorflow.runtime.errors import BadOption, install_hint
from tests.plans.report.graphs import runs

ROOT = Path(__file__).parents[3]
RECORDS = [
    JobRecord(name="load", status=JobStatus.DONE, worker="1", started=0.0, ended=2.0),
    JobRecord(
        name="fit", status=JobStatus.FAILED, worker="2", started=2.0, ended=5.0, upstream=("load",)
    ),
    JobRecord(name="cost in $", status=JobStatus.SKIPPED, upstream=("fit", "load")),
]


def bars(records: list[JobRecord]) -> list[tuple[float, float, float]]:
    """Return the bars of a picture: left, right, row."""
    [axes] = gantt(Report(records)).axes
    found = []
    for collection in axes.collections:
        for path in collection.get_paths():
            box = path.get_extents()
            found.append((box.x0, box.x1, round((box.y0 + box.y1) / 2)))
    return sorted(found)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_a_gantt_picture_has_a_bar_for_each_job_that_ran(records: list[JobRecord]) -> None:
    workers = sorted({record.worker for record in records if record.worker})
    expected = sorted(
        (record.started or 0.0, record.ended or 0.0, workers.index(record.worker))
        for record in records
        if record.worker
    )
    assert bars(records) == expected


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(runs())
def test_a_drawing_has_a_box_for_each_job_and_an_arrow_for_each_edge(
    records: list[JobRecord],
) -> None:
    drawing = Drawing(Diagram.of_records(records))
    [axes] = drawing.figure().axes
    assert len(axes.patches) == len(records)
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(arrows) == len(drawing.diagram.edges)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_pictures_are_written_and_come_out_the_same(suffix: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Report(RECORDS).plot(tmp_path / f"gantt-{name}.{suffix}")
        Drawing(Diagram.of_records(RECORDS)).save(tmp_path / f"dag-{name}.{suffix}")
    for kind in ("gantt", "dag"):
        first, second = (tmp_path / f"{kind}-{name}.{suffix}" for name in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()
        assert len(first.read_bytes()) > 1000


def test_names_can_be_read_in_an_svg(tmp_path: Path) -> None:
    Drawing(Diagram.of_records(RECORDS)).save(tmp_path / "dag.svg")
    text = (tmp_path / "dag.svg").read_text()
    assert ">load<" in text
    assert ">cost in $<" in text
    assert "<svg" in (Drawing(Diagram.of_records(RECORDS))._repr_svg_())


def test_text_needs_no_matplotlib(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from actorflow.plans.report.diagram import Diagram\n"
        "from actorflow.plans.report.drawing import Drawing\n"
        "from actorflow.runtime.errors import MissingExtra\n"
        "drawing = Drawing(Diagram.of({'a': [], 'b': ['a']}))\n"
        "for suffix in ('mmd', 'dot', 'txt'): drawing.save(f'dag.{suffix}')\n"
        "try: drawing.save('dag.png')\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"pictures need matplotlib: {install_hint('lab')}\n"
    assert (tmp_path / "dag.mmd").read_text().startswith("flowchart LR\n")
    assert (tmp_path / "dag.dot").read_text().startswith("digraph plan {\n")
    assert (tmp_path / "dag.txt").read_text() == "a\nb <- a\n"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"'dag\.gif' must end with one of \.png, \.svg"):
        Drawing(Diagram.of_records(RECORDS)).save("dag.gif")
    with pytest.raises(BadOption, match=r"'gantt\.txt' must end with one of \.png"):
        Report(RECORDS).plot("gantt.txt")


def test_a_large_plan_is_drawn_by_families() -> None:
    jobs: dict[str, list[str]] = {"load": []}
    jobs |= {f"fit[{at}]": ["load"] for at in range(1000)}
    jobs["score"] = list(jobs)[1:]
    assert str(Drawing(Diagram.of(jobs))) == (
        "load\nfit (1,000 jobs) <- load\nscore <- fit (1,000 jobs)"
    )


def test_an_empty_plan_is_drawn(tmp_path: Path) -> None:
    Drawing(Diagram.of({})).save(tmp_path / "dag.png")
    Report([]).plot(tmp_path / "gantt.png")
    assert (tmp_path / "dag.png").stat().st_size
