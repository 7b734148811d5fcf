"""Real workflow classes from the neutral description of golden histories."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.testing.golden.notation import NotationCall, Scope, interpret, step_call
from actorflow.workflows.decider import METHODS, Decider
from actorflow.workflows.suspended.frame import frame_of
from actorflow.workflows.suspended.step import Step
from actorflow.workflows.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.instance import messages as m
    from actorflow.workflows.instance.instance import Instance

Json = Any


class _Attributes:
    """The properties of a workflow by name."""

    def __init__(self, workflow: Workflow[Any]) -> None:
        self._workflow = workflow

    def get(self, name: str) -> Json:
        return getattr(self._workflow, name, None)

    def __setitem__(self, name: str, value: Json) -> None:
        setattr(self._workflow, name, value)


def described_workflow(name: str, methods: dict[str, Json]) -> type[Workflow[Any]]:
    """Return a class of workflows that does what a description says."""
    namespace: dict[str, Any] = {
        attribute: _method(methods.get(method, []))
        for method, attribute in METHODS.items()
        if method in methods or method == "handle"
    }
    return type(name, (Workflow,), namespace)


def _method(operations: list[Json]) -> Callable[..., Json]:
    def method(self: Workflow[Any], *_: object) -> Json:
        arguments = msgspec.to_builtins(frame_of(self).cursor.branch)
        code = interpret(operations, Scope(_Attributes(self), arguments))
        outputs: list[Json] | None = None
        try:
            while True:
                outputs = _call(self, code.send(outputs))
        except StopIteration as stop:
            return stop.value

    return method


def _call(workflow: Workflow[Any], call: NotationCall) -> list[Json] | None:
    steps = [_step(step) for step in call.steps]
    if call.sync:
        return workflow.execute_all(steps)
    workflow.dispatch(*steps)
    return None


def _step(step: Json) -> Step[Json]:
    call = step_call(step, "", sync=True)
    return Step(
        type=call.type,
        name=call.name,
        input=call.input,
        read=copy.deepcopy,
        timeout=call.timeout,
        event=call.event,
        duration=call.duration,
        timestamp=call.timestamp,
    )


class LiveDecider:
    """Runs a description as a real workflow, whose frames stay alive between decisions.

    Args:
        workflow: the description.
        forget: give up all frames after each decision, so that the next one replays them.

    """

    def __init__(self, workflow: Json, *, forget: bool = False) -> None:
        self._name = workflow["name"]
        self._class = described_workflow(self._name, workflow["methods"])
        self._forget = forget
        self.decider = Decider()

    def deploy(self, methods: dict[str, Json]) -> None:
        """Use this code from now on."""
        self._class = described_workflow(self._name, methods)

    def restored(self) -> None:
        """Drop all frames."""
        self.decider.forget(self._name)

    def close(self) -> None:
        """Stop the threads."""
        self.decider.close()

    def decide(self, instance: Instance, at: float) -> tuple[m.Received, Json]:
        """Take the ongoing decision; there is no trace of it."""
        answer = self.decider.decide(self._class, instance, at=at)
        if self._forget:
            self.decider.forget(self._name)
        return answer, None
