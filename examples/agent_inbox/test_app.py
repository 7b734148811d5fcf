"""Each strategy leads to its own conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.agent_inbox import app

if TYPE_CHECKING:
    from pathlib import Path

POEM = ["user: a poem", "agent: here is a poem"]
TEA = ["user: tea", "agent: here is tea"]
CAKE = ["user: cake", "agent: here is cake"]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("enqueue", [*POEM, *TEA, *CAKE]),
        ("reject", [*POEM, *TEA, "refused: cake"]),
        ("merge", [*POEM, "user: tea and cake", "agent: here is tea and cake"]),
        ("steer", ["user: a poem", "agent: here is cake tea a poem"]),
    ],
)
def test_messages_that_arrive_meanwhile(strategy: str, expected: list[str], tmp_path: Path) -> None:
    assert app.converse(strategy, str(tmp_path / "agent.db")) == expected


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
def test_messages_that_interrupt(strategy: str, tmp_path: Path) -> None:
    log = app.converse(strategy, str(tmp_path / "agent.db"))
    assert log[-2:] == CAKE
    assert ("user: a poem" in log) == (strategy == "interrupt")
    questions = [each for each in log if each.startswith("user")]
    assert len(questions) == sum(each.startswith("agent") for each in log)
