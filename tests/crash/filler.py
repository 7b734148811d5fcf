"""A program whose disk is full: no file of it may grow beyond a limit, until it lifts that."""

from __future__ import annotations

import json
import resource
import sys
import threading
from typing import Any

from actorflow.engine.engine import BareEngine
from actorflow.engine.errors import StoreFull


def job(batch: list[Any], state: list[int]) -> list[int]:
    return [*state, *(number for number, _ in batch)]


def main(store: str) -> None:
    refused = 0
    acknowledged = []
    with BareEngine(store) as engine:
        worker = engine.worker("w", job, state=[])
        worker.push_block((0, "begin"))
        acknowledged.append(0)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
        number = 0
        while refused < 20:
            number += 1
            try:
                worker.push_ack((number, "x" * 20_000))
            except StoreFull:
                refused += 1
            else:
                acknowledged.append(number)
        blocked = 0
        for _ in range(5):
            number += 1
            try:
                worker.push_block((number, "x" * 20_000))
            except StoreFull:
                blocked += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        for _ in range(30):  # it goes on, without being started again
            number += 1
            worker.push_ack((number, "after"))
            acknowledged.append(number)
        worker.push_block((number + 1, "end"), timeout=50)
        acknowledged.append(number + 1)
        states = worker.state()
        threads = threading.active_count()
    print(json.dumps([acknowledged, states, refused, blocked, threads]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
