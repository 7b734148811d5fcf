"""Errors whose class misbehaves are reported like others, short, and in little room."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.errors import body_of
from actorflow.behaviours.errors import brief, kind_of
from actorflow.engine.errors import ExecutionFailed
from actorflow.runtime.errors import kind_and_text, traceback_of
from tests.plans.jobs import add

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HUGE = 3_000_000
PATIENCE = 20


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Leaving(BaseException):
    def __str__(self) -> str:
        raise SystemExit(7)

    __repr__ = __str__


class Number(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value] # noqa: PLE0307 - on purpose


class OddText(str):
    __slots__ = ()

    def __len__(self) -> int:
        raise ValueError("no length")


class Odd(Exception):
    def __str__(self) -> str:
        return OddText("odd")


class Half(Exception):
    def __str__(self) -> str:
        return "\ud800"


class Long(Exception):
    def __str__(self) -> str:
        return "x" * HUGE


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in {"__name__", "__qualname__", "__module__"}:
            raise ValueError("no name")
        return super().__getattribute__(name)


def hidden() -> BaseException:
    class Hidden(Exception, metaclass=Nameless):
        pass

    return Hidden()


class Groundless(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise ValueError("no cause")


class Classless(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ValueError("no class")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "speechless": Speechless,
    "leaving": Leaving,
    "number": Number,
    "odd": Odd,
    "half": Half,
    "long": Long,
    "hidden": hidden,
    "groundless": Groundless,
    "classless": Classless,
}


def fail(which: str) -> int:
    error = ERRORS[which]()
    raise error


failing = af.task(fail)


class Failing(af.Workflow[int]):
    def __init__(self, which: str) -> None:
        self.which = which

    def handle(self) -> int:
        return self.execute(failing(self.which), raises=True)


@pytest.mark.parametrize("which", ERRORS)
def test_every_text_for_an_error_is_short(which: str) -> None:
    try:
        fail(which)
    except BaseException as error:  # noqa: BLE001 - that is what it is about
        texts = [kind_and_text(error), traceback_of(error), brief(error), *body_of(error).values()]
    assert all(0 < len(text.encode()) < 40_000 for text in texts if text)


@pytest.mark.parametrize("which", ERRORS)
def test_a_step_a_flow_and_a_durable_job_that_fail_are_told(which: str, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with af.Engine(store) as engine:
        with pytest.raises(ExecutionFailed):
            engine.start(Failing(which), id="w").result(timeout=PATIENCE)
        engine.tasker("bob", lambda _task: fail(which))
        exid = engine.launch("task 'bob' 'x'", id="f")
        with pytest.raises(ExecutionFailed):
            engine.result(exid, timeout=PATIENCE)
        plan = af.Plan()
        plan.job(fail, which, name="bad")
        plan.job(add, 1, name="good")
        result = engine.plans.start(plan, id="p", on_failure="continue").result(timeout=PATIENCE)
        assert (list(result.failed), result["good"]) == (["bad"], 1)
    assert store.stat().st_size < 2_000_000


def test_the_text_of_an_error_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    worker = af.spawn(lambda batch, _: fail(batch[0]))
    with caplog.at_level(logging.ERROR), pytest.raises(Long):
        worker.push_block("long")
    assert "characters were left out" in caplog.text
    assert len(caplog.text) < 100_000


@pytest.mark.parametrize("which", ERRORS)
def test_a_caller_that_waits_for_a_job_gets_its_error(
    which: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def job(batch: list[Any], _: object) -> None:
        fail(which)

    with af.Engine(":memory:") as engine:
        for worker in (engine.worker("w", job, state=0), af.spawn(job)):
            got = None
            try:
                worker.push_block(1, timeout=PATIENCE)
            except BaseException as error:  # noqa: BLE001 - that is what it is about
                got = error
            assert kind_of(got) == kind_of(ERRORS[which]())
    assert "--- Logging error ---" not in capfd.readouterr().err
