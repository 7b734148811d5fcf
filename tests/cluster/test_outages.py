"""A server that is away for a while: what an engine with work to do writes into the log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.engine.errors import OutcomeUnknown, StoreRefused
from tests.cluster.processes import until
from tests.servers import start_nats, start_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.engine.stores.nats.server import NatsServer
    from actorflow.engine.stores.postgres.server import PostgresServer


@pytest.fixture(params=["postgres", "nats"])
def own_server(request: pytest.FixtureRequest) -> Iterator[tuple[PostgresServer | NatsServer, str]]:
    """Start a server that may be stopped; return it with the address of a store."""
    if request.param == "nats":
        with start_nats() as nats:
            yield nats, f"{nats.url}/orders?timeout=0.5"
    else:
        with start_postgres() as postgres:
            yield postgres, postgres.url


def test_c27_an_outage_has_two_log_lines_and_no_traceback(
    own_server: tuple[PostgresServer | NatsServer, str], caplog: pytest.LogCaptureFixture
) -> None:
    server, url = own_server
    with af.Engine(url) as engine:
        worker = engine.worker("sum", lambda batch, state: state + sum(batch), state=0)
        worker.push_block(1)
        flows = [engine.launch("sequence\n  sleep '0.2s'\n  sleep '0.2s'") for _ in range(5)]
        caplog.clear()
        server.stop()

        def refused() -> bool:
            with suppress(StoreRefused, OutcomeUnknown):
                worker.push_block(1)
            return engine.parts.writer.refused >= 5

        until(refused, "nothing is refused")
        server.start()
        for exid in flows:
            engine.wait(exid, timeout=60)
        until(lambda: "works again" in caplog.text, "the end is not logged")
    lines = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    assert len(lines) == 2, lines
    assert "the store fails; trying again" in lines[0]
    assert "the store works again" in lines[1]
    assert "Traceback" not in caplog.text
