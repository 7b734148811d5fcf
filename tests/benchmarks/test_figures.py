"""The pictures of the documentation: all there, all named, and drawn by the lab."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from actorflow.lab.models.policies import KINDS
from actorflow.lab.report.figures import png
from actorflow.lab.report.timeline import timeline
from actorflow.runtime.errors import BadOption
from benchmarks import figures

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_every_behaviour_has_its_picture() -> None:
    assert {name.replace("_", "") for name in KINDS} == set(figures.BEHAVIOURS)


def test_every_picture_is_there_and_shown_on_a_page() -> None:
    drawn = {f"behaviour-{name}.png" for name in figures.BEHAVIOURS}
    drawn |= {f"{name}.png" for name in (*figures.SCENES, *figures.PLANS)}
    there = {path.name for path in (DOCS / "figures").glob("*.png")}
    taken = {name for name in there if name.startswith("dashboard-")}  # in a browser
    assert there - taken == drawn
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    assert set(re.findall(r"figures/([\w-]+\.png)\)", pages)) - taken == drawn


@pytest.mark.parametrize("name", list(figures.BEHAVIOURS))
def test_a_behaviour_is_drawn_the_same_each_time(name: str) -> None:
    policy, label = figures.BEHAVIOURS[name]

    def draw() -> bytes:
        return png(timeline(figures.MESSAGES, "8ms + 0.5ms*n", policy, label=label), dpi=40)

    assert draw() == draw()


def texts(policy: str, label: str) -> list[str]:
    [axes] = timeline(figures.MESSAGES, "8ms + 0.5ms*n", policy, label=label).axes
    return [text.get_text() for text in axes.texts]


def test_a_timeline_shows_each_arrival_and_each_that_leaves() -> None:
    numbers = [str(number) for number in range(1, 14)]
    assert texts("queue", "number") == [*numbers, *numbers]
    assert texts("linger(queue, 1min)", "number") == [*numbers, *numbers]
    assert len(texts("bounded(queue, 3, drop_oldest)", "number")) == 25
    assert "3A" in texts("coalesce", "key")
    assert set(texts("chunk(priority, 3)", "priority")) == {"1", "2", "3"}


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(BadOption, match="shows 1 to 60"):
        timeline(figures.MESSAGES * 5, "1ms", "queue")
