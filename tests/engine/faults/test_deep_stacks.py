"""A caller close to the recursion limit gets RecursionError, and its engine goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Unique
from actorflow.runtime.worker.job.answers import Answers
from tests.runtime.worker.interrupts.test_deep_stacks import close_to_the_limit
from tests.runtime.worker.probe import PATIENCE, Caller

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES = range(4, 130, 3)


class Counter(af.Workflow[int]):
    """Counts its events."""

    def __init__(self) -> None:
        self.events = 0

    def handle(self) -> int:
        self.wait("end")
        return self.events

    def on_event(self, _event: af.Event) -> int:
        self.events += 1
        return self.events


def count(batch: list[Any], state: int) -> Answers:
    return Answers(state + len(batch), batch)


def behaviour() -> Unique:
    return Unique(key=lambda message: message)


VERBS: dict[str, Callable[[af.Engine, Any, Any, int], object]] = {
    "push": lambda _engine, worker, _counter, left: worker.push(left),
    "push_ack": lambda _engine, worker, _counter, left: worker.push_ack(left, timeout=PATIENCE),
    "push_block": lambda _engine, worker, _counter, left: worker.push_block(left, timeout=PATIENCE),
    "ask": lambda _engine, worker, _counter, left: worker.ask(left, timeout=PATIENCE),
    "start": lambda engine, _worker, _counter, left: engine.start(Counter(), id=f"c{left}"),
    "launch": lambda engine, _worker, _counter, left: engine.launch("set f.a 1", id=f"f{left}"),
    "send": lambda _engine, _worker, counter, _left: counter.send("event"),
    "ask a workflow": lambda _engine, _worker, counter, _left: counter.ask("event"),
}


@pytest.mark.parametrize("warm", [True, False], ids=["running", "not resumed"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_caller_close_to_the_recursion_limit_leaves_an_engine_that_works(
    verb: str, *, warm: bool
) -> None:
    """Such a caller must not make a commit in its own thread, or change half of a table."""
    for frames in [FRAMES] if warm else [[left] for left in FRAMES[::4]]:
        with af.Engine(":memory:") as engine:
            engine.workflows.register(Counter)
            worker = engine.worker("w", count, state=0, behaviour=behaviour)
            counter = (
                engine.start(Counter()) if warm or verb in {"send", "ask a workflow"} else None
            )
            call = VERBS[verb]

            def use() -> None:
                for left in frames:  # noqa: B023
                    try:
                        close_to_the_limit(left, lambda: call(engine, worker, counter, left))  # noqa: B023
                    except RecursionError:
                        # The same call from a shallow stack finds everything in order.
                        call(engine, worker, counter, left)  # noqa: B023
                    worker.push_block(f"after {left}", timeout=PATIENCE)  # noqa: B023

            Caller(use).value()
