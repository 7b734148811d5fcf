"""The port of a worker for monitors: figures of its store, and whether it is ready."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from actorflow.api.addresses import TcpAddress
from actorflow.api.http.server import open_monitor
from tests.cluster.processes import PATIENCE
from tests.cluster.test_commands import APP, line_of, run, started

if TYPE_CHECKING:
    from collections.abc import Callable


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def figures(port: int) -> dict[str, float]:
    status, text = get(port, "/metrics")
    assert status == 200
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def refuse(batch: list[str], state: int) -> int:
    if "poison" in batch:
        raise ValueError("poison")
    return state + len(batch)


def test_a_monitor_shows_dead_letters_failures_and_whether_the_store_answers() -> None:
    port = free_port()
    with af.Engine(":memory:") as engine:
        monitor = open_monitor(engine, TcpAddress("127.0.0.1", port))
        worker = engine.worker("letters", refuse, state=0, on_failure=af.Isolate())
        worker.push_block("fine")
        with pytest.raises(ValueError, match="poison"):
            worker.push_block("poison")
        found = figures(port)
        assert found["actorflow_store_up"] == 1
        assert found["actorflow_store_dead_letters"] == 1
        assert found["actorflow_store_stuck_executions"] == 0
        assert found["actorflow_store_read_seconds"] < PATIENCE
        assert get(port, "/healthz") == (200, '{"open":true}')
        assert get(port, "/readyz") == (200, '{"ready":true}')
    status, text = get(port, "/readyz")
    assert status == 503
    assert json.loads(text)["ready"] is False
    assert get(port, "/healthz") == (200, '{"open":false}')
    monitor.close()


@pytest.mark.timeout(180)
def test_a_worker_of_a_cluster_serves_its_monitor_until_it_has_left(
    store_url: Callable[..., str],
) -> None:
    url, port = store_url(), free_port()
    with started(
        "-m", "actorflow.cli", "cluster", "worker", url, "--app", APP, "--name", "ada",
        "--http", f"127.0.0.1:{port}",
    ) as worker:  # fmt: skip
        assert line_of(worker, "monitor") == f"monitor at http://127.0.0.1:{port}\n"
        line_of(worker, "worker ada")
        assert get(port, "/readyz")[0] == 200
        found = figures(port)
        assert found["actorflow_store_members"] == 1
        assert any(
            name.startswith('actorflow_store_member_lag_seconds{member="ada') for name in found
        )
        assert found["actorflow_store_unowned_partitions"] >= 0
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0


def test_an_address_that_is_none_is_refused_before_anything_is_opened() -> None:
    done = run("worker", "postgresql://127.0.0.1:1/none", "--app", APP, "--http", "9000")
    assert done.returncode == 2
    assert "tcp://9000" in done.stderr
