"""All orders are shipped, although a worker is killed while they wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import actorflow as af
from examples.cluster import app
from tests.servers import postgres

if TYPE_CHECKING:
    from tests.servers import Postgres

__all__ = ["postgres"]

HERE = Path(__file__).parent


def worker(address: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "actorflow.cli", "cluster", "worker", address, "--app", "app:setup"],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.timeout(120)
def test_a_worker_that_is_killed_is_replaced(postgres: Postgres) -> None:
    address = postgres.new_url(lease=1)
    workers = [worker(address) for _ in range(2)]
    try:
        with af.Engine(address) as engine:
            orders: list[af.WorkflowHandle[list[int]]] = []
            packers: set[int] = set()
            while not packers.issuperset(each.pid for each in workers):  # until they have joined
                orders.append(engine.start(app.Order(), id=f"order-{len(orders)}"))
                packers.add(next(orders[-1].follow(timeout=60)))
            workers[0].kill()
            for order in orders:
                order.send("paid")
            for order in orders:
                assert len(order.result(timeout=60)) == 2
                ended = [
                    each["task_name"] for each in order.history() if each["type"] == "onSuccess"
                ]
                assert ended == ["pack", "Wait", "Wait", "ship"]
    finally:
        for each in workers:
            each.kill()
            each.wait()
