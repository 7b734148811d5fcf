"""M12: code that a worker runs under its lock, and that uses that very worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.runtime.worker.probe import Caller
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

VERBS: dict[str, Callable[[af.WorkerRef], object]] = {
    "statistics": lambda worker: worker.statistics(),
    "len": len,
    "stop": lambda worker: worker.stop(),
    "stop(now)": lambda worker: worker.stop(now=True),
    "stop(block=False)": lambda worker: worker.stop(block=False),
    "astop": lambda worker: asyncio.run(worker.astop()),
    "kill": lambda worker: worker.kill(),
    "resume": lambda worker: worker.resume(),
    "dead_letters": lambda worker: worker.dead_letters,
    "executor.ask": lambda worker: worker.executor.ask("mail"),
    "executor.tell": lambda worker: worker.executor.tell("mail"),
    "push_ack": lambda worker: worker.push_ack("again"),
    "push_block": lambda worker: worker.push_block("again"),
    "ask": lambda worker: worker.ask("again"),
    "apush_ack": lambda worker: asyncio.run(worker.apush_ack("again")),
}


class Selfish:
    """A behaviour one of whose methods uses its own worker, once."""

    def __init__(self, method: str, use: Callable[[], None]) -> None:
        self.held: list[Any] = []
        self.method = method
        self.use = use

    def do(self, method: str) -> None:
        if method == self.method:
            self.use()

    def add(self, message: Any) -> None:
        self.do("add")
        self.held.append(message)

    def take(self) -> list[Any]:
        self.do("take")
        batch, self.held = self.held, []
        return batch

    def __len__(self) -> int:
        self.do("len")
        return len(self.held)

    def ready_at(self, now: float) -> float:
        self.do("ready_at")
        return now

    def flush(self) -> None:
        self.do("flush")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", ["add", "take", "len", "ready_at", "flush"])
def test_m12_a_method_of_a_behaviour_that_uses_its_own_worker_is_refused(
    method: str, verb: str
) -> None:
    caught: list[BaseException] = []
    using: list[af.WorkerRef] = []

    def use() -> None:
        if using:
            worker = using.pop()
            try:
                VERBS[verb](worker)
            except af.WouldDeadlock as error:
                caught.append(error)

    selfish = Selfish(method, use)
    worker = af.spawn(lambda _batch, _state: None, behaviour=selfish, name="selfish")
    using.append(worker)
    for push in (worker.push, worker.push_block, worker.push_ack):
        Caller(push, "message").value()
    Caller(worker.stop).value()
    (error,) = caught
    assert "would wait for itself" in str(error)
    assert check_law(worker).processed == 3
