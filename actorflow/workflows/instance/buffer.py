"""Actions that wait for the next decision, and the timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import (
    COMPLETIONS,
    BranchType,
    BufferedAction,
    RunningTimeout,
)

if TYPE_CHECKING:
    from actorflow.workflows.instance.state import InstanceState, StepStatus
    from actorflow.workflows.instance.steps import Steps

__all__ = ["Buffer"]


class Buffer:
    """Puts actions into the buffer of a state.

    Args:
        state: whose buffer and timeouts change.
        steps: of the same state.
        sent: where timers are set and cleared.

    """

    def __init__(self, state: InstanceState, steps: Steps, sent: list[m.Outgoing]) -> None:
        self._state = state
        self._steps = steps
        self._sent = sent

    def push(self, at: float, type_: BranchType, data: dict[str, Any]) -> None:
        """Add an action that happened at a time."""
        self._state.buffer.append(BufferedAction(at, type_, data))

    def push_of(
        self,
        status: StepStatus,
        at: float,
        type_: BranchType,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Add an action of a step."""
        of_step = {"step": status.step, "task_name": status.name, "task_input": status.input}
        self._state.buffer.append(BufferedAction(at, type_, of_step | (data or {})))

    def push_end(
        self, status: StepStatus, at: float, type_: BranchType, data: dict[str, Any]
    ) -> None:
        """Add the end of a step: its success or its failure."""
        self._steps.end_buffered(status.step)
        if self._state.timeouts:
            self.clear_timeout(status.step)
        self.push_of(status, at, type_, data)

    def drop_end(self, step: str) -> None:
        """Forget the end of a step, if it is here."""
        buffer = self._state.buffer
        for at, action in enumerate(buffer):
            if action.type in COMPLETIONS and action.data["step"] == step:
                del buffer[at]
                self._steps.end_dropped(step)
                return

    def set_timeout(self, status: StepStatus, started_at: float) -> None:
        """Begin to count the timeout of a step that has one and is not over."""
        if status.timeout is None or self._steps.is_over(status):
            return
        self.clear_timeout(status.step)
        deadline = started_at + status.timeout
        self._state.timeouts.append(RunningTimeout(status.step, deadline))
        self._sent.append(m.SetStepTimer(status.step, deadline, timeout=True))

    def clear_timeout(self, step: str) -> bool:
        """Stop the timeout of a step; return whether there was one."""
        for at, timeout in enumerate(self._state.timeouts):
            if timeout.step == step:
                del self._state.timeouts[at]
                self._sent.append(m.ClearTimer(step, timeout=True))
                return True
        return False
