"""`actorflow top`: the socket of an observed process, the tables, and the screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import DataTable, Static

import actorflow as af
from actorflow.api.cli.top import _reader
from actorflow.api.screen import Table, Top, execution_table, worker_table
from actorflow.runtime.errors import BadOption
from actorflow.runtime.observe import look

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


def test_a_store_shows_its_executions(tmp_path: Path) -> None:
    store = str(tmp_path / "orders.db")
    with af.Engine(store) as engine:
        engine.launch("stall _", id="order-1")
    table = _reader(store)()
    assert table.rows[0][:3] == ("order-1", "flow", "active")
    assert execution_table([], {"live": 0, "commits": 0, "tasks": 0, "waiting": 0}, "x").rows == []


def test_a_process_that_is_not_observed_is_named() -> None:
    with pytest.raises(BadOption, match=r"no process 1 has called af\.observe\(\)"):
        _reader("1")


def test_the_screen_sorts_filters_pauses_and_survives_errors() -> None:
    count = 0
    broken = False

    def read() -> Table:
        nonlocal count
        count += 1
        if broken:
            raise OSError("the engine is gone")
        return Table(f"look {count}", ("name", "held"), [("b", 1), ("a", 2), ("c", 3)])

    async def use() -> None:
        nonlocal broken
        app = Top(read, interval=3_600)
        async with app.run_test() as pilot:
            table = app.query_one(DataTable)
            assert [table.get_row_at(at)[0] for at in range(3)] == ["a", "b", "c"]
            await pilot.press("s", "r")
            assert [table.get_row_at(at)[1] for at in range(3)] == ["3", "2", "1"]
            await pilot.press("slash", "b", "enter")
            assert table.row_count == 1
            await pilot.press("p")
            seen = count
            app.refresh_table()
            assert count == seen
            await pilot.press("p")
            broken = True
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
