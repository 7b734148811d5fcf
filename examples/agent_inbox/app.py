"""One agent, and six ways to treat messages that arrive while it is still answering.

`python app.py` plays the same conversation with each of them.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import actorflow as af
from actorflow.behaviours import Bounded, Coalesce, Queue

thinking, go_on = threading.Event(), threading.Event()


@af.task
def think(prompt: str) -> str:
    """Call the model. The first question of the conversation takes long."""
    if prompt == "a poem":
        thinking.set()
        while not go_on.wait(0.01) and af.current_task().heartbeat():
            pass  # the next token
    return f"here is {prompt}"


class Agent(af.Workflow[None], keep_events=["end", "steer"]):
    """Answers messages, and keeps the conversation."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def handle(self) -> None:
        """Live until the end of the conversation."""
        self.wait("end")

    def on_event(self, event: af.Event) -> None:
        """Answer one message."""
        if event.name != "message":
            return
        self.log.append(f"user: {event.data['text']}")
        try:
            answer = self.execute(think(event.data["text"]))
        except af.Interrupted:
            self.log.append("agent: never mind")
            return
        while (steer := self.receive("steer", seconds=0)) is not None:
            answer = self.execute(think(f"{steer.data['text']} {answer.removeprefix('here is ')}"))
        self.log.append(f"agent: {answer}")


def is_message(event: af.Event) -> bool:
    """Return whether an event is a message of the user."""
    return event.name == "message"


def is_turn(event: af.Event) -> bool:
    """Return whether an event waits until the agent is idle."""
    return event.name != "steer"


def both(old: af.Event, new: af.Event) -> af.Event:
    """Make one message of two."""
    return af.Event(old.name, {"text": f"{old.data['text']} and {new.data['text']}"})


STRATEGIES: dict[str, Callable[[], Any]] = {
    "enqueue": lambda: af.Turns(Queue(), when=is_turn),
    "reject": lambda: af.Turns(Bounded(Queue(), 1), when=is_turn),
    "merge": lambda: af.Turns(Coalesce(key=lambda event: event.name, merge=both), when=is_turn),
    "interrupt": lambda: af.Interrupt(Queue(), when=is_message),
    "rollback": lambda: af.Interrupt(Queue(), when=is_message, undo=True),
    "steer": lambda: af.Turns(Queue(), when=is_turn),
}


def converse(strategy: str, store: str = ":memory:") -> list[str]:
    """Play the conversation with one strategy; return it."""
    thinking.clear()
    go_on.clear()
    with af.Engine(store) as engine:
        agent = engine.start(Agent(), id="agent", inbox=STRATEGIES[strategy])
        agent.send("message", text="a poem")
        thinking.wait(20)
        refused = []
        for text in ("tea", "cake"):  # while it thinks about the poem
            try:
                agent.send("steer" if strategy == "steer" else "message", text=text)
            except af.Full:
                refused.append(f"refused: {text}")
        go_on.set()
        while not is_over(agent):
            time.sleep(0.01)
        agent.result(timeout=20)  # it ends when the last answer is complete
        return [*agent.query().properties["log"], *refused]


def is_over(agent: af.WorkflowHandle[None]) -> bool:
    """End the conversation; return whether there was room for that in the inbox."""
    try:
        agent.send("end")
    except af.Full:
        return False
    return True


if __name__ == "__main__":
    for name in sys.argv[1:] or STRATEGIES:
        print(f"{name}:", *converse(name), sep="\n    ")
