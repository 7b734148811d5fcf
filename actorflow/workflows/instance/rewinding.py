"""Going back: an instance as it was when its code was about to ask for a work.

Time is the index, so the past of a work is what has an index up to that of the execution in which
it was scheduled. That execution is planned again. Works that the same execution had asked for
before stay, because the code asks for them again and finds them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.state import (
    COMPLETIONS,
    INTERRUPTED,
    UNSET,
    Branch,
    BranchType,
    BufferedAction,
    DecisionMode,
    InstanceState,
    RunningTimeout,
    RunningWait,
    WorkState,
    WorkStatus,
    WorkType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["forked", "rewound"]

_DATA = (
    "event_name", "event_input", "event_id", "work", "task_name", "task_input", "task_output",
    "error_name", "error_input",
)  # fmt: skip


def rewound(state: InstanceState, work: str) -> InstanceState:
    """Return a state before a work: its decision is ongoing, under the same number.

    What has happened since stays in the buffer, to happen again: events, and what became of works
    that had begun before. The decision is said to begin when its cause happened, so that new waits
    stand in the right order to these. Nothing of `state` is changed. O(n).

    Raises:
        KeyError: there is no such work.

    """
    past = _Past(state, work)
    return past.state([*past.later()])


def forked(state: InstanceState, work: str, id_: str) -> InstanceState:
    """Return the state of a new instance with the past of another one before a work.

    Nothing that has happened since is in it: works that were under way then are to be begun again.

    Raises:
        KeyError: there is no such work.

    """
    past = _Past(state, work)
    made = past.state([*past.of_that_moment()], alone=True)
    return replace(made, id=id_, decision_number=0, dropped=0, attempts={})


class _Past:
    """The past of a work within an instance."""

    def __init__(self, state: InstanceState, work: str) -> None:
        of = next((status for status in state.statuses if status.work == work), None)
        if of is None:
            raise KeyError(work)
        self._state = state = stored.decode(stored.encode(state))
        self._index = index = of.index
        self._call = _call(of)
        self._branches = [branch for branch in state.branches if branch.start_index <= index]
        self._statuses = [
            status
            for status in state.statuses
            if status.index < index or (status.index == index and _call(status) < self._call)
        ]
        self._names = {status.work for status in self._statuses}
        self._failures = Counter(
            branch.work for branch in state.branches if branch.type is BranchType.FAILURE
        )

    def _moment(self) -> float:
        """Return when the last thing of the past happened: time goes back to it as well."""
        return max(branch.at for branch in self._branches)

    # What has happened since.

    def later(self) -> Iterator[BufferedAction]:
        """Yield what has happened since and does not concern works that are undone, in order."""
        state = self._state
        retried = {each.work for each in self._statuses if each.status is WorkState.SCHEDULED}
        for branch in state.branches[len(self._branches) :]:
            if branch.type is BranchType.FAILURE and branch.work in retried:
                continue  # the attempt that is under way counts, and its end is still to come
            if branch.work is UNSET or branch.work in self._names:
                yield _action(branch)
        for action in state.buffer:
            if action.data.get("work") in (None, *self._names):
                yield action

    def of_that_moment(self) -> Iterator[BufferedAction]:
        """Yield what follows from the past, although it was to be handled after the index.

        Waits start when they are scheduled, an event ends all waits for it, and one that interrupts
        comes after the works that it has stopped. Times cannot tell: a clock may stand still.
        """
        moment = self._moment()
        waits = {each.work: each for each in self._statuses if each.type is WorkType.WAIT}
        later = [*self.later()]
        rest = self._rest_of_interruption(later)
        seen = {
            (branch.event_name, branch.start_index)
            for branch in self._branches
            if branch.type is BranchType.EVENT
        }
        seen |= {
            (action.data["event_name"], self._index + 1)
            for action in later[:rest]
            if action.type is BranchType.EVENT
        }
        for number, action in enumerate(later):
            wait = waits.get(action.data.get("work", ""))
            if wait is None or action.type not in (BranchType.START, BranchType.SUCCESS):
                belongs = number < rest
            elif action.type is BranchType.START:
                belongs = True
            elif action.data["task_output"] is None:
                belongs = action.timestamp <= moment
            else:
                belongs = any(name == wait.event and at > wait.index for name, at in seen)
            if belongs:
                yield action

    def _rest_of_interruption(self, later: list[BufferedAction]) -> int:
        """Return how much of what came later belongs to an event that had begun to interrupt."""
        last = self._branches[-1]
        if last.type is not BranchType.FAILURE or last.error_name != INTERRUPTED:
            return 0
        events = (at for at, each in enumerate(later, 1) if each.type is BranchType.EVENT)
        return next(events, 0)

    # The state.

    def state(self, buffer: list[BufferedAction], *, alone: bool = False) -> InstanceState:
        """Return the state, with what is left to be handled.

        Args:
            buffer: what is left to be handled.
            alone: forget results of works since then, beyond what is buffered.

        """
        state, index = self._state, self._index
        statuses = [self._status(status, buffer, alone=alone) for status in self._statuses]
        over = {action.data["work"] for action in buffer if action.type in COMPLETIONS}
        running = [
            status
            for status in statuses
            if status.status is WorkState.SCHEDULED and status.work not in over
        ]
        return replace(
            state,
            branches=[self._branch(key, branch) for key, branch in enumerate(self._branches)],
            executions=self._executions(),
            ongoing_index=index,
            statuses=statuses,
            waits=[
                RunningWait(status.work, status.deadline, status.event)
                for status in running
                if status.type is WorkType.WAIT
            ],
            timeouts=[*self._timeouts(running, buffer)],
            properties=[each for each in state.properties if each.key <= index],
            buffer=buffer,
            records=[
                each
                for each in state.records
                if each.index < index or (each.index == index and each.calls <= self._call)
            ],
            decision_mode=DecisionMode.RUN,
            decision_ongoing=True,
            decision_current_index=index,
            decision_triggered_at=self._moment(),
            error=None,
            attempts=self._attempts(),
        )

    def _executions(self) -> list[int]:
        """Return the executions up to the index, and the one that a completion there leads to."""
        executions, end = self._state.executions, self._index + 1
        if end < len(executions) and self._state.branches[executions[end]].start_index < end:
            end += 1
        return executions[:end]

    def _branch(self, key: int, branch: Branch) -> Branch:
        runs_again = key in self._state.executions[self._index :]
        return replace(branch, output=UNSET) if runs_again else branch

    def _status(
        self, status: WorkStatus, buffer: list[BufferedAction], *, alone: bool
    ) -> WorkStatus:
        """Return a work as it was."""
        index = self._index
        counts = Counter(branch.type for branch in self._branches if branch.work == status.work)
        failures = counts[BranchType.FAILURE]
        # Attempts cannot tell: those that were undone before have left no branches.
        failed = status.status is WorkState.FAILED and failures == self._failures[status.work]
        left = isinstance(status.left_index, int)
        was_left = left and status.left_index < index  # type: ignore[operator] # a number then
        made = replace(status, sync=(status.sync or left) and not was_left)
        if left and not was_left:
            made.left_index = UNSET
        if isinstance(status.released_index, int) and status.released_index > index:
            made.released_index = UNSET
        complete = isinstance(status.completion_index, int) and status.completion_index <= index
        cancelled = status.status is WorkState.CANCELLED
        if complete or (cancelled and was_left) or failed:
            return made
        if status.status is WorkState.SCHEDULED and not alone:
            return made  # as it still is; a sub-workflow may wait for a fix
        made.status = WorkState.SCHEDULED
        made.completion_index = made.output = made.error = UNSET
        if alone:
            starts = sum(_is(action, BranchType.START, status.work) for action in buffer)
            made.attempt = failures + 1
            made.started = min(made.attempt, counts[BranchType.START] + starts)
        elif cancelled:
            made.attempt += 1  # it was stopped, so it has to be sent again
        return made

    def _timeouts(
        self, running: list[WorkStatus], buffer: list[BufferedAction]
    ) -> Iterator[RunningTimeout]:
        actions = [*map(_action, self._branches), *buffer]
        for status in running:
            begun: float | None = None
            for action in actions:
                if status.timeout is None or action.data.get("work") != status.work:
                    continue
                if action.type is BranchType.START:
                    begun = action.timestamp
                elif action.type is not BranchType.SUCCESS:
                    begun = None
            if begun is not None and status.timeout is not None:
                yield RunningTimeout(status.work, begun + status.timeout)

    def _attempts(self) -> dict[str, int]:
        """Return how often each work that is undone was begun: the next one has another id."""
        undone = self._state.statuses[len(self._statuses) :]
        return self._state.attempts | {status.work: status.attempt for status in undone}


def _call(status: WorkStatus) -> int:
    return int(status.position.partition(".")[0])


def _is(action: BufferedAction, type_: BranchType, work: str) -> bool:
    return action.type is type_ and action.data.get("work") == work


def _action(branch: Branch) -> BufferedAction:
    """Return what a branch was created by."""
    values = ((name, getattr(branch, name)) for name in _DATA)
    return BufferedAction(
        branch.at, branch.type, {name: value for name, value in values if value is not UNSET}
    )
