"""A server that is away for a while: what an engine with work to do writes into the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import OutcomeUnknown, StoreRefused
from actorflow.runtime.errors import ActorflowError
from tests.cluster.processes import until
from tests.servers import start_nats, start_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


LONG_FLOW = """
sequence
  alice 'x'
  sleep '0.5s'
  alice 'y'
"""


@pytest.mark.timeout(240)
def test_c27_workers_and_clients_log_an_outage_that_outlasts_their_leases_once_each(
    own_server: tuple[PostgresServer | NatsServer, str], caplog: pytest.LogCaptureFixture
) -> None:
    """All loops of each engine meet it: commits, reads, check-ins, timers, tasks and callers."""
    server, url = own_server
    url += f"{'&' if '?' in url else '?'}lease=2"
    ended = Event()

    def again_and_again(call: Callable[[], object]) -> None:
        while not ended.wait(0.05):
            with suppress(ActorflowError, TimeoutError):  # what it gets is not the point
                call()

    with (
        af.Engine(url) as first,
        af.Engine(url) as second,
        af.Engine(url, worker=False) as client,
        ThreadPoolExecutor() as callers,
    ):
        sums = []
        for engine in (first, second):
            engine.tasker("alice", lambda task: task.execution)
            sums.append(engine.worker("sum", lambda batch, state: state + sum(batch), state=0))
            engine.resume()
        sums[0].push_block(1, timeout=60)
        flows = [client.launch(LONG_FLOW) for _ in range(20)]
        stores: list[Any] = [engine.parts.store for engine in (first, second)]
        until(lambda: all(store.owned() for store in stores), "they do not share")
        caplog.clear()
        begin = monotonic()
        server.stop()
        calls: list[Callable[[], object]] = [
            lambda: sums[0].push_block(1, timeout=1),
            lambda: sums[1].push(1),
            lambda: client.launch(LONG_FLOW),
            lambda: client.execution(flows[0]),
            lambda: first.result(flows[1], timeout=1),
            lambda: second.upkeep.purge(before=0.0),
        ]
        waiting = [callers.submit(again_and_again, call) for call in calls]
        until(lambda: not any(store.owned() for store in stores), "a lease has not ended")
        until(lambda: caplog.text.count("the store fails") >= 3, "one of them has not noticed")
        server.start()
        for exid in flows:
            client.wait(exid, timeout=60)
        until(lambda: caplog.text.count("works again") >= 3, "the end is not logged")
        minutes = 1 + (monotonic() - begin) // 60
        ended.set()
        for each in waiting:
            each.result()
    lines = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
    begun = [line for line in lines if "the store fails; trying again" in line]
    over = [line for line in lines if "the store works again" in line and "after_s=" in line]
    others = [line for line in lines if line not in begun and line not in over]
    assert len(begun) <= 3 * minutes, lines
    assert len(over) <= len(begun), lines
    # Tasks whose worker lost its lease are not part of the outage.
    assert [line for line in others if "the worker of a task is gone" not in line] == []
    assert not any(record.exc_info for record in caplog.records)
    assert "Traceback" not in caplog.text
