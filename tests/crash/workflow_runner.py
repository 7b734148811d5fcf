"""A program that is killed: runs workflows, and notes each task that it begins.

`workflow_runner.py STORE NOTES` starts workflows by their ids, goes on with what is in the store,
and prints how each of them ended.
"""

from __future__ import annotations

import json
import os
import sys

import actorflow as af

COUNT = 20
STEPS = 20
RETRIES = 1_000
"""Each kill counts as an attempt."""

_notes = -1


def note(text: str) -> None:
    """Write a line, at once and in one piece."""
    os.write(_notes, f"{text}\n".encode())


@af.task(retries=RETRIES, backoff=0)
def step(instance: int, number: int) -> int:
    note(f"task {af.current_task().id}")
    return instance * 1_000 + number


@af.task(retries=RETRIES, backoff=0)
def side(instance: int, number: int) -> None:
    note(f"side {af.current_task().id}")


class Steps(af.Workflow[list[int]]):
    """Does 20 steps; some of them by an event to itself, a wait, a dispatched task."""

    def __init__(self, instance: int) -> None:
        self.instance = instance
        self.ended = 0

    def handle(self) -> list[int]:
        found = []
        for number in range(STEPS):
            found.append(self.execute(step(self.instance, number)))
            if number == 5:
                self.dispatch(side(self.instance, number))
            if number == 10:
                self.wait(seconds=0.001)
        return [*found, self.ended]

    def on_success(self, work: object, output: object) -> None:
        self.ended += 1


def main(store: str, notes: str) -> None:
    global _notes  # noqa: PLW0603 - of the process
    _notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with af.Engine(store) as engine:
        handles = [engine.start(Steps(number), id=f"w-{number}") for number in range(COUNT)]
        ended = {}
        for handle in handles:
            result = handle.result(50)
            scheduled = [each for each in handle.history() if each["type"] == "scheduled"]
            ended[handle.id] = {
                "result": result,
                "works": [each["work"] for each in scheduled],
                "branches": [each["branch"] for each in handle.history() if "branch" in each],
            }
            engine.result(f"{handle.id}/0/6.0", 50)
        left = engine.core.unfinished()
        dead = len(list(engine.dead_letters()))
    print(json.dumps({"ended": ended, "left": left, "dead": dead}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
