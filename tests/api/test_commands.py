"""The commands: on a store without an engine, and on a live engine through its socket."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.api.cli.register import load
from actorflow.api.cli.table import COMMANDS
from actorflow.cli import application
from actorflow.engine.kind import Status
from tests.api.ledger import PATIENCE, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
GROUPS = ("workflows", "cluster")
FLOW = "sequence\n  desk 'look'\n"


def fill(engine: af.Engine) -> None:
    """Put something into each table."""
    engine.register(Ledger())
    engine.tasker("desk", lambda _: af.HOLD)
    engine.start("ledger", "tea", id="order-1")
    for body in ({"later": 5e9}, {"hold": "task-1"}, {"raise": "bad"}):
        engine.send("order-1", body)
    while not len(engine.dead_letters()) or engine.parts.store.task("task-1") is None:
        pass
    engine.send("order-2", b"\x00\xff", kind="unknown")


@pytest.fixture(params=["store", "live"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a store whose engine has been closed, or runs and can be steered."""
    path = tmp_path / "orders.db"
    engine = af.Engine(path, durability="off", control=request.param == "live")
    with engine:
        fill(engine)
        if request.param == "live":
            yield path
    if request.param == "store":
        yield path


def run(*arguments: Any, code: int = 0, given: str = "") -> str:
    result = CliRunner().invoke(application(), [str(each) for each in arguments], input=given)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def show(store: Path, execution: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("show", store, execution, "--json"))
    return found


def goes_on(store: Path) -> af.Engine | None:
    """Return an engine that goes on with a store, unless one does so already."""
    if (store.parent / "orders.db.sock").exists():
        return None
    engine = af.Engine(store, durability="off")
    engine.register(Ledger())
    engine.tasker("desk", lambda _: af.HOLD)
    engine.resume()
    return engine


def ended(store: Path, execution: str) -> dict[str, Any]:
    """Let an execution go on to its end, and return it as it is shown then."""
    engine = goes_on(store)
    if engine is None:
        waited = ["wait", str(store), execution, "--timeout", str(PATIENCE)]
        result = CliRunner().invoke(application(), waited)
        found = show(store, execution)
        assert result.exit_code == (found["status"] != "done"), result.output
        return found
    with engine:
        engine.wait(execution, PATIENCE)
    return show(store, execution)


# Looking.


def test_ps_lists_what_waits_for_each(store: Path) -> None:
    lines = [line.split() for line in run("ps", store).splitlines()]
    assert lines[0][:3] == ["execution", "kind", "status"]
    assert lines[1][:3] == ["order-1", "ledger", "active"]
    assert lines[1][4:8] == ["0", "1", "1", "1"]
    assert lines[2][:8] == ["order-2", "unknown", "active", "0", "1", "0", "0", "0"]
    (row,) = json.loads(run("ps", store, "--kind", "unknown", "--json"))
    assert row["counts"] == {"messages": 1, "timers": 0, "tasks": 0, "dead": 0}
    assert json.loads(run("ps", store, "--status", "failed", "--json")) == []
    assert "and more: --limit 10" in run("ps", store, "--limit", 1)


def test_a_status_that_is_none_is_refused_and_the_others_named(store: Path) -> None:
    text = run("ps", store, "--status", "nonsense", code=2)
    for status in Status:
        assert status in text


def test_show_makes_everything_readable(store: Path) -> None:
    shown = show(store, "order-1")
    assert shown["view"] == ["tea"]
    assert shown["timers"][0]["due"] == 5e9
    assert shown["tasks"][0]["body"] == {"hold": "task-1"}
    assert shown["dead"][0]["error"] == "ValueError: bad"
    assert show(store, "order-2")["messages"][0]["body"] == {"base64": "AP8="}
    text = run("show", store, "order-1")
    assert "status   active" in text
    assert "ValueError: bad" in text


def test_tasks_and_dead_letters_are_listed(store: Path) -> None:
    (task,) = json.loads(run("tasks", store, "--json"))
    assert (task["id"], task["execution"], task["tasker"]) == ("task-1", "order-1", "desk")
    assert "task-1" in run("tasks", store, "order-1", "--tasker", "desk")
    assert "task-1" not in run("tasks", store, "order-2")
    (letter,) = json.loads(run("dead", store, "--json"))
    assert letter["body"] == {"raise": "bad"}
    assert "ValueError: bad" in run("dead", store, "order-1")


