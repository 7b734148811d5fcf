"""Recorded instances, and new code that is held against them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.cli import application
from actorflow.engine.errors import KindMismatch, UnknownExecution
from actorflow.runtime.errors import BadOption
from tests.workflows.service.orders import PATIENCE, Order, Parent, charge, wait_for_event

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import actorflow as af

@af.task
def pack(data: bytes) -> bytes:
    return data

class Parcel(af.Workflow[int]):
    def handle(self) -> int:
        return len(self.execute(pack(b"\\xff\\x00")))

def setup(engine):
    engine.workflows.register(Parcel)
"""


class Changed(af.Workflow[str]):
    """An order that is not charged."""

    def handle(self) -> str:
        self.execute(charge("another"))
        return ""


Changed.__qualname__ = "Order"


class Raises(af.Workflow[str]):
    """An order whose code is broken."""

    def handle(self) -> str:
        raise ValueError("no such order")


Raises.__qualname__ = "Order"


def test_code_is_held_against_what_was_recorded(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    history = json.loads(json.dumps(order.export()))
    with af.Engine(":memory:") as other:
        assert other.workflows.check(history, Order) is None
        found = other.workflows.check(history, Changed)
        assert found is not None
        assert (found.kind, found.branch, found.position) == ("modified", 0, "0.0")
        assert found.recorded == "execute of the task charge({'order': 'o-1'})"
        assert found.found == "execute of the task charge({'order': 'another'})"
        found = other.workflows.check(history, Raises)
        assert found is not None
        assert found.kind == "failed"
        assert "ValueError: no such order" in str(found)
        assert "in handle" in str(found)
    order.send("paid", amount=1)
    assert order.result(PATIENCE)
    assert engine.workflows.check(order.export(), Order) is None, "also one that has ended"
    assert engine.workflows.check("o-1") is None, "the class is registered"


def test_what_cannot_be_checked_is_named(engine: af.Engine) -> None:
    order = engine.start(Order("o-1"), id="o-1")
    wait_for_event(order)
    history = order.export()
    with pytest.raises(KindMismatch, match="'Order', not 'Parent'"):
        engine.workflows.check(history, Parent)
    with pytest.raises(UnknownExecution):
        engine.workflows.check("o-2", Order)
    with af.Engine(":memory:") as other, pytest.raises(BadOption, match="'Order' is registered"):
        other.workflows.check(history)
    damaged: list[Any] = [{}, {**history, "format": 9}, {**history, "state": {"json": [1]}}]
    for bad in damaged:
        with pytest.raises(BadOption, match="not a recorded workflow"):
            engine.workflows.check(bad, Order)


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(application(), [str(each) for each in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_commands_record_and_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "parcels.py").write_text(CODE)
    (tmp_path / "changed.py").write_text(CODE.replace('b"\\xff\\x00"', 'b"\\xff\\x01"'))
    import parcels  # type: ignore[import-not-found]  # noqa: PLC0415 - just written

    store = tmp_path / "parcels.db"
    with af.Engine(store, durability="off") as engine:
        assert engine.start(parcels.Parcel(), id="p-1").result(PATIENCE) == 2
        engine.send("note", {"a": 1}, kind="note")
        (tmp_path / "p-1.json").write_text(run("workflows", "export", store, "p-1"))
    check = ("workflows", "check", "p-1.json", "--app")
    assert run(*check, "parcels:setup") == "p-1.json: the same\n"
    differs = run(*check, "changed:setup", code=1)
    assert r"b'\xff\x00'" in differs
    assert "1 of 1 differ" in differs
    assert "no execution 'p-2'" in run("workflows", "export", store, "p-2", code=3)
    assert "not a workflow" in run("workflows", "export", store, "note", code=4)
    (tmp_path / "bad.json").write_text("[")
    bad = run("workflows", "check", "bad.json", "--app", "parcels:setup", code=2)
    assert "not JSON" in bad
