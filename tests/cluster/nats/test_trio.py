"""One of three NATS servers dies, and nobody notices."""

from __future__ import annotations

import pytest

import actorflow as af
from tests.cluster.nats.trio import Trio

PATIENCE = 60.0


@af.task
def double(number: int) -> int:
    return 2 * number


class Steps(af.Workflow[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> int:
        for _ in range(5):
            self.number = self.execute(double(self.number))
        return self.number


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_the_leader_dies_and_every_workflow_ends_right() -> None:
    """With processes as workers: `test_c09_executions_outlive_a_worker_and_then_the_server`."""
    with Trio() as servers:
        url = f"{servers.url}&lease=10"
        with af.Engine(url) as one, af.Engine(url) as two:
            for engine in (one, two):
                engine.workflows.register(Steps)
                engine.resume()
            handles = [(one, two)[n % 2].start(Steps(n), id=f"w{n}") for n in range(30)]
            servers.kill()
            more = [two.start(Steps(n), id=f"w{n}") for n in range(30, 40)]
            results = [each.result(timeout=PATIENCE) for each in [*handles, *more]]
            assert results == [32 * n for n in range(40)]
        with af.Engine(url) as three:
            three.workflows.register(Steps)
            assert [three.result(f"w{n}", timeout=PATIENCE) for n in range(40)] == results
