"""A program that is killed: runs workflows of many steps, and notes each task that it begins.

`workflow_runner.py STORE NOTES LIFE INSTANCES STEPS` starts the instances, which has no effect on
existing ones, and prints how they ended. Each life first notes the instances it has found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import actorflow as af
from actorflow.application import Engine

NOTES: list[Any] = []
KILL_AFTER = int(os.environ.get("KILL_AFTER_TASKS", "0"))
LANE = af.Lane("runner", concurrency=1) if "IN_LANE" in os.environ else None


def note(entry: dict[str, Any]) -> None:
    """Append a line; it is there whatever becomes of the process."""
    os.write(NOTES[0], (json.dumps(entry) + "\n").encode())


@af.task(retries=1_000_000)  # each kill counts as an attempt
def step(order: int, number: int) -> int:
    note({"task": af.current_task().id, "order": order, "number": number, "life": NOTES[1]})
    NOTES.append(None)
    if KILL_AFTER and len(NOTES) - 2 >= KILL_AFTER:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class Steps(af.Workflow[list[int]]):
    """Does one step after the other, some of them two at a time."""

    def __init__(self, order: int, steps: int) -> None:
        self.order = order
        self.steps = steps
        self.done: list[int] = []

    def handle(self) -> list[int]:
        number = 0
        while number < self.steps:
            at_once = 2 if number % 5 == 0 and number + 1 < self.steps else 1
            steps = [step(self.order, number + each) for each in range(at_once)]
            self.done = [*self.done, *self.execute_all(steps)]
            number += at_once
        return self.done


def main(store: str, notes: str, life: str, instances: str, steps: str) -> None:
    NOTES[:] = [os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT), int(life)]
    with Engine(store) as engine:
        engine.workflows.register(Steps)
        found = [each.query() for each in engine.workflows.instances(Steps)]
        known = [f"{view.state.id}/{step}" for view in found for step in successful(view)]
        note({"life": int(life), "known": known})
        handles = [
            engine.start(Steps(number, int(steps)), id=f"w-{number}", lane=LANE)
            for number in range(int(instances))
        ]
        ended = {}
        for handle in handles:
            result = handle.result(timeout=100)
            entries = list(handle.history())
            ended[handle.id] = {
                "result": result,
                "scheduled": [each["step"] for each in entries if each["type"] == "scheduled"],
                "successes": [each["step"] for each in entries if each["type"] == "onSuccess"],
            }
        lane = None
        while LANE is not None and (lane is None or lane["running"]):  # it hears of the last end
            lane = engine.execution(LANE.execution).view.plain()
        left = {
            table: sum(1 for name, _ in engine.parts.store.snapshot() if name == table)
            for table in ("messages", "tasks", "timers", "dead")
        }
    print(json.dumps({"ended": ended, "left": left, "lane": lane}))  # noqa: T201 - its answer


def successful(view: Any) -> list[str]:
    return [each.step for each in view.state.statuses if each.status == "successful"]


if __name__ == "__main__":
    main(*sys.argv[1:])
