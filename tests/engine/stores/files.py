"""Files for tests of the store: filled, crashed, looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    NewDead,
    NewMessage,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.engine.stores.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[3]


PATIENCE = 50.0


def full(number: int) -> Change:
    """Return a change that puts something into every table."""
    name = f"execution-{number}"
    return Change(
        name, kind="k", expected=NEVER_RUN, state=b"state" * 20, at=1.0,
        messages=[NewMessage(name, "message", b"body" * 20, "key")],
        timers=[TimerRow(name, "t", 5.0, b"tick" * 10)],
        tasks=[TaskRow(f"task-{number}", name, "tasker", b"work")],
        watches=[WatchRow(name, "w", "k", b"watch")],
        history=[b"past" * 10],
        dead=[NewDead(None, name, "message", b"dead", "error")],
    )  # fmt: skip


def filled(path: Path, count: int = 50) -> Path:
    store = SqliteStore(path, durability="off")
    store.commit([full(number) for number in range(count)])
    store.close()
    return path


def crashed(path: Path, count: int = 5) -> Path:
    """Leave a store as a process that was killed does."""
    script = (
        "import os, signal, sys\n"
        "from tests.engine.stores.files import SqliteStore, full\n"
        "store = SqliteStore(sys.argv[1], durability='off')\n"
        "store.commit([full(number) for number in range(int(sys.argv[2]))])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = python(script, str(path), str(count))
    assert done.returncode == -signal.SIGKILL, done.stderr
    return path


def python(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


def contents(path: Path) -> list[Any]:
    store = SqliteStore(path)
    try:
        return [each for each in store.snapshot() if each[0] != "meta"]
    finally:
        store.close()


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files of a folder, but for locks: their bytes and when they were changed."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
        if path.suffix != ".lock"
    }
