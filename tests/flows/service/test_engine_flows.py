"""Flows on an engine: errors, steering, and states."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.bodies import encode
from actorflow.engine.errors import UnknownExecution, WaitTimeout
from actorflow.engine.stores.protocol import Change, NewMessage
from actorflow.flows.errors import BadPayload, FlowError, FlowMessageRefused
from actorflow.flows.language.source import FlowSyntaxError
from actorflow.flows.service.exids import BadName
from tests.flows.engines import PATIENCE, Desk
from tests.flows.service.running import run
from tests.runtime.worker.probe import Caller, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], af.Engine]]:
    """Return what opens an engine on the same file, closing the one before."""
    made: list[af.Engine] = []

    def again() -> af.Engine:
        if made:
            made[-1].close()
        made.append(af.Engine(tmp_path / "again.db", durability="off"))
        return made[-1]

    yield again
    made[-1].close()


def test_many_are_launched_or_none(engine: af.Engine) -> None:
    payloads: list[Any] = [{"n": n} for n in range(450)]
    exids = engine.flows.launch_many("set f.m f.n", payloads)
    assert [engine.wait(exid, PATIENCE).view.payload["m"] for exid in exids] == list(range(450))
    with pytest.raises(BadPayload):
        engine.flows.launch_many("1", [*payloads, {"n": object()}])
    assert len(list(engine.executions())) == 450


# --- errors --------------------------------------------------------------------------------------


def test_an_unknown_tasker_has_its_own_error(engine: af.Engine) -> None:
    engine.tasker("alice", lambda _task: None)
    failed = run(engine, "sequence\n  task 'alicia' 'x'")
    (failure,) = failed.failures
    assert failure.kind == "UnknownTasker"
    assert "alicia" in failure.text
    assert "'alice'" in failure.text


def test_an_unknown_procedure_has_its_own_error(engine: af.Engine) -> None:
    (failure,) = run(engine, "sequence\n  nada 1").failures
    assert (failure.nid, failure.kind, failure.line) == ("0_0", "UnknownProcedure", 2)
    assert "nada" in failure.text


@pytest.mark.parametrize("payload", [[], "text", 7, {"a": object()}, {"a": 10**30}])
def test_a_bad_payload_is_refused_before_anything_is_stored(
    engine: af.Engine, payload: Any
) -> None:
    with pytest.raises(BadPayload):
        engine.launch("1", payload=payload)
    with pytest.raises(BadPayload):
        engine.launch("1", vars=payload)
    assert list(engine.executions()) == []


def test_what_is_not_a_flow_is_refused(engine: af.Engine) -> None:
    with pytest.raises(FlowSyntaxError, match="line 2"):
        engine.launch("sequence\n  push f.l (1")
    with pytest.raises(FlowError, match="its text, or a tree"):
        engine.launch({"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(("domain", "unit"), [("a-b", "u"), ("", "u"), ("a..b", "u"), ("a", "u-v")])
def test_names_that_cannot_be_told_apart_are_refused(
    engine: af.Engine, domain: str, unit: str
) -> None:
    with pytest.raises(BadName):
        engine.launch("1", domain=domain, unit=unit)


def test_an_unknown_execution_is_refused_by_every_verb(engine: af.Engine) -> None:
    verbs: list[Callable[[], Any]] = [
        lambda: engine.wait("nosuch", 1),
        lambda: engine.execution("nosuch"),
        lambda: engine.cancel("nosuch"),
        lambda: engine.flows.kill("nosuch"),
        lambda: engine.flows.signal("nosuch", "go"),
        lambda: engine.flows.re_apply("nosuch", "0", "1"),
        lambda: engine.flows.add_branches("nosuch", "0", ["1"]),
        lambda: engine.flows.add_iterations("nosuch", "0", [1]),
    ]
    for verb in verbs:
        with pytest.raises(UnknownExecution, match="nosuch"):
            verb()


def test_a_wait_ends_in_time(engine: af.Engine) -> None:
    exid = engine.launch("stall _")
    with pytest.raises(WaitTimeout):
        engine.wait(exid, 0.01)


def test_a_number_too_big_for_the_store_fails_the_flow_and_no_more(engine: af.Engine) -> None:
    flow = "sequence\n  set i 2\n  loop\n    set i (i * i)\n    break _ if i == 3"
    failed = run(engine, flow)
    assert failed.status == "stuck"
    assert run(engine, "1").status == "done"


# --- steering ------------------------------------------------------------------------------------


def test_re_apply_mends_a_failed_node(engine: af.Engine) -> None:
    exid = engine.launch("sequence\n  nada 1\n  set f.b 2")
    failed = engine.wait(exid, PATIENCE).view
    engine.flows.re_apply(exid, failed.failures[0].nid, "set f.a 1")
    done = engine.wait(exid, PATIENCE).view
    assert done.status == "done"
    assert (done.payload["a"], done.payload["b"]) == (1, 2)


def test_re_apply_with_a_payload_takes_the_task_back(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  desk 'x'\n  desk 'z'", payload={"a": 1})
    desk.wait_for(1)
    engine.flows.re_apply(exid, "0_0", "desk 'y'", payload={"a": 2})
    _, again = desk.wait_for(2)
    assert (again.name, again.payload["a"]) == ("y", 2)
    assert engine.return_task(desk.tasks[0].id, {}) is False
    engine.return_task(again.id, {"a": 3})
    assert desk.wait_for(3)[2].payload["a"] == 3


def test_branches_and_iterations_are_added(engine: af.Engine) -> None:
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  concurrence\n    desk 'a'\n    desk 'b'")
    desk.wait_for(2)
    engine.flows.add_branches(exid, "0_0", ["desk 'c'", "desk 'd'"])
    tasks = desk.wait_for(4)
    assert [task.name for task in tasks] == ["a", "b", "c", "d"]
    with pytest.raises(FlowMessageRefused, match="0_9"):
        engine.flows.add_branches(exid, "0_9", ["1"])
    for task in tasks:
        engine.return_task(task.id, {task.name: True})
    assert engine.wait(exid, PATIENCE).view.payload == dict.fromkeys("abcd", True)

    exid = engine.launch("map [ 1 2 ] (def x \\ desk x)")
    desk.wait_for(5)
    engine.flows.add_iterations(exid, "0", [3])
    for number in (5, 6, 7):
        task = desk.wait_for(number)[number - 1]
        assert task.name == number - 4
        engine.return_task(task.id, task.payload)
    assert engine.wait(exid, PATIENCE).view.ret == [1, 2, 3]


def test_signals_from_outside_and_from_other_flows(engine: af.Engine) -> None:
    waiting = engine.launch("sequence\n  on 'go'\n  set f.went sig")
    other = engine.launch("sequence\n  on 'go'")
    engine.flows.signal(other, "stop")
    engine.flows.signal(other, "go", {"by": "hand"})
    assert engine.wait(other, PATIENCE).view.payload["by"] == "hand"
    run(engine, f"signal 'go' exid: '{waiting}'")
    assert engine.wait(waiting, PATIENCE).status in {"done", "stuck"}
    assert run(engine, "signal 'go' exid: 'nobody'").status == "done"


def test_traps_watch_the_flows_of_a_domain(
    opened: Callable[[], af.Engine],
) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    watcher = engine.launch(
        "sequence\n  trap tag: 'x' range: 'subdomain' (def msg \\ desk msg.exid)\n  stall _",
        domain="org",
    )
    run(engine, "1")  # anything after which the trap is set
    run(engine, "sequence tag: 'x'", domain="elsewhere")
    first = engine.launch("sequence tag: 'x'", domain="org.rome")
    assert desk.wait_for(1)[0].name in {first, None}
    engine = opened()
    again = Desk()
    engine.tasker("desk", again)
    engine.launch("sequence tag: 'x'", domain="org")
    tasks = again.wait_for(2)  # the one that was not answered, and the new one
    assert {task.exid for task in tasks} == {watcher}
    assert len({task.id for task in tasks}) == 2


def test_subflows_and_variables_of_domains(engine: af.Engine) -> None:
    engine.flows.subflow("greet", 'set f.hello "hello $(name)"')
    engine.flows.define("name", "world")
    engine.flows.define("name", "Rome", domain="org.rome")
    assert run(engine, "graft 'greet'").payload["hello"] == "hello world"
    assert run(engine, "graft 'greet'", domain="org.rome").payload["hello"] == "hello Rome"


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flow",
    [
        "sequence\n  set f.x \"$(nada 1||'y')\"\n  1",
        "sequence on_error: (def err \\ 1)\n  nada 1",
        "concurrence expect: 1\n  stall _\n  1",
        "sequence\n  on 'x' \\ trace 'y'\n  1",
        "sequence\n  part \\ 2\n  1",
        "sequence\n  define f x \\ x\n  map [ 1 2 ] f",
        "sequence timeout: '1h'\n  1",
        "sequence\n  every '1h' \\ trace 'x'\n  1",
        "sequence",
    ],
)
def test_a_terminated_execution_is_never_left_active(engine: af.Engine, flow: str) -> None:
    done = run(engine, flow)
    assert done.status == "done"
    assert done.timers == []
    assert engine.parts.row(done.exid).status == "done"
    assert engine.parts.store.due() == []
    assert engine.parts.store.open().rows == []


def test_loops_do_not_starve_others(engine: af.Engine) -> None:
    endless = [engine.launch("loop\n  1") for _ in range(3)]
    for _ in range(5):
        assert run(engine, "sequence\n  1\n  2").ret == 2
    for exid in endless:
        assert engine.execution(exid).status == "active"
        assert engine.flows.kill(exid) is True
        assert engine.wait(exid, PATIENCE).status == "cancelled"


@pytest.mark.parametrize("kill", [False, True])
def test_what_goes_on_without_the_root_can_be_ended(engine: af.Engine, kill: bool) -> None:  # noqa: FBT001
    exid = engine.launch("sequence\n  part\n    stall _\n  1")
    engine.flows.wait_for(exid, "terminated", PATIENCE)
    assert (engine.flows.kill if kill else engine.cancel)(exid) is True
    engine.wait(exid, PATIENCE)
    assert (engine.flows.kill if kill else engine.cancel)(exid) is False


def test_a_cancel_tells_whether_there_was_such_a_node(engine: af.Engine) -> None:
    exid = engine.launch("sequence\n  set f \\ def x \\ x\n  stall _\n  stall _")
    engine.flows.wait_for(exid, "end", PATIENCE)
    assert engine.cancel(exid, "0_7") is False
    assert engine.cancel(exid, "0_1") is True
    engine.flows.wait_for(exid, "0_2 execute; end", PATIENCE)
    assert engine.cancel(exid, "0_1") is False
    assert engine.cancel(exid, "0") is True
    assert engine.wait(exid, PATIENCE).status == "cancelled"


def test_a_cancel_of_a_node_that_is_gone_is_in_the_history(engine: af.Engine) -> None:
    exid = engine.launch("sequence\n  1\n  stall _")
    engine.flows.wait_for(exid, "0_1 execute; end", PATIENCE)
    assert engine.cancel(exid, "0_0") is False
    engine.flows.wait_for(exid, "0_0 cancel; end", PATIENCE)
    (seen,) = [one for one in engine.execution(exid).view.history() if one["point"] == "cancel"]
    assert seen["nid"] == "0_0"
    assert engine.execution(exid).status == "active"


def test_cancels_that_come_too_late_leave_no_dead_letters(engine: af.Engine) -> None:
    for _ in range(20):
        exid = engine.launch("sequence\n  stall _")
        callers = [Caller(engine.cancel, exid, nid) for nid in (None, "0_0", "0", None)]
        engine.wait(exid, PATIENCE)
        for caller in callers:
            caller.value()
    assert list(engine.dead_letters()) == []


def test_a_stored_cancel_of_an_ended_execution_is_no_dead_letter(
    opened: Callable[[], af.Engine],
) -> None:
    engine = opened()
    exid = run(engine, "1").exid
    bodies: list[Any] = [{"point": "cancel", "nid": "0"}, {"point": "signal", "name": "go"}]
    late = [NewMessage(exid, "message", encode(body)) for body in bodies]
    engine.parts.store.commit([Change(exid, messages=late)])
    engine = opened()
    engine.resume()
    until(lambda: len(engine.dead_letters()) > 0, "the signal should be a dead letter")
    assert [letter.message for letter in engine.dead_letters()] == bodies[1:]


def test_a_long_text_in_a_payload_is_stored_once(engine: af.Engine) -> None:
    text = "x" * 1_000_000
    flow = (
        "sequence\n"
        + "  set f.b 'y'\n  set f.c 2\n" * 8
        + "  concurrence\n"
        + "    desk 'x'\n" * 10
    )
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch(flow, payload={"big": text})
    desk.wait_for(10)
    row = engine.parts.store.execution(exid)
    assert row is not None
    assert row.state is not None
    assert len(text) < len(row.state) < 3 * len(text)
    history = [*engine.execution(exid).view.history()]
    assert history[0]["payload"]["big"] == "(1,000,000 characters, not kept in the history)"
    assert {len(each["payload"]["big"]) for each in history if each.get("payload")} == {47}


def test_history_is_kept_until_it_is_purged(engine: af.Engine) -> None:
    done = run(engine, "sequence\n  trace 'a'\n  trace 'b'", payload={"big": list(range(5_000))})
    assert done.traces() == ["a", "b"]
    history = done.history()
    assert history[0]["payload"]["big"] == "(5,000 elements, not kept in the history)"
    assert [run["run"] for run in done.runs()] == list(range(1, done.counters["runs"] + 1))
    engine.upkeep.purge(before=engine.parts.clock.now() + 1)
    assert engine.parts.store.history(done.exid).rows == []
    with pytest.raises(UnknownExecution):
        engine.execution(done.exid)


def test_what_waits_is_found_again(opened: Callable[[], af.Engine]) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    exids = engine.flows.launch_many(
        "sequence\n  desk 'x'\n  set f.n (f.n + 1)", ({"n": n} for n in range(300))
    )
    before = {task.id for task in desk.wait_for(300)}
    assert len(set(exids)) == 300

    engine = opened()
    again = Desk()
    engine.tasker("desk", again)
    engine.resume()
    tasks = again.wait_for(300)
    assert {task.id for task in tasks} == before
    for task in tasks:
        assert engine.return_task(task.id, task.payload) is True
    for number, exid in enumerate(exids):
        assert engine.wait(exid, PATIENCE).view.payload["n"] == number + 1


def test_flows_wait_for_their_taskers_when_an_engine_is_opened(
    opened: Callable[[], af.Engine],
) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    exid = engine.launch("sequence\n  sleep '1ms'\n  alice 'x'")
    engine = opened()  # whether it had slept or not: alice is not there until she is registered
    engine.tasker("alice", lambda task: f"alice {task.name}")
    engine.tasker("desk", desk)
    ended = engine.wait(exid, PATIENCE).view
    assert ended.ret == "alice x" or "alice" in ended.failures[0].text


@pytest.mark.soak
def test_ten_thousand_that_wait_are_found_again(opened: Callable[[], af.Engine]) -> None:
    engine = opened()
    desk = Desk()
    engine.tasker("desk", desk)
    engine.flows.launch_many("desk 'x'", ({"n": n} for n in range(10_000)))
    before = {task.id for task in desk.wait_for(10_000)}
    engine = opened()
    again = Desk()
    engine.tasker("desk", again)
    engine.resume()
    assert {task.id for task in again.wait_for(10_000)} == before


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (["_att"], r"not \['_att'\]$"),
        (["sequence", [["_att"]], 1], r"in which \['_att'\] is not \[head, content, line\]"),
        (["sequence", [["_num", 1, 1], 7], 1], "in which 7 is no"),
        ([["sequence"], [], 1], r"in which \['sequence'\] is no"),
        (["sequence", [], "one"], "not "),
        ({"sequence": []}, "not {'sequence'"),
        (None, "not None"),
    ],
)
def test_what_is_no_tree_is_refused_at_once(engine: af.Engine, tree: Any, why: str) -> None:
    with pytest.raises(FlowError, match=why):
        engine.launch(tree)


@pytest.mark.parametrize("how", ["cancel", "kill", "akill"])
def test_whoever_ends_a_flow_that_ends_just_now_is_told_so(
    engine: af.Engine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    desk = Desk()
    engine.tasker("alice", desk)
    exid = engine.launch("alice _")
    desk.wait_for(1)
    cancellation = engine.parts.cancellation
    target, name = (cancellation, "_wish") if how == "cancel" else (engine.flows, "_kill")
    look: Any = getattr(target, name)

    def late(*arguments: Any) -> Any:
        message = look(*arguments)
        monkeypatch.undo()
        engine.cancel(exid)
        engine.wait(exid, timeout=PATIENCE)
        return message

    monkeypatch.setattr(target, name, late)
    if how == "akill":
        assert not asyncio.run(engine.flows.akill(exid))
    else:
        assert not (engine.cancel if how == "cancel" else engine.flows.kill)(exid)
