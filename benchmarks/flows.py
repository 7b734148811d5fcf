"""How fast flows are, beside flor's figures from the same class of machine.

`python benchmarks/flows.py` prints a table; `--markdown` also writes it into RESULTS.md between its
markers; `--quick` does less. Rates are per second of the wall clock and per second of CPU: on a
machine that others use too, only the latter means something.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow.flows.language.parser import parse
from benchmarks.flows_core import PUSHES, measure, push_flow
from benchmarks.harness.machine import describe, resident
from benchmarks.harness.tables import piped, put_between_markers
from benchmarks.peers.engine import bare_commits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.tables import Rows

SEQUENCE = "sequence\n  task 'alice' 'stage a'\n  task 'bob' 'stage b'"
ROUNDS = 3
TURNS = 20
IN_FLIGHT = 50


def in_memory() -> Iterator[list[str]]:
    """Measure the pure core: messages per second, and what a big payload costs."""
    big = {"l": [], "big": [{"id": i, "name": f"object {i}"} for i in range(10_000)]}
    tree = push_flow(PUSHES)
    small_rate = max(_rate(tree, {"l": []}) for _ in range(ROUNDS))
    big_rate = max(_rate(tree, big) for _ in range(ROUNDS))
    yield [
        "messages in memory, `push f.l` x 1,000",
        f"{small_rate:,.0f} /CPU s",
        "3,604 /s",
        ">= 60,000 /s",
    ]
    yield [
        "the same, payload of 10,000 objects: slower by",
        f"{small_rate / big_rate:.2f} x",
        "",
        "< 3 x",
    ]


def _rate(tree: list[Any], payload: dict[str, Any]) -> float:
    messages, seconds, _ = measure(tree, payload)
    return messages / seconds


def parsing() -> Iterator[list[str]]:
    """Measure the parser: time for each line, from 100 lines to 10,000."""
    for lines in (100, 2_500, 10_000):
        text = "sequence\n" + "".join(
            f"  task 'alice' \"stage $(f.x)\" n: {number}\n" for number in range(lines)
        )
        started = time.process_time()
        parse(text)
        taken = time.process_time() - started
        flor = "24 s" if lines == 2_500 else ""
        goal = "< 2 s" if lines == 10_000 else ""
        yield [
            f"parse {lines:,} lines",
            f"{taken:.3f} CPU s ({taken / lines * 1e6:.0f} us/line)",
            flor,
            goal,
        ]


def sequences(count: int) -> Iterator[list[str]]:
    """Measure two-task sequences to their end, on a file, every commit synced."""
    for history in (True, False):
        best: tuple[float, float, float] = (0.0, 0.0, 0.0)
        for _ in range(ROUNDS):
            with (
                tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
                af.Engine(f"{folder}/flows.db", history=history) as engine,
            ):
                engine.tasker("alice", _at_once)
                engine.tasker("bob", _at_once)
                gc.collect()
                wall, cpu = time.perf_counter(), time.process_time()
                for exid in engine.flows.launch_many(SEQUENCE, ({"n": n} for n in range(count))):
                    assert engine.wait(exid, 300).status == "done"
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                commits = engine.statistics().commits
            best = max(best, (count / wall, count / cpu, commits))
        title = "two-task sequences to the end, synced SQLite file"
        yield [
            title if history else f"{title}, `history=False`",
            f"{best[0]:,.0f} /s ({best[1]:,.0f} /CPU s; {best[2]:,.0f} commits for {count:,})",
            "19-26 /s" if history else "",
            ">= 1,000 /s" if history else "",
        ]


def some_in_flight(count: int) -> Iterator[list[str]]:
    """Measure two-task sequences that one thread launches one by one, and waits for in turn."""
    best: tuple[float, float, float] = (0.0, 0.0, 0.0)
    for _ in range(ROUNDS):
        with (
            tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
            af.Engine(f"{folder}/flows.db") as engine,
        ):
            engine.tasker("alice", _at_once)
            engine.tasker("bob", _at_once)
            engine.wait(engine.launch(SEQUENCE), 60)
            gc.collect()
            before = engine.statistics().commits
            launched: deque[str] = deque()
            wall, cpu = time.perf_counter(), time.process_time()
            for number in range(count):
                if len(launched) == IN_FLIGHT:
                    engine.wait(launched.popleft(), 60)
                launched.append(engine.launch(SEQUENCE, payload={"n": number}))
            while launched:
                assert engine.wait(launched.popleft(), 60).status == "done"
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            each = (engine.statistics().commits - before) / count
        best = max(best, (count / wall, count / cpu, each))
    yield [
        f"two-task sequences launched one by one, {IN_FLIGHT} in flight, synced SQLite file",
        f"{best[0]:,.0f} /s ({best[1]:,.0f} /CPU s; {best[2]:.1f} commits each)",
        "",
        "",
    ]


def one_in_flight(count: int) -> Iterator[list[str]]:
    """Measure two-task sequences one after the other, against bare commits in the same folder.

    Each takes three commits: the launch with the first run, and each answer with its run.

    They take turns, and count by their medians: what else the machine does falls on both.
    """
    bare: list[float] = []
    flows: list[float] = []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        af.Engine(f"{folder}/flows.db") as engine,
    ):
        engine.tasker("alice", _at_once)
        engine.tasker("bob", _at_once)
        engine.wait(engine.launch(SEQUENCE), 60)
        before = engine.statistics().commits
        for turn in range(TURNS):
            apart = Path(folder) / str(turn)
            apart.mkdir()
            bare += bare_commits(apart, count // TURNS)
            for number in range(count // TURNS):
                began = time.perf_counter()
                exid = engine.launch(SEQUENCE, payload={"n": number})
                assert engine.wait(exid, 60).status == "done"
                flows.append(time.perf_counter() - began)
        each = (engine.statistics().commits - before) / len(flows)
    flow, commit = statistics.median(flows), statistics.median(bare)
    yield [
        "two-task sequences one after the other / bare synced commits",
        f"{commit / flow:.2f} ({1 / flow:,.0f} /s / {1 / commit:,.0f} /s; {each:.1f} commits each)",
        "",
        ">= 0.2",
    ]


def _at_once(_task: Any) -> None:
    """Answer."""


class _Held:
    """A tasker that holds everything."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self.all = threading.Event()

    def __call__(self, _task: Any) -> Any:
        with self._lock:
            self._left -= 1
            if not self._left:
                self.all.set()
        return af.HOLD


