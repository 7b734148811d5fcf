"""A kind and a load that use all that an engine has.

Each message has a tag and a list of steps: go on to another execution, set a timer, hand
out a task, take one back, begin a child, cancel one, fail. Each step leaves its tag in the state,
so that at the end it can be seen whether everything happened, and once.
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
from actorflow.runtime.restarts import Backoff
from actorflow.testing.simulation import (
    Cancel,
    Faults,
    History,
    InvariantBroken,
    Sent,
    SimulatedStore,
)
from actorflow.testing.simulation.simulate import TASKER, Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.application import Engine
    from actorflow.engine.kind import Context, Envelope
    from actorflow.engine.stores.protocol import ExecutionRow
    from actorflow.engine.tasks.task import TaskAttempt
    from actorflow.testing.simulation.process import Process

NAMES = 20


class Errands:
    """Runs errands; its state is the list of the tags it has seen.

    Newer code stores the state in another way, which older code cannot read.
    """

    name = "errands"

    def __init__(self, process: Process | None = None) -> None:
        self._process = process
        self.version = 1 if process is None or process.version == 0 else 2

    def options(self, _execution: str) -> Options:
        return Options()

    def upgrade(self, data: bytes, _version: int) -> bytes:
        return bodies.encode({"tags": bodies.decode(data)})

    def decode(self, data: bytes | None) -> list[str]:
        found = [] if data is None else bodies.decode(data)
        return found["tags"] if isinstance(found, dict) else found

    def encode(self, state: list[str]) -> bytes:
        return bodies.encode(state if self.version == 1 else {"tags": state})

    def run(self, context: Context, state: list[str], batch: Sequence[Envelope]) -> Outcome:
        outcome = Outcome(state=[*state])
        for envelope in batch:
            match envelope:
                case Message(body=body):
                    self._step(context, outcome, body)
                case TimerFired(timer=timer):
                    outcome.state.append(f"{timer} timer")
                    name = f"{context.id} {timer.partition(' ')[0]}"
                    if timer.endswith("withdraw"):
                        outcome.withdrawn_tasks.append(name)
                    elif timer.endswith("abandon"):
                        outcome.cancelled_children.append(name)
                case TaskEnded(task=task):
                    outcome.state.append(f"{task.removeprefix(f'{context.id} ')} task")
                case ChildEnded(child=child):
                    outcome.state.append(f"{child.removeprefix(f'{context.id} ')} child")
        return outcome

    def _step(self, context: Context, outcome: Outcome, body: dict[str, Any]) -> None:  # noqa: C901 - a case for each
        tag = body["tag"]
        outcome.state.append(tag)
        if body.get("child") == "ends":  # it is one, and this is all that it does
            outcome.status = Status.DONE
        for what, value in body.get("then", {}).items():
            if what in {"withdraw", "abandon"}:
                outcome.timers.append(SetTimer(f"{tag} {what}", context.now + 0.5))
            match what:
                case "go":
                    rest = {"tag": f"{tag}>", "then": {"go": value[1:]} if value[1:] else {}}
                    outcome.messages.append(Outgoing(value[0], rest, self.name))
                case "timer":
                    outcome.timers.append(SetTimer(tag, context.now + value))
                case "task":
                    task = NewTask(f"{context.id} {tag}", "do", value, retries=3)
                    outcome.tasks.append(task)
                case "child" | "abandon":
                    begun = {"tag": f"{tag} begins", "child": value}
                    outcome.children.append(NewChild(f"{context.id} {tag}", self.name, begun))
                case "withdraw":
                    outcome.tasks.append(NewTask(f"{context.id} {tag}", "do", value))
                case "wait":
                    assert self._process is not None
                    self._process.work()
                case "raise":
                    raise ValueError(tag)


def errands(seed: int, count: int = 24) -> list[Sent | Cancel]:
    """Return a load of errands that is drawn from a seed."""
    dice = Random(f"{seed} errands")
    names = [f"e{number}" for number in range(dice.choice((2, 8, NAMES)))]
    load: list[Sent | Cancel] = []
    in_order = dice.random() < 0.5
    for number in range(count):
        then: dict[str, Any] = {}
        if dice.random() < 0.5:
            then["go"] = [dice.choice(names) for _ in range(dice.randint(1, 3))]
        if dice.random() < 0.4:
            then["timer"] = dice.choice((0.0, 0.5, 2.0, 6.0))
        if dice.random() < 0.1:
            then["withdraw"] = "works"
        elif dice.random() < 0.3:
            then["task"] = dice.choice(("works", "works", "fails", "works the second time"))
        if dice.random() < 0.2:
            then.update(dice.choice(({"child": "ends"}, {"abandon": "stays"})))
        if dice.random() < 0.1:
            then["wait"] = True
        if dice.random() < 0.05:
            then = {"raise": True}
        body = {"tag": f"t{number}", "then": then}
        load.append(Sent(dice.choice(names), body, in_order=in_order))
    load += [Cancel(name) for name in dice.sample(names, dice.choice((0, 0, 1, 2)))]
    return load


def check_errands(load: Sequence[Sent | Cancel], executions: Mapping[str, ExecutionRow]) -> None:
    """Check that every errand was run, and once. A cancelled execution ends an errand."""
    found = {name: Counter(Errands().decode(row.state)) for name, row in executions.items()}
    cancelled = {name for name, row in executions.items() if row.status == Status.CANCELLED}
    for name, tags in found.items():
        tag, count = max(tags.items(), key=lambda each: each[1], default=("", 0))
        if count > 1:
            raise InvariantBroken("twice", f"{name!r} has seen {tag!r} {count} times", name)
    for sent in load:
        if isinstance(sent, Cancel) or "raise" in sent.body["then"]:
            continue
        for name, tag in _steps(sent):
            if name in cancelled:
                break
            if not found.get(name, Counter())[tag]:
                raise InvariantBroken("lost", f"{name!r} has never seen {tag!r}", name)


def _steps(sent: Sent) -> list[tuple[str, str]]:
    """Return what each execution must have seen in the end, in order."""
    tag, then, name = sent.body["tag"], sent.body["then"], sent.execution
    steps = [(name, tag)]
    steps += [(name, f"{tag} {what}") for what in ("timer", "task", "child") if what in then]
    if "withdraw" in then:
        steps += [(name, f"{tag} withdraw timer"), (name, f"{tag} task")]
    if "abandon" in then:
        steps += [(name, f"{tag} abandon timer"), (name, f"{tag} child")]
    for number, place in enumerate(then.get("go", ()), start=1):
        steps.append((place, tag + ">" * number))
    return steps


def simulate_errands(
    seed: int,
    *,
    faults: Faults | None = None,
    store: type[SimulatedStore] = SimulatedStore,
    shorten: bool = True,
) -> History:
    """Run the errands of a seed on a simulated cluster."""
    load = errands(seed)

    def set_up(engine: Engine, process: Process) -> None:
        def do(task: TaskAttempt) -> str:
            process.work()
            if task.body == "fails" or (task.body != "works" and task.attempt == 1):
                raise ValueError(task.body)
            return str(task.body)

        engine.register(Errands(process))
        if process.has_taskers:
            engine.tasker("do", do, backoff=Backoff(initial=0.1), **TASKER)

    def check(rows: Mapping[str, ExecutionRow]) -> None:
        check_errands(load, rows)

    sent = [each if isinstance(each, Cancel) else each._replace(kind="errands") for each in load]
    return Simulation(seed, set_up, sent, check, store).history(faults, shorten=shorten)
