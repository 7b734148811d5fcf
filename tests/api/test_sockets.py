"""Where an engine is steered: sockets that only their owner opens, ports that want a token."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import actorflow as af
from actorflow.api.addresses import address_of, bindable, socket_beside
from actorflow.api.client import Client
from actorflow.api.errors import ControlError, ControlUnreachable
from actorflow.engine.errors import EngineClosed, StoreBusy
from actorflow.runtime.errors import BadOption, install_hint
from tests.api.browser import until
from tests.api.ledger import PATIENCE, Ledger

ROOT = Path(__file__).parent.parent.parent
TOKEN = "open-sesame"  # noqa: S105 - of a test


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_socket_stands_beside_the_store_for_its_owner_only(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    beside = tmp_path / "orders.db.sock"
    before = os.umask(0)
    try:
        with af.Engine(store, control=True):
            assert stat.S_IMODE(beside.stat().st_mode) == 0o600
            assert stat.S_ISSOCK(beside.stat().st_mode)
            assert Client(beside).health()["store"] == str(store)
    finally:
        os.umask(before)
    assert not beside.exists()
    with pytest.raises(ControlUnreachable, match=r"orders\.db\.sock"):
        Client(beside).health()


def test_a_link_to_a_store_leads_to_the_same_socket(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "orders.db")
    with af.Engine(link, control=True):
        assert (tmp_path / "orders.db.sock").exists()
    assert socket_beside(link) == socket_beside(f"sqlite://{tmp_path}/orders.db")


def test_no_socket_is_opened_unless_asked_for(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "orders.db"):
        assert not (tmp_path / "orders.db.sock").exists()


def test_a_store_in_memory_needs_a_path(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="control='/run"):
        af.Engine(":memory:", control=True)
    with af.Engine(":memory:", control=str(tmp_path / "my.sock")):
        assert Client(tmp_path / "my.sock").health()["status"] == "ok"


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    with af.Engine(":memory:", control=str(path)):
        assert Client(path).health()["status"] == "ok"


def test_what_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("do not touch")
    with pytest.raises(BadOption, match="not a socket"):
        af.Engine(":memory:", control=str(path))
    assert path.read_text() == "do not touch"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(BadOption, match="not a socket"):
        af.Engine(":memory:", control=str(link))


def test_two_engines_cannot_have_one_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "one.sock")
    with af.Engine(":memory:", control=path) as first:
        with pytest.raises(BadOption, match="belongs to another engine"):
            af.Engine(":memory:", control=path)
        assert Client(path).health()["status"] == "ok"
        assert not first.closed


def test_the_second_engine_on_a_store_leaves_the_socket_of_the_first(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    with af.Engine(store, control=True):
        with pytest.raises(StoreBusy):
            af.Engine(store, control=True)
        assert Client(f"{store}.sock").health()["status"] == "ok"


def test_a_socket_that_cannot_be_opened_closes_the_engine(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    with pytest.raises(BadOption, match="cannot be opened"):
        af.Engine(store, control=str(tmp_path / "nowhere" / "a.sock"))
    with af.Engine(store):  # nobody holds it
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no /proc/self/fd")
def test_a_store_in_a_deep_folder_has_its_socket_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    for _ in range(2):
        with af.Engine(folder / "orders.db", control=True):
            assert Client(folder / "orders.db.sock").health()["status"] == "ok"
        with socket.socket(socket.AF_UNIX) as dead, bindable(folder / "orders.db.sock") as name:
            dead.bind(name)  # stale


def test_a_name_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="at most 100 bytes"):
        af.Engine(":memory:", control=str(tmp_path / ("long" * 30)))


@pytest.mark.parametrize("control", [7, None, [False], [["a"]]])
def test_what_is_no_address_is_refused_before_a_file_is_made(control: Any, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="not an address"):
        af.Engine(tmp_path / "orders.db", control=control)
    with pytest.raises(BadOption, match="token="):
        af.Engine(tmp_path / "orders.db", control=True, token=7)  # type: ignore[arg-type] # wrong
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_nobody_closes_leaves_no_socket(tmp_path: Path) -> None:
    code = f"import actorflow as af; engine = af.Engine({str(tmp_path / 'a.db')!r}, control=True)"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE * 2,
        check=True,
    )
    assert not (tmp_path / "a.db.sock").exists()
    assert (tmp_path / "a.db").exists()


async def _open_and_ask(path: Path) -> Any:
    async with af.Engine(":memory:", control=path):
        return await asyncio.to_thread(Client(path).health)


def test_an_engine_of_an_event_loop(tmp_path: Path) -> None:
    assert asyncio.run(_open_and_ask(tmp_path / "a.sock"))["status"] == "ok"


def test_tcp_without_a_token_is_refused() -> None:
    with pytest.raises(BadOption, match="token="):
        af.Engine(":memory:", control="tcp://127.0.0.1:4000")
    with pytest.raises(BadOption, match="token="):
        af.Engine(":memory:", control="tcp://127.0.0.1:4000", token="")


@pytest.mark.parametrize(
    "text", ["tcp://127.0.0.1", "tcp://:4000", "tcp://host:port", "tcp://h:99999", "udp://h:1"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(BadOption):
        address_of(text)


def test_tcp_wants_its_token() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with af.Engine(":memory:", control=address, token=TOKEN) as engine:
        engine.register(Ledger())
        assert Client(address, token=TOKEN).start("ledger", id="a") == {"execution": "a"}
        for wrong in (None, "", "open-sesam", "open-sesame-"):
            client = Client(address, token=wrong)
            for path in ("/health", "/metrics", "/openapi.json", "/api/executions", "/nowhere"):
                with pytest.raises(ControlError, match="Unauthorized"):
                    client.request("GET", path)
            assert status_of(client, "/health") == 401


def status_of(client: Client, path: str) -> int:
    connection = client.connection(PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_socket_and_a_port_at_the_same_time(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    address = f"tcp://127.0.0.1:{free_port()}"
    with af.Engine(store, control=[True, address], token=TOKEN):
        assert Client(f"{store}.sock").health() == Client(address, token=TOKEN).health()
        assert status_of(Client(address), "/health") == 401


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadOption, match="cannot be opened"):
            af.Engine(":memory:", control=f"tcp://127.0.0.1:{taken.getsockname()[1]}", token=TOKEN)


def test_whoever_waits_when_the_engine_is_closed_hears_of_it(tmp_path: Path) -> None:
    import threading  # noqa: PLC0415

    path = tmp_path / "a.sock"
    engine = af.Engine(":memory:", control=str(path))
    engine.register(Ledger())
    engine.start("ledger", id="a")
    outcome: list[Any] = []

    def wait() -> None:
        try:
            outcome.append(Client(path).wait("a", timeout=PATIENCE))
        except Exception as error:  # noqa: BLE001 - what the test is about
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: len(engine.parts.waiters))
    engine.close()
    thread.join(PATIENCE)
    (error,) = outcome
    assert isinstance(error, EngineClosed)
    assert "is being closed" in str(error)


FORKING = """\
import os, signal, sys
import actorflow as af

engine = af.Engine(sys.argv[1], control=True)
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()  # the child outlives its parent
    os._exit(0)
signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_a_forked_child_does_not_keep_the_socket_open(tmp_path: Path) -> None:
    store = tmp_path / "orders.db"
    with subprocess.Popen(
        [sys.executable, "-c", FORKING, str(store)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forked\n"
        parent.kill()
        parent.wait(PATIENCE)
        with pytest.raises(ControlUnreachable) as caught:
            Client(f"{store}.sock").health()
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        with af.Engine(store, control=True):
            assert Client(f"{store}.sock").health()["status"] == "ok"


def test_without_the_extra_the_error_names_it() -> None:
    missing = (
        "import sys; sys.modules['fastapi'] = None\n"
        "import actorflow as af\n"
        "try:\n    af.Engine(':memory:', control='/tmp/x.sock')\n"
        "except af.BadOption as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", missing],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=True,
    )
    assert install_hint("web") in done.stdout


def test_an_engine_without_control_loads_nothing_of_the_web() -> None:
    code = "import sys, actorflow as af; af.Engine(':memory:').close(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"fastapi", "uvicorn", "pydantic", "actorflow.api"}, json.dumps(
        sorted(loaded)
    )
