"""What the commonest paths cost, in Python calls, and that none of them grows."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.paths.journeys import JOURNEYS
from tests.paths.tracer import ROOT, Cost

if TYPE_CHECKING:
    from tests.servers import Postgres

REMEDY = (
    "`python -m tests.paths -v {name}` lists the calls. Shorten the path, or raise its limit in "
    "tests/paths/journeys.py and say in the commit what it buys"
)

_TRIALS = 5  # processes of which one has to keep the limit: a busy machine makes paths longer


def cost_of(name: str, server: str | None) -> Cost:
    """Return the cost of a path, taken in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.paths", name, *([server] if server else [])],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return Cost(*(int(number.replace(",", "")) for number in re.findall(r"[\d,]+", found.stdout)))


@pytest.mark.timeout(170)
@pytest.mark.parametrize("name", JOURNEYS)
def test_no_path_grows_past_its_limit(name: str, request: pytest.FixtureRequest) -> None:
    server = None
    if JOURNEYS[name].needs_server:
        postgres: Postgres = request.getfixturevalue("postgres")
        server = postgres.new_url()
    limit = JOURNEYS[name].limit
    for _ in range(_TRIALS):
        cost = cost_of(name, server)
        if cost.is_within(limit):
            return
    shown = f"{name}: {cost}, but at most {limit}. {REMEDY.format(name=name)}"
    pytest.fail(shown)


def test_the_documentation_shows_the_limits() -> None:
    text = (ROOT / "docs" / "development.md").read_text()
    for journey in JOURNEYS.values():
        assert f"| {journey.title} | {journey.limit} |" in text
