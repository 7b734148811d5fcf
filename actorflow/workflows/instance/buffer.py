"""What has happened and waits for the next decision, and the timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import BranchType, BufferedAction, RunningTimeout

if TYPE_CHECKING:
    from actorflow.workflows.instance.state import InstanceState, WorkStatus
    from actorflow.workflows.instance.works import Works

__all__ = ["Buffer"]


class Buffer:
    """Puts actions into the buffer of a state.

    Args:
        state: whose buffer and timeouts change.
        works: of the same state.
        sent: where timers are set and cleared.

    """

    def __init__(self, state: InstanceState, works: Works, sent: list[m.Outgoing]) -> None:
        self._state = state
        self._works = works
        self._sent = sent

    def push(self, at: float, type_: BranchType, data: dict[str, Any]) -> None:
        """Add an action that happened at a time."""
        self._state.buffer.append(BufferedAction(at, type_, data))

    def push_of(
        self,
        status: WorkStatus,
        at: float,
        type_: BranchType,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Add an action of a work."""
        of_work = {"work": status.work, "task_name": status.name, "task_input": status.input}
        self._state.buffer.append(BufferedAction(at, type_, of_work | (data or {})))

    def push_end(
        self, status: WorkStatus, at: float, type_: BranchType, data: dict[str, Any]
    ) -> None:
        """Add the end of a work: its success or its failure."""
        self._works.end_buffered(status.work)
        if self._state.timeouts:
            self.clear_timeout(status.work)
        self.push_of(status, at, type_, data)

    def set_timeout(self, status: WorkStatus, started_at: float) -> None:
        """Begin to count the timeout of a work that has one and is not over."""
        if status.timeout is None or self._works.is_over(status):
            return
        self.clear_timeout(status.work)
        deadline = started_at + status.timeout
        self._state.timeouts.append(RunningTimeout(status.work, deadline))
        self._sent.append(m.SetTimer(status.work, deadline, timeout=True))

    def clear_timeout(self, work: str) -> bool:
        """Stop the timeout of a work; return whether there was one."""
        for at, timeout in enumerate(self._state.timeouts):
            if timeout.work == work:
                del self._state.timeouts[at]
                self._sent.append(m.ClearTimer(work, timeout=True))
                return True
        return False
