"""Connections are ended by the server all the time, while two engines work and a client sends."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import actorflow as af
from actorflow.engine.errors import OutcomeUnknown, StoreRefused
from actorflow.engine.stores.opening import open_store
from tests.cluster.processes import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Postgres

LOSSES = 60  # connections
FLOW = """
sequence
  task 'alice'
  sleep '0.1s'
  task 'alice'
"""
_SOME = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND application_name = 'actorflow' AND random() < 0.5
"""


def setup(engine: af.Engine) -> Any:
    engine.tasker("alice", lambda task: {"n": task.payload["n"] + 1}, concurrency=4)
    return engine.worker("ledger", lambda batch, state: state + batch, state=[])


def insist(call: Callable[[], Any]) -> Any:
    """Repeat a call that the store refuses."""
    pause = threading.Event()
    for _ in range(1_000):
        try:
            return call()
        except (StoreRefused, OutcomeUnknown):  # the id or key makes a repetition count once
            pause.wait(0.01)
    pytest.fail("the store refuses everything")


@pytest.mark.timeout(180)
def test_c26_nothing_is_lost_or_done_twice_while_the_server_ends_connections(
    postgres: Postgres,
) -> None:
    url = postgres.empty_url("losses", lease=6, poll=0.2)
    over = threading.Event()
    ended: list[int] = []
    names: list[str] = []

    def end_some() -> None:
        pauses = random.Random(7)
        with psycopg.connect(postgres.server.url, autocommit=True) as connection:
            while not over.wait(pauses.uniform(0.0, 0.06)):
                ended.append(len(connection.execute(_SOME).fetchall()))

    with ExitStack() as stack:
        for name in "ab":
            engine = stack.enter_context(af.Engine(open_store(url, name=name)))
            setup(engine)
            engine.resume()
        client = stack.enter_context(af.Engine(url, worker=False))
        ref = setup(client)
        ending = threading.Thread(target=end_some)
        ending.start()
        try:
            while sum(ended) < LOSSES:
                number = len(names)
                names.append(f"f{number}")
                insist(lambda: client.launch(FLOW, payload={"n": 0}, id=names[-1]))
                insist(lambda: client.send("ledger", number, kind="worker", key=names[-1]))  # noqa: B023 - now
        finally:
            over.set()
            ending.join()
        results = [client.result(name, timeout=PATIENCE)["n"] for name in names]
        assert results == [2] * len(names)
        until(lambda: len(ref.state()) >= len(names), "messages were lost")
        assert ref.state() == list(range(len(names))), "in their order, each once"
