"""What always holds of a state, between two receptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.workflows.instance.state import (
    UNSET,
    BranchType,
    DecisionMode,
    StepState,
    StepType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.workflows.instance.state import InstanceState

__all__ = ["violations"]


def violations(state: InstanceState) -> list[str]:
    """Return what does not hold of a state, as texts; for tests, and for states from elsewhere."""
    return [*_of_branches(state), *_of_steps(state), *_of_waits(state), *_of_decisions(state)]


def _of_branches(state: InstanceState) -> Iterator[str]:
    first: dict[int, int] = {}
    for index, key in enumerate(state.executions):
        first.setdefault(key, index)
    if list(first) != list(range(len(state.branches))):
        yield "branches are not executed in the order of their creation"
    for key, branch in enumerate(state.branches):
        if first.get(key) != branch.start_index:
            yield f"branch {key} does not start at its start_index"
    keys = [entry.key for entry in state.properties]
    if keys != sorted(set(keys)) or keys[:1] != [0] or keys[-1] > len(state.executions):
        yield f"the keys of the properties are {keys}"


def _of_steps(state: InstanceState) -> Iterator[str]:
    names = [status.step for status in state.statuses]
    if len(set(names)) < len(names):
        yield "two steps have the same name"
    for status in state.statuses:
        if not 0 <= status.branch_key < len(state.branches):
            yield f"{status.step} belongs to no branch"
        if status.completion_index is UNSET:
            if status.status is StepState.SUCCESSFUL:
                yield f"{status.step} is successful, but not complete"
            continue
        branch = state.branches[state.executions[status.completion_index]]
        if branch.step != status.step or branch.type not in (
            BranchType.SUCCESS,
            BranchType.FAILURE,
        ):
            yield f"{status.step} is complete at an index that is not about it"


def _of_waits(state: InstanceState) -> Iterator[str]:
    ending = {
        action.data["step"]
        for action in state.buffer
        if action.type in (BranchType.SUCCESS, BranchType.FAILURE)
    }
    statuses = {status.step: status for status in state.statuses}
    running = {wait.step for wait in state.waits}
    for step in running | {timeout.step for timeout in state.timeouts}:
        if statuses[step].status is not StepState.SCHEDULED or step in ending:
            yield f"{step} is over, but its timer runs"
    for status in state.statuses:
        is_open = status.status is StepState.SCHEDULED and status.step not in ending
        if status.type is StepType.WAIT and is_open != (status.step in running):
            yield f"the wait {status.step} is {status.status}, and runs: {status.step in running}"


def _of_decisions(state: InstanceState) -> Iterator[str]:
    waiting = state.buffer
    if state.successor is not None:
        waiting = [each for each in waiting if each.type is not BranchType.EVENT]
    if state.decision_mode is DecisionMode.RUN and waiting and not state.decision_ongoing:
        yield "actions are buffered, and nobody decides about them"
    if state.decision_ongoing and state.ended:
        yield "it has ended, and a decision is ongoing"
    blocked = any(status.sync and status.status is StepState.SCHEDULED for status in state.statuses)
    over = (DecisionMode.TERMINATED, DecisionMode.CANCELLED)
    if state.decision_mode in over and (waiting or blocked):
        yield "it has ended although something is left to do"
