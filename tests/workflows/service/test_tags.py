"""Instances are found by the tags that their code has set: in Python, by commands, over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.api.client import Client
from actorflow.cli import application
from actorflow.runtime.errors import BadOption
from tests.workflows.service.orders import PATIENCE, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Ticket(af.Workflow[str]):
    """Tags itself with its customer, and with how far it is."""

    def __init__(self, customer: str) -> None:
        self.customer = customer

    def handle(self) -> str:
        self.tag(customer=self.customer, stage="open", vip=self.customer == "c-7", number=7)
        self.wait("close")
        self.tag(stage="closed", vip=None)
        return "closed"


def ids(found: Any) -> list[str]:
    return [each.id for each in found]


def test_instances_are_found_by_their_tags(engine: af.Engine) -> None:
    for name, customer in (("a", "c-7"), ("b", "c-8"), ("c", "c-7")):
        wait_for_event(engine.start(Ticket(customer), id=name))
    assert ids(engine.executions(tags={"customer": "c-7"})) == ["a", "c"]
    assert ids(engine.executions(tags={"customer": "c-7", "stage": "closed"})) == []
    assert ids(engine.executions(tags={"vip": True, "number": "7"})) == ["a", "c"]
    assert ids(engine.executions(kind="workflow:Ticket", tags={"number": 7})) == ["a", "b", "c"]
    assert ids(engine.executions(kind="worker", tags={"number": 7})) == []
    assert ids(engine.workflows.instances(Ticket, tags={"customer": "c-8"})) == ["b"]
    assert engine.execution("a").tags == {
        "customer": "c-7",
        "number": "7",
        "stage": "open",
        "vip": "true",
    }


def test_tags_change_with_the_instance_and_outlive_it(
    reopen: Callable[..., af.Engine],
) -> None:
    engine = reopen()
    ticket = engine.start(Ticket("c-7"), id="a")
    wait_for_event(ticket)
    engine = reopen()
    ticket = engine.workflows.get(Ticket, "a")
    ticket.send("close")
    assert ticket.result(PATIENCE) == "closed"
    assert ids(engine.executions(status="done", tags={"stage": "closed"})) == ["a"]
    assert ids(engine.executions(tags={"stage": "open"})) == []
    assert ids(engine.executions(tags={"vip": True})) == []
    assert ticket.query().tags == {"customer": "c-7", "stage": "closed", "number": 7}
    assert engine.upkeep.purge(before=1e12) == 1
    assert ids(engine.executions(tags={"customer": "c-7"})) == []


@pytest.mark.parametrize(
    ("tags", "named"),
    [({"customer": ["c-7"]}, "list"), ({"customer": "x" * 1_001}, "1,000"), ({"c": b"7"}, "bytes")],
)
def test_what_cannot_be_a_tag_is_named_where_it_is_set(
    engine: af.Engine, tags: dict[str, Any], named: str
) -> None:
    class Tags(af.Workflow[None]):
        def __init__(self, tags: dict[str, Any]) -> None:
            self.tags = tags

        def handle(self) -> None:
            self.tag(**self.tags)

    failed = engine.wait(engine.start(Tags(tags)).id, PATIENCE)
    assert failed.failure is not None
    assert failed.failure.type == "BadOption"
    assert named in failed.failure.message
    with pytest.raises(BadOption, match=named):
        list(engine.executions(tags=tags))


@pytest.mark.parametrize("value", ["c-7", True])
def test_the_name_of_a_tag_is_a_text(engine: af.Engine, value: object) -> None:
    with pytest.raises(BadOption, match="the tag 5 is named by no text"):
        list(engine.executions(tags={5: value}))  # type: ignore[dict-item]


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(application(), [str(each) for each in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.parametrize("live", [True, False])
def test_commands_and_http_find_by_tags(tmp_path: Path, *, live: bool) -> None:
    store = tmp_path / "tickets.db"
    engine = af.Engine(store, durability="off", control=live)
    for name, customer in (("a", "c-7"), ("b", "c-8")):
        wait_for_event(engine.start(Ticket(customer), id=name))
    if not live:
        engine.close()
    found = json.loads(run("ps", store, "--tag", "customer=c-7", "--tag", "stage=open", "--json"))
    assert [row["id"] for row in found] == ["a"]
    assert json.loads(run("ps", store, "--tag", "customer=c=7", "--json")) == []
    assert "NAME=VALUE" in run("ps", store, "--tag", "customer", code=2)
    assert "tags     customer=c-7, number=7, stage=open, vip=true\n" in run("show", store, "a")
    if live:
        client = Client(f"{store}.sock")
        assert ids_of(client.executions(tag=["stage=open"])) == ["a", "b"]
        assert ids_of(client.executions(tag=["stage=open", "customer=c-8"])) == ["b"]
        assert client.execution("a")["tags"]["customer"] == "c-7"
        with pytest.raises(BadOption, match="NAME=VALUE"):
            client.executions(tag=["customer"])
    engine.close()


def ids_of(found: dict[str, Any]) -> list[str]:
    return [row["id"] for row in found["executions"]]
