"""The same random history of calls has the same answers on every store."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.nats.store import NatsStore
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    DeadRow,
    ExecutionRow,
    HistoryRow,
    MessageRow,
)
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.testing.stores.comparison import read_all
from actorflow.testing.stores.machine import COMMITS, NAMES, planned, settle
from actorflow.testing.stores.model import Model
from tests.cluster.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.engine.stores.protocol import Change, Store
    from tests.servers import Nats, Postgres


class Answers:
    """What a store answers, with numbers in place of ids and revisions, which are its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._model = Model(dict(store.owned()), store.traits.partitions)
        self._numbers: dict[Any, int] = {}

    def commit(self, plans: list[Any]) -> list[Any]:
        """Make a commit; return what the store said."""
        changes = planned(self._model, plans)
        try:
            settle(self._store.commit(changes))
        except StoreConflict:
            return ["conflict"]
        for change in changes:
            self._model.apply(change)
        return [self._told(change) for change in changes]

    def _told(self, change: Change) -> Any:
        rows = [self._plain(row) for row in (*change.rows, *change.resulting_messages)]
        return change.committed, change.refusal, change.revision != NEVER_RUN, rows

    def read(self, before: float, limit: int) -> list[Any]:
        """Return what all calls that read return."""
        store = self._store
        found: list[Any] = [
            read_all(store.listing, limit),
            read_all(store.dead, limit),
            store.due(1_000),
            sorted(read_all(store.watches, limit)),
            store.counts(NAMES),
        ]
        for name in NAMES:
            found += [
                store.execution(name),
                store.tags(name),
                read_all(lambda name=name, **options: store.history(name, **options), limit),
            ]
            for call in (store.pending, store.open, store.dead):
                found.append(read_all(call, limit, execution=name))
        found.append(store.purge(before=before, keys_before=before, limit=1_000))
        self._model.forget(
            [
                name
                for name in NAMES
                if name in self._model.executions and store.execution(name) is None
            ]
        )
        self._model.forget_keys(before)
        return [
            [self._plain(row) for row in answer] if type(answer) is list else self._plain(answer)
            for answer in found
        ]

    def _plain(self, row: Any) -> Any:
        if isinstance(row, ExecutionRow):
            return row._replace(revision=row.revision != NEVER_RUN)
        if isinstance(row, (MessageRow, DeadRow, HistoryRow)) or hasattr(row, "at"):
            key = type(row) is HistoryRow, row.id
            return row._replace(id=self._numbers.setdefault(key, len(self._numbers)))
        return row


@pytest.fixture
def makers(postgres: Postgres, nats: Nats, tmp_path: Path) -> dict[str, Callable[[], Store]]:
    """Return what makes an empty store of each type, which owns all of its partitions."""

    def owner(store: Any) -> Store:
        store.join()
        until(lambda: len(store.owned()) == store.traits.partitions, "it owns everything")
        return store  # type: ignore[no-any-return]

    numbers = iter(range(1_000_000))
    return {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / f"{next(numbers)}.db"),
        "postgres": lambda: owner(PostgresStore(postgres.empty_url("same"))),
        "nats": lambda: owner(NatsStore(nats.new_url())),
    }


def compare(makers: dict[str, Callable[[], Store]], batches: list[Any], before: float) -> None:
    """Make the commits in every store, and compare all answers."""
    # Only stores that several engines share know epochs; what they refuse is in their own tests.
    batches = [
        [(name, at, [each for each in steps if each[0] != "epoch"]) for name, at, steps in plans]
        for plans in batches
    ]
    with ExitStack() as stack:
        stores = {}
        for name, make in makers.items():
            stores[name] = make()
            stack.callback(stores[name].close)
        sides = {name: Answers(store) for name, store in stores.items()}
        for plans in batches:
            told = {name: side.commit(plans) for name, side in sides.items()}
            for name, answer in told.items():
                assert answer == told["memory"], f"{name} and memory differ after {plans}"
        found = {name: side.read(before, 2) for name, side in sides.items()}
        for name, rows in found.items():
            for one, other in zip(rows, found["memory"], strict=True):
                assert one == other, f"{name} and memory differ"


QUIET: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # shrinking would make hundreds of streams and schemas
}


@pytest.mark.timeout(120)
def test_all_stores_answer_the_same(makers: dict[str, Callable[[], Store]]) -> None:
    given(COMMITS)(settings(max_examples=6, derandomize=True, **QUIET)(
        lambda batches: compare(makers, batches, 5.0)
    ))()  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_all_stores_answer_the_same_for_long(makers: dict[str, Callable[[], Store]]) -> None:
    given(COMMITS)(settings(max_examples=300, **QUIET)(
        lambda batches: compare(makers, batches, 5.0)
    ))()  # fmt: skip
