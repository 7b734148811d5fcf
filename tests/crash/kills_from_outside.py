"""A program that is killed at random moments while it works: `kills_from_outside.py STORE KILLS`.

Each life is a process forked from this one, which kills it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from typing import Any

from actorflow.engine.engine import BareEngine

WORKERS = 4
MESSAGES = 120
PATIENCE = 150.0


def job(batch: list[Any], state: list[Any]) -> list[Any]:
    if "poison" in batch:
        os._exit(3)
    time.sleep(0.002)
    return [*state, *batch]


def live(store: str, first: int, ready: int) -> None:
    """Work until the end; the first life gets the messages."""
    with BareEngine(store, durability="off") as engine:
        workers = [engine.worker(f"w{number}", job, state=[]) for number in range(WORKERS)]
        if first:
            for number in range(first):
                workers[number % WORKERS].push(number)
            workers[0].push_ack("last")
        os.write(ready, b"r")
        engine.resume()
        for worker in workers:
            worker.push_block("end", timeout=PATIENCE)


def report(store: str) -> None:
    """Print the states and the dead letters."""
    with BareEngine(store, durability="off") as engine:
        workers = [engine.worker(f"w{number}", job, state=[]) for number in range(WORKERS)]
        for worker in workers:
            worker.push_block("end", timeout=PATIENCE)
        state = [each for worker in workers for each in worker.state() if type(each) is int]
        letters = [letter.message for letter in engine.dead_letters()]
    print(json.dumps([sorted(state), letters]))  # noqa: T201 - the test reads it


def main(store: str, kills: int) -> None:
    """Kill it so many times."""
    chance = random.Random(7)
    for number in range(kills):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            live(store, MESSAGES if number == 0 else 0, writing)
            os._exit(0)
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        time.sleep(chance.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    report(store)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
