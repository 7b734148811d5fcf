"""Drives an instance by hand: every message and every decision is a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.workflows.decider import Decider
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import UNSET, InstanceState, StepType
from actorflow.workflows.suspended.properties import capture
from actorflow.workflows.workflow import workflow_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.workflow import Workflow


class Driver:
    """One instance of a workflow, whose tasks are done when the test says so.

    Args:
        workflow: the object to start.
        decider: shared, or one of its own.
        keeps_events: keep events that no wait expects.
        forget: give up the frames after each decision, so that each one replays its branches.

    """

    def __init__(
        self,
        workflow: Workflow[Any],
        decider: Decider | None = None,
        *,
        id: str = "i-1",  # noqa: A002
        forget: bool = False,
        keeps_events: bool = False,
        at: float = 0,
    ) -> None:
        self.cls = type(workflow)
        self.decider = decider or Decider()
        self.forget = forget
        self.now = at
        self.sent: list[m.Outgoing] = []
        self.instance, sent = Instance.start(
            id, workflow_name(self.cls), capture(workflow), at=at, keeps_events=keeps_events
        )
        self.sent += sent

    @property
    def state(self) -> InstanceState:
        return self.instance.state

    def receive(self, *received: m.Received) -> list[m.Outgoing]:
        sent = self.instance.receive(received, now=self.now)
        self.sent += sent
        return sent

    def tick(self, by: float = 1) -> float:
        self.now += by
        return self.now

    def decide(self) -> list[m.Outgoing]:
        """Take the ongoing decision."""
        assert self.state.decision_ongoing
        answer = self.decider.decide(self.cls, self.instance, at=self.tick(0))
        if self.forget:
            self.decider.forget(self.state.id)
        return self.receive(answer)

    def settle(self) -> Driver:
        """Take decisions until there are none."""
        while self.state.decision_ongoing:
            self.decide()
        return self

    def start(self, step: str) -> Driver:
        self.receive(m.Started(self.tick(), step))
        return self.settle()

    def succeed(self, step: str, output: Any = None) -> Driver:
        self.receive(m.Succeeded(self.tick(), step, output))
        return self.settle()

    def fail(self, step: str, name: str = "IOError", message: str = "boom") -> Driver:
        self.receive(m.StepHasFailed(self.tick(), step, {"name": name, "message": message}))
        return self.settle()

    def event(self, name: str, data: Any = None) -> Driver:
        self.receive(m.EventSent(self.tick(), name, data))
        return self.settle()

    def restart(self) -> Driver:
        """Store the state, forget all else, and go on from the stored state."""
        self.decider.forget(self.state.id)
        self.instance = Instance(stored.decode(stored.encode(self.state)))
        return self

    @property
    def open(self) -> list[str]:
        """The steps, but for waits, that were sent and are not complete."""
        return [
            status.step
            for status in self.state.statuses
            if status.status == "scheduled" and status.type is not StepType.WAIT
        ]

    @property
    def steps(self) -> list[tuple[str, str, Any]]:
        """All steps: their names within the instance, their names, their inputs."""
        return [(status.step, status.name, status.input) for status in self.state.statuses]

    @property
    def properties(self) -> dict[str, Any]:
        return self.state.properties[-1].values

    @property
    def mode(self) -> str:
        return str(self.state.decision_mode)

    @property
    def output(self) -> Any:
        ends = [each for each in self.sent if isinstance(each, m.Ended)]
        assert len(ends) == 1, self.state
        assert ends[0].output is not UNSET
        return ends[0].output

    def run(self, answer: Callable[[str, Any], Any]) -> Any:
        """Do all tasks, the oldest first, with a function of name and input; return the result."""
        self.settle()
        while self.mode == "run":
            step = self.open[0]
            status = self.instance.status(step)
            assert status is not None
            self.succeed(step, answer(status.name, status.input))
        return self.output


def drive(workflow: Workflow[Any], decider: Decider, way: str = "live") -> Driver:
    """Drive a workflow until it waits for something outside."""
    return Driver(workflow, decider, forget=way == "replayed").settle()
