"""Engines on Postgres behind a pooler in transaction mode: nothing depends on a session.

No wheel has pgbouncer, so the tests have a small pooler of their own, which never gives a client
the same connection for two transactions if it can help it.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import actorflow as af
from actorflow.engine.stores.postgres import notification_listener
from actorflow.engine.stores.postgres.connections import PostgresAddress
from actorflow.engine.stores.postgres.notices import hint_notice
from actorflow.runtime.telemetry.outages import Outage
from actorflow.testing.stores import check_store
from tests.cluster.postgres.pooler import Pooler
from tests.cluster.postgres.reused import emptied, reopened
from tests.cluster.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Postgres

PATIENCE = 60.0
FLOW = """
sequence
  task 'alice'
  sleep '0.1s'
  task 'alice'
"""


@pytest.fixture
def pooler(postgres: Postgres) -> Iterator[Pooler]:
    with Pooler(postgres.server.port) as made:
        yield made


def through(pooler: Pooler, postgres: Postgres, url: str, listen: str = "off") -> str:
    """Return an address as it is behind the pooler."""
    pooled = url.replace(f":{postgres.server.port}/", f":{pooler.port}/")
    return f"{pooled}&prepare=off&listen={listen}&poll=0.1"


def test_a_store_behind_a_pooler_keeps_every_promise(pooler: Pooler, postgres: Postgres) -> None:
    def pooled(url: str) -> str:
        return through(pooler, postgres, url)

    check_store(emptied(postgres, pooled), reopen=reopened(postgres, pooled), max_examples=2)
    assert pooler.clients > pooler.servers, "there were as many connections as clients"


@pytest.mark.timeout(120)
def test_c22_engines_behind_a_pooler_find_what_nobody_tells_them(
    pooler: Pooler, postgres: Postgres
) -> None:
    url = through(pooler, postgres, postgres.empty_url("pooled", lease=6))

    def work(task: Any) -> dict[str, int]:
        return {"n": task.payload["n"] + 1}

    with ExitStack() as stack:
        engines = [stack.enter_context(af.Engine(url)) for _ in range(2)]
        for engine in engines:
            engine.tasker("alice", work, concurrency=4)
            engine.worker("ledger", lambda batch, state: state + len(batch), state=0)
            engine.resume()
        client = stack.enter_context(af.Engine(url, worker=False))
        ref = client.worker("ledger", lambda batch, state: state + len(batch), state=0)
        exids = [client.launch(FLOW, payload={"n": 0}) for _ in range(6)]
        for number in range(2):
            ref.push_block("x", timeout=PATIENCE)
            assert ref.state() == number + 1
        assert [client.result(exid, timeout=PATIENCE)["n"] for exid in exids] == [2] * 6
    assert pooler.clients > pooler.servers, "there were as many connections as clients"


def test_an_engine_notices_that_no_notice_arrives_and_polls(
    pooler: Pooler,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such a pooler accepts LISTEN, so nothing fails: messages of others would wait for ever."""
    monkeypatch.setattr(notification_listener, "UNHEARD", 0.2)
    url = through(pooler, postgres, postgres.empty_url("deaf"), listen="on")
    with af.Engine(url) as worker, af.Engine(url, worker=False) as client:
        worker.tasker("alice", lambda _: {"done": True})
        worker.resume()
        assert client.result(client.launch("alice 'x'"), timeout=PATIENCE)["done"]
        until(lambda: "is there a pooler in transaction mode?" in caplog.text, "it was not noticed")


def test_notices_that_come_late_end_the_polling(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    address = PostgresAddress(postgres.empty_url("late", poll=0.05))
    heard: list[Any] = []
    listener = notification_listener.NotificationListener(
        address, heard.append, lambda: None, lambda: None,
        probe=lambda: True, outage=Outage(), unheard=0.0,
    )  # fmt: skip
    listener.start()
    try:
        until(lambda: listener.deaf, "silence was not noticed")
        with psycopg.connect(postgres.server.url, autocommit=True) as connection:
            connection.execute("SELECT pg_notify('late', %s)", (hint_notice("me", "you"),))
        until(lambda: not listener.deaf, "a notice was not heard")
    finally:
        listener.close()
    assert len(heard) == 1
    assert "notices arrive again" in caplog.text


def test_a_server_that_answers_is_not_taken_for_a_pooler(postgres: Postgres) -> None:
    heard = threading.Event()

    def probe() -> bool:
        with psycopg.connect(postgres.server.url, autocommit=True) as connection:
            connection.execute("SELECT pg_notify('hears', %s)", (hint_notice("me", "me"),))
        return True

    listener = notification_listener.NotificationListener(
        PostgresAddress(postgres.empty_url("hears")),
        lambda _: heard.set(), lambda: None, lambda: None, probe=probe, outage=Outage(),
    )  # fmt: skip
    listener.start()
    try:
        assert heard.wait(PATIENCE)
        assert not listener.deaf
    finally:
        listener.close()