def test_what_is_not_there_is_named_with_exit_code_1(store: Path, tmp_path: Path) -> None:
    assert "did you mean 'order-2' or 'order-1'" in run("show", store, "order-7", code=3)
    assert "no execution 'order-7'" in run("cancel", store, "order-7", code=3)
    assert "no execution 'order-7'" in run("send", store, "order-7", "1", code=3)
    assert "no task 'none'" in run("return-task", store, "none", code=3)
    for command in ("tasks", "dead", "retry"):
        assert "no execution 'order-7'" in run(command, store, "order-7", code=3)
    for command in ("ps", "purge", "export", "retry", "tasks", "dead", "verify"):
        assert "there is no store" in run(command, tmp_path / "none.db", code=3)
    assert not (tmp_path / "none.db").exists()


# Steering.


def test_send_and_wait(store: Path) -> None:
    run("send", store, "order-1", '{"milk": [1, null]}')
    run("send", store, "order-1", '"once"', "--key", "k")
    run("send", store, "order-1", '"once"', "--key", "k")
    run("send", store, "order-1", '{"end": 7}')
    shown = ended(store, "order-1")
    assert (shown["status"], shown["result"]) == ("done", 7)
    assert "has ended" in run("send", store, "order-1", "1", code=4)
    assert "of kind 'ledger'" in run("send", store, "order-1", "1", "--kind", "worker", code=4)


def test_every_command_that_steers_can_answer_with_json(store: Path) -> None:
    (task, *_) = json.loads(run("tasks", store, "--json"))
    wanted = {"task": task["id"], "wanted": True}
    assert json.loads(run("return-task", store, task["id"], "--json")) == wanted
    assert "no task" in run("fail-task", store, task["id"], "--error", "x", "--json", code=3)
    assert json.loads(run("send", store, "order-1", "1", "--json")) == {"execution": "order-1"}
    run("start", store, "--flow", "-", "--id", "flow-1", given="stall _")
    assert json.loads(run("send", store, "flow-1", "--event", "go", "--json")) == {
        "execution": "flow-1"
    }


def test_start_stores_what_the_next_engine_runs(store: Path) -> None:
    assert run("start", store, "ledger", '{"end": [1]}', "--id", "new") == "new\n"
    assert run("start", store, "ledger", '{"end": [2]}', "--id", "new") == "new\n"
    assert ended(store, "new")["result"] == [1]


def test_a_task_is_answered_from_outside(store: Path) -> None:
    assert "answered" in run("return-task", store, "task-1", "--value", '{"by": "hand"}')
    assert "no task 'task-1'" in run("return-task", store, "task-1", code=3)
    run("send", store, "order-1", '{"end": null}')
    assert ["task-1", "ok", {"by": "hand"}] in _state(store, "order-1")


def test_a_task_fails_from_outside(store: Path) -> None:
    run("fail-task", store, "task-1", "--error", "no stock")
    run("send", store, "order-1", '{"end": null}')
    assert ["task-1", "failed", None] in _state(store, "order-1")


def _state(store: Path, execution: str) -> Any:
    engine = goes_on(store)
    if engine is None:
        run("wait", store, execution)
        return show(store, execution)["view"]
    with engine:
        return engine.wait(execution, PATIENCE).view


def test_a_flow_is_launched_signalled_and_cancelled(store: Path, tmp_path: Path) -> None:
    (tmp_path / "look.flo").write_text(FLOW)
    made = run(
        "start", store, "--flow", tmp_path / "look.flo", "--payload", '{"order": 7}', "--id", "f"
    )
    assert made == "f\n"
    assert run("start", store, "--flow", "-", "--id", "f", given=FLOW) == "f\n"
    assert json.loads(run("start", store, "--flow", "-", "--json", given=FLOW))["execution"]
    run("send", store, "f", '{"by": "hand"}', "--event", "go")
    assert "not a flow" in run("send", store, "order-1", "--event", "go", code=3)
    assert show(store, "f")["view"]["nodes"] is not None
    assert "there is no 0_9 (any more)" in run("cancel", store, "f", "0_9")
    assert "cancelled" in run("cancel", store, "f")
    assert ended(store, "f")["status"] in {"cancelled", "done"}
    assert "it had ended already" in run("cancel", store, "f")


