"""The network is cut, or the disk is full: work goes on, nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

import actorflow as af
from actorflow.engine.errors import StoreFull, StoreRefused
from actorflow.engine.stores.nats.server import NatsServer
from tests.cluster.processes import PATIENCE, until, workers
from tests.cluster.proxy import Proxy
from tests.servers import start_nats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.engine.stores.protocol import SharedStore
    from tests.servers import Postgres

FLOW = """
sequence
  task 'alice'
  sleep '0.3s'
  task 'alice'
"""


def port_of(url: str) -> int:
    return int(url.partition("//")[2].partition("?")[0].rpartition(":")[2].partition("/")[0])


def partitions_of(client: af.Engine) -> dict[str, int]:
    """Return how many partitions each worker has."""
    store: Any = client.parts.store
    members = store.status().members
    return {member.name.rpartition("-")[0]: len(member.partitions) for member in members}


def effects_of(directory: Path, name: str) -> int:
    """Return how many tasks a worker has done."""
    text = (directory / "effects").read_text() if (directory / "effects").exists() else ""
    return sum(line.endswith(f" {name}") for line in text.splitlines())


# A split.


@pytest.mark.timeout(240)
@pytest.mark.parametrize("resumes", [True, False])
def test_c03_who_is_cut_off_does_nothing_and_the_others_go_on(
    store_url: Callable[..., str], tmp_path: Path, *, resumes: bool
) -> None:
    url = store_url(lease=2)
    with (
        Proxy(port_of(url)) as network,
        workers(url.replace(f":{port_of(url)}", f":{network.port}"), tmp_path, "cut"),
        workers(url, tmp_path, "whole"),
        af.Engine(url, worker=False) as client,
    ):
        until(lambda: len(partitions_of(client)) == 2, "they do not share")
        before = [client.launch(FLOW, payload={"n": 0}) for _ in range(20)]
        network.cut()
        until(lambda: partitions_of(client) == {"whole": 64}, "nobody has taken over")
        done = effects_of(tmp_path, "cut")
        during = [client.launch(FLOW, payload={"n": 0}) for _ in range(20)]
        for exid in (*before, *during):
            assert client.result(exid, timeout=PATIENCE)["n"] == 2
        assert effects_of(tmp_path, "cut") == done, "who has lost its lease has begun something"
        network.mend(resumes=resumes)
        until(lambda: partitions_of(client).get("cut", 0) == 32, "it did not come back")
        after = [client.launch(FLOW, payload={"n": 0}) for _ in range(20)]
        for exid in after:
            assert client.result(exid, timeout=PATIENCE)["n"] == 2
        assert effects_of(tmp_path, "cut") > done


# No room.


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a disk of a few megabytes; skipped where that is not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    directory = Path(tempfile.mkdtemp(prefix="actorflow-disk-"))
    options = ["-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)]
    mount, umount = shutil.which("mount") or "mount", shutil.which("umount") or "umount"
    if subprocess.run([mount, *options], check=False, capture_output=True).returncode:
        pytest.skip("mount refuses a tmpfs here")
    shutil.chown(directory, "nobody")  # as whom the server runs then
    try:
        yield directory
    finally:
        subprocess.run([umount, "-l", str(directory)], check=True)
        directory.rmdir()


def append(batch: list[str], state: int) -> int:
    return state + len(batch)


def send_until_full(ref: Any, sent: list[int]) -> None:
    """Send messages until that raises; note the stored ones."""
    for _ in range(1_000):
        ref.push_ack("x" * 10_000, timeout=PATIENCE)
        sent.append(1)


@pytest.mark.timeout(180)
def test_a_full_disk_is_an_error_and_work_goes_on_when_there_is_room(postgres: Postgres) -> None:
    """The tables are on a small disk of their own, as a tablespace."""
    with small_disk() as disk:
        name = "small_disk"
        with psycopg.connect(postgres.server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE {name} LOCATION '{disk}'")
            try:
                url = postgres.new_url(options=f"-c%20default_tablespace%3D{name}")
                _fill_and_make_room(url, disk)
            finally:
                schema = url.partition("schema=")[2].partition("&")[0]
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
                connection.execute(f"DROP TABLESPACE {name}")


def _fill_and_make_room(url: str, disk: Path) -> None:
    with af.Engine(url) as engine:
        ref = engine.worker("ledger", append, state=0)
        ref.push_block("x" * 1_000, timeout=PATIENCE)
        with pytest.raises(OSError, match="No space"):
            (disk / "ballast").write_bytes(b"x" * 2**24)
        sent = [1]
        with pytest.raises(StoreFull, match="no room on its disk"):
            send_until_full(ref, sent)  # the tables have some room left
        (disk / "ballast").unlink()
        stored = len(sent)
        ref.push_ack("x", timeout=PATIENCE)
        until(lambda: ref.state() == stored + 1, f"not {stored} messages, but {ref.state()}")


@pytest.mark.timeout(180)
def test_a_full_store_on_nats_is_an_error_and_work_goes_on_when_there_is_room() -> None:
    with start_nats() as server:
        config = server._config
        roomy = config.read_text()
        server.stop()
        config.write_text(roomy.replace("jetstream {", "jetstream { max_file: 400KB\n"))
        server.start()
        with af.Engine(f"{server.url}/x?timeout=1&lease=1") as engine:
            ref = engine.worker("ledger", append, state=0)
            sent: list[int] = []
            with pytest.raises(StoreFull, match="has no room"):
                send_until_full(ref, sent)
            stored = len(sent)
            assert stored > 0
            store = cast("SharedStore", engine.parts.store)
            until(lambda: not store.owned(), "it works without a lease, which is a record, too")
            server.stop()
            config.write_text(roomy)
            server.start()
            ref.push_ack("x", timeout=PATIENCE)
            until(lambda: ref.state() == stored + 1, "something was lost, or counted twice")


# A password.


def test_wrong_credentials_on_nats_are_named_without_the_password() -> None:
    start_nats(jetstream=False).close()  # skips the test without a server
    with NatsServer(settings=["authorization { user: alice, password: right }"]) as server:
        good = server.url.replace("//", "//alice:right@") + "/x"
        af.Engine(good).close()
        with pytest.raises(StoreRefused, match="Authorization Violation") as refused:
            af.Engine(good.replace("right", "wrong"))
        assert "wrong" not in str(refused.value)
        with pytest.raises(StoreRefused, match="Authorization Violation"):
            af.Engine(server.url + "/x")
