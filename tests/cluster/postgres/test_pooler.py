"""Engines on Postgres behind a pooler in transaction mode: nothing depends on a session.

No wheel has pgbouncer, so the tests have a small pooler of their own, which never gives a client
the same connection for two transactions if it can help it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.testing.stores import check_store
from tests.cluster.postgres.pooler import Pooler
from tests.cluster.postgres.reused import emptied, reopened

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


def through(pooler: Pooler, postgres: Postgres, url: str) -> str:
    """Return an address as it is behind the pooler."""
    pooled = url.replace(f":{postgres.server.port}/", f":{pooler.port}/")
    return f"{pooled}&prepare=off&listen=off&poll=0.1"


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
