"""The waits of an instance: begun by decisions, ended by events or by time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import UNSET, BranchType, RunningWait, StepState

if TYPE_CHECKING:
    from actorflow.workflows.instance.buffer import Buffer
    from actorflow.workflows.instance.kept import Kept
    from actorflow.workflows.instance.state import InstanceState, KeptEvent, StepStatus
    from actorflow.workflows.instance.steps import Steps

__all__ = ["Waits"]


class Waits:
    """Begins and ends the waits of a state.

    Args:
        state: whose waits change.
        steps: of the same state.
        buffer: where the ends of waits go.
        sent: where timers are set and cleared.
        kept: events that new waits may take.

    """

    def __init__(
        self,
        state: InstanceState,
        steps: Steps,
        buffer: Buffer,
        sent: list[m.Outgoing],
        kept: Kept,
    ) -> None:
        self._state = state
        self._steps = steps
        self._buffer = buffer
        self._sent = sent
        self._kept = kept

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

    def end_by(self, event: m.EventSent, data: dict[str, Any], number: int | None = None) -> bool:
        """End all waits for an event: it is not used up by the first. Return whether any was.

        Args:
            event: that was received.
            data: of its action.
            number: its place, if events are kept.

        """
        waits = [wait for wait in self._state.waits if wait.event == event.name]
        for wait in waits:
            if number is not None:
                self._take(wait.step, number)
            self._end(wait, event.at, dict(data))
        return bool(waits)

    def _take(self, step: str, number: int) -> None:
        status = self._steps.get(step)
        assert status is not None, step  # noqa: S101 - a wait is a step
        status.taken = number
        self._steps.changed(status)

    def _end(self, wait: RunningWait, at: float, output: Any) -> None:
        self._remove(wait)
        status = self._steps.get(wait.step)
        assert status is not None, wait  # noqa: S101 - a wait is a step
        self._buffer.push_end(status, at, BranchType.SUCCESS, {"task_output": output})

    def _remove(self, wait: RunningWait) -> None:
        self._state.waits.remove(wait)
        if wait.timestamp is not None:
            self._sent.append(m.ClearTimer(wait.step))

    def satisfy(self, step: str, at: float) -> None:
        """End a wait for a condition that holds, unless its time is over."""
        for wait in [wait for wait in self._state.waits if wait.step == step]:
            self._end(wait, at, output=True)

    def cancel(self, step: str) -> None:
        """Forget a wait, if it is one that runs."""
        for wait in [wait for wait in self._state.waits if wait.step == step]:
            self._remove(wait)

    def withdraw(self, status: StepStatus) -> None:
        """Forget a wait and what it has taken, if anything: its branch goes on without it."""
        self.cancel(status.step)
        self._buffer.drop_end(status.step)
        if type(status.taken) is int:
            number, status.taken = status.taken, UNSET
            self._kept.give_back(number)

    def begin(self, status: StepStatus, decision: m.ScheduleStep, now: float) -> None:
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
        if self._state.keeps_events:
            self._begin_with_kept(status, begun, now)
            return
        event = None if decision.event is None else self._event_after(decision)
        if event is not None and (deadline is None or event[0] <= deadline):
            at, data, status.released_index = event
            push_end(status, max(begun, at), BranchType.SUCCESS, {"task_output": data})
        elif deadline is not None and deadline <= now:
            push_end(status, max(begun, deadline), BranchType.SUCCESS, {"task_output": None})
        else:
            self._run(status)

    def _begin_with_kept(self, status: StepStatus, begun: float, now: float) -> None:
        """Begin a wait, or end it at once: with the oldest kept event, or because it is over."""
        deadline, event = status.deadline, None
        if status.event is not None:
            # One that came while this very decision was taken may have come too late.
            latest = inf if deadline is None else max(begun, deadline)
            event = self._kept.take(status.event, latest)
        push_end = self._buffer.push_end
        if event is not None:
            status.taken = event.number
            output = {"event_name": event.name, "event_input": event.input}
            push_end(status, max(begun, event.at), BranchType.SUCCESS, {"task_output": output})
        elif deadline is not None and deadline <= now:
            push_end(status, max(begun, deadline), BranchType.SUCCESS, {"task_output": None})
        else:
            self._run(status)

    def resume(self, refused: KeptEvent) -> None:
        """Undo the completion of all waits by an event, as if it had never arrived.

        The event of that name behind it, if there is one, completes them instead.
        """
        resumed = [
            status
            for status in self._state.statuses
            if status.taken == refused.number and status.status is StepState.SCHEDULED
        ]
        if not resumed:
            return
        deadlines = [inf if each.deadline is None else each.deadline for each in resumed]
        event = self._kept.take(refused.name, max(deadlines))
        for status, deadline in zip(resumed, deadlines, strict=True):
            self._buffer.drop_end(status.step)
            status.taken = UNSET
            self._steps.changed(status)
            if event is None or event.at > deadline:
                self._run(status)
                continue
            status.taken = event.number
            output = {"event_name": event.name, "event_input": event.input}
            self._buffer.push_end(status, event.at, BranchType.SUCCESS, {"task_output": output})
        # Of waits with the same deadline, the one that was begun first ends first.
        begun = {status.step: at for at, status in enumerate(self._state.statuses)}
        self._state.waits.sort(key=lambda wait: begun[wait.step])

    def begin_again(self, status: StepStatus, now: float) -> None:
        """Begin a wait that was cancelled; its deadline stays."""
        self._buffer.push_of(status, now, BranchType.START)
        if self._state.keeps_events:
            self._begin_with_kept(status, now, now)
        elif status.deadline is not None and status.deadline <= now:
            self._buffer.push_end(status, now, BranchType.SUCCESS, {"task_output": None})
        else:
            self._run(status)

    def _run(self, status: StepStatus) -> None:
        self._state.waits.append(RunningWait(status.step, status.deadline, status.event))
        if status.deadline is not None:
            self._sent.append(m.SetStepTimer(status.step, status.deadline))

    def _event_after(
        self, decision: m.ScheduleStep
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
