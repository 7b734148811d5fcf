"""A program that is killed: says each verb of a handle and of a schedule, again in every life.

`workflow_verbs.py STORE FLAG` prints the outcome of all instances, as JSON. A task fails until the
program has created the file FLAG.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import actorflow as af
from actorflow.application import Engine
from actorflow.behaviours import Linger, Queue
from actorflow.engine.errors import ExecutionEnded, ExecutionFailed

PATIENCE = 60.0
FLAG = Path(sys.argv[-1])
YEARS = range(1970, 1974)


@af.task(retries=1_000_000)  # each kill counts as an attempt
def echo(text: str) -> str:
    return text


@af.task(retries=1_000_000, batch=Linger(Queue(), 0.005, size=16))
def double(numbers: list[int]) -> list[int]:
    return [2 * number for number in numbers]


@af.task
def needs_flag() -> str:
    if not FLAG.exists():
        raise ValueError("no flag")
    return "flag"


class Counter(af.Workflow[int]):
    """Counts its events, publishes each count and tags itself with it."""

    def __init__(self) -> None:
        self.count = 0

    def handle(self) -> int:
        self.wait("end")
        return self.count

    def on_event(self, event: af.Event) -> int | None:
        if event.name != "add":
            return None
        self.count += event.data["number"]
        count = self.count
        self.publish(count)
        self.tag(count=count)
        self.execute(echo(str(count)))
        return count


class Flagged(af.Workflow[str]):
    def handle(self) -> str:
        return self.execute(needs_flag())


class Steps(af.Workflow[list[str]]):
    """Does two steps, waits, and does another one; publishes that it waits."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def handle(self) -> list[str]:
        one = self.execute(echo("one"))
        two = self.execute(echo("two"))
        self.publish("waiting")
        self.wait("go")
        return [one, two, self.execute(echo("three")), *self.seen]

    def on_event(self, event: af.Event) -> None:
        self.seen = [*self.seen, event.name]


class Child(af.Workflow[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> int:
        doubled = self.execute(double(self.number))
        if self.number < 0:
            self.wait("never")
        return doubled


class Parent(af.Workflow[list[Any]]):
    """Has sub-workflows; the last ends when somebody cancels it."""

    def handle(self) -> list[Any]:
        doubled = self.execute_all([Child(number) for number in range(3)])
        self.publish("last")
        try:
            self.execute(Child(-1), raises=True)
        except af.StepFailed as error:
            return [*doubled, error.error["name"]]
        return doubled


class Talks(af.Workflow[list[str]]):
    """Echoes each message, with a task."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def handle(self) -> list[str]:
        self.wait("end")
        return self.said

    def on_event(self, event: af.Event) -> str | None:
        if event.name == "end":
            return None
        said = self.execute(echo(event.data["text"]))
        self.said = [*self.said, said]
        return said


class Interrupted(Talks):
    """The same, but each message interrupts the one before."""


class Yearly(af.Workflow[str]):
    def handle(self) -> str:
        return self.execute(echo("happy new year"))


def count(engine: Engine) -> dict[str, Any]:
    """Ask, follow, pause, resume, tag."""
    counter = engine.start(Counter(), id="counter")
    asked = [counter.ask("add", id=str(each), number=each, timeout=PATIENCE) for each in range(4)]
    with suppress(ExecutionEnded):  # in an earlier life, or just now
        counter.pause()
        for each in (4, 5):
            counter.send("add", id=str(each), number=each)
        counter.resume()
        counter.ask("add", id="5", number=5, timeout=PATIENCE)
        counter.send("end", id="end")
    return {
        "asked": asked,
        "counted": counter.result(PATIENCE),
        "followed": list(counter.follow(timeout=PATIENCE)),
        "tagged": [each.id for each in engine.executions(tags={"count": 15})],
    }


def steer(engine: Engine) -> dict[str, Any]:
    """Retry, rewind, fork, cancel, kill."""
    flagged = engine.start(Flagged(), id="flagged")
    try:
        flagged.result(PATIENCE)
    except ExecutionFailed:
        FLAG.touch()
        with suppress(ExecutionEnded):
            flagged.retry()
    steps = engine.start(Steps(), id="steps")
    next(steps.follow(timeout=PATIENCE))
    with suppress(ExecutionEnded):
        steps.send("seen", id="seen")
        if not any(each["type"] == "rewind" for each in steps.history()):
            steps.rewind("0/1.0")
        next(steps.follow(offset=1, timeout=PATIENCE))
        steps.fork("0/1.0", id="fork")
        steps.send("go", id="go")
    fork = engine.workflows.get(Steps, "fork")
    next(fork.follow(timeout=PATIENCE))
    with suppress(ExecutionEnded):
        fork.send("go", id="go")
    parent = engine.start(Parent(), id="parent")
    next(parent.follow(timeout=PATIENCE))
    engine.wait("parent/0/0.0", timeout=PATIENCE)
    parent.cancel("0/1.0")
    engine.wait("parent/0/1.0", timeout=PATIENCE)
    killed, cancelled = (engine.start(Counter(), id=name) for name in ("killed", "cancelled"))
    killed.kill()
    cancelled.cancel()
    return {
        "flagged": flagged.result(PATIENCE),
        "steps": steps.result(PATIENCE),
        "fork": fork.result(PATIENCE),
        "parent": parent.result(PATIENCE),
        "ended": [str(killed.status), str(cancelled.status)],
    }


def talk(engine: Engine) -> dict[str, Any]:
    """Send through inboxes."""
    turns, interrupted = engine.start(Talks(), id="turns"), engine.start(Interrupted(), id="last")
    for talks in (turns, interrupted):
        with suppress(ExecutionEnded):
            for each in range(4):
                talks.send("say", id=str(each), text=str(each))
            talks.ask("say", id="4", text="4", timeout=PATIENCE)
            talks.send("end", id="end")
    return {"turns": turns.result(PATIENCE), "last": interrupted.result(PATIENCE)[-1]}


def schedule(engine: Engine) -> dict[str, Any]:
    """Schedule, pause, trigger, backfill, resume."""
    yearly = engine.schedule("yearly", "0 0 1 1 *", Yearly())
    yearly.pause()
    triggered = engine.result(yearly.trigger(id="now"), PATIENCE)
    yearly.backfill(0.0, (YEARS.stop - 1970) * 365.0 * 86_400)
    yearly.resume()
    names = [f"yearly@{year}-01-01T00:00:00Z" for year in YEARS]
    return {
        "triggered": triggered,
        "made up for": [engine.result(name, PATIENCE) for name in names],
        "started": len(list(engine.executions(tags={"schedule": "yearly"}))),
    }


def main(store: str) -> None:
    with Engine(store) as engine:
        engine.workflows.register(Talks, inbox=lambda: af.Turns(Queue()))
        engine.workflows.register(Interrupted, inbox=lambda: af.Interrupt(Queue()))
        engine.workflows.register(Counter, Flagged, Steps, Parent, Yearly)
        found = count(engine) | steer(engine) | talk(engine) | schedule(engine)
        left = {
            table: sum(1 for name, _ in engine.parts.store.snapshot() if name == table)
            for table in ("messages", "tasks", "dead")
        }
        active = [each.id for each in engine.executions(status="active")]
    print(json.dumps(found | {"left": left, "active": active}))  # noqa: T201 - its answer


if __name__ == "__main__":
    main(sys.argv[1])
