"""A behaviour in front of the events of a running workflow: each strategy is one line."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import (
    Base,
    Bounded,
    Coalesce,
    Debounce,
    Expire,
    Item,
    Priority,
    Queue,
    Throttle,
    Unique,
)
from actorflow.engine.kind import Message
from actorflow.engine.stores.protocol import new_row
from actorflow.runtime.errors import Rejected
from actorflow.testing.behaviours import check_behaviour
from actorflow.workflows.service.busy_instances import BusyInstances
from actorflow.workflows.service.inbox import EventInbox
from tests.engine.kinds import flush, rows, until
from tests.runtime.worker.probe import Caller
from tests.workflows.service.orders import PATIENCE, advance_until_done, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.testing import VirtualClock

ENTERED, GATE = threading.Event(), threading.Event()


@af.task
def nothing() -> str:
    return "nothing"


class Agent(af.Workflow[list[Any]]):
    """Takes messages in; the first one keeps its decision busy until the test opens the gate."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.done = False

    def handle(self) -> list[Any]:
        self.wait("end")
        return self.seen

    def on_event(self, event: af.Event) -> None:
        if event.name == "message":
            self.seen = [*self.seen, event.data["text"]]
            if event.data["text"] == "hold":
                ENTERED.set()
                GATE.wait(PATIENCE)


@pytest.fixture(autouse=True)
def _gate() -> None:
    ENTERED.clear()
    GATE.clear()


def run(
    engine: af.Engine, clock: VirtualClock, inbox: Any, *texts: str
) -> tuple[list[Any], list[str]]:
    """Send messages while a decision is being taken; return the seen and the refused ones."""
    agent = engine.start(Agent(), id="agent", inbox=inbox)
    wait_for_event(agent)
    agent.send("message", text="hold")
    assert ENTERED.wait(PATIENCE)
    refused = []
    for text in texts:
        clock.advance(1)
        try:
            agent.send("message", text=text)
        except Rejected:
            refused.append(text)
    GATE.set()
    until(engine, lambda: not rows(engine, "messages"))
    agent.send("end")
    return agent.result(PATIENCE)[1:], refused


def merged(old: af.Event, new: af.Event) -> af.Event:
    return af.Event(old.name, {"text": f"{old.data['text']}+{new.data['text']}"})


class NewestFirst(Base):
    """A behaviour as the seed writes them."""


@pytest.mark.parametrize(
    ("inbox", "expected", "refused"),
    [
        (None, ["a", "b", "c"], []),
        (Queue, ["a", "b", "c"], []),
        (Bounded(Queue(), 1, when_full="reject"), ["a"], ["b", "c"]),
        (Bounded(Queue(), 2, when_full="drop_oldest"), ["b", "c"], []),
        (Unique(key=lambda event: event.name), ["c"], []),
        (Coalesce(key=lambda event: event.name, merge=merged), ["a+b+c"], []),
        (NewestFirst, ["c", "b", "a"], []),
        (Priority(key=lambda event: ord(event.data.get("text", "z")[0])), ["c", "b", "a"], []),
    ],
    ids=["none", "queue", "reject", "drop oldest", "newest only", "merge", "own", "priority"],
)
def test_strategies(
    engine: af.Engine, clock: VirtualClock, inbox: Any, expected: list[str], refused: list[str]
) -> None:
    assert run(engine, clock, inbox, "a", "b", "c") == (expected, refused)
    until(engine, lambda: engine.workflows.get(Agent, "agent")._kind.quick("agent"))
    assert len(rows(engine, "dead")) == len(refused)


def test_debounce(engine: af.Engine, clock: VirtualClock) -> None:
    agent = engine.start(Agent(), inbox=Debounce(Unique(key=lambda event: event.name), 5.0))
    wait_for_event(agent)
    for text in "abc":
        agent.send("message", text=text)
    assert agent.query().properties["seen"] == []
    clock.advance(5)
    until(engine, lambda: agent.query().properties["seen"] == ["c"])
    agent.send("end")
    advance_until_done(engine, clock, agent, 5)


