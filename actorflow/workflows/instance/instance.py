"""An instance of a workflow: what happens goes in, what to do about it comes out.

There is no clock, no thread, no I/O and no user code here: the same messages in the
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
from actorflow.workflows.instance.cancellation import TIMER, Cancelling
from actorflow.workflows.instance.growth import Changes
from actorflow.workflows.instance.kept import Kept, kept_event
from actorflow.workflows.instance.rewind import action_of, rewound
from actorflow.workflows.instance.state import (
    BROKEN_MODES,
    COMPLETIONS,
    INTERRUPTED,
    NOTICES,
    TIMED_OUT,
    UNDONE,
    UNSET,
    Branch,
    BranchType,
    BufferedAction,
    DecisionMode,
    InstanceState,
    PropertiesAt,
    Record,
    StepState,
    StepStatus,
    StepType,
    next_run,
)
from actorflow.workflows.instance.steps import Steps
from actorflow.workflows.instance.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.workflows.instance.state import KeptEvent

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
        self.undone_from: int | None = None
        """The first index that an event has undone during the last `receive`."""
        self._look_up()

    def _look_up(self) -> None:
        """Derive the lookups from the state."""
        state = self.state
        self._steps = Steps(state, self.changes)
        self._buffer = Buffer(state, self._steps, self._sent)
        self.kept = Kept(state)
        """Events that no wait has taken."""
        self._waits = Waits(state, self._steps, self._buffer, self._sent, self.kept)
        self._cancelling = Cancelling(
            state, steps=self._steps, buffer=self._buffer, waits=self._waits, kept=self.kept,
            sent=self._sent,
        )  # fmt: skip
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
        keeps_events: bool = False,
        kept_names: list[str] | None = None,
        held: bool = False,
    ) -> tuple[Instance, list[m.Outgoing]]:
        """Return a new instance, and what it sends: its first decision, unless it is held back."""
        state = InstanceState(
            id=id,
            workflow_name=workflow,
            programming_language=language,
            custom_id=custom_id,
            properties=[PropertiesAt(0, properties)],
            keeps_events=keeps_events,
            kept_names=kept_names,
            held=held,
            buffer=[BufferedAction(at, BranchType.HANDLE, {})],
        )
        instance = cls(state)
        return instance, instance.receive((), now=at)

    def keep_only(self, names: list[str] | None) -> None:
        """Keep events of these names only, as the code says now; all of them for `None`."""
        if self.state.kept_names != names:
            self.state.kept_names = names
            self._look_up()

    def again(self, *, at: float) -> tuple[Instance, list[m.Outgoing]]:
        """Return the next run of an instance that is `CONTINUED`, and what that sends.

        The next run keeps the events that no wait has taken and no branch has handled.
        """
        instance = Instance(next_run(self.state, self.kept, at))
        return instance, instance.receive((), now=at)

    def receive(self, received: Sequence[m.Received], *, now: float) -> list[m.Outgoing]:
        """Take messages, then try once to trigger a decision; return the messages to send.

        The state must be stored before any of it is sent and before what arrived is acknowledged.

        Args:
            received: in the order of reception.
            now: when a decision that is triggered now is said to begin.

        """
        self.undone_from = None
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

    def steps_of(self, branch_key: int) -> list[StepStatus]:
        """Return the steps of a branch, in the order in which they were scheduled."""
        return self._steps.of_branch(branch_key)

    @property
    def status(self) -> Callable[[str], StepStatus | None]:
        """Look up a step by its name, `<branch_key>/<position>`."""
        return self._steps.get

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
        """Return whether a branch waits for one of its steps."""
        return self._steps.awaited_by(branch_key)

    @property
    def at_work(self) -> bool:
        """Whether a branch waits for a task or a sub-workflow that goes on."""
        return self._steps.going_on

    def stuck_on(self, branch_key: int | None = None) -> StepStatus | None:
        """Return a step that blocks a branch until an operator acts, if there is one.

        That is one that has failed, or a sub-workflow that has and waits for a fix. `None` while
        something else is planned. Any branch counts if none is given.
        """
        if self.state.decision_ongoing or self.state.buffer:
            return None
        return self._steps.stuck(branch_key)

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
                    status for key in sorted(keys) for status in self.steps_of(key)
                ],
            },
            builtin_types=(bytes,),
        )
        return data

    # What happens outside.

    def _event(self, event: m.EventSent) -> None:
        data = {"event_name": event.name, "event_input": event.input}
        # An event wins against a deadline at the same moment.
        self._waits.end_due(event.at, unless_tied_with=event.name)
        if event.room is not None and self._is_full(event.name, event.room):
            self._sent.append(m.NoRoom(event))
            return
        if self.state.cancellation is not None:
            self._cancelling.event(event)
            return
        asked: dict[str, Any] = {} if event.id is UNSET else {"event_id": event.id}
        if event.asks:
            asked["event_asks"] = True
        if event.interrupts:
            asked["interrupts"] = "undo" if event.undoes else "stop"
        if not self.state.keeps_events:
            self._buffer.push(event.at, BranchType.EVENT, data | asked)
            self._waits.end_by(event, data)
            return
        number = self.kept.next_number()
        action = data | asked | {"event_number": number}
        self._buffer.push(event.at, BranchType.EVENT, action)
        if not self._waits.end_by(event, data, number):
            self.kept.add(kept_event(event.at, action))

    def _is_full(self, name: str, room: int) -> bool:
        """Return whether an event of a name would be one too many to keep."""
        if self.kept.count < room or not self.state.keeps(name):
            return False
        return all(wait.event != name for wait in self.state.waits)

    # Events that interrupt.

    def _interrupt_by_first(self) -> BufferedAction | None:
        """Return the first action to plan if it is an event that interrupts, which is done now.

        The interruption belongs to the decision that handles the event, not to its arrival: what
        an ongoing decision begins, or one that is still to be taken, is stopped as well.
        """
        state = self.state
        if state.cancellation is not None:
            return None
        waiting = (
            action
            for action in state.buffer
            if state.successor is None or action.type is not BranchType.EVENT
        )
        first = min(waiting, key=lambda action: action.timestamp, default=None)
        if first is None or "interrupts" not in first.data:
            return None
        if first.data["interrupts"] == "undo" and self._undo(first.timestamp):
            return self._interrupt_by_first()
        self._interrupt(first.timestamp)
        return first

    def _undo(self, at: float) -> bool:
        """Go back to before the events whose branches wait for steps; forget these events.

        Return whether there were any. Later events and other branches are handled again.
        """
        state = self.state
        keys = {status.branch_key for status in self._interruptible()}
        events = [key for key in keys if isinstance(state.branches[key].event_number, int)]
        if not events:
            return False
        numbers = [state.branches[key].event_number for key in events]
        first = min(events, key=lambda key: state.branches[key].start_index)
        self._go_back(self._steps.of_branch(first)[0].step)
        start = state.ongoing_index or 0
        self._unplan(start)
        for action in [each for each in state.buffer if each.data.get("event_number") in numbers]:
            self._forget_event(action, at, UNDONE)
        state.decision_ongoing = False
        state.decision_current_index = None
        self.undone_from = start if self.undone_from is None else min(start, self.undone_from)
        return True

    def _interruptible(self) -> list[StepStatus]:
        """Return the tasks and sub-workflows that branches wait for.

        The end of one may be buffered already: it came after the event.
        """
        return [
            status
            for status in self._steps.awaited()
            if status.type is not StepType.WAIT and status.status is StepState.SCHEDULED
        ]

    def _interrupt(self, at: float) -> None:
        """Fail the steps that branches wait for, except waits, before all that is buffered."""
        stopped = self._interruptible()
        for status in stopped:
            if self._steps.is_over(status):
                self._buffer.drop_end(status.step)
            else:
                self._send_cancel(status)
        later, self.state.buffer = self.state.buffer, []
        for status in stopped:
            data = {"error_name": INTERRUPTED, "error_input": {"message": "an event came"}}
            self._buffer.push_end(status, at, BranchType.FAILURE, data)
            self._steps.changed(status)
        self.state.buffer += later

    # Steps.

    def _started(self, started: m.Started) -> None:
        self._waits.end_due(started.at)
        status = self._steps.get(started.step)
        attempt = started.attempt or (status.attempt if status else 0)
        # Waits are started by the instance itself.
        if status is None or status.type is StepType.WAIT or attempt <= status.started:
            self.state.dropped += 1
            return
        status.started = attempt
        self._steps.changed(status)
        self._buffer.push_of(status, started.at, BranchType.START)
        self._buffer.set_timeout(status, started.at)

    def _succeeded(self, succeeded: m.Succeeded) -> None:
        self._waits.end_due(succeeded.at)
        status = self._unfinished(succeeded.step, succeeded.attempt)
        if status is not None:
            self._buffer.push_end(
                status, succeeded.at, BranchType.SUCCESS, {"task_output": succeeded.output}
            )

    def _failed(self, failed: m.StepHasFailed) -> None:
        self._waits.end_due(failed.at)
        status = self._unfinished(failed.step, failed.attempt)
        if status is not None and not self._cancelling.child_ended(status, failed.error, failed.at):
            error = dict(failed.error)
            data = {"error_name": error.pop("name", None), "error_input": error}
            self._buffer.push_end(status, failed.at, BranchType.FAILURE, data)

    def _stalled(self, stalled: m.Stalled) -> None:
        """Record that a child has failed. It can be resumed, so it has not ended.

        A branch that wants to know of failures is notified.
        """
        self._waits.end_due(stalled.at)
        status = self._unfinished(stalled.step, stalled.attempt)
        if status is None:
            return
        if stalled.error is not None and self._cancelling.child_ended(
            status, stalled.error, stalled.at
        ):
            return
        if stalled.error is not None and status.raises:
            self._failed(m.StepHasFailed(stalled.at, stalled.step, stalled.error, stalled.attempt))
            return
        status.error = UNSET if stalled.error is None else stalled.error
        self._steps.changed(status)

    def _timed_out(self, timed_out: m.TimedOut) -> None:
        self._waits.end_due(timed_out.at)
        # There is a timeout only between a start and an end, and it is gone after the first time.
        status = self._steps.get(timed_out.step)
        if status is not None and self._buffer.clear_timeout(timed_out.step):
            self._buffer.push_of(status, timed_out.at, BranchType.TIMEOUT)
            if status.ends:
                self._send_cancel(status)
                text = f"{status.name} ({status.step}) took longer than its {status.timeout} s"
                data = {"error_name": TIMED_OUT, "error_input": {"message": text}}
                self._buffer.push_end(status, timed_out.at, BranchType.FAILURE, data)
        else:
            self.state.dropped += 1

    def _tick(self, tick: m.Tick) -> None:
        self._waits.end_due(tick.at)
        if self._cancelling.is_over(tick.at):
            self._kill(tick)

    def _unfinished(self, step: str, attempt: int | None) -> StepStatus | None:
        """Return a step whose end is news."""
        status = self._steps.get(step)
        if (
            status is None
            or status.type is StepType.WAIT
            or self._steps.is_over(status)
            or attempt not in (None, status.attempt)
        ):
            self.state.dropped += 1
            return None
        return status

    # Decisions: prepare, trigger, complete.

    def _try_to_trigger(self, now: float) -> None:
        state = self.state
        if state.decision_ongoing or state.held or state.decision_mode is not DecisionMode.RUN:
            return
        if self._has_work():
            self._prepare()
            # Time never goes back for the code, also if a clock does.
            state.decision_triggered_at = max(now, state.decision_triggered_at)
            self._trigger()

    def _has_work(self) -> bool:
        """Return whether anything is buffered that this run handles. Events are for the next."""
        buffer = self.state.buffer
        if self.state.successor is None:
            return bool(buffer)
        return any(action.type is not BranchType.EVENT for action in buffer)

    def _prepare(self) -> None:
        """Plan the executions of all that is buffered, by time, then by order of reception.

        An interrupting event begins a decision of its own, because earlier executions may begin
        steps.
        """
        first = self._interrupt_by_first()
        state = self.state
        state.ongoing_index = start = len(state.executions)
        left: list[BufferedAction] = []
        actions = sorted(state.buffer, key=lambda action: action.timestamp)
        for number, action in enumerate(actions):
            if state.successor is not None and action.type is BranchType.EVENT:
                left.append(action)
                continue
            index = len(state.executions)
            if index > start and "interrupts" in action.data and action is not first:
                left += actions[number:]
                break
            state.executions.append(len(state.branches))
            branch = Branch(type=action.type, at=action.timestamp, start_index=index, **action.data)
            state.branches.append(branch)
            status = self._steps.get(action.data.get("step", ""))
            if status is not None:
                branch.task_type = status.type
                if action.type in COMPLETIONS:
                    self._settle(status, action, index)
        state.buffer = left
        self._steps.buffer_is(left)

    def _settle(self, status: StepStatus, action: BufferedAction, index: int) -> None:
        """Store what happened to a step; plan its branch again if that waits for it."""
        goes_on = status.sync
        if action.type is BranchType.SUCCESS:
            status.status = StepState.SUCCESSFUL
            status.error = UNSET
            status.output = action.data["task_output"]
            status.completion_index = index
        else:
            status.status = StepState.FAILED
            status.error = {"name": action.data["error_name"], **action.data["error_input"]}
            goes_on = goes_on and (status.raises or action.data["error_name"] in NOTICES)
            if goes_on:
                status.completion_index = index
        if goes_on:
            self.state.executions.append(status.branch_key)
        self._steps.changed(status)

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
        if self.state.cancellation is not None and not self.state.ended:
            steps = {each.step for each in completed.decisions if isinstance(each, m.ScheduleStep)}
            self._cancelling.tell(completed.at, steps)

    def _apply(self, decision: m.Decision, now: float) -> None:
        state = self.state
        match decision:
            case m.ScheduleStep():
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
            case m.LeaveStep():
                self._leave(decision)
            case m.EndWait(step=step):
                self._waits.satisfy(step, now)
            case _:
                self._apply_effect(decision)

    def _apply_effect(self, decision: m.Decision) -> None:
        """Apply the externally visible effects of a decision."""
        state = self.state
        match decision:
            case m.GiveUp(error=error):
                state.decision_mode = DecisionMode.GIVEN_UP
                state.error = error
                self._sent.append(m.Ended(error=error))
            case m.RunAgain(properties=properties, index=index):
                state.successor = properties
                self._unplan(index + 1)
            case m.Send() | m.StartOther():
                self._sent.append(decision)
            case m.Publish(value=value):
                self._sent.append(m.Published(value))
            case m.Tag(values=values):
                self._sent.append(m.Tagged(values))

    def _schedule(self, decision: m.ScheduleStep, now: float) -> None:
        status = StepStatus(
            branch_key=decision.branch_key,
            position=decision.position,
            hash=decision.hash,
            type=decision.type,
            name=decision.name,
            input=decision.input,
            sync=decision.sync,
            timeout=decision.timeout,
            ends=decision.ends and decision.timeout is not None,
            raises=decision.raises,
            lane=decision.lane,
            index=decision.index,
            attempt=1 + (self.state.attempts.get(decision.step, 0) if self.state.attempts else 0),
        )
        self._steps.add(status)
        if decision.type is StepType.WAIT:
            self._waits.begin(status, decision, now)
        else:
            self._send_step(status)

    def _send_step(self, status: StepStatus, *, redelivery: bool = False) -> None:
        self._sent.append(
            m.StepJob(
                step=status.step,
                type=status.type,
                name=status.name,
                input=status.input,
                attempt=status.attempt,
                timeout=status.timeout,
                redelivery=redelivery,
            )
        )

    def _leave(self, leave: m.LeaveStep) -> None:
        """Resume a branch without one of its steps."""
        state = self.state
        status = self._steps.get(leave.step)
        if status is None:
            return
        status.sync = False
        status.left_index = leave.index
        is_wait = state.keeps_events and status.type is StepType.WAIT
        if is_wait and type(status.taken) is int:
            self._buffer.drop_end(leave.step)
            self.kept.give_back(status.taken)
        if (leave.cancel or is_wait) and not self._steps.is_over(status):
            status.status = StepState.CANCELLED
            self._buffer.clear_timeout(leave.step)
            self._waits.cancel(leave.step)
            self._send_cancel(status)
        self._steps.changed(status)

    def _send_cancel(self, status: StepStatus) -> None:
        if status.type is not StepType.WAIT:
            self._sent.append(m.CancelStep(status.step, status.type, status.attempt, status.apart))

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

    def _event_refused(self, refused: m.EventRefused) -> None:
        """Plan the ongoing decision again, as if an event had never come."""
        self._waits.end_due(refused.at)
        if self._is_stale(refused.uuid):
            return
        state = self.state
        start = state.ongoing_index or 0
        self._unplan(start)
        of_event = (
            each for each in state.buffer if each.data.get("event_number") == refused.number
        )
        action = next(of_event, None)
        if action is None:
            self._forget_kept(refused)
        else:
            self._forget_event(action, refused.at, refused.error)
        state.decision_ongoing = False
        state.decision_current_index = None
        if self._has_work() or len(state.executions) > start:
            self._prepare()
            state.ongoing_index = start
            self._trigger()

    def _forget_event(self, action: BufferedAction, at: float, error: dict[str, Any]) -> None:
        """Remove an event that is in the buffer; the waits that it has completed go on."""
        self.state.buffer.remove(action)
        event = kept_event(action.timestamp, action.data)
        self._take_back(event, at, error, asked=bool(action.data.get("event_asks")))

    def _forget_kept(self, refused: m.EventRefused) -> None:
        """Remove an event that `on_event` has handled, and that is refused by a wait."""
        event = self.kept.find(refused.number)
        self.state.removed_events.append(event.number)
        self._take_back(event, refused.at, refused.error, asked=False)

    def _take_back(
        self, event: KeptEvent, at: float, error: dict[str, Any], *, asked: bool
    ) -> None:
        self.kept.remove(event.name, event.number)
        self._waits.resume(event)
        self._waits.end_due(at)
        self._sent.append(m.RefusedByCode(event.name, event.input, event.id, error, asked))

    def _unplan(self, start: int) -> None:
        """Put back into the buffer what the ongoing decision is about, from an index on.

        Branches that it executes again because of something before stay planned.
        """
        state = self.state
        end = start
        branches, executions = state.branches, state.executions
        while end < len(executions) and branches[executions[end]].start_index < start:
            end += 1
        first = min(executions[end:], default=len(branches))
        new = [branch for branch in branches[first:] if branch.start_index >= start]
        self.changes.cut(end)
        del branches[len(branches) - len(new) :], executions[end:]
        state.buffer = [*map(action_of, new), *state.buffer]
        for branch in new:
            status = self._steps.get(branch.step) if isinstance(branch.step, str) else None
            if status is not None and branch.type in COMPLETIONS:
                status.status = StepState.SCHEDULED
                status.completion_index = status.output = status.error = UNSET
                self._steps.changed(status)
                self._steps.end_buffered(status.step)

    def _try_to_end(self) -> None:
        """End once every branch has reached its end; steps that were dispatched do not count."""
        state = self.state
        if state.decision_ongoing or self._has_work() or self._steps.blocking:
            return
        if state.ended or state.decision_mode in BROKEN_MODES:
            return
        output = state.branches[0].output
        if state.cancellation is not None:
            state.decision_mode = DecisionMode.CANCELLED
            self._cancelling.end()
            self._sent.append(m.Ended(output, cancelled=True))
            return
        if state.successor is not None:
            if state.decision_mode is DecisionMode.RUN:
                state.decision_mode = DecisionMode.CONTINUED
            return
        state.decision_mode = DecisionMode.TERMINATED
        self._sent.append(m.Ended(None if output is UNSET else output))

    # What people and the engine do.

    def _begin(self, begin: m.Begin) -> None:
        self._waits.end_due(begin.at)
        self.state.dropped += not self.state.held
        self.state.held = False

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

    def _kill(self, _kill: m.Kill | m.Tick | m.CancelAll) -> None:
        state = self.state
        self._cancelling.end()
        state.decision_mode = DecisionMode.KILLED
        state.decision_ongoing = False
        state.decision_current_index = None
        self._sent.append(m.Ended())

    def _discard(self, discard: m.Discard) -> None:
        self._waits.end_due(discard.at)
        found = next((event for event in self.kept if event.number == discard.number), None)
        if found is None:
            self.state.dropped += 1
            return
        self.kept.remove(found.name, found.number)
        self.state.removed_events.append(found.number)

    def _cancel_all(self, cancel: m.CancelAll) -> None:
        """Ask the code to end; broken code cannot be asked."""
        self._waits.end_due(cancel.at)
        state = self.state
        if state.cancellation is not None or state.decision_mode in BROKEN_MODES:
            self._kill(cancel)
            return
        if state.held:  # its code has nothing to clean up
            state.decision_mode = DecisionMode.CANCELLED
            self._sent.append(m.Ended(cancelled=True))
            return
        state.decision_mode = DecisionMode.RUN
        self._cancelling.begin(cancel)

    def _cancel(self, cancel: m.StopStep) -> None:
        self._waits.end_due(cancel.at)
        status = self._steps.get(cancel.step)
        if status is None or self._steps.is_over(status):
            self.state.dropped += 1
            return
        self._waits.cancel(cancel.step)
        error = {"message": "somebody has cancelled it"}
        data = {"error_name": "Cancelled", "error_input": error}
        self._buffer.push_end(status, cancel.at, BranchType.FAILURE, data)
        self._send_cancel(status)

    def _retry(self, retry: m.RetryStep) -> None:
        self._waits.end_due(retry.at)
        status = self._steps.get(retry.step)
        if status is None or status.status is not StepState.FAILED:
            self.state.dropped += 1
            return
        if status.completion_index is not UNSET:
            # Its branch has been told of the failure and gone on.
            self.state.dropped += 1
            return
        status.status = StepState.SCHEDULED
        status.error = UNSET
        status.attempt += 1
        self._steps.changed(status)
        if status.type is StepType.WAIT:
            self._waits.begin_again(status, retry.at)
        else:
            self._send_step(status)

    def _rewind(self, rewind: m.Rewind) -> None:
        """Replace the state by an earlier one; stop undone steps, and begin again."""
        self._waits.end_due(rewind.at)
        state = self.state
        if self._steps.get(rewind.step) is None:
            state.dropped += 1
            return
        self._go_back(rewind.step)
        self._trigger()

    def _go_back(self, step: str) -> None:
        state = self.state
        before = rewound(state, step)
        kept = {status.step: status for status in before.statuses}
        begin_again = [
            kept[status.step]
            for status in state.statuses
            if status.step in kept and status.attempt < kept[status.step].attempt
        ]
        for status in state.statuses:
            if status.step not in kept and status.status is StepState.SCHEDULED:
                self._send_cancel(status)
        self._send_timers(state, before)
        for name in before.__struct_fields__:
            setattr(state, name, getattr(before, name))
        self.changes.rewritten()
        self._look_up()
        for status in begin_again:
            if status.type is not StepType.WAIT:
                self._send_step(status)

    def _send_timers(self, old: InstanceState, new: InstanceState) -> None:
        """Clear the timers that are gone, and set the new ones."""
        for wait in old.waits:
            if wait.timestamp is not None and wait not in new.waits:
                self._sent.append(m.ClearTimer(wait.step))
        for timeout in old.timeouts:
            if timeout not in new.timeouts:
                self._sent.append(m.ClearTimer(timeout.step, timeout=True))
        for wait in new.waits:
            if wait.timestamp is not None and wait not in old.waits:
                self._sent.append(m.SetStepTimer(wait.step, wait.timestamp))

    def _restore(self, restore: m.Restore) -> None:
        state = self.state
        if state.decision_ongoing:
            # Under a new uuid, so that an answer from before the restart cannot count as well.
            self._trigger()
        for status in state.statuses:
            if status.status is StepState.SCHEDULED and status.type is not StepType.WAIT:
                self._send_step(status, redelivery=True)
        self._waits.end_due(restore.at)
        for wait in state.waits:
            if wait.timestamp is not None:
                self._sent.append(m.SetStepTimer(wait.step, wait.timestamp))
        for timeout in state.timeouts:
            self._sent.append(m.SetStepTimer(timeout.step, timeout.timestamp, timeout=True))
        if state.cancellation is not None:
            self._sent.append(m.SetStepTimer(TIMER, state.cancellation.deadline))

    # In the class, because bound methods would make every instance a cycle.
    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        m.EventSent: _event,
        m.Started: _started,
        m.Succeeded: _succeeded,
        m.StepHasFailed: _failed,
        m.Stalled: _stalled,
        m.TimedOut: _timed_out,
        m.Tick: _tick,
        m.Completed: _completed,
        m.DecisionBroken: _broken,
        m.EventRefused: _event_refused,
        m.Begin: _begin,
        m.Discard: _discard,
        m.Pause: _pause,
        m.Resume: _resume,
        m.Kill: _kill,
        m.StopStep: _cancel,
        m.CancelAll: _cancel_all,
        m.RetryStep: _retry,
        m.Rewind: _rewind,
        m.Restore: _restore,
    }
