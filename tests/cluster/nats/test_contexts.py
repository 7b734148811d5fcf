"""Contexts of the `nats` command line in the URL of a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.nats.address import NatsAddress
from actorflow.engine.stores.nats.server import NatsServer
from tests.servers import start_nats

if TYPE_CHECKING:
    from pathlib import Path

TOKEN, RIGHT, ODD = "t", "right", "a/b"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where contexts are looked for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats" / "context").mkdir(parents=True)
    return tmp_path / "nats"


def write(folder: Path, name: str, **content: Any) -> None:
    (folder / "context" / f"{name}.json").write_text(json.dumps(content))


def test_it_has_servers_and_credentials(folder: Path) -> None:
    write(
        folder, "production", description="ours", url="nats://one:4222,tls://two", user="me",
        password=ODD, creds="", ca="/ca.pem", cert="/c.pem", key="/k.pem", inbox_prefix="x",
    )  # fmt: skip
    address = NatsAddress("nats:///orders?context=production&replicas=3")
    assert address.servers == ["nats://me:a%2Fb@one:4222", "tls://me:a%2Fb@two"]
    assert address.files == {"tls_ca": "/ca.pem", "tls_cert": "/c.pem", "tls_key": "/k.pem"}
    assert (address.name, address.replicas) == ("orders", 3)
    assert address.shown == "nats:///orders?context=production"


def test_a_token_and_a_file_of_the_url_come_first(folder: Path) -> None:
    write(folder, "x", url="one", token=TOKEN, creds="~/one.creds")
    address = NatsAddress("nats:///orders?context=x&creds=/two.creds")
    assert address.servers == ["nats://t@one"]
    assert address.files == {"creds": "/two.creds"}


def test_without_a_name_it_is_the_selected_one(folder: Path) -> None:
    write(folder, "chosen")
    with pytest.raises(af.BadOption, match="none is selected"):
        NatsAddress("nats:///orders?context=")
    (folder / "context.txt").write_text("chosen\n")
    assert NatsAddress("nats:///orders?context=").servers == ["nats://localhost:4222"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "nats:///orders?context=prod",
            "there is no context 'prod' in .*did you mean 'production'",
        ),
        ("nats:///orders?context=../secret", "there is no context '../secret'"),
        ("nats:///orders?context=broken", "broken.json cannot be read"),
        ("nats:///orders?context=list", "list.json cannot be read"),
        ("nats:///orders?context=number", "number.json cannot be read"),
        ("nats://one/orders?context=production", "either servers or a context"),
        ("nats:///orders", "either servers or a context"),
        ("nats:///?context=production", "either servers or a context"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, url: str, message: str) -> None:
    write(folder, "production", url="one")
    write(folder, "number", url=5)
    (folder / "context" / "broken.json").write_text("{")
    (folder / "context" / "list.json").write_text("[]")
    with pytest.raises(af.BadOption, match=message):
        NatsAddress(url)


def test_an_engine_gets_in_by_it(folder: Path) -> None:
    start_nats(jetstream=False).close()  # skips the test without a server
    with NatsServer(settings=["authorization { user: alice, password: right }"]) as server:
        write(folder, "ours", url=server.url, user="alice", password=RIGHT)
        with af.Engine("nats:///orders?context=ours") as engine:
            assert engine.result(engine.launch("sequence\n  1"), timeout=30) == {"ret": 1}
        write(folder, "ours", url=server.url, user="alice", password=ODD)
        with pytest.raises(StoreRefused, match=r"context=ours.*Authorization Violation"):
            af.Engine("nats:///orders?context=ours")
