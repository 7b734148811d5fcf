"""Known bugs of inboxes for agents, and the lines of docs/howto/agents.md that avoid them."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Coalesce, Queue
from tests.engine.kinds import rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from actorflow.workflows.service.handle import WorkflowHandle

GATE, THINKS = threading.Event(), threading.Event()
PROMPTS: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    GATE.clear()
    THINKS.clear()
    PROMPTS.clear()


def is_message(event: af.Event) -> bool:
    return event.name == "message"


@af.task
def think(prompt: str) -> str:
    """Answer; a slow question waits until the gate is open or nobody wants the answer."""
    PROMPTS.append(prompt)
    if "slow" in prompt:
        THINKS.set()
        while not GATE.wait(0.01) and af.current_task().heartbeat():
            pass
    return f"about {prompt}"


class Agent(af.Workflow[list[str]], keep_events=["end", "steer"]):
    """Calls a tool, which may be interrupted, and writes down all that happens."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.unanswered: list[str] = []

    def handle(self) -> list[str]:
        self.wait("end")
        return self.log

    def on_event(self, event: af.Event) -> str | None:
        if not is_message(event):
            return None
        self.unanswered.append(event.data["text"])
        prompt = " + ".join(self.unanswered)
        self.log.append(f"call {prompt}")
        try:
            answer = self.execute(think(prompt))
        except af.Interrupted:
            self.log.append(f"no result {prompt}")
            return None
        while (steer := self.receive("steer", seconds=0)) is not None:
            answer = self.execute(think(f"{answer}, {steer.data['text']}"))
        self.log.append(f"result {prompt}")
        self.unanswered = []
        return answer


def started(engine: af.Engine, inbox: Any) -> WorkflowHandle[list[str]]:
    return engine.start(Agent(), id="agent", inbox=inbox)


def calls_and_results(log: list[str]) -> tuple[list[str], list[str]]:
    calls = [each.removeprefix("call ") for each in log if each.startswith("call")]
    results = [each.rpartition("result ")[2] for each in log if "result" in each]
    return calls, results


def ended(agent: WorkflowHandle[list[str]]) -> list[str]:
    agent.send("end")
    return agent.result(PATIENCE)


def test_no_message_is_stranded_when_a_turn_ends() -> None:
    with af.Engine(":memory:") as engine:
        agent = started(engine, af.Turns(Queue(), when=is_message))

        def chat(user: int) -> None:
            for number in range(25):  # each is sent about when the turn of another one ends
                agent.send("message", text=f"{user}/{number}")

        with ThreadPoolExecutor(8) as users:
            list(users.map(chat, range(8)))
        until(engine, lambda: len(PROMPTS) == 200)  # nobody sends anything that would wake it
        until(engine, lambda: not rows(engine, "messages"))
        until(engine, lambda: not agent.query().running)
        log = ended(agent)
    calls, results = calls_and_results(log)
    assert calls == results
    assert set(Counter(results).values()) == {1}
    for user in range(8):
        own = [each for each in results if each.startswith(f"{user}/")]
        assert own == [f"{user}/{number}" for number in range(25)]


def test_every_tool_call_has_a_result_after_an_interruption() -> None:
    with af.Engine(":memory:") as engine:
        agent = started(engine, af.Interrupt(Queue(), when=is_message))
        for number in range(4):
            THINKS.clear()
            agent.send("message", text=f"slow {number}")
            assert THINKS.wait(PATIENCE)
        agent.send("message", text="go")
        GATE.set()
        until(engine, lambda: not agent.query().running)
        log = ended(agent)
    calls, results = calls_and_results(log)
    assert calls == results
    assert [each for each in log if each.startswith("result")] == [
        "result slow 0 + slow 1 + slow 2 + slow 3 + go"
    ]


def test_an_undone_turn_leaves_neither_a_tool_call_nor_a_message() -> None:
    with af.Engine(":memory:") as engine:
        agent = started(engine, af.Interrupt(Queue(), when=is_message, undo=True))
        agent.send("message", text="slow")
        assert THINKS.wait(PATIENCE)
        agent.send("message", text="go")
        until(engine, lambda: PROMPTS == ["slow", "go"])
        until(engine, lambda: not agent.query().running)
        assert ended(agent) == ["call go", "result go"]


def both(old: af.Event, new: af.Event) -> af.Event:
    return af.Event(old.name, {"text": f"{old.data['text']} + {new.data['text']}"})


@pytest.mark.parametrize("merges", [False, True])
def test_no_text_is_lost_or_repeated_when_messages_interrupt_and_are_merged(
    tmp_path: Path,
    merges: bool,  # noqa: FBT001
) -> None:
    def inbox() -> Any:
        inner = Coalesce(key=lambda event: event.name, merge=both) if merges else Queue()
        return af.Interrupt(inner, when=is_message)

    with af.Engine(tmp_path / "agent.db") as engine:
        agent = started(engine, inbox)
        agent.send("message", text="slow")
        assert THINKS.wait(PATIENCE)
        agent.pause()
        for text in ("b", "c"):  # they arrive together
            agent.send("message", text=text)
    GATE.set()
    with af.Engine(tmp_path / "agent.db") as engine:
        agent = started(engine, inbox)
        agent.send("message", text="d")
        agent.resume()
        until(engine, lambda: not agent.query().running and not rows(engine, "messages"))
        log = ended(agent)
    calls, results = calls_and_results(log)
    assert calls == results
    answered = [each.removeprefix("result ") for each in log if each.startswith("result")]
    assert Counter(" + ".join(answered).split(" + ")) == Counter(["slow", "b", "c", "d"])


def test_a_message_that_is_sent_again_is_answered_once(tmp_path: Path) -> None:
    replies = []
    for _ in range(3):  # the sender is killed, and sends again
        with af.Engine(tmp_path / "agent.db") as engine:
            agent = started(engine, lambda: af.Turns(Queue(), when=is_message))
            replies.append(agent.ask("message", text="hello", id="m-1", timeout=PATIENCE))
            agent.send("message", text="hello", id="m-1")
    assert replies == ["about hello"] * 3
    with af.Engine(tmp_path / "agent.db") as engine:
        agent = started(engine, lambda: af.Turns(Queue(), when=is_message))
        assert ended(agent) == ["call hello", "result hello"]
        agent.send("message", text="hello", id="m-1")
    assert PROMPTS == ["hello"]


def test_steering_is_taken_between_steps_once_and_survives_a_restart(tmp_path: Path) -> None:
    def inbox() -> Any:
        return af.Turns(Queue(), when=is_message)

    with af.Engine(tmp_path / "agent.db") as engine:
        agent = started(engine, inbox)
        agent.send("message", text="slow")
        assert THINKS.wait(PATIENCE)
        for text in ("in French", "shorter"):
            agent.send("steer", text=text)
        agent.send("message", text="next")
    GATE.set()
    with af.Engine(tmp_path / "agent.db") as engine:
        agent = started(engine, inbox)
        until(engine, lambda: "about next" not in PROMPTS and PROMPTS[-1:] == ["next"])
        until(engine, lambda: not agent.query().running)
        assert ended(agent) == ["call slow", "result slow", "call next", "result next"]
    steered = ["about slow, in French", "about about slow, in French, shorter", "next"]
    assert PROMPTS[-3:] == steered
