"""Let a language model call tools until it has an answer. Each call is recorded once.

Restate, DBOS and pydantic-ai call it a *durable agent*. Replace `think` by a call of your model.
"""

import sys
from typing import Any

import actorflow as af

Messages = list[dict[str, Any]]


@af.task(retries=5, backoff=af.Backoff(initial=0.5, jitter=0.2))
def think(messages: Messages) -> dict[str, Any]:
    """Call the model: it returns tool calls, or an answer."""
    results = {each["tool"]: each["result"] for each in messages if each["role"] == "tool"}
    if results:
        return {"answer": f"It has {results['weather']}, and it is {results['clock']}."}
    return {"calls": [("weather", "Rome"), ("clock", "Rome")]}


@af.task(name="weather")
def weather(place: str) -> str:
    """Look the weather up."""
    return f"21 degrees in {place}"


@af.task(name="clock")
def clock(place: str) -> str:
    """Look the time up."""
    return f"10:40 in {place}"


TOOLS = {"weather": weather, "clock": clock}


class Agent(af.Workflow[str]):
    """Answers one question."""

    def __init__(self, question: str) -> None:
        self.messages: Messages = [{"role": "user", "text": question}]

    def handle(self) -> str:
        """Return the answer of the model."""
        while "answer" not in (said := self.execute(think(self.messages))):
            results = self.execute_all([TOOLS[name](place) for name, place in said["calls"]])
            for (name, _), result in zip(said["calls"], results, strict=True):
                self.messages.append({"role": "tool", "tool": name, "result": result})
        return str(said["answer"])


if __name__ == "__main__":
    with af.Engine(*sys.argv[1:] or [":memory:"]) as engine:
        print(engine.start(Agent("What is it like in Rome?"), id="a-1").result(timeout=20))
