"""Durable queues from PyPI on SQLite, with the sync settings that the engine has: WAL, FULL."""

from __future__ import annotations

import importlib.metadata
import json
import sqlite3
import threading
import time
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PEERS", "bare_commits", "check_dbos", "log_dbos", "require_synced", "version"]

_FULL = 2  # what `PRAGMA synchronous` says of FULL


def version(package: str) -> str | None:
    """Return the version of a package, `None` if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def require_synced(execute: Callable[[str], Any]) -> None:
    """Check that a connection of a peer writes ahead, and syncs each commit, as ours does.

    `execute` runs a statement on that connection and returns its cursor.
    """
    (mode,) = execute("PRAGMA journal_mode").fetchone()
    (level,) = execute("PRAGMA synchronous").fetchone()
    assert (mode, level) == ("wal", _FULL), f"journal_mode={mode}, synchronous={level}"


def log_dbos(file: Path) -> None:
    """Make a file for DBOS that has a write-ahead log; by itself, it uses a rollback journal."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def check_dbos() -> None:
    """Check how DBOS writes, once it was launched."""
    engine = import_module("dbos._dbos")._get_dbos_instance()._sys_db.engine
    with engine.connect() as connection:
        require_synced(connection.exec_driver_sql)


def bare_commits(folder: Path, count: int) -> list[float]:
    """Measure bare synced commits of one small row, in seconds each."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body BLOB)")
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO messages (body) VALUES (?)", (b"x" * 30,))
        connection.execute("COMMIT")
        times.append(time.perf_counter() - begin)
    connection.close()
    return sorted(times)


def _huey(folder: Path) -> Callable[[Any], None]:
    huey = import_module("huey").SqliteHuey(filename=str(folder / "huey.db"), fsync=True)
    require_synced(huey.storage.conn.execute)

    @huey.task()  # type: ignore[untyped-decorator]
    def work(message: Any) -> None:
        """Do nothing: only the enqueue is measured."""

    def push(message: Any) -> None:
        work(message)

    return push


def _persist_queue(folder: Path) -> Callable[[Any], None]:
    queue = import_module("persistqueue").SQLiteQueue(
        str(folder / "persist"), auto_commit=True, multithreading=True
    )
    for name in ("_conn", "_putter"):
        connection = getattr(queue, name, None)
        if connection is not None:
            connection.execute("PRAGMA synchronous = FULL")
            require_synced(connection.execute)

    def push(message: Any) -> None:
        queue.put(message)

    return push


def _litequeue(folder: Path) -> Callable[[Any], None]:
    open_queue = import_module("litequeue").LiteQueue
    local = threading.local()

    def push(message: Any) -> None:
        queue = getattr(local, "queue", None)
        if queue is None:
            queue = local.queue = open_queue(str(folder / "lite.db"))
            queue.conn.execute("PRAGMA synchronous = FULL")
            require_synced(queue.conn.execute)
        queue.put(json.dumps(message))

    return push


def _dbos(folder: Path) -> Callable[[Any], None]:
    dbos = import_module("dbos")
    log_dbos(folder / "dbos.db")
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
            "run_admin_server": False,
        }
    )

    @dbos.DBOS.workflow()  # type: ignore[untyped-decorator]
    def work(message: Any) -> None:
        """Do nothing: only the enqueue is measured."""

    dbos.DBOS.launch()
    check_dbos()
    dbos.DBOS.register_queue("bench", polling_interval_sec=3_600.0)

    def push(message: Any) -> None:
        dbos.DBOS.enqueue_workflow("bench", work, message)

    return push


PEERS: dict[str, tuple[str, Callable[[Path], Callable[[Any], None]]]] = {
    "huey SqliteHuey": ("huey", _huey),
    "persist-queue": ("persist-queue", _persist_queue),
    "litequeue": ("litequeue", _litequeue),
    "DBOS": ("dbos", _dbos),
}
"""By label: the package, and what opens a queue in a folder and gives its durable enqueue."""
