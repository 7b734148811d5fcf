"""Tables, files and figures: their contents, and that they need nothing else."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import actorflow as af
from actorflow.lab.outputs import as_csv, as_json
from actorflow.lab.report import figures, html
from actorflow.lab.report.chrome_trace import chrome_trace
from actorflow.lab.report.gallery import FIGURES, plot
from actorflow.lab.report.table import as_table, rows
from actorflow.lab.run.goals import parse_goals
from actorflow.lab.run.histogram import Histogram, Series
from actorflow.lab.run.result import dominated
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.lab.run.result import Result

TEXTS = ("queue", "stack", "unique", "linger(queue, 20ms)", "bounded(queue, 20, drop_oldest)")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    traffic = "bursty(3000, on=1s, off=1s, quiet_rate=300, duration=4s, keys=zipf(100))"
    return [simulate(traffic, "3ms + 300us*n", text) for text in TEXTS]


def test_the_table_has_a_row_for_each_policy(results: list[Result]) -> None:
    for width, narrow in ((200, False), (80, True)):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(as_table(results, "a title", narrow=narrow))
        text = console.export_text()
        assert "a title" in text
        assert all(word in text for word in ("queue", "stack", "unique", "p99", "busy"))
        assert ("fairness" in text) == (not narrow)


def test_the_narrow_table_fits_a_terminal_of_80_columns(results: list[Result]) -> None:
    wide = {"throughput": (1_700.0, 1_900.0), "p50": (0.01111, 0.02345), "p99": (0.1, 0.2)}
    repeated = [dataclasses.replace(result, intervals=wide) for result in results]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(as_table(repeated, narrow=True))
    [heading] = [line for line in console.export_text().splitlines() if "policy" in line]
    assert heading.split() == [
        "policy", "msgs/s", "p50", "p99", "batch", "busy", "lost", "replaced"
    ]  # fmt: skip


def test_intervals_are_shown(results: list[Result]) -> None:
    repeated = dataclasses.replace(results[0], intervals={"p50": (0.001, 0.003)})
    assert rows([repeated])[0][2].endswith("±1ms")


def test_json_holds_everything(results: list[Result]) -> None:
    found = json.loads(as_json(results, {"traffic": "mine"}, complete=False))
    assert found["parameters"] == {"traffic": "mine"}
    assert found["complete"] is False
    assert [each["policy"] for each in found["results"]] == list(TEXTS)
    assert found["results"][0]["curve"][-1][1] == pytest.approx(1.0)
    assert found["results"][2]["carried"] == results[2].carried
    assert found["results"][4]["lost"] == results[4].dropped > 0


def test_csv_has_a_line_for_each_policy(results: list[Result]) -> None:
    repeated = dataclasses.replace(results[0], intervals={"p50": (0.001, 0.003)})
    lines = list(csv.DictReader(io.StringIO(as_csv([*results, repeated]))))
    assert [line["policy"] for line in lines] == [*TEXTS, "queue"]
    assert float(lines[2]["p99"]) == results[2].latency["p99"]
    assert lines[5]["p50_low"] == "0.001"
    assert "curve" not in lines[0]


def test_a_policy_that_is_beaten_in_everything_is_dominated(results: list[Result]) -> None:
    best = dataclasses.replace(
        results[0], policy="best", busy=0.01, latency=dict.fromkeys(results[0].latency, 1e-4)
    )
    assert dominated([*results, best]) == set(TEXTS)
    assert dominated([results[0], results[1]]) == set()  # the same is no worse
    lossy = dataclasses.replace(
        results[0], policy="lossy", dropped=1, processed=results[0].processed - 1
    )
    assert dominated([results[0], lossy]) == {"lossy"}


def test_a_policy_that_replaces_drops_or_merges_dominates_none_that_carries_all() -> None:
    # Four times as much as one by one can be done, about a few things: queue is hopeless.
    traffic = "poisson(2000, duration=2s, keys=zipf(50, 1.2))"
    texts = ("queue", "unique", "coalesce", "bounded(queue, 20, drop_oldest)")
    queue, *others = (simulate(traffic, "1ms + 2ms*n", text) for text in texts)
    for other in others:
        assert other.latency["p99"] < queue.latency["p99"] / 5
        assert other.busy <= queue.busy + 0.005
        assert dominated([queue, other]) <= {other.policy}
    unique, coalesce, _ = others
    assert unique.carried == unique.processed / unique.arrived < 0.5
    assert coalesce.carried == 1.0
    assert unique.throughput == pytest.approx(unique.processed / unique.duration)


def test_the_curve_ends_at_the_share_that_was_carried(results: list[Result]) -> None:
    shares = {result.policy: result.curve[-1][1] for result in results}
    assert shares["queue"] == pytest.approx(1.0)
    for result in results:
        assert shares[result.policy] == pytest.approx(result.carried)
    assert shares["unique"] < 0.95
    assert shares["bounded(queue, 20, drop_oldest)"] < 0.95
    [axes] = figures.latency_cdf(results).axes
    ends = {
        line.get_label(): float(list(line.get_ydata())[-1])  # type: ignore[arg-type]
        for line in axes.get_lines()
    }
    label = next(label for label in ends if str(label).startswith("unique"))
    assert ends[label] == pytest.approx(shares["unique"])
    assert str(label).endswith("% carried)")


def test_nothing_processed_is_not_the_best(results: list[Result]) -> None:
    nothing = dataclasses.replace(
        results[0], policy="nothing", processed=0, dropped=results[0].arrived,
        latency=dict.fromkeys(results[0].latency, 0.0),
    )  # fmt: skip
    assert rows([nothing])[0][2:7] == ["-"] * 5
    assert "queue" not in dominated([results[0], nothing])
    console = Console(width=200, record=True, file=io.StringIO(), color_system="truecolor")
    console.print(as_table([results[0], results[4], nothing]))
    styled = console.export_text(styles=True).splitlines()
    green = [line for line in styled if "\x1b[1;32m" in line]
    assert len(green) == 1
    assert "queue" in green[0]


@pytest.mark.parametrize("name", list(FIGURES))
def test_figures_are_drawn_and_the_same_each_time(name: str, results: list[Result]) -> None:
    draw = FIGURES[name]
    image = figures.png(draw(results))
    assert image.startswith(b"\x89PNG")
    assert image == figures.png(draw(results))


def test_figures_name_every_policy(results: list[Result]) -> None:
    figure = figures.latency_cdf(results)
    [legend] = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[0] == "queue = stack"
    assert [label.partition(" (")[0] for label in labels[1:]] == list(TEXTS[2:])
    [legend] = figures.latency_cdf(results[:1]).legends  # one is named, too
    assert [text.get_text() for text in legend.get_texts()] == ["queue"]
    many = [dataclasses.replace(results[0], policy=f"policy_{at}") for at in range(12)]
    [legend] = figures.depths(many).legends
    [text] = legend.get_texts()
    assert all(each.policy in text.get_text() for each in many)
    assert max(map(len, text.get_text().split("\n"))) <= 60


@pytest.mark.parametrize("count", [1, 12])
def test_a_legend_stays_inside_its_figure(count: int, results: list[Result]) -> None:
    many = [
        dataclasses.replace(results[4], busy=at / 100, policy=f"{at}: " + "bounded(queue)" * 3)
        for at in range(count)
    ]
    for draw in (figures.latency_cdf, figures.depths, figures.by_priority, figures.overview):
        figure = draw(many)
        figures.png(figure)
        [legend] = figure.legends
        box, frame = legend.get_window_extent(), figure.bbox
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
        heights = [axes.get_window_extent().height for axes in figure.axes]
        assert min(heights) >= 0.2 * frame.height


def crowd(results: list[Result], count: int) -> list[Result]:
    """Make results whose points are close to each other."""
    return [
        dataclasses.replace(
            results[0],
            policy=f"linger(chunk(queue, {at}), 5ms)",
            busy=0.5 + at / 10_000,
            latency=dict.fromkeys(results[0].latency, 0.05 + at / 10_000),
        )
        for at in range(count)
    ]


@pytest.mark.parametrize("count", [1, 16])
def test_every_point_is_labelled_and_no_label_covers_another(
    count: int, results: list[Result]
) -> None:
    shown = [*results, *crowd(results, count)]
    figure = figures.frontier(shown)
    figures.png(figure)  # draws it, with the labels where they are
    renderer: Any = figure.canvas
    for axes in figure.axes:
        texts = [text for text in axes.texts if text.get_text()]
        names = "\n".join(text.get_text() for text in texts)
        assert all(result.policy in names for result in shown)
        boxes = [text.get_window_extent(renderer.get_renderer()) for text in texts]
        frame = axes.get_window_extent()
        for one, other in itertools.combinations(boxes, 2):
            assert not one.padded(-1.5).overlaps(other.padded(-1.5))
        for box in boxes:
            assert frame.x0 - 2 <= box.x0 <= box.x1 <= frame.x1 + 2


def test_dominated_policies_are_grey(results: list[Result]) -> None:
    worse = dataclasses.replace(
        results[0],
        policy="worse",
        latency=dict.fromkeys(results[0].latency, 5.0),
        curve=[(5.0, 1.0)],
    )
    for axes in figures.frontier([*results, worse]).axes:
        names = {text.get_text().partition(" (")[0]: text.get_color() for text in axes.texts}
        assert names["worse"] == "#8a8a8a"
        assert names["unique"] != names["worse"]


def test_odd_results_can_be_drawn(results: list[Result]) -> None:
    empty = dataclasses.replace(
        results[0], policy="nothing", processed=0, curve=[], depth_series=[], batch_series=[],
        latency=dict.fromkeys(results[0].latency, 0.0),
    )  # fmt: skip
    for some in ([empty], [empty, results[0]]):
        for draw in (*FIGURES.values(), figures.overview):
            assert figures.png(draw(some), dpi=30)


def test_the_html_page_needs_nothing_else(results: list[Result]) -> None:
    page = html.as_html(results, {"traffic": "<mine> & yours"}, complete=False)
    assert page.startswith("<!doctype html>")
    assert page.count("data:image/png;base64,") == len(FIGURES)
    assert not re.search(r'src="(?!data:)|href=|url\(', page)
    assert "&lt;mine&gt; &amp; yours" in page
    assert "Interrupted" in page
    assert "p99 by priority" not in page  # this traffic has no priorities
    assert all(text in page for text in TEXTS)
    assert "Interrupted" not in html.as_html([], {})


def test_the_html_page_shows_priorities_where_there_are_some() -> None:
    results = [simulate("poisson(500, duration=1s, priorities=uniform(3))", "1ms", "queue")]
    assert "p99 by priority" in html.as_html(results, {})


def test_a_histogram_is_right_within_its_steps() -> None:
    histogram = Histogram()
    histogram.add_many([number / 1000 for number in range(1, 1001)])
    histogram.add_many([])
    histogram.add_many([0.0] * 1000)
    assert histogram.quantile(0.25) == 0.0
    assert histogram.quantile(0.75) == pytest.approx(0.5, rel=0.005)
    assert histogram.quantile(1.0) == pytest.approx(1.0, rel=0.005)
    assert histogram.mean == pytest.approx(0.25025)
    assert histogram.curve()[0] == (0.0, 0.5)


def test_a_series_keeps_the_peaks() -> None:
    series = Series(limit=100)
    values = [0.0] * 10_000
    values[7_777] = 5.0
    for start in range(0, 10_000, 997):
        series.add_many(range(start, min(start + 997, 10_000)), values[start : start + 997])
    points = series.points()
    assert len(points) <= 101
    assert (7_777, 5.0) in points
    assert points == sorted(points)


def test_results_are_plotted_from_python(tmp_path: Path, results: list[Result]) -> None:
    path = tmp_path / "waits.png"
    assert len(plot(results).axes) == 4
    assert plot(results[0], "waits", path=path).axes
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadOption, match=r"no figure 'wait'.*did you mean 'waits'"):
        plot(results, "wait")


def test_figures_say_when_and_from_what_they_were_made(
    results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    texts = [text.get_text() for text in plot(results, "latency").texts]
    assert f"actorflow {af.__version__}, 1970-01-01, seed 0" in texts


def test_goals_are_marked_and_no_axis_goes_above_all_messages(results: list[Result]) -> None:
    goals = parse_goals("p99 < 50ms, goodput(30ms) > 90%, busy < 50%")
    [axes] = plot(results, "latency", goals=goals).axes
    assert axes.get_ylim()[1] < 1
    assert [text.get_text() for text in axes.texts] == ["p99 < 50ms", "goodput(30ms) > 90%"]
    for side in figures.frontier(results).axes:
        if "busy" in side.get_xlabel():
            assert side.get_xlim()[1] <= 100


def test_a_trace_for_perfetto_needs_kept_batches(results: list[Result]) -> None:
    with pytest.raises(BadOption, match="keep=True"):
        chrome_trace(results)