TOLD: list[str] = []


@af.task
def think(text: str) -> str:
    """Think until somebody wants something else, or the gate is open."""
    ENTERED.set()
    while not GATE.wait(0.01):
        if not af.current_task().heartbeat():
            TOLD.append(text)
            return "not wanted"
    return f"{text} answered"


class Thinker(af.Workflow[list[str]], on_error="stick"):
    """An agent that thinks about each message in a task."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def handle(self) -> list[str]:
        self.wait("end")
        return self.said

    def on_event(self, event: af.Event) -> None:
        if event.name == "message":
            try:
                answer = self.execute(think(event.data["text"]))
            except af.Interrupted:
                answer = f"{event.data['text']} interrupted"
            self.said = [*self.said, answer]


def test_interrupt_the_running_one(engine: af.Engine) -> None:
    TOLD.clear()
    inbox = af.Interrupt(Unique(key=lambda event: event.name), when=lambda e: e.name == "message")
    agent = engine.start(Thinker(), inbox=inbox)
    wait_for_event(agent)
    agent.send("message", text="one")
    assert ENTERED.wait(PATIENCE)
    agent.send("message", text="two")
    until(engine, lambda: agent.query().properties["said"] == ["one interrupted"])
    until(engine, lambda: TOLD == ["one"])
    GATE.set()
    until(engine, lambda: not agent.query().running)
    agent.send("end")
    assert agent.result(PATIENCE) == ["one interrupted", "two answered"]
    assert rows(engine, "dead") == rows(engine, "tasks") == []


def test_messages_that_arrive_together_are_not_thought_about_at_once(engine: af.Engine) -> None:
    inbox = af.Interrupt(Queue(), when=lambda event: event.name == "message")
    agent = engine.start(Thinker(), inbox=inbox)
    wait_for_event(agent)
    agent.pause()
    for text in ("one", "two", "three"):
        agent.send("message", text=text)
    agent.resume()
    said = ["one interrupted", "two interrupted"]
    until(engine, lambda: agent.query().properties["said"] == said)
    GATE.set()
    until(engine, lambda: not agent.query().running)
    agent.send("end")
    assert agent.result(PATIENCE) == [*said, "three answered"]


class Notes(af.Workflow[list[str]]):
    """Writes each question down before it thinks about it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def handle(self) -> list[str]:
        self.wait("end")
        return self.said

    def on_event(self, event: af.Event) -> str | None:
        if event.name == "end":
            return None
        self.said.append(f"user: {event.data['text']}")
        self.said.append(self.execute(think(event.data["text"])))
        return self.said[-1]


def test_an_interruption_that_undoes_leaves_no_trace_of_the_turn(engine: af.Engine) -> None:
    inbox = af.Interrupt(Queue(), when=lambda event: event.name == "message", undo=True)
    agent = engine.start(Notes(), id="notes", inbox=inbox)
    wait_for_event(agent)
    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(agent.ask, "message", text="one", timeout=PATIENCE)
        assert ENTERED.wait(PATIENCE)
        ENTERED.clear()
        agent.send("message", text="two")
        with pytest.raises(af.Refused, match="undone"):
            asked.result(PATIENCE)
    assert ENTERED.wait(PATIENCE)
    assert agent.query().properties["said"] == ["user: two"]
    GATE.set()
    until(engine, lambda: not agent.query().running)
    agent.send("end")
    assert agent.result(PATIENCE) == ["user: two", "two answered"]
    events = [each["event_name"] for each in agent.history() if each["type"] == "onEvent"]
    assert events == ["message", "message", "end"]
    assert [each["data"] for each in agent.history() if each["type"] == "refused"] == [
        {"text": "one"}
    ]
    assert rows(engine, "dead") == rows(engine, "tasks") == []


def send_while_it_thinks(agent: Any, *texts: str) -> list[str]:
    """Send messages while a task of the first one goes on; return the refused ones."""
    agent.send("message", text="hold")
    assert ENTERED.wait(PATIENCE)
    refused = []
    for text in texts:
        try:
            agent.send("message", text=text)
        except Rejected:
            refused.append(text)
    return refused


