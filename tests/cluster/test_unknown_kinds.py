"""C16: messages to executions that no worker knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import actorflow as af
from actorflow.engine.stores.opening import open_store
from tests.cluster.processes import until

if TYPE_CHECKING:
    from actorflow.cluster.status import ClusterStatus
    from actorflow.engine.stores.postgres.store import PostgresStore
    from tests.servers import Nats, Postgres

NAMES = [f"ledger-{number}" for number in range(48)]  # so many that each engine gets some


@pytest.fixture(params=["postgres", "nats"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Return what names a store that is empty, on each carrier in turn."""
    if request.param == "nats":
        broker: Nats = request.getfixturevalue("nats")
        return broker.new_url()
    server: Postgres = request.getfixturevalue("postgres")
    return server.empty_url("unknown_kinds")


def append(batch: list[int], state: list[int]) -> list[int]:
    return state + batch


@pytest.mark.timeout(180)
def test_c16_what_nobody_knows_waits_visibly_and_is_found_when_one_joins_who_does(
    store_url: str,
) -> None:
    with af.Engine(store_url, worker=False) as client:

        def status() -> ClusterStatus:
            return cast("PostgresStore", client.parts.store).status()

        def done() -> set[Any]:
            rows = client.parts.store.executions(NAMES).values()
            return {row.id for row in rows if row.revision}

        ignorant = af.Engine(open_store(store_url, name="a"))
        try:
            ignorant.resume()
            for name in NAMES:
                client.send(name, 1, kind="worker")
            until(lambda: status().kinds == {"worker": len(NAMES)}, "it is not seen to wait")
            with af.Engine(open_store(store_url, name="b")) as knows:
                for name in NAMES:
                    knows.worker(name, append, state=[])
                knows.resume()
                until(lambda: bool(done()), "the engine that knows the kind finds nothing")
                ignorant.close()
                until(lambda: done() == set(NAMES), "what the other had is not found")
                until(lambda: not status().kinds, "it is still seen to wait")
        finally:
            ignorant.close()
