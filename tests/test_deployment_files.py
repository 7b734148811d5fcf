"""The files in examples/deployment/: they parse, say what the page promises, and really run."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from actorflow.cluster.server import free_port
from tests.cluster.processes import PATIENCE, ROOT, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import Postgres

FOLDER = ROOT / "examples" / "deployment"
MANIFESTS = [each for each in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()) if each]
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
PREFORK = {
    "uvicorn": ("-m", "uvicorn", "web:app", "--workers", "2", "--host", "127.0.0.1", "--port"),
    "gunicorn": ("-m", "gunicorn", "web:app", "--workers", "2", "--bind"),
}


# Kubernetes.


def pods() -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in MANIFESTS
        if each["kind"] == "Deployment"
    }


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in MANIFESTS if each["kind"] == kind]


def test_each_deployment_selects_its_own_pods() -> None:
    for each in of_kind("Deployment"):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
    names = {each["metadata"]["name"] for each in of_kind("Deployment")}
    assert {each["spec"]["scaleTargetRef"]["name"] for each in of_kind("ScaledObject")} <= names
    for each in (*of_kind("Service"), *of_kind("PodDisruptionBudget")):
        selector = each["spec"]["selector"]
        assert selector.get("matchLabels", selector)["app"] in names


@pytest.mark.parametrize("name", pods())
def test_probes_ask_ports_that_are_open(name: str) -> None:
    (container,) = pods()[name]["containers"]
    ports = {each["name"] for each in container["ports"]}
    probes = {key: each for key, each in container.items() if key.endswith("Probe")}
    assert {"livenessProbe", "readinessProbe"} <= set(probes)
    assert {each["httpGet"]["port"] for each in probes.values()} <= ports


def test_a_pod_has_time_to_stop() -> None:
    worker = pods()["shop-worker"]
    options = dict(each.split("=", 1) for each in worker["containers"][0]["args"] if "=" in each)
    assert worker["terminationGracePeriodSeconds"] > int(options["--timeout"])
    assert options["--http"].endswith(f":{worker['containers'][0]['ports'][0]['containerPort']}")
    web = pods()["shop-web"]
    sleep = int(web["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    graceful = settings_of_gunicorn()["graceful_timeout"]
    assert web["terminationGracePeriodSeconds"] > sleep + graceful


def test_it_scales_by_a_metric_that_alerts_use_too() -> None:
    (scaled,) = of_kind("ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    assert query in (ROOT / "docs/monitoring/alerts.yml").read_text()


# Compose, the image and systemd.


def settings_of_gunicorn() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec((FOLDER / "gunicorn.conf.py").read_text(), found)  # noqa: S102 - our own file
    return found


def command_of_the_image() -> list[str]:
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", "")
    (line,) = [each for each in text.splitlines() if each.startswith("CMD ")]
    command: list[str] = json.loads(line.removeprefix("CMD "))
    return command


def test_compose_starts_what_is_there() -> None:
    stack = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert set(stack["services"]) == {"db", "worker", "web"}
    for name in ("worker", "web"):
        assert stack["services"][name]["depends_on"]["db"]["condition"] == "service_healthy"
    assert "--http" in command_of_the_image()
    assert ":9000/healthz" in " ".join(stack["services"]["worker"]["healthcheck"]["test"])
    if shutil.which("docker") is None:
        return
    checked = subprocess.run(
        ["docker", "compose", "-f", str(FOLDER / "compose.yaml"), "config", "--quiet"],  # noqa: S607
        check=False, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    if "is not a docker command" not in checked.stderr and "unknown" not in checked.stderr:
        assert checked.returncode == 0, checked.stderr


def commands() -> Iterator[list[str]]:
    """Yield the arguments of each `actorflow` command in the files."""
    yield command_of_the_image()[1:]
    yield pods()["shop-worker"]["containers"][0]["args"][1:]
    for unit in UNITS:
        text = unit.read_text().replace("\\\n", "")
        (line,) = [each for each in text.splitlines() if each.startswith("ExecStart=")]
        yield shlex.split(line.partition("=")[2])[1:]


def test_the_commands_have_options_that_exist() -> None:
    for arguments in commands():
        words = [each for each in arguments if each in {"serve", "cluster", "worker"}]
        helped = subprocess.run(
            [sys.executable, "-m", "actorflow.cli", *words, "--help"], check=True, text=True,
            capture_output=True, timeout=PATIENCE, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        for option in (each.partition("=")[0] for each in arguments if each.startswith("--")):
            assert option in helped.stdout, arguments


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_waits_longer_than_the_engine(unit: Path) -> None:
    text = unit.read_text()
    timeout = int(text.partition("--timeout ")[2].split()[0])
    assert int(text.partition("TimeoutStopSec=")[2].split()[0]) > timeout
    assert "[Install]\nWantedBy=multi-user.target" in text


# Prefork servers.


@contextmanager
def started(*command: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a group of its own, of which nothing is left in the end."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=FOLDER, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **variables},
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # also the processes that it has started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(url: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(url, method=method)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
        found: dict[str, Any] = json.load(response)
    return found


def answers(url: str) -> bool:
    try:
        ask(f"{url}/healthz")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("server", PREFORK)
def test_a_prefork_server_starts_orders_that_a_worker_does(postgres: Postgres, server: str) -> None:
    if importlib.util.find_spec(server) is None:
        pytest.skip(f"{server} is not installed")
    store = postgres.empty_url("deployment")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    where = str(port) if server == "uvicorn" else f"127.0.0.1:{port}"
    worker = ("-m", "actorflow.cli", "cluster", "worker", store, "--app", "shop:setup")
    with started(*worker), started(*PREFORK[server], where, STORE=store) as web:
        until(lambda: answers(url), f"{server} does not answer")
        processes = set()
        urls = [f"{url}/orders/{number}" for number in range(20)]
        with ThreadPoolExecutor(8) as customers:  # one process cannot take them all
            for _ in range(50):
                placed = list(customers.map(lambda each: ask(each, "PUT"), urls))
                processes |= {each["process"] for each in placed}
                if len(processes) > 1:
                    break
        assert len(processes) == 2, "one process has served all requests"
        assert web.pid not in processes
        for number in range(20):
            done = ask(f"{url}/orders/{number}?wait={PATIENCE}")
            assert done == {"status": "done", "parcel": f"parcel {number}"}
        web.send_signal(signal.SIGTERM)
        web.wait(PATIENCE)
