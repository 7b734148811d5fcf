"""The kind and the load that a simulation runs by default: errands that use all an engine has.

Each message has a tag and says what is to be done: go on to another execution, set a timer, hand
out a task, begin a child. Each step leaves its tag in the state, so that at the end it can be seen
whether everything happened, and once.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import (
    ChildEnded,
    Message,
    NewChild,
    NewTask,
    Options,
    Outcome,
    Outgoing,
    SetTimer,
    Status,
    TaskEnded,
    TimerFired,
)
from actorflow.testing.simulation.checks import Broken
from actorflow.testing.simulation.client import Cancel, Sent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.engine.kind import Context, Envelope
    from actorflow.engine.stores.protocol import ExecutionRow

__all__ = ["TASKERS", "Errands", "check_errands", "errands"]

TASKERS = {"double": lambda number: 2 * number}


class Errands:
    """Runs errands; its state is the list of the tags it has seen."""

    name = "errands"

    def options(self, _execution: str) -> Options:
        """Return the defaults."""
        return Options()

    def decode(self, data: bytes | None) -> list[str]:
        """Return the tags."""
        return [] if data is None else bodies.decode(data)

    def encode(self, state: list[str]) -> bytes:
        """Return them as bytes."""
        return bodies.encode(state)

    def run(self, context: Context, state: list[str], batch: Sequence[Envelope]) -> Outcome:
        """Note each step, and begin the next."""
        outcome = Outcome(state=[*state])
        for envelope in batch:
            match envelope:
                case Message(body=body):
                    self._step(context, outcome, body)
                case TimerFired(timer=timer):
                    outcome.state.append(f"{timer} timer")
                case TaskEnded(value=value):
                    outcome.state.append(f"{value[0]} task")
                case ChildEnded(result=result):
                    outcome.state.append(f"{result} child")
        return outcome

    def _step(self, context: Context, outcome: Outcome, body: dict[str, Any]) -> None:
        tag = body["tag"]
        outcome.state.append(tag)
        if body.get("child"):  # it is one, and this is all that it does
            outcome.status, outcome.result = Status.DONE, tag[: -len(" begins")]
            return
        for what, value in body.get("then", {}).items():
            match what:
                case "go":
                    rest = {"tag": f"{tag}>", "then": {"go": value[1:]} if value[1:] else {}}
                    outcome.messages.append(Outgoing(value[0], rest, self.name))
                case "timer":
                    outcome.timers.append(SetTimer(tag, context.now + value))
                case "task":
                    outcome.tasks.append(NewTask(f"{context.id} {tag}", "double", [tag]))
                case "child":
                    begun = {"tag": f"{tag} begins", "child": True}
                    outcome.children.append(NewChild(f"{context.id} {tag}", self.name, begun))


def errands(seed: int, count: int = 24) -> list[Sent | Cancel]:
    """Return a load of errands that is drawn from a seed."""
    dice = Random(f"{seed} errands")
    names = [f"e{number}" for number in range(dice.choice((2, 8, 20)))]
    load: list[Sent | Cancel] = []
    for number in range(count):
        then: dict[str, Any] = {}
        if dice.random() < 0.5:  # noqa: PLR2004
            then["go"] = [dice.choice(names) for _ in range(dice.randint(1, 3))]
        if dice.random() < 0.4:  # noqa: PLR2004
            then["timer"] = dice.choice((0.0, 0.5, 2.0, 6.0))
        if dice.random() < 0.3:  # noqa: PLR2004
            then["task"] = True
        if dice.random() < 0.15:  # noqa: PLR2004
            then["child"] = True
        load.append(Sent(dice.choice(names), {"tag": f"t{number}", "then": then}))
    load += [Cancel(name) for name in dice.sample(names, dice.choice((0, 0, 1, 2)))]
    return load


def check_errands(load: Sequence[Sent | Cancel], executions: Mapping[str, ExecutionRow]) -> None:
    """Check that every errand was run, and once. What was cancelled ends an errand."""
    found = {name: Counter(Errands().decode(row.state)) for name, row in executions.items()}
    cancelled = {name for name, row in executions.items() if row.status == Status.CANCELLED}
    for name, tags in found.items():
        tag, count = max(tags.items(), key=lambda each: each[1], default=("", 0))
        if count > 1:
            raise Broken("twice", f"{name!r} has seen {tag!r} {count} times", name)
    for sent in load:
        if isinstance(sent, Cancel):
            continue
        for name, tag in _steps(sent):
            if name in cancelled:
                break
            if not found.get(name, Counter())[tag]:
                raise Broken("lost", f"{name!r} has never seen {tag!r}", name)


def _steps(sent: Sent) -> list[tuple[str, str]]:
    """Return what each execution must have seen in the end, in order."""
    tag, then, name = sent.body["tag"], sent.body["then"], sent.execution
    steps = [(name, tag)]
    steps += [(name, f"{tag} {what}") for what in ("timer", "task", "child") if what in then]
    for number, place in enumerate(then.get("go", ()), start=1):
        steps.append((place, tag + ">" * number))
    return steps