@pytest.mark.parametrize(
    ("inbox", "expected", "refused"),
    [
        (Queue, ["a", "b", "c"], []),
        (lambda: Bounded(Queue(), 1, when_full="reject"), ["a"], ["b", "c"]),
        (lambda: Bounded(Queue(), 2, when_full="drop_oldest"), ["b", "c"], []),
        (lambda: Unique(key=lambda event: event.name), ["c"], []),
        (lambda: Coalesce(key=lambda event: event.name, merge=merged), ["a+b+c"], []),
        (
            lambda: Priority(key=lambda event: ord(event.data.get("text", "z")[0])),
            ["c", "b", "a"],
            [],
        ),
    ],
    ids=["queue", "reject", "drop oldest", "newest only", "merge", "priority"],
)
def test_strategies_act_while_it_thinks_if_it_takes_turns(
    engine: af.Engine, inbox: Any, expected: list[str], refused: list[str]
) -> None:
    turns = af.Turns(inbox, when=lambda event: event.name == "message")
    agent = engine.start(Thinker(), inbox=turns)
    wait_for_event(agent)
    assert send_while_it_thinks(agent, "a", "b", "c") == refused
    assert agent.query().properties["said"] == []
    GATE.set()
    said = [f"{text} answered" for text in ("hold", *expected)]
    until(engine, lambda: agent.query().properties["said"] == said)
    agent.send("end")
    assert agent.result(PATIENCE) == said
    steps = [each.input["text"] for each in agent.query().state.statuses if each.type == "task"]
    assert steps == ["hold", *expected]


@pytest.mark.parametrize("way", ["thread", "asyncio"])
@pytest.mark.parametrize(
    ("inbox", "error"),
    [
        (lambda: Bounded(Queue(), 1, when_full="drop_oldest"), af.Dropped),
        (lambda: Unique(key=lambda event: event.name), af.Replaced),
        (lambda: Coalesce(key=lambda event: event.name, merge=merged), af.Displaced),
    ],
    ids=["drop oldest", "newest only", "merge"],
)
def test_who_asks_hears_that_the_inbox_has_displaced_the_question(
    engine: af.Engine, inbox: Any, error: type[Exception], way: str
) -> None:
    agent = engine.start(Thinker(), inbox=af.Turns(inbox, when=lambda e: e.name == "message"))
    wait_for_event(agent)
    send_while_it_thinks(agent)

    def ask() -> Any:
        if way == "asyncio":
            return asyncio.run(agent.aask("message", text="a", timeout=PATIENCE))
        return agent.ask("message", text="a", timeout=PATIENCE)

    caller = Caller(ask)
    until(engine, lambda: len(rows(engine, "messages")) == 1)
    agent.send("message", text="b")
    GATE.set()
    with pytest.raises(error):
        caller.value()


@pytest.mark.parametrize(
    "inbox",
    [
        lambda: Unique(key=lambda event: event.name),
        lambda: Coalesce(key=lambda event: event.name, merge=merged),
    ],
    ids=["newest only", "merge"],
)
def test_a_displaced_question_is_displaced_when_it_is_asked_again(
    engine: af.Engine, inbox: Any
) -> None:
    agent = engine.start(Thinker(), inbox=af.Turns(inbox, when=lambda e: e.name == "message"))
    wait_for_event(agent)
    send_while_it_thinks(agent)

    def ask() -> Any:
        return agent.ask("message", text="a", id="q-1", timeout=PATIENCE)

    callers = [Caller(ask)]
    until(engine, lambda: len(rows(engine, "messages")) == 1)
    callers.append(Caller(ask))  # still in the inbox
    flush(engine)
    agent.send("message", text="b")
    GATE.set()
    until(engine, lambda: len(agent.query().properties["said"]) == 2)
    callers.append(Caller(ask))
    for caller in callers:
        with pytest.raises(af.Displaced):
            caller.value()


