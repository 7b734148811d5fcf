"""A wrong argument is refused at the call: the error names it, and nothing has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.errors import BadOption
from tests.engine.kinds import Script, collect

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine

CALLS: dict[str, Callable[[BareEngine, Any], Any]] = {
    "wait": lambda engine, wrong: engine.wait(wrong),
    "result": lambda engine, wrong: engine.result(wrong),
    "wait, timeout": lambda engine, wrong: engine.wait("w", timeout=wrong),
    "executions, kind": lambda engine, wrong: engine.executions(kind=wrong),
    "executions, status": lambda engine, wrong: engine.executions(status=wrong),
    "executions, parent": lambda engine, wrong: engine.executions(parent=wrong),
    "executions, tags": lambda engine, wrong: engine.executions(tags=wrong),
    "dead_letters": lambda engine, wrong: engine.dead_letters(wrong),
    "retry": lambda engine, wrong: engine.dead_letters().retry(wrong),
    "purge a letter": lambda engine, wrong: engine.dead_letters().purge(wrong),
    "purge": lambda engine, wrong: engine.upkeep.purge(before=wrong),
    "close": lambda engine, wrong: engine.close(wrong),
    "register": lambda engine, wrong: engine.register(wrong),
    "every, cron": lambda engine, wrong: engine.every("s", wrong, engine.worker("c", collect), 1),
    "every, zone": lambda engine, wrong: engine.every(
        "s", "* * * * *", engine.worker("z", collect), 1, zone=wrong
    ),
    "fail_task": lambda engine, wrong: engine.fail_task("t", wrong),
    "on_cancel": lambda engine, wrong: engine.tasker("t", len, on_cancel=wrong),
    "backoff": lambda engine, wrong: engine.tasker("t", len, retries=3, backoff=wrong),
    "concurrency": lambda engine, wrong: engine.tasker("t", len, concurrency=wrong),
}


@pytest.mark.parametrize("wrong", [[7], b"7", True], ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_named(engine: BareEngine, call: str, wrong: Any) -> None:
    worker = engine.worker("w", collect, state=[])
    worker.push_block(1)
    before = [each.id for each in engine.executions()]
    with pytest.raises((BadOption, TypeError, ValueError)) as raised:
        CALLS[call](engine, wrong)
    assert repr(wrong) in str(raised.value)
    assert [each.id for each in engine.executions()] == before
    worker.push_block(2)
    assert worker.state() == [1, 2]


def test_a_moment_that_is_none_purges_nothing(engine: BareEngine) -> None:
    engine.worker("w", collect, state=[]).push_block(1)
    engine.cancel("w")
    for wrong in (float("nan"), float("inf"), "now"):
        with pytest.raises(BadOption, match="before must be a finite number"):
            engine.upkeep.purge(before=wrong)  # type: ignore[arg-type] # wrong on purpose
    assert engine.execution("w").status == "cancelled"


def test_a_kind_is_an_object_with_its_methods(engine: BareEngine) -> None:
    with pytest.raises(BadOption, match="it is a class"):
        engine.register(type("Half", (Script,), {"name": "half"}))  # type: ignore[arg-type] # wrong
    with pytest.raises(BadOption, match="it has no decode"):
        engine.register(type("Half", (), {"name": "half", "options": None})())
