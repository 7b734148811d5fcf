"""The waits of an instance: begun by decisions, ended by events or by time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import UNSET, BranchType, RunningWait

if TYPE_CHECKING:
    from actorflow.workflows.instance.buffer import Buffer
    from actorflow.workflows.instance.state import InstanceState, WorkStatus
    from actorflow.workflows.instance.works import Works

__all__ = ["Waits"]


class Waits:
    """Begins and ends the waits of a state.

    Args:
        state: whose waits change.
        works: of the same state.
        buffer: where the ends of waits go.
        sent: where timers are set and cleared.

    """

    def __init__(
        self, state: InstanceState, works: Works, buffer: Buffer, sent: list[m.Outgoing]
    ) -> None:
        self._state = state
        self._works = works
        self._buffer = buffer
        self._sent = sent

    def end_due(self, now: float, unless_tied_with: str | None = None) -> None:
        """End the waits whose time has come: each at its deadline, whenever it is noticed.

        Args:
            now: what time it is.
            unless_tied_with: an event at this moment, which wins against a deadline.

        """
        if not self._state.waits:
            return  # as most have none
        due = [
            (wait.timestamp, wait)
            for wait in self._state.waits
            if wait.timestamp is not None
            and wait.timestamp <= now
            and not (wait.timestamp == now and wait.event == unless_tied_with is not None)
        ]
        for deadline, wait in sorted(due, key=lambda each: each[0]):
            self._end(wait, deadline, None)

    def end_by(self, event: m.Event, data: dict[str, Any]) -> None:
        """End all waits for an event: it is not used up by the first."""
        for wait in [wait for wait in self._state.waits if wait.event == event.name]:
            self._end(wait, event.at, dict(data))

    def _end(self, wait: RunningWait, at: float, output: Any) -> None:
        self._remove(wait)
        status = self._works.get(wait.work)
        assert status is not None, wait  # noqa: S101 - a wait is a work
        self._buffer.push_end(status, at, BranchType.SUCCESS, {"task_output": output})

    def _remove(self, wait: RunningWait) -> None:
        self._state.waits.remove(wait)
        if wait.timestamp is not None:
            self._sent.append(m.ClearTimer(wait.work))

    def cancel(self, work: str) -> None:
        """Forget a wait, if it is one that runs."""
        for wait in [wait for wait in self._state.waits if wait.work == work]:
            self._remove(wait)

    def begin(self, status: WorkStatus, decision: m.ScheduleWork, now: float) -> None:
        """Begin a wait, or end it at once when what it waits for has already happened.

        It counts from the trigger of the decision, because that is when the code came here.
        """
        begun = self._state.decision_triggered_at
        deadline = decision.timestamp
        if decision.duration is not None:
            deadline = begun + decision.duration
        status.event, status.deadline = decision.event, deadline
        push_end = self._buffer.push_end
        self._buffer.push_of(status, begun, BranchType.START)
        event = None if decision.event is None else self._event_after(decision)
        if event is not None and (deadline is None or event[0] <= deadline):
            at, data, status.released_index = event
            push_end(status, max(begun, at), BranchType.SUCCESS, {"task_output": data})
        elif deadline is not None and deadline <= now:
            push_end(status, max(begun, deadline), BranchType.SUCCESS, {"task_output": None})
        else:
            self._run(status)

    def begin_again(self, status: WorkStatus, now: float) -> None:
        """Begin a wait that was cancelled; its deadline stays."""
        self._buffer.push_of(status, now, BranchType.START)
        if status.deadline is not None and status.deadline <= now:
            self._buffer.push_end(status, now, BranchType.SUCCESS, {"task_output": None})
        else:
            self._run(status)

    def _run(self, status: WorkStatus) -> None:
        self._state.waits.append(RunningWait(status.work, status.deadline, status.event))
        if status.deadline is not None:
            self._sent.append(m.SetTimer(status.work, status.deadline))

    def _event_after(
        self, decision: m.ScheduleWork
    ) -> tuple[float, dict[str, Any], int | Any] | None:
        """Return the first such event since the code came to a wait: its time, data and index.

        It may sit behind the branch in the same decision, or in the buffer, where it has no index
        yet. Events before are not remembered.
        """
        state = self._state
        for index in range(decision.reached + 1, len(state.executions)):
            branch = state.branches[state.executions[index]]
            if branch.event_name == decision.event and branch.start_index == index:
                data = {"event_name": branch.event_name, "event_input": branch.event_input}
                return branch.at, data, index
        buffered = [
            action
            for action in state.buffer
            if action.type is BranchType.EVENT and action.data["event_name"] == decision.event
        ]
        if not buffered:
            return None
        first = min(buffered, key=lambda action: action.timestamp)
        data = {name: first.data[name] for name in ("event_name", "event_input")}
        return first.timestamp, data, UNSET
