"""The journal of epochs: the members that have committed in each epoch of a partition."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import actorflow as af
from actorflow.cluster.ring import KEPT_EPOCHS, CheckIn, EpochJournal, Holding, journal_problems
from actorflow.engine.operations.verify import verify_store
from actorflow.engine.stores.nats.store import NatsStore
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.postgres.copies import adopt
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.protocol import Change, NewExecution, partition_of
from tests.cluster.processes import PATIENCE, until, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.servers import Nats, Postgres

FLOW = "sequence\n  alice 'x'\n  sleep '0.2s'\n  alice 'x'\n"


def found(store: Any) -> list[str]:
    return [str(problem) for problem in verify_store(store)]


def take(store: Any, *numbers: int) -> None:
    """Own partitions, with a lease that is long over before anybody looks."""
    store.check_in(CheckIn(store.name, 0.000_001, take=numbers))


def commit(store: Any, name: str, epoch: int) -> Change:
    change = Change(name, creates=(NewExecution(name, "sum"),), epoch=epoch)
    store.commit([change])
    return change


def epoch_of(store: Any, partition: int) -> int:
    epoch: int = store.journal()[1][partition].epoch
    return epoch


def sum_of_epochs(store: Any) -> int:
    return sum(each.epoch for each in store.journal()[1])


def has_moved_on(store: Any, before: int) -> bool:
    return sum_of_epochs(store) > before


# What it says.


def test_an_epoch_above_the_register_and_one_of_somebody_else_are_reported() -> None:
    journal = EpochJournal([(0, 3, "a"), (1, 1, "b"), (1, 2, "c"), (5, 1, "d")])
    problems = list(journal_problems(journal.entries(), [Holding("a", 2), Holding("e", 2)]))
    assert problems == [
        (0, "a committed in epoch 3; the last one is 2"),
        (1, "c committed in epoch 2, which e owns"),
        (5, "d committed in a partition that is not there"),
    ]


def test_the_oldest_epochs_are_forgotten() -> None:
    journal = EpochJournal()
    for epoch in range(1, KEPT_EPOCHS + 11):
        journal.note(0, epoch, "a")
    assert [entry.epoch for entry in journal.entries()] == list(range(11, KEPT_EPOCHS + 11))


# On each carrier.


@pytest.fixture(params=["memory", "postgres", "nats"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://journal"
    if request.param == "nats":
        broker: Nats = request.getfixturevalue("nats")
        return broker.new_url()
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_url()


def test_each_owner_is_noted_once_for_each_epoch(url: str) -> None:
    first, second = open_store(url), open_store(url)
    partition = partition_of("x", first.traits.partitions)
    for owner in (first, second):
        take(owner, partition)
        epoch = epoch_of(owner, partition)
        for _ in range(3):
            assert commit(owner, "x", epoch).committed
    entries, _ = second.journal()  # type: ignore[attr-defined]
    noted = [(entry.partition, entry.epoch) for entry in entries]
    assert noted == [(partition, 1), (partition, 2)]
    assert entries[1].member == second.name  # type: ignore[attr-defined]
    assert found(second) == []
    assert commit(first, "x", 1).refusal is not None
    assert found(first) == []
    first.close()
    second.close()


def test_a_second_owner_of_an_epoch_is_reported(url: str) -> None:
    """Two members that believe in the same epoch: the fence lets both commit, and each is noted."""
    first, forger = open_store(url), open_store(url)
    partition = partition_of("x", first.traits.partitions)
    take(first, partition)
    assert commit(first, "x", 1).committed
    assert found(first) == []
    assert commit(forger, "x", 1).committed
    assert len(problems := found(first)) == 1
    assert problems[0].startswith(f"epochs: {partition}: ")
    assert problems[0].endswith(" both committed in epoch 1")
    first.close()
    forger.close()


@pytest.mark.timeout(240)
def test_c10_two_workers_that_fight_for_partitions_never_share_an_epoch(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    """Each stands still in turn for longer than its lease, and goes on as if nothing were."""
    url = store_url(lease=2)
    with (
        workers(url, tmp_path, "a", "b") as fighters,
        af.Engine(url, worker=False) as client,
    ):
        store: Any = client.parts.store
        exids = []
        for stopped in fighters * 2:
            exids += [client.launch(FLOW) for _ in range(20)]
            before = sum_of_epochs(store)
            stopped.send(signal.SIGSTOP)
            until(
                partial(has_moved_on, store, before),
                "nobody has taken over",
            )
            stopped.send(signal.SIGCONT)
        for exid in exids:
            client.result(exid, timeout=PATIENCE)
        entries, _ = store.journal()
        assert {entry.member.rpartition("-")[0] for entry in entries} >= {"a", "b"}
        assert found(store) == []


# Postgres.


def test_the_journal_on_postgres_is_kept_short(postgres: Postgres) -> None:
    store = PostgresStore(postgres.new_url())
    for _ in range(3):
        take(store, 0)
    with psycopg.connect(postgres.server.url) as connection:
        text = "INSERT INTO {s}.journal SELECT 0, n, 'old' FROM generate_series(1, 3) AS n"
        connection.execute(qualified(text, store.address.schema))
    for _ in range(KEPT_EPOCHS - 1):
        take(store, 0)
    assert [entry.epoch for entry in store.journal()[0]] == [3]
    store.close()


def test_a_copy_on_postgres_begins_a_journal_of_its_own(postgres: Postgres) -> None:
    url = postgres.new_url()
    store = PostgresStore(url)
    partition = partition_of("x", store.traits.partitions)
    take(store, partition)
    assert commit(store, "x", 1).committed
    store.close()
    with psycopg.connect(postgres.server.url) as connection:
        adopt(connection, store.address.schema, as_copy=True, certain=True)
    copy = PostgresStore(url)
    assert copy.journal()[0] == []
    take(copy, partition)
    assert commit(copy, "x", epoch_of(copy, partition)).committed
    assert found(copy) == []
    copy.close()


def test_a_snapshot_on_nats_keeps_the_journal(nats: Nats) -> None:
    url = nats.new_url()
    store = NatsStore(url)
    partition = partition_of("x", store.traits.partitions)
    take(store, partition)
    assert commit(store, "x", 1).committed
    store._log.connection.call(store._write_snapshot())
    store._log.connection.call(store._write_snapshot())
    store.close()
    again = NatsStore(url)
    assert [entry.epoch for entry in again.journal()[0]] == [1]
    assert found(again) == []
    again.close()
