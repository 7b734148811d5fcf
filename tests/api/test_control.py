"""Every verb over a real socket, with what the engine refuses."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.errors import ControlError
from actorflow.api.http import guards
from actorflow.engine.errors import (
    ExecutionActive,
    ExecutionEnded,
    KindMismatch,
    NotStorable,
    UnknownExecution,
    UnknownKind,
    WaitTimeout,
)
from actorflow.runtime.errors import BadOption
from tests.api.ledger import PATIENCE

if TYPE_CHECKING:
    from actorflow.api.client import Client

SLASHED = "orders/2026/é?#7"
"""An id that no path of a URL could hold."""


def noted(engine: af.Engine, execution: str) -> Any:
    """Wait until everything sent so far has been run, and return the state."""
    engine.send(execution, {"end": None})
    return engine.wait(execution, PATIENCE).view


def test_start_send_and_show(engine: af.Engine, client: Client) -> None:
    assert client.start("ledger", "tea", id=SLASHED) == {"execution": SLASHED}
    assert client.start("ledger", "again", id=SLASHED) == {"execution": SLASHED}
    assert client.send(SLASHED, {"milk": [1, None]}) == {"execution": SLASHED}
    client.send(SLASHED, "sugar", key="k")
    client.send(SLASHED, "sugar", key="k")
    client.send(SLASHED, {"end": 7})
    shown = client.wait(SLASHED, timeout=PATIENCE)
    assert (shown["id"], shown["kind"], shown["status"]) == (SLASHED, "ledger", "done")
    assert shown["view"] == ["tea", {"milk": [1, None]}, "sugar"]
    assert shown["result"] == 7
    assert shown["history"][0]["body"].startswith("a batch of")
    assert client.execution(SLASHED) == shown


def test_send_creates_with_a_kind(engine: af.Engine, client: Client) -> None:
    client.send("new", 1, kind="ledger")
    assert noted(engine, "new") == [1]


def test_executions_are_listed_in_pages(engine: af.Engine, client: Client) -> None:
    for number in range(5):
        client.start("ledger", id=f"e{number}")
    client.cancel("e3")
    first = client.executions(limit=2)
    assert [row["id"] for row in first["executions"]] == ["e0", "e1"]
    rest = client.executions(limit=3, after=first["after"])
    assert [row["id"] for row in rest["executions"]] == ["e2", "e3", "e4"]
    cancelled = client.executions(status="cancelled", kind="ledger")
    assert [row["id"] for row in cancelled["executions"]] == ["e3"]
    assert client.executions(parent="e0")["executions"] == []


def test_cancel_whole_or_in_part(engine: af.Engine, client: Client) -> None:
    client.start("ledger", "tea", id="a")
    client.send("a", "milk")
    assert client.cancel("a", "tea")["cancelled"]
    client.send("a", {"end": 1})
    assert client.wait("a", timeout=PATIENCE)["view"] == ["milk"]
    assert not client.cancel("a")["cancelled"]
    client.start("ledger", "tea", id="b")
    assert client.cancel("b")["cancelled"]
    assert client.execution("b")["status"] == "cancelled"


def test_held_tasks_are_answered(engine: af.Engine, client: Client) -> None:
    client.start("ledger", {"hold": "t1"}, id="a")
    client.send("a", {"hold": "t2"})
    while len(client.tasks()["tasks"]) < 2:
        pass
    assert {row["id"] for row in client.tasks(execution="a", tasker="desk")["tasks"]} == {
        "t1",
        "t2",
    }
    assert client.return_task("t1", value={"by": "hand"}) == {"task": "t1", "wanted": True}
    assert client.return_task("t1", value=2) == {"task": "t1", "wanted": False}
    assert client.fail_task("t2", error="no")["wanted"]
    assert noted(engine, "a") == [["t1", "ok", {"by": "hand"}], ["t2", "failed", None]]


def test_dead_letters_are_listed_retried_and_purged(engine: af.Engine, client: Client) -> None:
    client.start("ledger", "tea", id="a")
    for text in ("one", "two", "three"):
        client.send("a", {"raise": text})
    while len(client.dead()["dead"]) < 3:
        pass
    dead = client.dead(execution="a")["dead"]
    assert [row["error"] for row in dead] == [f"ValueError: {t}" for t in ("one", "two", "three")]
    assert client.bury(letters=[dead[0]["id"], dead[0]["id"], 987654]) == {"purged": 1}
    assert client.bury(execution="other", letters=[dead[1]["id"]]) == {"purged": 0}
    assert client.retry(execution="a", letters=[dead[1]["id"]]) == {"retried": 1}
    while len(client.dead()["dead"]) < 2:
        pass
    assert client.retry() == {"retried": 2}
    while len(client.dead()["dead"]) < 2:
        pass
    assert client.bury() == {"purged": 2}
    assert client.dead() == {"dead": [], "after": None}


def test_purge_forgets_what_has_ended(engine: af.Engine, client: Client) -> None:
    client.start("ledger", id="a")
    client.cancel("a")
    assert client.purge(days=1) == {"purged": 0}
    assert client.purge(days=0) == {"purged": 1}
    with pytest.raises(UnknownExecution):
        client.execution("a")


def test_delete_takes_what_has_ended_with_its_children(engine: af.Engine, client: Client) -> None:
    client.start("ledger", id="a")
    with pytest.raises(ExecutionActive, match="cancel or kill it first"):
        client.delete("a")
    client.cancel("a")
    assert client.delete("a") == {"execution": "a", "deleted": True}
    with pytest.raises(UnknownExecution):
        client.delete("a")
    assert client.start("ledger", id="a") == {"execution": "a"}


def test_bulk_deletes_what_has_ended_and_leaves_the_rest(engine: af.Engine, client: Client) -> None:
    for name in ("a", "b", "c"):
        client.start("ledger", id=name)
    client.cancel("a")
    client.cancel("b")
    found = client.bulk("delete", kind="ledger", expected=2)
    assert (found["chosen"], found["done"], found["failed"]) == (2, 2, 0)
    assert [row["id"] for row in client.executions()["executions"]] == ["c"]
    entry = client.audit_log(limit=1)["entries"][0]
    assert (entry["verb"], '"delete"' in entry["parameters"]) == ("bulk", True)


class Keeping(af.Workflow[str]):
    """Keeps what is sent to it until it is told to go on."""

    def handle(self) -> str:
        """Wait for one event after the other."""
        self.wait("go")
        paid = self.wait("paid", seconds=0)
        return "unpaid" if paid is None else f"paid {paid.data}"


def test_a_kept_event_is_discarded_by_its_id_or_number(engine: af.Engine, client: Client) -> None:
    order = engine.start(Keeping(), id="o-1")
    order.send("paid", id="p-1", amount=1)
    order.send("paid", id="7", amount=2)
    order.send("paid", amount=3)
    while len(order.query().kept_events) < 3:
        pass
    last = order.query().kept_events[-1].number
    assert client.discard("o-1", "p-1") == {"execution": "o-1"}
    client.discard("o-1", "7")
    client.discard("o-1", str(last))
    with pytest.raises(af.BadOption, match="keeps no event 'p-1'"):
        client.discard("o-1", "p-1")
    order.send("go")
    assert order.result(timeout=PATIENCE) == "unpaid"


def test_only_a_workflow_keeps_events(engine: af.Engine, client: Client) -> None:
    client.start("ledger", id="a")
    with pytest.raises(KindMismatch, match="only a workflow can do that"):
        client.discard("a", 1)


def test_a_flow_is_launched_signalled_and_cancelled(engine: af.Engine, client: Client) -> None:
    flow = "sequence\n  trap signal: 'go'\n    def msg \\ _\n  stall _\n"
    assert client.start(flow=flow, payload={"order": 7}, id="f") == {"execution": "f"}
    assert client.start(flow=flow, id="f") == {"execution": "f"}
    client.send("f", {"by": "hand"}, event="go")
    view = client.execution("f")["view"]
    assert view["nodes"]["0"]["does"] == "sequence"
    assert view["nodes"]["0"]["payload"] == {"order": 7}
    assert client.cancel("f")["cancelled"]
    assert client.wait("f", timeout=PATIENCE)["status"] in {"done", "cancelled"}


def test_what_the_engine_raises_is_raised_here(engine: af.Engine, client: Client) -> None:
    client.start("ledger", id="a")
    client.start("ledger", {"end": 1}, id="ended")
    client.wait("ended", timeout=PATIENCE)
    with pytest.raises(UnknownExecution, match="there is no execution 'nobody'"):
        client.send("nobody", 1)
    with pytest.raises(ExecutionEnded, match="has ended"):
        client.send("ended", 1)
    with pytest.raises(KindMismatch):
        client.send("a", 1, kind="worker")
    with pytest.raises(UnknownKind, match="did you mean 'ledger'"):
        client.start("legder")
    with pytest.raises(WaitTimeout):
        client.wait("a", timeout=0.01)
    with pytest.raises(BadOption, match="active, stuck, done, failed, cancelled"):
        client.executions(status="nonsense")
    with pytest.raises(NotStorable):
        client.send("a", 2**70)
    with pytest.raises(ControlError, match="FlowSyntaxError"):
        client.start(flow="sequence\n    'unclosed")
    with pytest.raises(BadOption, match="JSON"):
        client.send("a", {1, 2})


@pytest.mark.parametrize("letter", [2**63, True, 1.5, {"id": 7}])
def test_ids_that_no_store_gives_out_are_named(client: Client, letter: Any) -> None:
    with pytest.raises(BadOption, match="pass back what an earlier answer said"):
        client.retry(letters=[letter])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/execution?id=nobody", None, 404),
        ("GET", "/api/execution", None, 422),
        ("GET", "/api/executions?limit=0", None, 422),
        ("POST", "/api/send", {"execution": "nobody", "body": 1}, 404),
        ("POST", "/api/send", {"execution": "", "body": 1}, 422),
        ("POST", "/api/send", {"execution": "a\n", "body": 1}, 422),
        ("POST", "/api/send", {"execution": 7}, 422),
        ("POST", "/api/send", {"execution": "a", "bodY": 1}, 422),
        ("POST", "/api/retry", {"letters": [[1]]}, 422),
        ("GET", "/api/send", None, 405),
        ("GET", "/nowhere", None, 404),
    ],
)
def test_refusals_have_a_status_and_name_the_error(
    client: Client, method: str, path: str, body: Any, status: int
) -> None:
    found, answer = raw(client, method, path, None if body is None else json.dumps(body).encode())
    assert found == status, answer
    told = json.loads(answer)
    assert set(told) == {"error", "message"}
    assert told["error"]
    assert told["message"]


def raw(client: Client, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
    """Send a request as it is; return the status and the answer."""
    connection = client.connection(PATIENCE)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_health_statistics_metrics_and_description(engine: af.Engine, client: Client) -> None:
    assert client.health()["status"] == "ok"
    client.start("ledger", id="a")
    assert client.stats()["commits"] >= 1
    assert "actorflow_engine_commits_total" in client.metrics()
    paths = client.request("GET", "/openapi.json")["paths"]
    assert {"/api/start", "/api/send", "/api/return-task", "/health", "/metrics"} <= set(paths)


def test_what_json_cannot_hold_is_shown_all_the_same(engine: af.Engine, client: Client) -> None:
    engine.start("ledger", {"raw": b"\xff", "odd": float("nan"), "keys": {1: 2}}, id="a")
    engine.send("a", {"end": b"bytes"})
    shown = client.wait("a", timeout=PATIENCE)
    assert shown["view"] == [{"raw": {"base64": "/w=="}, "odd": "nan", "keys": {"1": 2}}]
    assert shown["result"] == {"base64": "Ynl0ZXM="}


def test_many_clients_at_the_same_time(engine: af.Engine, client: Client) -> None:
    client.start("ledger", id="a")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: client.send("a", number), range(200)))
    client.send("a", {"end": None})
    noted = client.wait("a", timeout=PATIENCE)["view"]
    assert sorted(noted[1:]) == list(range(200))


def test_a_body_that_is_too_large_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "MAX_BYTES", 1_000)
    body = json.dumps({"execution": "a", "body": "x" * 3_000}).encode()
    status, answer = raw(client, "POST", "/api/send", body)
    assert status == 413
    assert "at most 2,000 bytes" in json.loads(answer)["message"]
    assert client.health()["status"] == "ok"