def test_one_turn_begins_when_the_other_has_ended(engine: af.Engine) -> None:
    agent = engine.start(Thinker(), inbox=af.Turns(Queue, when=lambda e: e.name == "message"))
    wait_for_event(agent)
    send_while_it_thinks(agent, "a", "b")

    def handled() -> list[Any]:
        branches = agent.query().state.branches
        return [each.event_name for each in branches if each.type == "onEvent"]

    flush(engine)
    assert handled() == ["message"]
    agent.send("other")  # does not wait for its turn
    until(engine, lambda: handled() == ["message", "other"])
    assert len(agent.query().running) == 1
    GATE.set()
    said = ["hold answered", "a answered", "b answered"]
    until(engine, lambda: agent.query().properties["said"] == said)


def test_a_task_that_has_failed_holds_nothing_back(engine: af.Engine) -> None:
    class Fragile(af.Workflow[int]):
        def __init__(self) -> None:
            self.tried = 0

        def handle(self) -> int:
            self.wait("end")
            return self.tried

        def on_event(self, event: af.Event) -> None:
            if event.name == "message":
                self.tried += 1
                self.execute(fails())

    agent = engine.start(Fragile(), inbox=af.Turns(Queue))
    for _ in range(3):
        agent.send("message")
    until(engine, lambda: len(agent.query().failed) == 3)
    assert agent.query().properties["tried"] == 3