def waiting(count: int) -> Iterator[list[str]]:
    """Measure executions that wait on a held task: memory, and finding them again."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        where = f"{folder}/waiting.db"
        held = _Held(count)
        with af.Engine(where) as engine:
            engine.tasker("desk", held)
            engine.wait(engine.launch("1"), 60)
            before = _memory()
            engine.flows.launch_many("desk 'x'", ({"n": n} for n in range(count)))
            assert held.all.wait(600)
            after = _memory()
        text = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, __file__, "--reopen", where, str(count)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        each, wall, cpu = json.loads(text.splitlines()[-1])
    yield [
        f"{count:,} executions waiting on a held task: memory each, found again in a new process",
        f"{each / 1000:.1f} kB",
        "",
        "< 4 kB",
    ]
    yield [
        "the same, in the process that launched them",
        f"{(after - before) / count / 1000:.1f} kB",
        "",
        "",
    ]
    yield [
        f"{count:,} found again after a restart, tasks handed out again",
        f"{wall:.2f} s ({cpu:.2f} CPU s)",
        "",
        "< 5 s",
    ]


def reopen(where: str, count: int) -> None:
    """Open a store in which executions wait, and print what that cost."""
    with af.Engine(":memory:") as other:  # everything is imported before the clock starts
        other.tasker("alice", _at_once)
        other.wait(other.launch(SEQUENCE.replace("bob", "alice")), 60)
    again = _Held(count)
    before = _memory()
    wall, cpu = time.perf_counter(), time.process_time()
    with af.Engine(where) as engine:
        engine.tasker("desk", again)
        engine.resume()
        assert again.all.wait(600)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps([(_memory() - before) / count, wall, cpu]))


def _memory() -> int:
    """Return the resident memory of the process, in bytes."""
    gc.collect()
    return resident()


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="write RESULTS.md")
    parser.add_argument("--quick", action="store_true", help="fewer executions")
    parser.add_argument("--reopen", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reopen:
        reopen(options.reopen[0], int(options.reopen[1]))
        return
    count = 500 if options.quick else 3_000
    many = 1_000 if options.quick else 10_000
    rows = [["", "actorflow", "flor", "goal"]]
    parts = (
        waiting(many), in_memory(), parsing(),
        sequences(count), some_in_flight(count), one_in_flight(count),
    )  # fmt: skip
    for part in parts:
        for row in part:
            rows.append(row)
            print(" | ".join(row), flush=True)
    if options.markdown:
        _write(rows)


def _write(rows: Rows) -> None:
    facts = "\n".join(f"- {name}: {value}" for name, value in describe().items())
    page = Path(__file__).parent / "RESULTS.md"
    put_between_markers(page, f"## Flows\n\n{facts}\n\n{piped(rows)}", "flows")


if __name__ == "__main__":
    main()
