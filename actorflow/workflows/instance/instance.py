"""An instance of a workflow: what happens goes in, what to do about it comes out.

There is no clock, no thread and no I/O here, and no code of the user's: the same messages in the
same state give the same answers. The state is changed in place.

Time is measured by the *index*: the position in `executions`, which grows by one with each
execution of a branch. A decision executes `executions[ongoing_index:]`; what happens meanwhile is
buffered.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.buffer import Buffer
from actorflow.workflows.instance.growth import Changes
from actorflow.workflows.instance.rewinding import rewound
from actorflow.workflows.instance.state import (
    BROKEN_MODES,
    COMPLETIONS,
    INTERRUPTED,
    UNSET,
    Branch,
    BranchType,
    BufferedAction,
    DecisionMode,
    InstanceState,
    PropertiesAt,
    Record,
    WorkState,
    WorkStatus,
    WorkType,
)
from actorflow.workflows.instance.waits import Waits
from actorflow.workflows.instance.works import Works

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Instance"]


class Instance:
    """One instance: its state, and the lookups that are derived from it.

    Args:
        state: is changed by `receive`.

    """

    def __init__(self, state: InstanceState) -> None:
        self.state = state
        self._sent: list[m.Outgoing] = []
        self.changes = Changes(state)
        """What it has got since it was stored."""
        self._look_up()

    def _look_up(self) -> None:
        """Derive the lookups from the state."""
        state = self.state
        self._works = Works(state, self.changes)
        self._buffer = Buffer(state, self._works, self._sent)
        self._waits = Waits(state, self._works, self._buffer, self._sent)
        self._records = {(each.branch_key, each.position): each.value for each in state.records}

    @classmethod
    def start(
        cls,
        id: str,  # noqa: A002 - what it is
        workflow: str,
        properties: dict[str, Any],
        *,
        at: float,
        language: str = "python",
        custom_id: str | None = None,
    ) -> tuple[Instance, list[m.Outgoing]]:
        """Return a new instance, and what it sends: its first decision."""
        state = InstanceState(
            id=id,
            workflow_name=workflow,
            programming_language=language,
            custom_id=custom_id,
            properties=[PropertiesAt(0, properties)],
            buffer=[BufferedAction(at, BranchType.HANDLE, {})],
        )
        instance = cls(state)
        return instance, instance.receive((), now=at)

    def receive(self, received: Sequence[m.Received], *, now: float) -> list[m.Outgoing]:
        """Take what has arrived, then try once to trigger a decision; return what is to be sent.

        The state must be stored before any of it is sent and before what arrived is acknowledged.

        Args:
            received: in the order of reception.
            now: when a decision that is triggered now is said to begin.

        """
        for message in received:
            if self.state.ended:
                self.state.dropped += not isinstance(message, (m.Restore, m.Tick))
                continue
            self._HANDLERS[type(message)](self, message)
        self._try_to_trigger(now)
        self._try_to_end()
        sent = self._sent.copy()
        self._sent.clear()
        return sent

    # What deciders look up.

    def works_of(self, branch_key: int) -> list[WorkStatus]:
        """Return the works of a branch, in the order in which they were scheduled."""
        return self._works.of_branch(branch_key)

    @property
    def status(self) -> Callable[[str], WorkStatus | None]:
        """Look up a work by its name, `<branch_key>/<position>`."""
        return self._works.get

    def properties_at(self, index: int) -> dict[str, Any]:
        """Return the properties at the begin of an index: those at the end of the one before."""
        entries = self.state.properties
        if entries[-1].key <= index:
            return entries[-1].values
        at = bisect_right(entries, index, key=lambda entry: entry.key)
        return entries[at - 1].values

    def record(self, branch_key: int, position: str) -> Any:
        """Return a value that a branch has drawn there before, or `UNSET`."""
        return self._records.get((branch_key, position), UNSET)

    def waits(self, branch_key: int) -> bool:
        """Return whether a branch waits for one of its works."""
        return self._works.awaited_by(branch_key)

    @property
    def at_work(self) -> bool:
        """Whether a branch waits for a task or a sub-workflow that goes on."""
        return self._works.going_on

    def stuck_on(self, branch_key: int | None = None) -> WorkStatus | None:
        """Return a work that keeps a branch from going on until somebody acts, if there is one.

        That is one that has failed, or a sub-workflow that has and waits for a fix. `None` while
        something else is planned. Any branch counts if none is given.
        """
        if self.state.decision_ongoing or self.state.buffer:
            return None
        return self._works.stuck(branch_key)

    def decision_data(self) -> dict[str, Any]:
        """Return what a decider elsewhere needs for the ongoing decision: plain data."""
        state = self.state
        start = state.ongoing_index or 0
        keys = set(state.executions[start:])
        data: dict[str, Any] = msgspec.to_builtins(
            {
                "uuid": state.decision_uuid,
                "workflow_name": state.workflow_name,
                "programming_language": state.programming_language,
                "properties": state.properties,
                "executions": state.executions,
                "ongoing_index": start,
                "ongoing_branches": [
                    {"key": key, "branch": state.branches[key]} for key in sorted(keys)
                ],
                "ongoing_statuses": [
                    status for key in sorted(keys) for status in self.works_of(key)
                ],
            },
            builtin_types=(bytes,),
        )
        return data

    # What happens outside.

    def _event(self, event: m.Event) -> None:
        data = {"event_name": event.name, "event_input": event.input}
        # An event wins against a deadline at the same moment.
        self._waits.end_due(event.at, unless_tied_with=event.name)
        if event.interrupts:
            self._interrupt(event.at)
        asked = {} if event.id is UNSET else {"event_id": event.id}
        self._buffer.push(event.at, BranchType.EVENT, data | asked)
        self._waits.end_by(event, data)

    def _interrupt(self, at: float) -> None:
        """Fail the works that branches wait for, except waits; the branches go on with that."""
        for status in self._works.awaited():
            if status.type is WorkType.WAIT or self._works.is_over(status):
                continue
            status.raises = True
            data = {"error_name": INTERRUPTED, "error_input": {"message": "an event came"}}
            self._buffer.push_end(status, at, BranchType.FAILURE, data)
            self._send_cancel(status)
            self._works.changed(status)

    def _started(self, started: m.Started) -> None:
        self._waits.end_due(started.at)
        status = self._works.get(started.work)
        attempt = started.attempt or (status.attempt if status else 0)
        # Waits are started by the instance itself.
        if status is None or status.type is WorkType.WAIT or attempt <= status.started:
            self.state.dropped += 1
            return
        status.started = attempt
        self._works.changed(status)
        self._buffer.push_of(status, started.at, BranchType.START)
        self._buffer.set_timeout(status, started.at)

    def _succeeded(self, succeeded: m.Succeeded) -> None:
        self._waits.end_due(succeeded.at)
        status = self._unfinished(succeeded.work, succeeded.attempt)
        if status is not None:
            self._buffer.push_end(
                status, succeeded.at, BranchType.SUCCESS, {"task_output": succeeded.output}
            )

    def _failed(self, failed: m.Failed) -> None:
        self._waits.end_due(failed.at)
        status = self._unfinished(failed.work, failed.attempt)
        if status is not None:
            error = dict(failed.error)
            data = {"error_name": error.pop("name", None), "error_input": error}
            self._buffer.push_end(status, failed.at, BranchType.FAILURE, data)

    def _stalled(self, stalled: m.Stalled) -> None:
        """Note that a child has failed. It can be resumed, so it has not ended.

        A branch that wants to know of failures is told.
        """
        self._waits.end_due(stalled.at)
        status = self._unfinished(stalled.work, stalled.attempt)
        if status is None:
            return
        if stalled.error is not None and status.raises:
            self._failed(m.Failed(stalled.at, stalled.work, stalled.error, stalled.attempt))
            return
        status.error = UNSET if stalled.error is None else stalled.error
        self._works.changed(status)

    def _timed_out(self, timed_out: m.TimedOut) -> None:
        self._waits.end_due(timed_out.at)
        # There is a timeout only between a start and an end, and it is gone after the first time.
        status = self._works.get(timed_out.work)
        if status is not None and self._buffer.clear_timeout(timed_out.work):
            self._buffer.push_of(status, timed_out.at, BranchType.TIMEOUT)
        else:
            self.state.dropped += 1

    def _tick(self, tick: m.Tick) -> None:
        self._waits.end_due(tick.at)

    def _unfinished(self, work: str, attempt: int | None) -> WorkStatus | None:
        """Return a work whose end is news."""
        status = self._works.get(work)
        if (
            status is None
            or status.type is WorkType.WAIT
            or self._works.is_over(status)
            or attempt not in (None, status.attempt)
        ):
            self.state.dropped += 1
            return None
        return status

    # Decisions: prepare, trigger, complete.

    def _try_to_trigger(self, now: float) -> None:
        state = self.state
        if state.decision_ongoing or state.decision_mode is not DecisionMode.RUN:
            return
        if state.buffer:
            self._prepare()
            state.decision_triggered_at = now
            self._trigger()

    def _prepare(self) -> None:
        """Plan the executions of all that is buffered, by time, then by order of reception."""
        state = self.state
        state.ongoing_index = len(state.executions)
        for action in sorted(state.buffer, key=lambda action: action.timestamp):
            index = len(state.executions)
            state.executions.append(len(state.branches))
            branch = Branch(type=action.type, at=action.timestamp, start_index=index, **action.data)
            state.branches.append(branch)
            status = self._works.get(action.data.get("work", ""))
            if status is not None:
                branch.task_type = status.type
                if action.type in COMPLETIONS:
                    self._settle(status, action, index)
        state.buffer = []
        self._works.buffer_emptied()

    def _settle(self, status: WorkStatus, action: BufferedAction, index: int) -> None:
        """Store what became of a work; plan its branch again if that waits for it."""
        goes_on = status.sync
        if action.type is BranchType.SUCCESS:
            status.status = WorkState.SUCCESSFUL
            status.error = UNSET
            status.output = action.data["task_output"]
            status.completion_index = index
        else:
            status.status = WorkState.FAILED
            status.error = {"name": action.data["error_name"], **action.data["error_input"]}
            goes_on = goes_on and status.raises
            if goes_on:
                status.completion_index = index
        if goes_on:
            self.state.executions.append(status.branch_key)
        self._works.changed(status)

    def _trigger(self) -> None:
        state = self.state
        state.decision_ongoing = True
        state.decision_number += 1
        state.decision_current_index = start = state.ongoing_index or 0
        self._sent.append(m.DecisionJob(state.decision_uuid, start, state.executions[start:]))

    def _is_stale(self, uuid: str) -> bool:
        if self.state.decision_ongoing and uuid == self.state.decision_uuid:
            return False
        self.state.dropped += 1
        return True

    def _completed(self, completed: m.Completed) -> None:
        self._waits.end_due(completed.at)
        if self._is_stale(completed.uuid):
            return
        for decision in completed.decisions:
            self._apply(decision, completed.at)
        self.state.decision_ongoing = False
        self.state.decision_current_index = None

    def _apply(self, decision: m.Decision, now: float) -> None:
        state = self.state
        match decision:
            case m.ScheduleWork():
                self._schedule(decision, now)
            case m.UpdateProperties(key=key, values=values):
                state.properties.append(PropertiesAt(key, values))
            case m.SetOutput(branch_key=key, output=output):
                state.branches[key].output = output
                self.changes.output(key)
            case m.RecordValue(branch_key=key, position=position, value=value):
                record = Record(key, position, value, decision.index, decision.calls)
                state.records.append(record)
                self._records[key, position] = value
            case m.LeaveWork():
                self._leave(decision)
            case m.Publish(value=value):
                self._sent.append(m.Published(value))
            case m.Tag(values=values):
                self._sent.append(m.Tagged(values))

    def _schedule(self, decision: m.ScheduleWork, now: float) -> None:
        status = WorkStatus(
            branch_key=decision.branch_key,
            position=decision.position,
            hash=decision.hash,
            type=decision.type,
            name=decision.name,
            input=decision.input,
            sync=decision.sync,
            timeout=decision.timeout,
            raises=decision.raises,
            index=decision.index,
            attempt=1 + (self.state.attempts.get(decision.work, 0) if self.state.attempts else 0),
        )
        self._works.add(status)
        if decision.type is WorkType.WAIT:
            self._waits.begin(status, decision, now)
        else:
            self._send_work(status)

    def _send_work(self, status: WorkStatus, *, redelivery: bool = False) -> None:
        self._sent.append(
            m.WorkJob(
                work=status.work,
                type=status.type,
                name=status.name,
                input=status.input,
                attempt=status.attempt,
                timeout=status.timeout,
                redelivery=redelivery,
            )
        )

    def _leave(self, leave: m.LeaveWork) -> None:
        """Resume a branch without one of its works."""
        status = self._works.get(leave.work)
        if status is None:
            return
        status.sync = False
        status.left_index = leave.index
        if leave.cancel and not self._works.is_over(status):
            status.status = WorkState.CANCELLED
            self._buffer.clear_timeout(leave.work)
            self._waits.cancel(leave.work)
            self._send_cancel(status)
        self._works.changed(status)

    def _send_cancel(self, status: WorkStatus) -> None:
        if status.type is not WorkType.WAIT:
            self._sent.append(
                m.CancelWork(status.work, status.type, status.attempt, status.dispatched)
            )

    def _broken(self, broken: m.DecisionBroken) -> None:
        """Discard a decision whole: the same executions are planned again on `Resume`."""
        self._waits.end_due(broken.at)
        if self._is_stale(broken.uuid):
            return
        state = self.state
        state.decision_ongoing = False
        state.decision_current_index = None
        state.decision_mode = DecisionMode.MODIFIED if broken.modified else DecisionMode.FAILED
        state.error = broken.error

    def _try_to_end(self) -> None:
        """End once every branch has reached its end; works that were dispatched do not count."""
        state = self.state
        if state.decision_ongoing or state.buffer or self._works.blocking:
            return
        if state.ended or state.decision_mode in BROKEN_MODES:
            return
        state.decision_mode = DecisionMode.TERMINATED
        output = state.branches[0].output
        self._sent.append(m.Ended(None if output is UNSET else output))

    # What people and the engine do.

    def _pause(self, pause: m.Pause) -> None:
        self._waits.end_due(pause.at)
        if self.state.decision_mode is DecisionMode.RUN:
            self.state.decision_mode = DecisionMode.PAUSED

    def _resume(self, resume: m.Resume) -> None:
        self._waits.end_due(resume.at)
        state = self.state
        broken = state.decision_mode in BROKEN_MODES
        state.decision_mode = DecisionMode.RUN
        state.error = None
        if broken:
            self._trigger()

    def _kill(self, kill: m.Kill) -> None:
        state = self.state
        state.decision_mode = DecisionMode.KILLED
        state.decision_ongoing = False
        state.decision_current_index = None
        self._sent.append(m.Ended())

    def _cancel(self, cancel: m.Cancel) -> None:
        self._waits.end_due(cancel.at)
        status = self._works.get(cancel.work)
        if status is None or self._works.is_over(status):
            self.state.dropped += 1
            return
        self._waits.cancel(cancel.work)
        error = {"message": "somebody has cancelled it"}
        data = {"error_name": "Cancelled", "error_input": error}
        self._buffer.push_end(status, cancel.at, BranchType.FAILURE, data)
        self._send_cancel(status)

    def _retry(self, retry: m.Retry) -> None:
        self._waits.end_due(retry.at)
        status = self._works.get(retry.work)
        if status is None or status.status is not WorkState.FAILED:
            self.state.dropped += 1
            return
        if status.completion_index is not UNSET:
            # Its branch has been told of the failure and gone on.
            self.state.dropped += 1
            return
        status.status = WorkState.SCHEDULED
        status.error = UNSET
        status.attempt += 1
        self._works.changed(status)
        if status.type is WorkType.WAIT:
            self._waits.begin_again(status, retry.at)
        else:
            self._send_work(status)

    def _rewind(self, rewind: m.Rewind) -> None:
        """Replace the state by an earlier one; stop what is undone, and begin again."""
        self._waits.end_due(rewind.at)
        state = self.state
        if self._works.get(rewind.work) is None:
            state.dropped += 1
            return
        before = rewound(state, rewind.work)
        kept = {status.work: status for status in before.statuses}
        begin_again = [
            kept[status.work]
            for status in state.statuses
            if status.work in kept and status.attempt < kept[status.work].attempt
        ]
        for status in state.statuses:
            if status.work not in kept and status.status is WorkState.SCHEDULED:
                self._send_cancel(status)
        self._send_timers(state, before)
        for name in before.__struct_fields__:
            setattr(state, name, getattr(before, name))
        self.changes.rewritten()
        self._look_up()
        for status in begin_again:
            if status.type is not WorkType.WAIT:
                self._send_work(status)
        self._trigger()

    def _send_timers(self, old: InstanceState, new: InstanceState) -> None:
        """Clear the timers that are gone, and set those that are new."""
        for wait in old.waits:
            if wait.timestamp is not None and wait not in new.waits:
                self._sent.append(m.ClearTimer(wait.work))
        for timeout in old.timeouts:
            if timeout not in new.timeouts:
                self._sent.append(m.ClearTimer(timeout.work, timeout=True))
        for wait in new.waits:
            if wait.timestamp is not None and wait not in old.waits:
                self._sent.append(m.SetTimer(wait.work, wait.timestamp))

    def _restore(self, restore: m.Restore) -> None:
        state = self.state
        if state.decision_ongoing:
            # Under a new uuid, so that an answer from before the restart cannot count as well.
            self._trigger()
        for status in state.statuses:
            if status.status is WorkState.SCHEDULED and status.type is not WorkType.WAIT:
                self._send_work(status, redelivery=True)
        self._waits.end_due(restore.at)
        for wait in state.waits:
            if wait.timestamp is not None:
                self._sent.append(m.SetTimer(wait.work, wait.timestamp))
        for timeout in state.timeouts:
            self._sent.append(m.SetTimer(timeout.work, timeout.timestamp, timeout=True))

    # In the class, because bound methods would make every instance a cycle.
    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        m.Event: _event,
        m.Started: _started,
        m.Succeeded: _succeeded,
        m.Failed: _failed,
        m.Stalled: _stalled,
        m.TimedOut: _timed_out,
        m.Tick: _tick,
        m.Completed: _completed,
        m.DecisionBroken: _broken,
        m.Pause: _pause,
        m.Resume: _resume,
        m.Kill: _kill,
        m.Cancel: _cancel,
        m.Retry: _retry,
        m.Rewind: _rewind,
        m.Restore: _restore,
    }
