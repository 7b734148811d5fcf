"""Going back: an instance as it was when its code was about to ask for a step.

Time is the index, so the past of a step has the indexes up to that of the execution in which
it was scheduled. That execution is planned again. Steps that the same execution had asked for
before stay, because the code asks for them again and finds them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.state import (
    CANCELLED,
    COMPLETIONS,
    EVENT_DATA,
    INTERRUPTED,
    UNSET,
    Branch,
    BranchType,
    BufferedAction,
    DecisionMode,
    InstanceState,
    RunningTimeout,
    RunningWait,
    StepState,
    StepStatus,
    StepType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.workflows.instance.state import KeptEvent

__all__ = ["action_of", "forked", "rewound"]

_DATA = (
    *EVENT_DATA, "step", "task_name", "task_input", "task_output",
    "error_name", "error_input",
)  # fmt: skip


def rewound(state: InstanceState, step: str) -> InstanceState:
    """Return a state before a step: its decision is ongoing, under the same number.

    Later events stay in the buffer, to be handled again, and so do the later outcomes of steps
    that had begun before. The decision is said to begin when its cause happened, so that new waits
    stand in the right order to these. Nothing of `state` is changed. O(n).

    Raises:
        KeyError: there is no such step.

    """
    past = _Past(state, step)
    return past.state([*past.later()])


def forked(state: InstanceState, step: str, id_: str) -> InstanceState:
    """Return the state of a new instance with the past of another one before a step.

    Nothing that has happened since is in it: steps that were under way then are to be begun again.

    Raises:
        KeyError: there is no such step.

    """
    past = _Past(state, step)
    made = past.state([*past.of_that_moment()], alone=True)
    return replace(made, id=id_, decision_number=0, dropped=0, attempts={})


class _Past:
    """The past of a step within an instance."""

    def __init__(self, state: InstanceState, step: str) -> None:
        of = next((status for status in state.statuses if status.step == step), None)
        if of is None:
            raise KeyError(step)
        self._state = state = stored.decode(stored.encode(state))
        self._index = index = of.index
        self._call = _call(of)
        self._branches = [branch for branch in state.branches if branch.start_index <= index]
        self._statuses = [
            status
            for status in state.statuses
            if status.index < index or (status.index == index and _call(status) < self._call)
        ]
        self._names = {status.step for status in self._statuses}
        cancel = state.cancellation
        self._forgets = cancel is not None and index < cancel.index
        """Whether the instance was cancelled later than this."""
        self._failures = Counter(
            branch.step
            for branch in state.branches
            if branch.type is BranchType.FAILURE and branch.error_name != CANCELLED
        )

    def _moment(self) -> float:
        """Return when the last thing of the past happened: time goes back to it as well."""
        return max(branch.at for branch in self._branches)

    # Later actions.

    def later(self) -> Iterator[BufferedAction]:
        """Yield later actions that do not concern undone steps, in order."""
        state = self._state
        retried = {each.step for each in self._statuses if each.status is StepState.SCHEDULED}
        forgotten = CANCELLED if self._forgets else None
        for branch in state.branches[len(self._branches) :]:
            if branch.error_name == forgotten:
                continue
            if branch.type is BranchType.FAILURE and branch.step in retried:
                continue  # the attempt that is under way counts, and its end is still to come
            if branch.step is UNSET or branch.step in self._names:
                yield action_of(branch)
        for action in state.buffer:
            if action.data.get("error_name", "") == forgotten:
                continue
            if action.data.get("step") in (None, *self._names):
                yield action
        yield from self._unheard()

    def _unheard(self) -> Iterator[BufferedAction]:
        """Yield the events that came while the instance was being cancelled."""
        cancel = self._state.cancellation
        if self._forgets and cancel is not None:
            for event in cancel.events:
                if event.number not in self._state.removed_events:
                    yield event_action(event)

    def of_that_moment(self) -> Iterator[BufferedAction]:
        """Yield consequences of the past, although they were to be handled after the index.

        Waits start when they are scheduled, an event ends all waits for it, and one that interrupts
        comes after the steps that it has stopped. Times cannot tell: a clock may stand still.
        """
        moment = self._moment()
        waits = {each.step: each for each in self._statuses if each.type is StepType.WAIT}
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
        numbers = {each.event_number for each in self._branches} | {
            action.data.get("event_number") for action in later[:rest]
        }
        for number, action in enumerate(later):
            wait = waits.get(action.data.get("step", ""))
            if wait is None or action.type not in (BranchType.START, BranchType.SUCCESS):
                belongs = number < rest
            elif action.type is BranchType.START:
                belongs = True
            elif action.data["task_output"] is None:
                belongs = action.timestamp <= moment
            elif self._state.keeps_events:
                belongs = wait.taken in numbers
            else:
                belongs = any(name == wait.event and at > wait.index for name, at in seen)
            if belongs:
                yield action

    def _rest_of_interruption(self, later: list[BufferedAction]) -> int:
        """Return how many of the later actions belong to an event that had begun to interrupt."""
        last = self._branches[-1]
        if last.type is not BranchType.FAILURE or last.error_name != INTERRUPTED:
            return 0
        events = (at for at, each in enumerate(later, 1) if each.type is BranchType.EVENT)
        return next(events, 0)

    # The state.

    def state(self, buffer: list[BufferedAction], *, alone: bool = False) -> InstanceState:
        """Return the state, with the actions left to handle.

        Args:
            buffer: the actions left to handle.
            alone: forget results of steps since then, unless they are buffered.

        """
        state, index = self._state, self._index
        statuses = [self._status(status, buffer, alone=alone) for status in self._statuses]
        over = {action.data["step"] for action in buffer if action.type in COMPLETIONS}
        running = [
            status
            for status in statuses
            if status.status is StepState.SCHEDULED and status.step not in over
        ]
        return replace(
            state,
            branches=[self._branch(key, branch) for key, branch in enumerate(self._branches)],
            executions=self._executions(),
            ongoing_index=index,
            statuses=statuses,
            waits=[
                RunningWait(status.step, status.deadline, status.event)
                for status in running
                if status.type is StepType.WAIT
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
            successor=None,
            cancellation=None if self._forgets else state.cancellation,
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
        self, status: StepStatus, buffer: list[BufferedAction], *, alone: bool
    ) -> StepStatus:
        """Return a step as it was."""
        index = self._index
        if self._forgets and self._was_told(status):
            return self._before_cancel(status)
        counts = Counter(branch.type for branch in self._branches if branch.step == status.step)
        failures = counts[BranchType.FAILURE]
        # Attempts cannot tell: attempts that were undone before have left no branches.
        failed = status.status is StepState.FAILED and failures == self._failures[status.step]
        left = isinstance(status.left_index, int)
        was_left = left and status.left_index < index  # type: ignore[operator] # a number then
        made = replace(status, sync=(status.sync or left) and not was_left)
        if left and not was_left:
            made.left_index = UNSET
        if isinstance(status.released_index, int) and status.released_index > index:
            made.released_index = UNSET
        complete = isinstance(status.completion_index, int) and status.completion_index <= index
        cancelled = status.status is StepState.CANCELLED
        if complete or (cancelled and was_left) or failed:
            return made
        if status.status is StepState.SCHEDULED and not alone:
            return made  # as it still is; a sub-workflow may wait for a fix
        made.status = StepState.SCHEDULED
        if not any(_is(action, BranchType.SUCCESS, status.step) for action in buffer):
            made.taken = UNSET
        made.completion_index = made.output = made.error = UNSET
        if alone:
            starts = sum(_is(action, BranchType.START, status.step) for action in buffer)
            made.attempt = failures + 1
            made.started = min(made.attempt, counts[BranchType.START] + starts)
        elif cancelled:
            made.attempt += 1  # it was stopped, so it has to be sent again
        return made

    def _was_told(self, status: StepStatus) -> bool:
        """Return whether a step was open when the instance was cancelled, or had failed."""
        cancel = self._state.cancellation
        told = status.error is not UNSET and status.error.get("name") == CANCELLED
        return told or (cancel is not None and status.step in cancel.steps)

    def _before_cancel(self, status: StepStatus) -> StepStatus:
        """Return a step as it was before the cancel: it is begun again, unless it had failed."""
        left = isinstance(status.left_index, int) and status.left_index >= self._index
        made = replace(
            status, status=StepState.SCHEDULED, completion_index=UNSET, output=UNSET, error=UNSET,
            taken=UNSET, sync=status.sync or left,
        )  # fmt: skip
        if left:
            made.left_index = UNSET
        failures = [
            each
            for each in self._branches
            if each.step == status.step and each.type is BranchType.FAILURE
        ]
        if len(failures) == made.attempt:
            made.status = StepState.FAILED
            made.error = {"name": failures[-1].error_name, **failures[-1].error_input}
        elif status.type is not StepType.WAIT:
            made.attempt += 1
        return made

    def _timeouts(
        self, running: list[StepStatus], buffer: list[BufferedAction]
    ) -> Iterator[RunningTimeout]:
        actions = [*map(action_of, self._branches), *buffer]
        for status in running:
            begun: float | None = None
            for action in actions:
                if status.timeout is None or action.data.get("step") != status.step:
                    continue
                if action.type is BranchType.START:
                    begun = action.timestamp
                elif action.type is not BranchType.SUCCESS:
                    begun = None
            if begun is not None and status.timeout is not None:
                yield RunningTimeout(status.step, begun + status.timeout)

    def _attempts(self) -> dict[str, int]:
        """Return how often each step that is undone was begun: the next one has another id."""
        undone = self._state.statuses[len(self._statuses) :]
        return self._state.attempts | {status.step: status.attempt for status in undone}


def _call(status: StepStatus) -> int:
    return int(status.position.partition(".")[0])


def _is(action: BufferedAction, type_: BranchType, step: str) -> bool:
    return action.type is type_ and action.data.get("step") == step


def event_action(event: KeptEvent) -> BufferedAction:
    """Return what an event that has no branch leads to."""
    data = {"event_name": event.name, "event_input": event.input, "event_number": event.number}
    if event.id is not UNSET:
        data["event_id"] = event.id
    return BufferedAction(event.at, BranchType.EVENT, data)


def action_of(branch: Branch) -> BufferedAction:
    """Return what a branch was created by."""
    values = ((name, getattr(branch, name)) for name in _DATA)
    return BufferedAction(
        branch.at, branch.type, {name: value for name, value in values if value is not UNSET}
    )
