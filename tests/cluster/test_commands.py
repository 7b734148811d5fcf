"""`actorflow cluster ...` as users run it: real processes, which are also killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.cluster.processes import PATIENCE, ROOT, until
from tests.servers import start_nats, start_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.engine.stores.nats.server import NatsServer
    from actorflow.engine.stores.postgres.server import PostgresServer
    from tests.servers import Postgres

APP = "tests.cluster.app:setup"
SERVERS = {
    "postgres": "from actorflow.engine.stores.postgres.server import PostgresServer as Server",
    "nats": "from actorflow.engine.stores.nats.server import NatsServer as Server",
}
HOLDS = """
import threading
{server}
server = Server()
print(server.pid, server.process.directory, flush=True)
threading.Event().wait()
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*arguments: str, group: tuple[str, ...] = ("cluster",)) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "actorflow.cli", *group, *arguments], check=False, text=True,
        capture_output=True, timeout=PATIENCE, env=environment(),
    )  # fmt: skip


def wait(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("wait", *arguments, group=())


@contextmanager
def started(
    *arguments: str, stderr: int | None = None, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a command in a group of its own, of which nothing is left in the end."""
    process = subprocess.Popen(
        [sys.executable, *arguments], text=True, stdout=subprocess.PIPE, stderr=stderr,
        env={**environment(), **variables}, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line_of(process: subprocess.Popen[str], word: str) -> str:
    """Return the next line of what it prints that has a word in it."""
    assert process.stdout is not None
    return next(line for line in process.stdout if word in line)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, perhaps without anybody who has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == pid:
                found.append(int(each.name))
    return found


def status(url: str) -> dict[str, Any]:
    done = run("status", url, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc of Linux")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("carrier", SERVERS)
def test_a_server_ends_with_a_starter_that_is_killed(carrier: str) -> None:
    with started("-c", HOLDS.format(server=SERVERS[carrier])) as starter:
        pid, directory = line_of(starter, "/").split()
        assert not is_gone(int(pid))
        starter.kill()
        until(lambda: is_gone(int(pid)), "the server runs on")
        until(lambda: not Path(directory).exists(), "its directory is left")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc of Linux")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("carrier", SERVERS)
def test_c30_dev_has_workers_that_status_shows(carrier: str) -> None:
    arguments = ("-m", "actorflow.cli", "cluster", "dev", "--on", carrier, "--app", APP)
    with started(*arguments, "--workers", "2") as dev:
        url = line_of(dev, "has 2 workers").split()[0]
        until(lambda: len(status(url)["members"]) == 2, "the workers did not join")
        with af.Engine(url, worker=False) as client:
            exids = [client.launch("task 'alice'", payload={"n": 1}) for _ in range(5)]
            assert [client.result(each, timeout=PATIENCE)["n"] for each in exids] == [2] * 5
        found = status(url)
        end = monotonic() + PATIENCE
        while found["unowned"]:  # they are still being shared out
            assert monotonic() < end, "some partitions are nobody's"
            found = status(url)
        names = [member["name"] for member in found["members"]]
        assert [name.rpartition("-")[0] for name in names] == ["dev-1", "dev-2"]
        mine = [number for member in found["members"] for number in member["partitions"]]
        assert sorted(mine) == list(range(found["partitions"]))
        assert all(0 < member["lease"] <= 6.5 for member in found["members"])
        assert {member["version"] for member in found["members"]} == {af.__version__}
        shown = run("status", url)
        assert shown.stdout.split()[:2] == ["worker", "lease"]
        assert all(name in shown.stdout for name in names)
        left = children_of(dev.pid)
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(PATIENCE) == 0
        until(lambda: all(map(is_gone, left)), "something runs on")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a folder for temporary files that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("carrier", SERVERS)
@pytest.mark.parametrize("moment", ["at once", "in the middle", "when it is up"])
def test_no_file_is_left_of_a_dev_that_is_interrupted_twice(
    carrier: str, moment: str, temporary: Path
) -> None:
    arguments = ("-m", "actorflow.cli", "cluster", "dev", "--on", carrier, "--app", APP)
    with started(*arguments, TMPDIR=str(temporary)) as dev:
        if moment == "when it is up":
            line_of(dev, "has 3 workers")
        else:
            least = 1 if moment == "at once" else 2 if carrier == "nats" else 100
            until(lambda: len([*temporary.rglob("*")]) >= least, "it does not begin")
        left = children_of(dev.pid)
        for _ in range(2):
            os.killpg(dev.pid, signal.SIGINT)
        assert dev.wait(PATIENCE) is not None
        until(lambda: all(map(is_gone, left)), "something runs on")
        until(lambda: not [*temporary.iterdir()], "a file is left")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc of Linux")
@pytest.mark.timeout(240)
def test_nothing_is_left_of_a_dev_that_is_killed() -> None:
    arguments = ("-m", "actorflow.cli", "cluster", "dev", "--app", APP, "--workers", "2")
    with started(*arguments) as dev:
        url = line_of(dev, "has 2 workers").split()[0]
        until(lambda: len(status(url)["members"]) == 2, "the workers did not join")
        left = children_of(dev.pid)
        assert len(left) == 5, "a server, its guardian, two workers, their guardian"
        dev.kill()
        until(lambda: all(map(is_gone, left)), "something runs on")


@pytest.mark.timeout(180)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("carrier", SERVERS)
def test_a_worker_waits_for_a_server_that_is_restarted(carrier: str) -> None:
    server: PostgresServer | NatsServer = (
        start_postgres() if carrier == "postgres" else start_nats()
    )
    with server:
        url = server.url if carrier == "postgres" else f"{server.url}/orders"
        server.stop()
        refused = run("worker", url, "--app", APP)
        assert refused.returncode == 4
        assert "cannot be reached" in refused.stderr
        command = ("-m", "actorflow.cli", "cluster", "worker", url, "--app", APP)
        with started(*command, "--wait", "100", stderr=subprocess.STDOUT) as worker:
            assert "cannot be reached" in line_of(worker, "trying again for 100 s")
            server.start()
            assert line_of(worker, "worker ")
            worker.terminate()
            assert worker.wait(PATIENCE) == 0
        server.stop()
        with started(*command, "--wait", "100", stderr=subprocess.STDOUT) as worker:
            line_of(worker, "trying again")
            worker.terminate()
            assert worker.wait(PATIENCE) == 0, "a signal ends the waiting"


def test_wait_waits_for_what_runs_on_another_engine(store_url: Callable[..., str]) -> None:
    url = store_url()
    with af.Engine(url) as engine:
        engine.tasker("desk", lambda _: af.HOLD)
        exid = engine.launch("desk 'look'")
        engine.flows.wait_for(exid, "task", timeout=PATIENCE)
        late = wait(url, exid, "--timeout", "0.2")
        assert late.returncode == 1
        assert "did not end within 0.2 s" in late.stderr
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait, url, exid, "--json")
            engine.flows.return_task(exid, "0", {"seen": True})
            done = waiting.result(PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == {"seen": True}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("command", "code"),
    [(("backup", "copy.db"), 2), (("workflows", "export", "x"), 3), (("flow", "trace", "x"), 3)],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_no_command_prints_the_password_of_a_store(
    command: tuple[str, ...], code: int, postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.empty_url("commands").replace("//postgres@", "//postgres:secret@")
    *names, last = command
    last = str(tmp_path / last) if command[0] == "backup" else last
    done = run(url, last, group=tuple(names))
    assert done.returncode == code
    assert "postgresql://postgres@127.0.0.1" in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_an_agent_does_not_print_the_password_of_its_store(postgres: Postgres) -> None:
    url = postgres.empty_url("commands").replace("//postgres@", "//postgres:secret@")
    with started("-m", "actorflow.cli", "agent", url, "--port", "0") as agent:
        assert "secret" not in line_of(agent, "serving")
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE) == 0


@pytest.mark.timeout(180)
def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    done = run("status", str(tmp_path / "x.db"))
    assert done.returncode != 0
    assert "is a file, which one engine uses" in done.stderr
    done = run("dev", "--on", "redis", "--app", APP)
    assert done.returncode != 0
    assert "'postgres' and 'nats'" in done.stderr