def test_cancel_retry_and_purge(store: Path) -> None:
    assert "1 message will be tried again" in run("retry", store, "order-1")
    assert "cancelled" in run("cancel", store, "order-1")
    assert json.loads(run("cancel", store, "order-1", "--json"))["cancelled"] is False
    assert "0 executions forgotten" in run("purge", store)
    assert "1 execution forgotten" in run("purge", store, "--days", 0, "--dead")
    run("show", store, "order-1", code=3)


def test_what_has_ended_is_deleted(store: Path) -> None:
    assert "cancel or kill it first" in run("delete", store, "order-1", code=4)
    run("cancel", store, "order-1")
    assert run("delete", store, "order-1") == "deleted\n"
    assert "no execution 'order-1'" in run("delete", store, "order-1", code=3)
    run("kill", store, "order-2")
    assert "1 execution of 1: delete" in run("bulk", store, "delete", "--yes")
    assert json.loads(run("ps", store, "--json")) == []


def test_single_letters_are_retried(store: Path) -> None:
    (letter,) = json.loads(run("dead", store, "--json"))
    missing = run("retry", store, "--letter", 987_654, code=3)
    assert "1 dead letter not found; see actorflow dead" in missing
    other = run("retry", store, "order-2", "--letter", letter["id"], code=3)
    assert "1 dead letter of 'order-2' not found" in other
    assert json.loads(run("retry", store, "--letter", letter["id"], "--json")) == {"retried": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "order-1", "{tea}"),
        ("send", "order-1", "NaN"),
        ("start", "--flow", "nowhere.flo"),
        ("start", "--flow", "-", "--payload", "[1]"),
        ("ask", "order-1", "go", "7"),
        ("return-task", "task-1", "--value", "'x'"),
        ("fail-task", "task-1"),
        ("ps", "--limit", "0"),
        ("purge", "--days", "-1"),
    ],
)
def test_wrong_arguments_are_exit_code_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    command, *rest = arguments
    run(command, tmp_path / "none.db", *rest, code=2)


# With and without an engine.


