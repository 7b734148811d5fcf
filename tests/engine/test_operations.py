"""Looking at a store and mending it: commands, export and import, metrics."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from actorflow.cli import application
from actorflow.engine.engine import Engine
from actorflow.engine.errors import StoreBroken
from actorflow.engine.kind import NewTask, Outcome, SetTimer
from actorflow.engine.operations.export import export_lines, import_lines, readable
from actorflow.engine.operations.metrics import EngineCollector
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.protocol import Change, NewExecution
from tests.engine.kinds import Script, until

if TYPE_CHECKING:
    from pathlib import Path

TABLES = ("executions", "messages", "timers", "tasks", "history", "dead")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Give a store with something in each table."""
    path = tmp_path / "orders.db"

    def step(state: Any, message: Any) -> Any:
        if message == "bad":
            raise ValueError("bad")
        return Outcome(
            state=[*state, message],
            timers=[SetTimer("t", 5e9, {"tick": 1})],
            tasks=[NewTask("task-1", "nobody", "work")],
            history=["began"],
        )

    with Engine(path, durability="off") as engine:
        script = Script(step, on_failure="isolate")
        engine.register(script)
        engine.send("order-1", 1, kind="script")
        script.wait(1)
        engine.send("order-1", "bad")
        until(engine, lambda: len(engine.dead_letters()))
        engine.send("order-2", b"\x00\xff", kind="unknown")
    return path


def run(*arguments: Any, code: int = 0, given: str = "") -> str:
    result = CliRunner().invoke(application(), [str(each) for each in arguments], input=given)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_ps_lists_also_while_the_engine_runs(store: Path) -> None:
    with Engine(store):
        text = run("ps", store)
    lines = [line.split() for line in text.splitlines()]
    assert lines[1][:8] == ["order-1", "script", "active", "1", "0", "1", "1", "1"]
    assert lines[2][:8] == ["order-2", "unknown", "active", "0", "1", "0", "0", "0"]
    assert "order-1" not in run("ps", store, "--status", "failed")
    assert "... and 1 more: --limit 2" in run("ps", store, "--limit", 1)


def test_show_gives_all_there_is(store: Path) -> None:
    shown = json.loads(run("show", store, "order-1"))
    assert shown["state"] == [1]
    assert shown["timers"][0]["body"] == {"tick": 1}
    assert shown["tasks"][0]["body"] == "work"
    assert shown["history"][0]["body"] == "began"
    assert shown["dead"][0]["error"] == "ValueError: bad"
    run("show", store, "order-3", code=1)


def test_cancel_retry_and_purge(store: Path) -> None:
    assert "1 messages will be tried again" in run("retry", store)
    assert json.loads(run("show", store, "order-1"))["messages"][0]["body"] == "bad"
    assert "cancelled" in run("cancel", store, "order-1")
    assert "had ended" in run("cancel", store, "order-1")
    assert "0 executions" in run("purge", store)
    assert "1 executions" in run("purge", store, "--days", 0, "--dead")
    run("show", store, "order-1", code=1)


def test_changes_are_refused_while_the_engine_runs(store: Path) -> None:
    with Engine(store):
        run("cancel", store, "order-1", code=1)


def test_commands_do_not_make_a_store(tmp_path: Path) -> None:
    for command in ("ps", "purge", "export"):
        run(command, tmp_path / "none.db", code=1)
    assert not (tmp_path / "none.db").exists()


def test_export_and_import_give_the_same_store(store: Path, tmp_path: Path) -> None:
    text = run("export", store)
    assert run("import", tmp_path / "copy.db", given=text) == "7 rows\n"
    assert _rows(run("export", tmp_path / "copy.db")) == _rows(text)
    run("import", store, given=text, code=1)


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if '"table": "meta"' not in line]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"actorflow": 1}\n{"table": "moon"}', "nonsense"]
)
def test_nonsense_is_not_imported(text: str) -> None:
    with pytest.raises(StoreBroken):
        import_lines(MemoryStore(), io.StringIO(text))


def test_only_an_empty_store_takes_an_import() -> None:
    store = MemoryStore()
    store.commit([Change("a", creates=[NewExecution("a", "k")])])
    with pytest.raises(StoreBroken, match="empty store"):
        import_lines(store, export_lines(store))


def test_bodies_are_shown_as_json_only_where_nothing_is_lost() -> None:
    assert readable(None) is None
    assert readable(b"\x01") == {"json": 1}
    assert readable(b"\xc4\x01\xff") == {"base64": "xAH/"}  # bytes
    assert readable(b"\x81\x01\x02") == {"base64": "gQEC"}  # a dict whose key is a number
    assert readable(b"\xc1 nonsense") == {"base64": "wSBub25zZW5zZQ=="}


def test_backup_copies(store: Path, tmp_path: Path) -> None:
    with Engine(store):
        run("backup", store, tmp_path / "copy.db")
    assert _rows(run("export", tmp_path / "copy.db")) == _rows(run("export", store))
    run("backup", store, tmp_path / "copy.db", code=1)


def test_metrics_can_be_scraped() -> None:
    with Engine() as engine:
        engine.worker("w", lambda batch, state: state).push_block(1)
        registry = CollectorRegistry()
        registry.register(EngineCollector(engine, "orders"))
        text = generate_latest(registry).decode()
    assert 'actorflow_engine_live{engine="orders"} 1.0' in text
    assert 'actorflow_engine_messages_total{engine="orders"} 1.0' in text
