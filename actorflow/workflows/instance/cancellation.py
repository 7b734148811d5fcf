"""Cancels that the code of an instance gets to see.

Each branch that was open when the cancel came gets `Cancelled` once, at a step for which it waits:
the step fails. Later steps of the code are done like any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.kept import kept_event
from actorflow.workflows.instance.state import (
    CANCELLED,
    UNSET,
    BranchType,
    CancelState,
    StepState,
    StepType,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from actorflow.workflows.instance.buffer import Buffer
    from actorflow.workflows.instance.kept import Kept
    from actorflow.workflows.instance.state import InstanceState, StepStatus
    from actorflow.workflows.instance.steps import Steps
    from actorflow.workflows.instance.waits import Waits

__all__ = ["TIMER", "Cancelling"]

TIMER = "cancel"
"""The step that the timer of a cancel is said to be for; no step has that name."""


class Cancelling:
    """Delivers a cancel to the branches of a state.

    Args:
        state: that is cancelled.
        steps: of the same state.
        buffer: of the same state.
        waits: of the same state.
        kept: of the same state.
        sent: where tasks and children are stopped.

    """

    def __init__(
        self,
        state: InstanceState,
        *,
        steps: Steps,
        buffer: Buffer,
        waits: Waits,
        kept: Kept,
        sent: list[m.Outgoing],
    ) -> None:
        self._state = state
        self._steps = steps
        self._buffer = buffer
        self._waits = waits
        self._kept = kept
        self._sent = sent

    def begin(self, cancel: m.CancelAll) -> None:
        """Deliver the cancel to waiting branches, and stop dispatched steps."""
        state, steps = self._state, self._steps
        opened = [
            status
            for status in state.statuses
            if status.status is StepState.SCHEDULED
            and status.type is not StepType.WAIT
            and not steps.is_over(status)
        ]
        state.cancellation = CancelState(
            at=cancel.at,
            deadline=cancel.at + cancel.timeout,
            index=len(state.executions),
            branches=len(state.branches) + len(state.buffer),
            children=cancel.children,
            steps=[status.step for status in opened],
        )
        self._sent.append(m.SetStepTimer(TIMER, state.cancellation.deadline))
        if cancel.children == "first":
            for status in opened:
                if not status.sync:
                    status.status = StepState.CANCELLED
                    self._buffer.clear_timeout(status.step)
                    steps.changed(status)
                    self._stop(status)
        if not state.decision_ongoing:
            self.tell(cancel.at)

    def tell(self, at: float, scheduled: Collection[str] = ()) -> None:
        """Deliver the cancel to branches that have not got it and are waiting now.

        Args:
            at: when.
            scheduled: steps that were asked for just now: these are not begun at all.

        """
        cancellation = self._state.cancellation
        if cancellation is None:
            return
        told = set(cancellation.told)
        awaited: dict[int, list[StepStatus]] = {}
        for status in self._steps.awaited():
            if status.branch_key < cancellation.branches and status.branch_key not in told:
                awaited.setdefault(status.branch_key, []).append(status)
        for key, statuses in awaited.items():
            before = [status for status in statuses if status.step not in scheduled]
            if any(self._has_news(status) for status in before):
                continue  # it continues with that, and sees the cancel at its next step
            if cancellation.children == "first" and self._end_children(before):
                continue  # it sees the cancel when they have ended
            for status in statuses:
                self._fail(status, at, begun=status in before)
            cancellation.told.append(key)

    def _end_children(self, awaited: list[StepStatus]) -> bool:
        """Stop steps if there are children among them; return whether one has not ended yet."""
        cancellation = self._state.cancellation
        assert cancellation is not None  # noqa: S101 - called by `tell`
        opened = [
            status
            for status in awaited
            if status.type is StepType.FLOW
            and status.status is StepState.SCHEDULED
            and status.error is UNSET
        ]
        if not opened:
            return False
        for status in awaited:
            begun = status.type is not StepType.WAIT and status.status is StepState.SCHEDULED
            if begun and status.step not in cancellation.ending:
                self._stop(status)
                cancellation.ending.append(status.step)
        return True

    def child_ended(self, status: StepStatus, error: dict[str, Any], at: float) -> bool:
        """Note that a child has ended that was asked to; return whether it was asked.

        Its branch sees the cancel instead of its failure.
        """
        cancellation = self._state.cancellation
        if cancellation is None or status.step not in cancellation.ending:
            return False
        status.error = error
        self._steps.changed(status)
        if not self._state.decision_ongoing:
            self.tell(at)
        return True

    def _has_news(self, status: StepStatus) -> bool:
        return status.status is StepState.SCHEDULED and self._steps.is_over(status)

    def _fail(self, status: StepStatus, at: float, *, begun: bool) -> None:
        cancellation = self._state.cancellation
        assert cancellation is not None  # noqa: S101 - called by `tell`
        if status.type is StepType.WAIT:
            self._waits.withdraw(status)
        elif (
            status.status is StepState.SCHEDULED
            and (not begun or cancellation.children == "first")
            and status.step not in cancellation.ending
        ):
            self._stop(status)
        # One that has failed before waits for a retry.
        status.status, status.error = StepState.SCHEDULED, UNSET
        data = {"error_name": CANCELLED, "error_input": {"message": "the workflow was cancelled"}}
        self._buffer.push_end(status, at, BranchType.FAILURE, data)
        self._steps.changed(status)

    def _stop(self, status: StepStatus) -> None:
        self._sent.append(m.CancelStep(status.step, status.type, status.attempt, status.apart))

    def event(self, event: m.EventSent) -> None:
        """Let an event complete waits, or keep it: `on_event` is not called any more."""
        state = self._state
        data = {"event_name": event.name, "event_input": event.input}
        if not state.keeps_events or state.cancellation is None:
            self._waits.end_by(event, data)
            return
        number = self._kept.next_number()
        made = kept_event(event.at, data | {"event_number": number, "event_id": event.id})
        state.cancellation.events.append(made)
        if not self._waits.end_by(event, data, number):
            self._kept.add(made)

    def is_over(self, now: float) -> bool:
        """Return whether the code has had its time."""
        cancellation = self._state.cancellation
        return cancellation is not None and cancellation.deadline <= now

    def end(self) -> None:
        """Stop the steps that were open when the cancel came, if that was to come last."""
        cancellation = self._state.cancellation
        if cancellation is None or cancellation.children != "last":
            return
        for step in cancellation.steps:
            status = self._steps.get(step)
            if status is not None:
                self._stop(status)
