"""Workers as processes of their own on one server, killed and stopped while they work."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.engine.kind import decode_state
from actorflow.engine.stores.postgres.server import PostgresServer
from tests.cluster.nats.trio import Trio
from tests.cluster.processes import PATIENCE, until, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOW = """
sequence
  task 'alice'
  sleep '0.3s'
  task 'alice'
"""


def server_of(carrier: str) -> PostgresServer | Trio:
    """Start a server that may be killed; of three that replicate, the leader is."""
    return PostgresServer() if carrier == "postgres" else Trio()


def url_of(server: PostgresServer | Trio) -> str:
    """Return the address of the store on it."""
    return f"{server.url}{'&' if '?' in server.url else '?'}lease=2"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("carrier", ["postgres", "nats"])
def test_c09_executions_outlive_a_worker_and_then_the_server(tmp_path: Path, carrier: str) -> None:
    with (
        server_of(carrier) as server,
        ExitStack() as stack,
        workers(url_of(server), tmp_path, "a", "b", "c") as (one, *_rest),
        af.Engine(url_of(server), worker=False) as client,
    ):
        exids = [client.launch(FLOW, payload={"n": 0}) for _ in range(160)]
        one.kill()
        more = [client.launch(FLOW, payload={"n": 0}) for _ in range(40)]
        client.wait(exids[0], timeout=PATIENCE)
        server.kill()
        server.start()
        stack.enter_context(workers(url_of(server), tmp_path, "again"))
        for exid in [*exids, *more]:
            assert client.wait(exid, timeout=PATIENCE).status == "done"
            assert client.result(exid)["n"] == 2, "each of the two tasks counts once"


@pytest.mark.timeout(180)
def test_c10_a_stopped_worker_that_wakes_up_commits_nothing(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    url = store_url(lease=1.5)
    with (
        workers(url, tmp_path, "a") as (stopped,),
        af.Engine(url, worker=False) as client,
    ):
        client.send("ledger", "wait", kind="worker")
        until((tmp_path / "begun-a").exists, "the run did not begin")
        stopped.send(signal.SIGSTOP)
        (tmp_path / "go").touch()  # nobody else waits
        with workers(url, tmp_path, "b"):
            until(lambda: len(state_of(client)) == 1, "nobody has taken over")
            stopped.send(signal.SIGCONT)
            client.send("ledger", "more", kind="worker")
            until(lambda: len(state_of(client)) == 2, "the second message was not processed")
            assert state_of(client)[0] == ["b", "wait"], "the run of the stopped one was committed"
            assert [message for _, message in state_of(client)] == ["wait", "more"]


@pytest.mark.timeout(180)
def test_c08_work_is_handed_over_when_a_worker_leaves(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    """The lease is longer than the test may take: nobody waits for its end."""
    url = store_url(lease=600)
    with (
        workers(url, tmp_path, "a") as (first,),
        af.Engine(url, worker=False) as client,
    ):
        exids = [client.launch(FLOW, payload={"n": 0}) for _ in range(10)]
        with workers(url, tmp_path, "b"):
            first.leave()
            for exid in exids:
                assert client.result(exid, timeout=PATIENCE)["n"] == 2


def state_of(client: af.Engine) -> list[list[str]]:
    """Return what the durable worker has appended."""
    row = client.parts.store.execution("ledger")
    if row is None or row.state is None:
        return []
    found: list[list[str]] = decode_state(client.parts.kinds[row.kind], row)
    return found
