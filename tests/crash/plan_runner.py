"""Programs that are killed or interrupted while they run a plan.

`plan_runner.py durable STORE NOTES` starts a durable plan by its id, or goes on with it, and prints
its results. `plan_runner.py waits NOTES` runs a plan whose jobs never end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import actorflow as af

LAYERS = 12
WIDTH = 10


def note(path: str, text: str) -> None:
    """Write a line, at once and in one piece."""
    with Path(path).open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def step(notes: str, layer: int, place: int, *before: int) -> int:
    """Note that it was begun; return 1 more than all before it."""
    note(notes, f"{layer}/{place}")
    return 1 + sum(before)


def wait_for_ever(notes: str, place: int) -> None:
    note(notes, f"waits/{place}")
    threading.Event().wait()


_left = 0


def be_mortal() -> None:
    """Choose after how many jobs this worker dies."""
    global _left  # noqa: PLW0603 - of this process
    _left = random.randrange(1, 60)


def mortal(number: int) -> int:
    """Return the number; at some point, a thread kills the process while others go on."""
    global _left  # noqa: PLW0603 - of this process
    _left -= 1
    if not _left:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()
    return number


def layers(notes: str) -> af.Plan:
    """Return a plan in layers: each job takes the results of two of the layer before."""
    plan = af.Plan()
    before = [plan.job(step, notes, 0, place, name=f"0/{place}") for place in range(WIDTH)]
    for layer in range(1, LAYERS):
        before = [
            plan.job(
                step, notes, layer, place, before[place], before[place - 1], name=f"{layer}/{place}"
            )
            for place in range(WIDTH)
        ]
    return plan


def durable(store: str, notes: str) -> None:
    with af.Engine(store) as engine:
        engine.plans.workers(2)
        handle = engine.plans.start(layers(notes), id="layers", crashes_max=1_000)
        result = handle.result()
        print(json.dumps({name: result[name] for name in result}))  # noqa: T201 - the test compares it


def waits(notes: str) -> None:
    plan = af.Plan()
    plan.job(step, notes, 0, 0, name="first")
    for place in range(20):
        plan.job(wait_for_ever, notes, place, after="first")
    plan.run(workers=2)


if __name__ == "__main__":
    if sys.argv[1] == "durable":
        durable(*sys.argv[2:])
    else:
        waits(*sys.argv[2:])
