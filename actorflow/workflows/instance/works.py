"""The works of an instance, by name and by branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.workflows.instance.state import (
    COMPLETIONS,
    UNSET,
    WorkState,
    WorkStatus,
    WorkType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.workflows.instance.growth import Changes
    from actorflow.workflows.instance.state import InstanceState

__all__ = ["Works"]


class Works:
    """Lookups that are derived from the statuses and the buffer of a state.

    Args:
        state: new works are added to its statuses.
        changes: of the same state.

    """

    def __init__(self, state: InstanceState, changes: Changes) -> None:
        self._state = state
        self._changes = changes
        self._by_name = {status.work: status for status in state.statuses}
        self.get: Callable[[str], WorkStatus | None] = self._by_name.get
        """Look up a work by its name, `<branch_key>/<position>`."""
        self._of_branch: dict[int, list[WorkStatus]] = {}
        for status in state.statuses:
            self._of_branch.setdefault(status.branch_key, []).append(status)
        self._blocking = {status.work for status in state.statuses if _blocks(status)}
        self._ending = {
            action.data["work"] for action in state.buffer if action.type in COMPLETIONS
        }

    def of_branch(self, key: int) -> list[WorkStatus]:
        """Return the works of a branch, in the order in which they were scheduled."""
        return self._of_branch.get(key, [])

    def add(self, status: WorkStatus) -> None:
        """Add a work that a decision has scheduled."""
        work = status.work
        self._state.statuses.append(status)
        self._by_name[work] = status
        self._of_branch.setdefault(status.branch_key, []).append(status)
        self._changes.status(status)
        if _blocks(status):
            self._blocking.add(work)

    def changed(self, status: WorkStatus) -> None:
        """Note that anything about a work has changed."""
        self._changes.status(status)
        work = status.work
        if _blocks(status):
            self._blocking.add(work)
        else:
            self._blocking.discard(work)

    @property
    def blocking(self) -> bool:
        """Whether a branch waits for one of its works."""
        return bool(self._blocking)

    @property
    def going_on(self) -> bool:
        """Whether a branch waits for a task or sub-workflow that goes on. O(awaited works)."""
        return any(
            status.type is not WorkType.WAIT and status.error is UNSET and not self.is_over(status)
            for status in map(self._by_name.__getitem__, self._blocking)
        )

    def awaited(self) -> list[WorkStatus]:
        """Return the works that branches wait for, in the order in which they were scheduled."""
        found = (self._by_name[work] for work in self._blocking)
        return sorted(found, key=lambda status: (status.index, status.branch_key, status.position))

    def awaited_by(self, key: int) -> bool:
        """Return whether a branch waits for one of its works."""
        return any(status.work in self._blocking for status in self.of_branch(key))

    def stuck(self, key: int | None = None) -> WorkStatus | None:
        """Return a failed work of a branch that waits for failed works only.

        A sub-workflow with an error counts: it waits for a fix.

        Args:
            key: of the branch; any by default.

        """
        for work in self._blocking:
            if self._by_name[work].error is not UNSET:
                break
        else:  # as a rule
            return None
        awaited: dict[int, list[WorkStatus]] = {}
        for work in self._blocking:
            status = self._by_name[work]
            awaited.setdefault(status.branch_key, []).append(status)
        for branch, statuses in sorted(awaited.items()):
            if key in (None, branch) and all(status.error is not UNSET for status in statuses):
                return min(statuses, key=lambda status: status.position)
        return None

    def is_over(self, status: WorkStatus) -> bool:
        """Return whether the end of a work is stored or buffered."""
        return status.status is not WorkState.SCHEDULED or status.work in self._ending

    def end_buffered(self, work: str) -> None:
        """Note that the end of a work is in the buffer."""
        self._ending.add(work)

    def buffer_emptied(self) -> None:
        """Note that no ends are in the buffer any more."""
        self._ending.clear()


def _blocks(status: WorkStatus) -> bool:
    """Whether the branch of a work waits for it."""
    if not status.sync or status.status in (WorkState.SUCCESSFUL, WorkState.CANCELLED):
        return False
    return status.status is WorkState.SCHEDULED or not status.raises
