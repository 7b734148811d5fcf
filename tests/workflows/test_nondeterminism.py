"""Code that does something else in a replay: found in its source, and by comparing."""

from __future__ import annotations

import datetime as dt
import random
import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionFailed
from actorflow.testing import WorkflowHarness
from actorflow.workflows.nondeterminism import impurities
from tests.workflows.service.orders import PATIENCE


def helper() -> str:
    with open("/dev/null") as file:  # noqa: PTH123 - the call to find
        return file.read()


class Impure(af.Workflow[str]):
    """Does what replays cannot repeat, each in a line of its own."""

    def __init__(self) -> None:
        self.begun = time.time()  # not replayed

    def handle(self) -> str:
        """Do all of it."""
        import os  # noqa: PLC0415
        import socket  # noqa: PLC0415

        time.time()
        random.choice([1, 2])
        random.Random()
        random.Random(7)
        uuid.uuid4()
        datetime.now()  # noqa: DTZ005
        dt.date.today()  # noqa: DTZ011
        socket.socket()
        os.getenv("HOME")
        self.rest()
        self.now(), self.random(), self.uuid()
        return helper()

    def rest(self) -> list[Any]:
        return [time.sleep(0) for _ in range(1)]  # type: ignore[func-returns-value]

    def unused(self) -> float:
        return time.time()


@af.task
def clock() -> float:
    return time.time()


class Pure(af.Workflow[float]):
    """Leaves that to a task, and has a parameter of the name of a module."""

    def handle(self) -> float:
        """Ask a task."""
        return self.execute(clock()) + self.add(time=1)

    @staticmethod
    def add(time: Any) -> float:
        return float(time.real)


def test_calls_are_found_with_their_lines_and_remedies() -> None:
    found = impurities(Impure)
    assert {(each.call, each.remedy) for each in found} == {
        ("time.time", "use self.now()"),
        ("random.choice", "use self.random()"),
        ("random.Random", "use self.random()"),
        ("uuid.uuid4", "use self.uuid()"),
        ("datetime.now", "use self.now()"),
        ("dt.date.today", "use self.now()"),
        ("socket.socket", "do it in a @af.task"),
        ("os.getenv", "give it to __init__ as an argument"),
        ("time.sleep", "use self.wait(seconds=...)"),
        ("open", "do it in a @af.task"),
    }
    assert len(found) == 10, "a seeded generator, __init__ and methods that nobody calls are left"
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for each in found:
        assert each.file == __file__
        assert each.call in lines[each.line - 1]
    assert impurities(Pure) == []


def test_a_test_with_the_harness_fails_and_names_the_line() -> None:
    class Stamps(af.Workflow[str]):
        def handle(self) -> str:
            time.time()
            return ""

    with (
        pytest.raises(AssertionError, match=r"test_nondeterminism.py:\d+: time.time\(\) gives"),
        WorkflowHarness(Stamps()),
    ):
        pass


def test_the_engine_warns_when_it_first_sees_the_class(caplog: pytest.LogCaptureFixture) -> None:
    with af.Engine(":memory:") as engine:
        engine.workflows.register(Pure)
        assert "in each replay" not in caplog.text
        engine.workflows.register(Impure)
        assert "time.time() gives something else in each replay: use self.now()" in caplog.text
        history = engine.start(Pure(), id="p")
        history.result(PATIENCE)
        assert engine.workflows.check("p") is None


class Sums(af.Workflow[int]):
    """Counts and publishes."""

    offset = 0

    def __init__(self) -> None:
        self.total = 0

    def handle(self) -> int:
        """Wait for two events."""
        for _ in range(2):
            event = self.wait("add")
            self.total += (event.data["n"] if event else 0) + self.offset
            self.publish(self.total)
        return self.total


def recorded(waits_on: bool) -> Any:  # noqa: FBT001
    with af.Engine(":memory:") as engine:
        sums = engine.start(Sums(), id="s")
        for n in (1,) if waits_on else (1, 2):
            sums.send("add", n=n)
        if waits_on:
            next(iter(sums.follow()))
        else:
            sums.result(PATIENCE)
        return sums.export()


def check(history: Any, changes: dict[str, Any]) -> str:
    """Return how the code differs with some attributes of the class replaced."""
    changed = type("Sums", (Sums,), {"__module__": __name__, "__qualname__": "Sums", **changes})
    with af.Engine(":memory:") as engine:
        return str(engine.workflows.check(history, changed))


@pytest.mark.parametrize("waits_on", [False, True])
def test_check_compares_properties_and_published_values(waits_on: bool) -> None:  # noqa: FBT001
    history = recorded(waits_on)
    assert check(history, {}) == "None"
    text = check(history, {"offset": 5})
    assert "publish.0" in text
    assert "publish(6)" in text

    def quiet(self: Sums) -> int:
        for _ in range(2):
            event = self.wait("add")
            self.total += (event.data["n"] if event else 0) * 2
        return self.total

    assert "total = 1" in check(history, {"handle": quiet})
    assert "total = 2" in check(history, {"handle": quiet})


def test_check_compares_results_and_missing_published_values() -> None:
    def other(self: Sums) -> int:
        return Sums.handle(self) * 2

    def less(self: Sums) -> int:
        for number in range(2):
            event = self.wait("add")
            self.total += event.data["n"] if event else 0
            if number == 0:
                self.publish(self.total)
        return self.total

    history = recorded(waits_on=False)
    text = check(history, {"handle": other})
    assert "the result 3" in text
    assert "the result 6" in text
    assert "publish.1" in check(history, {"handle": less})


@af.task
def pay(order: str) -> str:
    return order


def _versions() -> tuple[type[af.Workflow[str]], type[af.Workflow[str]]]:
    def before() -> type[af.Workflow[str]]:
        class Paying(af.Workflow[str]):
            def handle(self) -> str:
                self.wait("a")
                self.execute(pay("o-1"))
                self.wait("b")
                return "shipped"

        return Paying

    def after() -> type[af.Workflow[str]]:
        class Paying(af.Workflow[str]):
            def handle(self) -> str:
                self.wait("a")
                return "free"

        return Paying

    return before(), after()


def test_code_that_forgets_a_recorded_step_is_refused_at_run_time(tmp_path: Path) -> None:
    before, after = _versions()
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        paying = engine.start(before(), id="p")
        paying.send("a")
        while not any(each.name == "pay" and each.output for each in paying.query().state.statuses):
            pass
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        paying = engine.workflows.get(after, "p")
        paying.send("b")
        with pytest.raises(ExecutionFailed, match="pay"):
            paying.result(PATIENCE)
        assert paying.query().mode == "modified"
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        paying = engine.workflows.get(before, "p")
        paying.resume()
        assert paying.result(PATIENCE) == "shipped"
