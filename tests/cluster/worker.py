"""A worker as a process of its own, which tests kill and stop: `worker.py URL NAME DIRECTORY`.

The module that APP names has a `setup(engine)`; else it registers what most of the tests use.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from actorflow.application import Engine
from actorflow.engine import clock
from actorflow.engine.stores.opening import open_store


def setup(engine: Engine, name: str, directory: Path) -> None:
    """Register what the tests use."""

    def append(batch: list[Any], state: list[Any]) -> list[Any]:
        if "wait" in batch and not (directory / "go").exists():
            (directory / f"begun-{name}").touch()
            while not (directory / "go").exists():
                time.sleep(0.01)  # stopped by the test meanwhile, perhaps for a long time
        return [*state, *([name, each] for each in batch)]

    def work(task: Any) -> dict[str, Any]:
        with (directory / "effects").open("a") as file:  # one line is one write
            file.write(f"{task.id} {name}\n")
        return {**task.payload, "n": task.payload.get("n", 0) + 1}

    def hang(_task: Any) -> None:
        (directory / f"hanging-{name}").touch()
        threading.Event().wait()  # until it is killed

    engine.worker("ledger", append, state=[])
    engine.tasker("alice", work, concurrency=4)
    engine.parts.tasks.register("hang", hang, {})


def set_clock(skew: float) -> None:
    """Let the machine's clock be wrong, for this process."""
    right = time.time
    clock.WALL._wall = time.time = lambda: right() + skew
    clock.WALL._offset += skew


def main() -> None:
    set_clock(float(os.environ.get("SKEW", "0")))
    url, name, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with Engine(open_store(url, name=name)) as engine:
        if app := os.environ.get("APP"):
            importlib.import_module(app).setup(engine)
        else:
            setup(engine, name, directory)
        engine.resume()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()


if __name__ == "__main__":
    main()
