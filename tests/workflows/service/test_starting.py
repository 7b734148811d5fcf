"""Starting an instance: its creator waits until it is stored, and for none of its code."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import actorflow as af

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

import pytest

_GATE = threading.Event()


class Blocked(af.Workflow[str]):
    """Its first step of code blocks until the test lets it go on."""

    def handle(self) -> str:
        assert _GATE.wait(60)
        return "done"


class Quick(af.Workflow[str]):
    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> str:
        self.wait("go")
        return "done"


@pytest.fixture(autouse=True)
def closed_gate() -> Iterator[None]:
    _GATE.clear()
    yield
    _GATE.set()


def test_start_returns_while_the_first_code_still_runs(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "e.db") as engine:
        handle = engine.start(Blocked())
        assert handle.status == "active"
        _GATE.set()
        assert handle.result(timeout=60) == "done"


def test_astart_returns_once_stored_while_the_first_code_still_runs(tmp_path: Path) -> None:
    async def main() -> None:
        with af.Engine(tmp_path / "e.db") as engine:
            starting = asyncio.create_task(engine.astart(Blocked(), id="b"))
            others = 0  # of the loop, which goes on meanwhile
            while not starting.done():
                others += 1
                await asyncio.sleep(0)
            handle = starting.result()
            assert others > 1
            assert not _GATE.is_set(), "it has waited for the code"
            stored = engine.parts.store.execution("b")
            assert stored is not None
            assert stored.status == handle.status == "active"
            _GATE.set()
            assert await handle.aresult(timeout=60) == "done"
            assert handle.status == "done"
            again = await engine.astart(Blocked(), id="b")
            assert await again.aresult(timeout=60) == "done"

    asyncio.run(main())
    with af.Engine(tmp_path / "e.db") as engine:
        assert [each.status for each in engine.executions()] == ["done"]
        assert list(engine.dead_letters()) == []


def test_a_start_that_was_stored_apart_outlives_the_engine(tmp_path: Path) -> None:
    """The engine is closed during the first run, whose outcome never comes."""

    async def start() -> None:
        with af.Engine(tmp_path / "e.db") as engine:
            await engine.astart(Blocked(), id="b")
            await engine.aclose(0.0)

    asyncio.run(start())
    _GATE.set()
    with af.Engine(tmp_path / "e.db") as engine:
        engine.workflows.register(Blocked)
        engine.resume()
        assert engine.workflows.get(Blocked, "b").result(timeout=60) == "done"


def test_a_query_right_after_the_start_waits_for_the_first_code(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "e.db") as engine:
        for number in range(3):  # the later ones begin in the commit that creates them
            assert engine.start(Quick(number)).query().properties == {"number": number}