def test_nothing_runs_while_commands_change_a_store(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off") as engine:
        engine.every("tick", "* * * * * *", engine.worker("w", _never), 1)
    run("send", path, "w", "1", "--kind", "worker")
    (tmp_path / "f.flo").write_text("'done'\n")
    run("start", path, "--flow", tmp_path / "f.flo", "--id", "f")
    run("purge", path, "--days", 0)
    rows = {row["id"]: row for row in json.loads(run("ps", path, "--json"))}
    assert rows["f"]["status"] == "active"
    assert rows["f"]["counts"]["messages"] == 1
    assert rows["w"]["counts"]["messages"] >= 1
    assert rows["cron:tick"]["counts"]["timers"] == 1


def _never(_batch: Any, _state: Any) -> Any:
    msg = "it runs"
    raise AssertionError(msg)


def test_an_engine_without_control_can_be_looked_at_but_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off") as engine:
        fill(engine)
        assert "order-1" in run("ps", path)
        assert show(path, "order-1")["kind"] == "ledger"
        for command in (("cancel", "order-1"), ("return-task", "task-1"), ("purge",), ("retry",)):
            name, *rest = command
            assert "control=True" in run(name, path, *rest, code=4)


def test_a_stale_socket_is_passed_over(tmp_path: Path) -> None:
    import socket  # noqa: PLC0415

    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off") as engine:
        fill(engine)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{path}.sock")
    assert "order-1" in run("ps", path)
    assert "cancelled" in run("cancel", path, "order-1")


def test_a_socket_of_its_own_is_named_in_place_of_the_store(tmp_path: Path) -> None:
    where = tmp_path / "my.sock"
    with af.Engine(":memory:", control=str(where)) as engine:
        fill(engine)
        assert "order-1" in run("ps", where)
        assert "answered" in run("return-task", where, "task-1")
        assert "name its file" in run("export", where, code=2)
        assert "name its file" in run("backup", where, tmp_path / "copy.db", code=2)


def test_a_port_takes_the_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.api.test_sockets import TOKEN, free_port  # noqa: PLC0415

    address = f"tcp://127.0.0.1:{free_port()}"
    with af.Engine(":memory:", control=address, token=TOKEN) as engine:
        fill(engine)
        monkeypatch.delenv("ACTORFLOW_TOKEN", raising=False)
        assert "token" in run("ps", address, code=4)
        monkeypatch.setenv("ACTORFLOW_TOKEN", TOKEN)
        assert "order-1" in run("ps", address)
    assert "no engine answers" in run("ps", address, code=1)


def test_backup_copies_also_while_the_engine_runs(store: Path, tmp_path: Path) -> None:
    assert "bytes" in run("backup", store, tmp_path / "copy.db")
    copied = json.loads(run("show", tmp_path / "copy.db", "order-1", "--json"))
    assert copied["id"] == "order-1"
    assert "there already" in run("backup", store, tmp_path / "copy.db", code=2)


def test_wait_says_that_no_engine_runs(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off") as engine:
        fill(engine)
    assert "no engine runs" in run("wait", path, "order-1", code=1)


class Declined(af.Workflow[None]):
    """Ends with a failure."""

    def handle(self) -> None:
        """Fail."""
        raise af.Failed("declined")


class Idle(af.Workflow[None]):
    """Waits for an event."""

    def handle(self) -> None:
        """Wait."""
        self.wait("go")
        raise ValueError("no")


def test_wait_exits_with_1_unless_it_has_ended_well(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off", control=True) as engine:
        engine.workflows.register(Declined, Idle)
        engine.start(Declined(), id="failed")
        engine.start(Idle(), id="cancelled").cancel()
        engine.start(Idle(), id="stuck").send("go")
        assert "Failed: declined" in run("wait", path, "failed", code=1)
        run("wait", path, "cancelled", code=1)
        assert "ValueError" in run("wait", path, "stuck", code=1)
        for name in ("failed", "cancelled", "stuck"):
            found = json.loads(run("ps", path, "--status", name, "--json"))
            assert [each["id"] for each in found] == [name]


def test_wait_says_that_the_engine_cannot_be_asked(tmp_path: Path) -> None:
    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off") as engine:
        fill(engine)
        refused = run("wait", path, "order-1", code=1)
    assert "with a control socket" in refused


def test_export_and_import_give_the_same_store(store: Path, tmp_path: Path) -> None:
    text = run("export", store)
    copy = tmp_path / "copy.db"
    assert "rows" in run("import", copy, given=text)
    assert _rows(run("export", copy)) == _rows(text)
    assert "there already" in run("import", copy, given=text, code=1)


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if '"table": "meta"' not in line]


@pytest.mark.parametrize("given", ["", "nonsense", '{"actorflow": 2}\n{"table": "moon"}\n'])
def test_an_import_of_nonsense_leaves_nothing_behind(given: str, tmp_path: Path) -> None:
    assert "actorflow" in run("import", tmp_path / "new.db", given=given, code=1)
    assert list(tmp_path.iterdir()) == []


def test_verify_finds_what_is_wrong(store: Path) -> None:
    assert "no problem was found" in run("verify", store)
    assert json.loads(run("verify", store, "--json")) == []


def test_verify_names_what_is_wrong_with_exit_code_1(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    path = tmp_path / "orders.db"
    with af.Engine(path, durability="off") as engine:
        fill(engine)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE executions SET status = 'nonsense' WHERE id = 'order-2'")
    assert "nonsense" in run("verify", path, code=1)
    assert json.loads(run("verify", path, "--json", code=1))[0]["row"] == "order-2"


def test_the_page_on_operating_names_every_command() -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if not re.search(rf"(actorflow |\| |`){name}\b", text)] == []


def test_the_list_of_commands_says_what_their_docstrings_say() -> None:
    for name, entry in COMMANDS.items():
        if ":" not in entry.module and name not in GROUPS:
            command = load(name, entry)
            assert entry.help == command.help.partition("\n")[0], name
