"""A program that is killed: pushes numbers to durable workers, and notes acknowledged pushes.

`pusher.py STORE NOTES FIRST LAST` goes on at FIRST; a number is written to NOTES (a line, at once)
after `push_ack` has returned. Run with `-` for LAST it pushes nothing and prints the states.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from actorflow.engine.engine import BareEngine

WORKERS = 4
THREADS = 4


def job(batch: list[int], state: dict[str, Any]) -> dict[str, Any]:
    return {"seen": [*state["seen"], *batch], "runs": state["runs"] + 1}


def main(store: str, notes: str, first: str, last: str) -> None:
    with BareEngine(store) as engine:
        workers = [
            engine.worker(f"w{number}", job, state={"seen": [], "runs": 0})
            for number in range(WORKERS)
        ]
        if last == "-":
            for worker in workers:
                worker.push_block(-1, timeout=50)
            print(json.dumps([worker.state()["seen"] for worker in workers]))  # noqa: T201
            return
        with open(notes, "a", encoding="ascii", buffering=1) as file:  # noqa: PTH123
            lock = threading.Lock()
            numbers = iter(range(int(first), int(last)))

            def push() -> None:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    workers[number % WORKERS].push_ack(number, timeout=50)
                    with lock:
                        file.write(f"{number}\n")

            threads = [threading.Thread(target=push, daemon=True) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            print("running", os.getpid(), flush=True)  # noqa: T201
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
