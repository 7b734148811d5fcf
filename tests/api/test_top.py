"""`actorflow top`: the socket of an observed process, the tables, and the screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import DataTable, Static

import actorflow as af
from actorflow.api.cli.top import ProcessSource, source_of
from actorflow.api.screen import Details, Table, Top, execution_table, tree_table, worker_table
from actorflow.runtime.errors import BadOption
from actorflow.runtime.telemetry.observe import act, look
from tests.api.browser import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def total(rows: Sequence[int], state: int) -> int:
    return state + len(rows)


def test_an_observed_process_shows_its_workers(tmp_path: Path) -> None:
    path = tmp_path / "top.sock"
    with af.spawn(total, state=0, name="writer") as worker, af.observe(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        worker.push_block(1)
        found = look(path)
        assert found["process"] == os.getpid()
        assert found["workers"]["writer"]["processed"] == 1
        assert look(path)["pool"]["threads"] >= 1
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        look(path)


def test_nothing_runs_until_somebody_looks(tmp_path: Path) -> None:
    before = threading.active_count()
    with af.observe(tmp_path / "top.sock"):
        assert threading.active_count() == before + 1


def test_a_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="cannot be made"):
        af.observe(tmp_path / "missing" / "top.sock")


def worker(**changes: Any) -> dict[str, Any]:
    return {
        "state": "idle", "held": 0, "in_flight": 0, "processed": 0, "batches": 0, "failed": 0,
        "dropped": 0, "rejected": 0, "expired": 0, "restarts": 0, "reasons": {"idle": 1, "size": 3},
        "latency_p50": 0.001, "latency_p99": None, **changes,
    }  # fmt: skip


def test_rates_are_those_since_the_last_look() -> None:
    pool = {"threads": 4}
    before = {"process": 7, "workers": {"a": worker(processed=100, batches=10)}, "pool": pool}
    now = {"process": 7, "workers": {"a": worker(processed=300, batches=20)}, "pool": pool}
    first = worker_table(now, None, 0.0)
    assert first.rows[0][4:6] == (0, 0.0)
    table = worker_table(now, before, 2.0)
    row = dict(zip(table.heads, table.rows[0], strict=True))
    assert (row["msg/s"], row["batch"], row["left by"], row["p50 ms"]) == (100, 20.0, "size", 1.0)
    assert table.summary == "process 7: 1 workers, 100 messages/s, 4 threads"


def raising(rows: Sequence[Any], state: int) -> int:
    if "bad" in rows:
        raise ValueError("bad row")
    return state + len(rows)


def test_a_worker_of_an_observed_process_is_paused_resumed_and_retried(tmp_path: Path) -> None:
    path = tmp_path / "top.sock"
    options: dict[str, Any] = {"state": 0, "name": "writer", "on_failure": "isolate"}
    with af.spawn(raising, **options) as worker, af.observe(path):
        worker.push("bad")
        until(lambda: len(worker.dead_letters) == 1)
        assert act(path, "pause", "writer") is None
        assert look(path)["workers"]["writer"]["state"] == "paused"
        assert act(path, "retry", "writer") == 1
        act(path, "resume", "writer")
        until(lambda: len(worker.dead_letters) == 1)
        with pytest.raises(BadOption, match="'reader'"):
            act(path, "pause", "reader")
        with pytest.raises(BadOption, match="is not a request: look, pause, resume, retry"):
            act(path, "stop", "writer")
        assert worker.is_alive()


def test_a_viewer_that_says_nothing_or_nonsense_disturbs_nobody(tmp_path: Path) -> None:
    path = tmp_path / "top.sock"
    with af.observe(path):
        for text in (b"", b"\n", b"[]\n", b'{"do": {}}\n', b"\xff\n", b"x" * 20_000):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(text)
        assert look(path)["process"] == os.getpid()


def test_the_trees_of_a_process_are_shown_line_by_line() -> None:
    inner = af.Supervisor([af.Worker("row-writer", total, state=0)], strategy="one_for_all")
    with af.Supervisor([af.Child("storage", inner)], name="shop"):
        lines = [row[0] for row in ProcessSource(None).read("tree").rows]
    at = lines.index("supervisor 'shop' (one_for_one)")
    assert lines[at + 1 : at + 3] == ["  supervisor 'storage' (one_for_all)", "    'row-writer'"]
    assert tree_table({"process": 7, "trees": []}).summary == "process 7: 0 supervision trees"


def test_a_store_shows_its_executions(tmp_path: Path) -> None:
    store = str(tmp_path / "orders.db")
    with af.Engine(store) as engine:
        engine.launch("stall _", id="order-1")
    source = source_of(store)
    assert source.views == ("executions", "workers", "tree")
    assert source.read("executions").rows[0][:3] == ("order-1", "flow", "active")
    assert "status   active" in source.open("executions", "order-1")
    with pytest.raises(BadOption, match="no engine with a control socket"):
        source.read("workers")
    assert execution_table([], {"live": 0, "commits": 0, "tasks": 0, "waiting": 0}, "x").rows == []


class Patient(af.Workflow[str]):
    """Waits for an event."""

    def handle(self) -> str:
        """Wait."""
        self.wait("go")
        return "gone"


def test_a_live_engine_is_steered_from_the_screen(tmp_path: Path) -> None:
    store = str(tmp_path / "orders.db")
    with (
        af.Engine(store, durability="off", control=True) as engine,
        af.spawn(total, state=0, name="of the engine") as worker,
    ):
        order = engine.start(Patient(), id="order-1")
        source = source_of(store)
        assert source.act("executions", "pause", "order-1") == "order-1: paused"
        until(lambda: order.query().state.decision_mode == "paused")
        assert source.act("executions", "resume", "order-1") == "order-1: resumed"
        assert "0 dead letters" in source.act("executions", "retry", "order-1")
        assert source.act("workers", "pause", "of the engine") == "of the engine: paused"
        assert worker.actor.is_paused
        assert "paused" in source.open("workers", "of the engine")
        with pytest.raises(BadOption, match="press v"):
            source.act("tree", "pause", "of the engine")


def test_a_store_that_engines_share_shows_them() -> None:
    with af.Engine("memory://top-of-a-cluster") as engine:
        engine.resume()
        source = source_of("memory://top-of-a-cluster")
        assert source.views == ("executions", "cluster", "workers", "tree")
        members = source.read("cluster").rows
        assert len(members) == 1
        assert str(members[0][0]) in source.open("cluster", str(members[0][0]))


def test_a_process_that_is_not_observed_is_named() -> None:
    with pytest.raises(BadOption, match=r"no process 1 has called af\.observe\(\)"):
        source_of("1")


class Scripted:
    """A source that notes what is asked of it."""

    views = ("letters", "empty")

    def __init__(self) -> None:
        self.count = 0
        self.broken = False
        self.rows: list[tuple[Any, ...]] = [("b", 1), ("a[0]", 2), ("c", 3)]
        self.asked: list[tuple[str, str, str]] = []

    def read(self, view: str) -> Table:
        """Return the rows."""
        self.count += 1
        if self.broken:
            raise OSError("the engine is gone")
        rows = self.rows if view == "letters" else []
        return Table(f"look {self.count}", ("name", "held"), rows)

    def open(self, view: str, name: str) -> str:
        """Return a text with what Textual takes for markup."""
        return f"{view} [bold]{name}"

    def act(self, view: str, action: str, name: str) -> str:
        """Note it."""
        self.asked.append((view, action, name))
        if action == "retry":
            raise BadOption("not [now]")
        return f"{name}: {action}"


def test_the_screen_sorts_filters_freezes_opens_and_acts() -> None:
    source = Scripted()

    async def use() -> None:
        app = Top(source, interval=3_600)
        async with app.run_test() as pilot:
            table = app.query_one(DataTable)

            def column(place: int) -> list[str]:
                return [str(table.get_row_at(at)[place]) for at in range(table.row_count)]

            assert column(0) == ["a[0]", "b", "c"]
            await pilot.press("s", "i")
            assert column(1) == ["3", "2", "1"]
            await pilot.press("p", "u", "r")
            assert source.asked == [
                ("letters", act, "a[0]") for act in ("pause", "resume", "retry")
            ]
            source.rows = [("a[0]", 0), ("b", 1), ("c", 3)]
            app.refresh_table()  # the row has moved, and the cursor with it
            await pilot.press("p")
            assert source.asked[-1] == ("letters", "pause", "a[0]")
            await pilot.press("enter")
            assert isinstance(app.screen, Details)
            assert "letters [bold]a[0]" in str(app.screen.query_one(Static).render())
            app.refresh_table()  # behind the details
            await pilot.press("escape")
            await pilot.press("slash", "b", "enter")
            assert table.row_count == 1
            await pilot.press("f")
            seen = source.count
            app.refresh_table()
            assert source.count == seen
            await pilot.press("v")
            assert table.row_count == 0
            await pilot.press("p", "v")
            source.broken = True
            app.refresh_table()
            assert "the engine is gone" in str(app.query_one("#summary", Static).render())
            await pilot.press("q")

    asyncio.run(use())


def test_the_command_shows_a_demonstration_and_ends_by_itself(tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "actorflow.cli", "top", "--demo", "--seconds", "2"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "150", "LINES": "40"},
    ) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # Linux says EIO when the program has ended
            while part := os.read(main, 65_536):
                shown += part
        os.close(main)
        assert process.wait(60) == 0
    assert b"newest per key" in shown
