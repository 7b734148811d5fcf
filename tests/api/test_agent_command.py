"""`actorflow agent` and `actorflow start` for workflows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.api.client import Client
from actorflow.cli import application
from tests.api.test_serve import PATIENCE, environment
from tests.workflows.agent.worker import Agency, Refused, Worker

if TYPE_CHECKING:
    from pathlib import Path

METHODS = {"handle": [{"op": "return", "value": {"prop": "order"}}]}


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(application(), [str(each) for each in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def begin(folder: Path, *options: str, **variables: str) -> tuple[subprocess.Popen[str], str]:
    """Start an agent; return its process and its URL."""
    command = [sys.executable, "-m", "actorflow.cli", "agent", "orders.db", "--port", "0", *options]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving orders.db at http://"), (line, process.communicate())
    return process, line.split()[3].rstrip(",")


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told


@pytest.mark.timeout(120)
def test_an_agent_serves_workers_and_commands(tmp_path: Path) -> None:
    process, url = begin(tmp_path, "--workflow", "Order=test", "--env", "dev")
    try:
        store = tmp_path / "orders.db"
        given = ('{"order": 7}', "--id", "o-7")
        assert run("start", store, "Order", *given) == "o-7\n"
        assert run("start", store, "Order", *given) == "o-7\n"
        made = json.loads(run("start", store, "Order", *given[:1], "--json"))
        assert made["execution"].startswith("Order-")
        assert "no workflow or kind 'Invoice'" in run("start", store, "Invoice", code=3)
        worker = Worker(Agency(url, env="dev"), {"Order": METHODS})
        worker.work_until(lambda: Client(f"{store}.sock").execution("o-7")["status"] == "done")
        assert json.loads(run("wait", store, "o-7", "--json"))["result"] == 7
    finally:
        end(process)
    # Without an engine, a start waits for the next one.
    assert run("start", store, "workflow:Order", "--id", "o-8") == "o-8\n"
    process, url = begin(tmp_path, "--workflow", "Order=test")
    try:
        assert Agency(url).job()["name"] == "Order"
    finally:
        end(process)


@pytest.mark.timeout(120)
def test_elsewhere_it_needs_a_token_and_asks_for_it(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    assert "ACTORFLOW_TOKEN" in run("agent", store, "--host", "0.0.0.0", code=2)  # noqa: S104
    assert not store.exists()
    process, url = begin(tmp_path, "--host", "0.0.0.0", ACTORFLOW_TOKEN="t-7")  # noqa: S104, S106
    try:
        url = url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - a test
        with pytest.raises(Refused) as refused:
            Agency(url).job(0)
        assert refused.value.status == 401
        assert Agency(url, token="t-7").job(0) == {"action": "None"}  # noqa: S106 - a test
    finally:
        end(process)


@pytest.mark.parametrize("option", ["--workflow", "--task"])
@pytest.mark.parametrize("given", ["Order", "=php", "Order="])
def test_what_is_no_name_and_language_is_named(tmp_path: Path, option: str, given: str) -> None:
    assert "NAME=LANG" in run("agent", tmp_path / "orders.db", option, given, code=2)


def test_start_workflow_over_http(tmp_path: Path) -> None:
    class Double(af.Workflow[int]):
        def __init__(self, number: int) -> None:
            self.number = number

        def handle(self) -> int:
            return 2 * self.number

    with af.Engine(tmp_path / "a.db", durability="off", control=True) as engine:
        engine.workflows.register(Double)
        client = Client(tmp_path / "a.db.sock")
        found = client.start("Double", {"number": 21}, id="d")
        assert found == {"execution": "d"}
        assert client.wait("d", timeout=PATIENCE)["result"] == 42