@af.task
def fails() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("stopped", ["paused", "failed"])
def test_what_comes_while_no_decisions_are_taken_is_one_turn_after_another(
    engine: af.Engine, stopped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = engine.start(Thinker(), inbox=af.Turns(Queue, when=lambda e: e.name == "message"))
    wait_for_event(agent)
    if stopped == "paused":
        agent.pause()
    else:
        with monkeypatch.context() as patch:
            patch.setattr(Thinker, "on_event", lambda _self, _event: 1 / 0)
            agent.send("other")
            until(engine, lambda: agent.status == "stuck")
    for text in ("hold", "a", "b"):
        agent.send("message", text=text)
    flush(engine)
    agent.resume()
    assert ENTERED.wait(PATIENCE)
    flush(engine)
    assert [each.input["text"] for each in agent.query().running] == ["hold"]
    GATE.set()
    said = ["hold answered", "a answered", "b answered"]
    until(engine, lambda: agent.query().properties["said"] == said)


def test_turns_begin_after_the_first_one_of_handle() -> None:
    row = new_row("a", "workflow:Thinker", 0.0)
    holding = BusyInstances(elsewhere=False, look=lambda _: row)
    inbox = holding.inbox("a", lambda: af.Turns(Queue()))
    start = Message(1, 1.0, {"start": {}})
    event = Message(2, 1.0, {"event": "message"})
    inbox.extend_at([start, event], [1.0, 1.0])
    assert inbox.ready_at(1.0) == 1.0
    assert inbox.take() == [start]
    assert inbox.ready_at(1.0) > 1.0
    assert len(inbox) == 1


def test_turns_are_taken_after_a_restart_as_before(reopen: Callable[..., Any]) -> None:
    engine = reopen()
    turns = af.Turns(Unique(key=lambda e: e.name), when=lambda event: event.name == "message")
    agent = engine.start(Thinker(), id="a", inbox=turns)
    wait_for_event(agent)
    send_while_it_thinks(agent, "a", "b")
    engine.close(timeout=0)  # what runs is not waited for
    ENTERED.clear()
    engine = reopen()
    agent = engine.start(Thinker(), id="a", inbox=turns)
    engine.resume()
    assert ENTERED.wait(PATIENCE)
    agent.send("message", text="c")
    flush(engine)
    assert agent.query().properties["said"] == []
    GATE.set()
    until(engine, lambda: agent.query().properties["said"] == ["hold answered", "c answered"])


@pytest.mark.parametrize("verb", ["answer", "kill"])
def test_answers_and_controls_pass_events_that_wait_for_room(
    reopen: Callable[..., Any], verb: str
) -> None:
    engine = reopen()
    when: Any = lambda event: event.name == "message"  # noqa: E731 - for two inboxes
    agent = engine.start(Thinker(), id="a", inbox=af.Turns(Queue(), when=when))
    wait_for_event(agent)
    send_while_it_thinks(agent, "a", "b", "c")
    engine.close(timeout=0)  # what runs is not waited for
    ENTERED.clear()
    engine = reopen()
    agent = engine.start(Thinker(), id="a", inbox=af.Turns(Bounded(Queue(), 1), when=when))
    assert ENTERED.wait(PATIENCE)
    if verb == "kill":
        agent.kill()
        until(engine, lambda: len(engine.dead_letters("a")) == 3)
    GATE.set()
    if verb == "answer":
        said = [f"{text} answered" for text in ("hold", "a", "b", "c")]
        until(engine, lambda: agent.query().properties["said"] == said)
    until(engine, lambda: not rows(engine, "messages"))


@pytest.mark.parametrize("verb", ["end", "cancel", "kill"])
def test_what_waits_for_its_turn_when_an_instance_ends_becomes_a_dead_letter(
    engine: af.Engine, verb: str
) -> None:
    turns = af.Turns(Queue(), when=lambda event: event.name == "message")
    agent = engine.start(Thinker(), id="a", inbox=turns)
    wait_for_event(agent)
    send_while_it_thinks(agent, "a", "b")
    if verb == "end":
        agent.send("end")
        until(engine, lambda: not agent.query().state.waits)
    else:
        getattr(agent, verb)()
    GATE.set()
    until(engine, lambda: len(engine.dead_letters("a")) == 2)
    assert [letter.message["data"]["text"] for letter in engine.dead_letters("a")] == ["a", "b"]
    assert {letter.error.partition(" (")[0] for letter in engine.dead_letters("a")} == {
        "ExecutionEnded: the execution has ended"
    }
    assert rows(engine, "messages") == []
    assert agent.status == ("done" if verb == "end" else "cancelled")


def test_turns_are_the_outermost_behaviour(engine: af.Engine) -> None:
    with pytest.raises(af.BadOption, match="must be the outermost"):
        engine.start(Agent(), inbox=Debounce(af.Turns(Queue()), 1.0))


def test_answers_timers_and_controls_do_not_wait_for_it(
    engine: af.Engine, clock: VirtualClock
) -> None:
    class Steps(af.Workflow[Any]):
        def handle(self) -> Any:
            first = self.execute(nothing())
            self.wait(seconds=10)
            return first, self.wait("late", seconds=10)

    steps = engine.start(Steps(), inbox=lambda: Debounce(Queue(), 1_000.0))
    wait_for_event(steps)
    steps.send("late")
    steps.pause()
    steps.resume()
    flush(engine)
    clock.advance(10)
    until(engine, lambda: len(steps.query().state.statuses) == 3)
    flush(engine)
    clock.advance(10)
    assert steps.result(PATIENCE) == ["nothing", None]


def test_each_instance_has_its_own(engine: af.Engine) -> None:
    engine.workflows.register(Agent, inbox=lambda: Throttle(Queue(), 60.0))
    agents = [engine.start(Agent()) for _ in range(2)]
    for agent in agents:
        wait_for_event(agent)
        agent.send("end")
        assert agent.result(PATIENCE) == []
    with pytest.raises(af.BadOption, match="registered already"):
        engine.workflows.register(Agent, inbox=Queue)


def test_it_cannot_make_senders_wait(engine: af.Engine) -> None:
    with pytest.raises(af.BadOption, match="when_full='block'"):
        engine.start(Agent(), inbox=Bounded(Queue(), 1, when_full="block"))
    with pytest.raises(af.BadBehaviour):
        engine.start(Agent(), inbox=42)


def test_a_fork_has_the_inbox_of_the_one_it_was_made_of(
    engine: af.Engine, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    GATE.set()
    turns = af.Turns(Unique(key=lambda e: e.name), when=lambda e: e.name == "message")
    agent = engine.start(Thinker(), inbox=turns)
    wait_for_event(agent)
    agent.ask("message", text="one", timeout=PATIENCE)
    step = next(each.step for each in agent.query().state.statuses if each.type == "task")
    fork = agent.fork(step)
    until(engine, lambda: fork.query().properties["said"] == ["one answered"])
    ENTERED.clear()
    GATE.clear()
    send_while_it_thinks(fork, "a", "b", "c")
    GATE.set()
    said = ["one answered", "hold answered", "c answered"]
    until(engine, lambda: fork.query().properties["said"] == said)
    clock.advance(1.0)
    agent.send("end")
    agent.result(PATIENCE)
    fork = agent.fork(step)  # of one that has ended, and whose inbox is forgotten
    until(engine, lambda: fork.query().properties["said"] == ["one answered"])
    fork.send("end")
    assert fork.result(PATIENCE) == ["one answered"]
    assert caplog.text.count("started with inbox=") == 1


def test_it_is_not_stored_and_says_so(
    reopen: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine = reopen()
    wait_for_event(engine.start(Agent(), id="a", inbox=Unique(key=lambda event: event.name)))
    engine = reopen()
    engine.workflows.register(Agent)
    agent = engine.workflows.get(Agent, "a")
    agent.send("end")
    assert agent.result(PATIENCE) == []
    assert caplog.text.count("started with inbox=") == 1


def test_one_that_is_in_memory_gets_it_too(engine: af.Engine) -> None:
    agent = engine.start(Thinker(), id="a")
    wait_for_event(agent)
    turns = af.Turns(Unique(key=lambda e: e.name), when=lambda event: event.name == "message")
    engine.start(Thinker(), id="a", inbox=turns)
    send_while_it_thinks(agent, "a")
    engine.start(Thinker(), id="a", inbox=turns)  # it has one by now, and what that holds
    agent.send("message", text="b")
    GATE.set()
    until(engine, lambda: agent.query().properties["said"] == ["hold answered", "b answered"])


def test_one_that_is_at_work_gets_it_when_it_has_done_that(
    engine: af.Engine, clock: VirtualClock
) -> None:
    agent = engine.start(Agent(), id="a")
    wait_for_event(agent)
    agent.send("message", text="hold")
    assert ENTERED.wait(PATIENCE)
    engine.start(Agent(), id="a", inbox=Unique(key=lambda event: event.name))
    asked = Caller(agent.ask, "message", text="a", timeout=PATIENCE)
    until(engine, lambda: len(rows(engine, "messages")) == 2)
    agent.send("message", text="b")
    GATE.set()
    while agent.query().properties["seen"] != ["hold", "b"]:
        clock.advance(0.1)
        flush(engine)
    with pytest.raises(af.Displaced):
        asked.value()


def envelopes() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda number, event: Message(
            None, float(number), {"event" if event else "do": str(number)}
        ),
        st.integers(0, 9),
        st.booleans(),
    )


def taken(batch: list[Any]) -> list[Any]:
    """Return the envelopes that a batch was made of."""
    return [
        Item(restored(each.message), each.tickets, each.born)
        if isinstance(each, Item)
        else restored(each)
        for each in batch
    ]


def restored(each: Any) -> Any:
    return Message(None, each.at, {"event": each.name}) if hasattr(each, "asked") else each


@pytest.mark.parametrize(
    "inner",
    [
        Queue,
        lambda: Unique(key=lambda event: event.name),
        lambda: Bounded(Queue(), 3, when_full="drop_oldest"),
        lambda: Bounded(Queue(), 3, when_full="reject"),
        lambda: Debounce(Queue(), 1.0),
        lambda: Expire(Queue(), 5.0),
        NewestFirst,
        lambda: af.Turns(Queue()),
    ],
    ids=["queue", "unique", "drop oldest", "reject", "debounce", "expire", "own", "turns"],
)
def test_it_is_a_behaviour(inner: Any) -> None:
    check_behaviour(lambda: EventInbox(inner), messages=envelopes(), unpack=taken, max_examples=50)
