"""Flows as a kind: a run is a function of its arguments, and what it leaves for the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actorflow.engine.bodies import decode, encode
from actorflow.engine.envelopes import ChildEnded, Message, TaskEnded, TaskStarted, TimerFired
from actorflow.engine.kind import Context, Failure, Outcome, Status, Watch
from actorflow.engine.stores.protocol import Change
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.language.parser import parse
from actorflow.flows.service.kind import FlowKind, FlowState
from actorflow.flows.service.library import Library
from actorflow.flows.service.received_messages import launch_body
from actorflow.flows.service.taskers import Directory
from actorflow.runtime.tickets import ThreadTicket

EXID = "x-1"
NOW = 1_600_000_000.0


def kind_with(*taskers: str, **options: Any) -> FlowKind:
    directory = Directory()
    for name in taskers:
        directory = directory.with_tasker(name)
    return FlowKind(directory=lambda: directory, **options)


def launch(flow: str, *, domain: str = "main", **payload: Any) -> Message:
    body = launch_body(launch_message("", parse(flow), payload=payload), domain, "u0")
    return Message(1, NOW, body)


def sent(**body: Any) -> Message:
    return Message(2, NOW, body)


def context(revision: int = 0, *watches: Watch, id: str = EXID) -> Context:  # noqa: A002
    return Context(id, NOW, seed=revision, watches=watches)


def run(kind: FlowKind, *batches: list[Any], revision: int = 0) -> Outcome:
    """Run one batch after the other; return the last outcome."""
    state: FlowState = kind.decode(None)
    outcome: Outcome | None = None
    for at, batch in enumerate(batches):
        outcome = kind.run(context(revision + at), state, batch)
        state = kind.decode(kind.encode(outcome.state))
    assert outcome is not None
    return outcome


def record(outcome: Outcome) -> dict[str, Any]:
    (entry,) = outcome.history
    found: dict[str, Any] = msgspec.msgpack.decode(bytes(entry))
    return found


@pytest.mark.parametrize(
    "flow",
    [
        "sequence\n  set f.a (rand 100)\n  set f.b (shuffle [ 1 2 3 4 5 6 7 ])",
        "sequence\n  set f.a (timestamp _)\n  sleep '1h'",
        "concurrence\n  alice 'a'\n  alice 'b'\n  trap tag: 'x' range: 'domain' (def msg \\ 1)",
        "sequence\n  nada 1",
        "sequence\n  signal 'go' exid: 'other'",
    ],
)
def test_a_repeated_run_comes_to_the_same(flow: str) -> None:
    def outcome() -> dict[str, Any]:
        made = run(kind_with("alice"), [launch(flow)], revision=3)
        fields = {name: getattr(made, name) for name in Outcome.__struct_fields__}
        return {**fields, "state": made.state.data, "history": record(made)}

    assert outcome() == outcome()


def test_the_end_has_the_payload_as_its_result() -> None:
    outcome = run(kind_with(), [launch("sequence\n  set f.b 2", a=1)])
    assert outcome.status is Status.DONE
    assert outcome.result == {"a": 1, "ret": None, "b": 2}
    assert outcome.error is None


def test_a_failure_names_the_first_node_that_nobody_takes_care_of() -> None:
    outcome = run(kind_with(), [launch("sequence\n  nada 1")])
    assert outcome.status is Status.STUCK
    assert outcome.error == Failure("UnknownProcedure", 'node 0_0: don\'t know how to apply "nada"')
    mended = {"point": "cancel", "nid": "0_0", "on_receive_last": []}
    again = run(kind_with(), [launch("sequence\n  nada 1")], [sent(**mended)])
    assert again.status is Status.DONE
    assert again.error is None


def test_a_task_and_its_end() -> None:
    kind = kind_with("alice")
    flow = launch("sequence\n  alice 'x'", a=1)
    (task,) = run(kind, [flow]).tasks
    body = decode(encode(task.body))
    assert (task.tasker, body["taskname"], body["payload"]["a"]) == ("alice", "x", 1)
    ended = TaskEnded(2, NOW, task.id, "ok", {"b": 2})
    assert run(kind, [flow], [ended]).result == {"b": 2}
    failed = TaskEnded(2, NOW, task.id, "failed", error=Failure("ValueError", "no ink"))
    assert run(kind, [flow], [failed]).error == Failure("ValueError", "node 0_0: no ink")
    crashed = TaskEnded(2, NOW, task.id, "crashed", error=Failure("TaskCrashed", "died"))
    assert run(kind, [flow], [crashed]).status is Status.STUCK
    strange = run(kind, [flow], [TaskEnded(2, NOW, task.id, "ok", 7)])
    assert strange.error == Failure(
        "TaskFailed", "node 0_0: the answer must be a payload, a JSON object, not 7"
    )
    cancelled = run(kind, [flow], [sent(**kind.cancel("0_0"))])
    assert cancelled.cancelled_tasks == [task.id]


def test_a_timer_releases_what_the_state_holds() -> None:
    kind = kind_with()
    flow = launch("sequence\n  sleep '2s'\n  set f.done true")
    (timer,) = run(kind, [flow]).timers
    assert (timer.at, timer.body) == (NOW + 2, None)
    fired = TimerFired(2, NOW + 2, timer.id, timer.at)
    assert run(kind, [flow], [fired]).result["done"] is True
    late = run(kind, [flow], [sent(**kind.cancel(None))], [fired, fired])
    assert late.status is Status.CANCELLED
    assert all("not set any more" in text for text in record(late)["refused"])


@pytest.mark.parametrize(
    "bad",
    [
        Message(9, NOW, 7),
        Message(9, NOW, None),
        Message(9, NOW, {}),
        Message(9, NOW, {"point": 7}),
        Message(9, NOW, {"point": "cancel", "nid": ["0"]}),
        Message(9, NOW, {"point": "signal", "name": "go", "payload": "text"}),
        Message(9, NOW, {"point": "execute", "nid": "0_9", "tree": 7}),
        Message(9, NOW, {"point": "execute", "nid": "0_9", "tree": b"\xc1"}),
        TaskEnded(9, NOW, "x-1/0_7#3", "ok", {}),
        TaskEnded(9, NOW, "odd", "ok", {}),
        TaskStarted(9, NOW, "x-1/0_0#3"),
        ChildEnded(9, NOW, "child", "done"),
        TimerFired(9, NOW, "nosuch", NOW),
    ],
)
def test_what_is_no_message_of_a_flow_is_refused_alone(bad: Any) -> None:
    flow = launch("sequence\n  on 'go'\n  set f.went true")
    go = sent(point="signal", name="go", payload={"by": "hand"})
    outcome = run(kind_with(), [flow], [bad, go])
    assert outcome.status is Status.DONE
    assert outcome.result["by"] == "hand"
    (why,) = record(outcome)["refused"]
    assert "refused" in why


@pytest.mark.parametrize(
    "odd",
    [
        {"point": "cancel"},
        {"point": "nosuch"},
        {"point": "return", "nid": "0"},
        {"point": "trigger"},
        {"point": "add"},
        {"point": "failed", "nid": "0_7"},
        {"point": "signal"},
    ],
)
def test_messages_that_lack_something_do_no_harm(odd: dict[str, Any]) -> None:
    flow = launch("sequence\n  on 'go'\n  set f.went true")
    go = sent(point="signal", name="go", payload={"by": "hand"})
    outcome = run(kind_with(), [flow], [sent(**odd), go])
    assert outcome.result is None or outcome.result["by"] == "hand"


def test_traps_that_watch_others_are_watches() -> None:
    kind = kind_with()
    trap = "trap tag: 'x' range: 'subdomain' count: 1 (def msg \\ trace msg.exid)"
    flow = launch(f"sequence\n  {trap}\n  stall _", domain="org")
    first = run(kind, [flow])
    (watch,) = first.watches
    seen = Watch(EXID, watch.id, msgspec.msgpack.decode(msgspec.msgpack.encode(watch.body)))

    def triggers(domain: str, id: str = "other") -> list[Any]:  # noqa: A002
        made = kind.run(
            context(0, seen, id=id), kind.decode(None), [launch("sequence tag: 'x'", domain=domain)]
        )
        return [message for message in made.messages if message.to == EXID]

    assert triggers("elsewhere") == []
    assert triggers("org", id=EXID) == []  # its own messages it sees by itself
    (trigger,) = triggers("org.rome")
    sprung = run(kind, [flow], [Message(2, NOW, trigger.body), Message(3, NOW, trigger.body)])
    assert [trace["text"] for trace in record(sprung)["traces"]] == ["other"]
    assert sprung.watches == []
    assert sprung.cancelled_watches == [watch.id]  # its count is used up


def test_what_the_budget_leaves_over_is_sent_to_itself() -> None:
    kind = kind_with(max_messages=3)
    deep = "sequence\n" + "".join(f"{'  ' * n}sequence\n" for n in range(1, 150)) + "  set f.a 1"
    outcome = run(kind, [launch(deep)])
    assert outcome.status is Status.ACTIVE
    (left,) = outcome.messages
    assert left.to == EXID
    for _ in range(1_000):
        batch = [Message(9, NOW, decode(encode(one.body))) for one in outcome.messages]
        state = kind.decode(kind.encode(outcome.state))
        outcome = kind.run(context(), state, batch)
        if outcome.status is not Status.ACTIVE:
            break
    assert outcome.result["a"] == 1


def test_signals_to_what_can_be_no_execution_are_refused() -> None:
    outcome = run(kind_with(), [launch("sequence\n  signal 'go' exid: 7\n  set f.a 1")])
    assert outcome.status in {Status.DONE, Status.STUCK}
    assert [message for message in outcome.messages if type(message.to) is not str] == []


def test_a_run_sees_one_library_and_directory_from_beginning_to_end() -> None:
    asked = []

    def library() -> Library:
        asked.append("library")
        return Library({"limit": len(asked)}, {})

    kind = FlowKind(library=library)
    assert run(kind, [launch("set f.l [ limit limit limit ]")]).result["l"] == [1, 1, 1]
    assert asked == ["library"]


def test_nobody_is_told_of_commits_unless_somebody_waits() -> None:
    kind = kind_with()
    tell = kind.committed
    assert tell is None
    ticket = ThreadTicket()
    kind.waiters.add(EXID, ticket)
    tell = kind.committed
    assert tell is not None
    tell(Change(EXID))
    assert ticket.resolved
    assert len(kind.waiters) == 0
    assert kind.quick(EXID)
