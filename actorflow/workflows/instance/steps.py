"""The steps of an instance, by name and by branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.workflows.instance.state import (
    COMPLETIONS,
    UNSET,
    StepState,
    StepStatus,
    StepType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.workflows.instance.growth import Changes
    from actorflow.workflows.instance.state import BufferedAction, InstanceState

__all__ = ["Steps"]


class Steps:
    """Lookups that are derived from the statuses and the buffer of a state.

    Args:
        state: new steps are added to its statuses.
        changes: of the same state.

    """

    def __init__(self, state: InstanceState, changes: Changes) -> None:
        self._state = state
        self._changes = changes
        self._by_name = {status.step: status for status in state.statuses}
        self.get: Callable[[str], StepStatus | None] = self._by_name.get
        """Look up a step by its name, `<branch_key>/<position>`."""
        self._of_branch: dict[int, list[StepStatus]] = {}
        for status in state.statuses:
            self._of_branch.setdefault(status.branch_key, []).append(status)
        self._blocking = {status.step for status in state.statuses if _blocks(status)}
        self._ending: set[str] = set()
        self.buffer_is(state.buffer)

    def of_branch(self, key: int) -> list[StepStatus]:
        """Return the steps of a branch, in the order in which they were scheduled."""
        return self._of_branch.get(key, [])

    def add(self, status: StepStatus) -> None:
        """Add a step that a decision has scheduled."""
        step = status.step
        self._state.statuses.append(status)
        self._by_name[step] = status
        self._of_branch.setdefault(status.branch_key, []).append(status)
        self._changes.status(status)
        if _blocks(status):
            self._blocking.add(step)

    def changed(self, status: StepStatus) -> None:
        """Record that anything about a step has changed."""
        self._changes.status(status)
        step = status.step
        if _blocks(status):
            self._blocking.add(step)
        else:
            self._blocking.discard(step)

    @property
    def blocking(self) -> bool:
        """Whether a branch waits for one of its steps."""
        return bool(self._blocking)

    @property
    def going_on(self) -> bool:
        """Whether a branch waits for a task or sub-workflow that goes on. O(awaited steps)."""
        return any(
            status.type is not StepType.WAIT and status.error is UNSET and not self.is_over(status)
            for status in map(self._by_name.__getitem__, self._blocking)
        )

    def awaited(self) -> list[StepStatus]:
        """Return the steps that branches wait for, in the order in which they were scheduled."""
        found = (self._by_name[step] for step in self._blocking)
        return sorted(found, key=lambda status: (status.index, status.branch_key, status.position))

    def awaited_by(self, key: int) -> bool:
        """Return whether a branch waits for one of its steps."""
        return any(status.step in self._blocking for status in self.of_branch(key))

    def stuck(self, key: int | None = None) -> StepStatus | None:
        """Return a failed step of a branch that waits for failed steps only.

        A sub-workflow with an error counts: it waits for a fix.

        Args:
            key: of the branch; any by default.

        """
        for step in self._blocking:
            if self._by_name[step].error is not UNSET:
                break
        else:  # as a rule
            return None
        awaited: dict[int, list[StepStatus]] = {}
        for step in self._blocking:
            status = self._by_name[step]
            awaited.setdefault(status.branch_key, []).append(status)
        for branch, statuses in sorted(awaited.items()):
            if key in (None, branch) and all(status.error is not UNSET for status in statuses):
                return min(statuses, key=lambda status: status.position)
        return None

    def is_over(self, status: StepStatus) -> bool:
        """Return whether the end of a step is stored or buffered."""
        return status.status is not StepState.SCHEDULED or status.step in self._ending

    def end_buffered(self, step: str) -> None:
        """Record that the end of a step is in the buffer."""
        self._ending.add(step)

    def end_dropped(self, step: str) -> None:
        """Record that the end of a step is not in the buffer any more."""
        self._ending.discard(step)

    def buffer_is(self, actions: Iterable[BufferedAction]) -> None:
        """Record which actions are in the buffer."""
        self._ending = {action.data["step"] for action in actions if action.type in COMPLETIONS}


def _blocks(status: StepStatus) -> bool:
    """Whether the branch of a step waits for it."""
    if not status.sync or status.status in (StepState.SUCCESSFUL, StepState.CANCELLED):
        return False
    # A failed step is complete once its branch has received the failure.
    return status.completion_index is UNSET
