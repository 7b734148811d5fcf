"""A server that is frozen stays connected and answers nothing: nobody waits for it forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.engine.errors import OutcomeUnknown
from actorflow.engine.stores.postgres import connections
from actorflow.engine.stores.postgres import store as stores
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.protocol import Change, NewMessage
from tests.cluster.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres


@pytest.fixture
def network(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy(postgres.server.port) as made:
        yield made


@pytest.fixture
def url(network: Proxy, postgres: Postgres) -> str:
    return postgres.empty_url("silence").replace(f":{postgres.server.port}/", f":{network.port}/")


@pytest.mark.parametrize("worker", [True, False])
def test_c26_an_engine_can_be_closed_whose_server_is_frozen(
    network: Proxy, url: str, monkeypatch: pytest.MonkeyPatch, *, worker: bool
) -> None:
    monkeypatch.setattr(stores, "_CLOSING", 0.5)
    engine = af.Engine(url, worker=worker)
    if worker:
        engine.resume()
    engine.launch("stall _")
    network.cut()
    engine.close(timeout=0.5)


def test_c26_a_commit_that_is_not_answered_is_found_out_about(
    network: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    store.commit([Change("e", messages=[NewMessage("e", "message", b"before")])])
    monkeypatch.setattr(connections, "_SILENCE", 0.3)
    network.cut()
    change = Change("e", messages=[NewMessage("e", "message", b"once")])
    with pytest.raises(OutcomeUnknown, match=r"not known yet.*no answer from the server"):
        store.commit([change])
    network.mend(resumes=True)
    store.commit([change])
    assert change.committed
    assert [row.body for row in store.pending(execution="e").rows] == [b"before", b"once"]
    store.close()
