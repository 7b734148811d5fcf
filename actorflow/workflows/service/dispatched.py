"""A dispatched task: an execution of its own, so that it outlives the instance it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import (
    ENDED,
    Message,
    NewTask,
    Options,
    Outcome,
    Outgoing,
    Status,
    TaskEnded,
    TaskStarted,
)
from actorflow.engine.kinds.lane import BEGIN, LANE
from actorflow.runtime.errors import BadOption
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.service.names import DISPATCHED
from actorflow.workflows.service.run_outcome import task_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.engine.kind import Context, Envelope

__all__ = ["DispatchedKind"]


class DispatchedKind:
    """Has one task done, and ends with its result."""

    name = DISPATCHED

    def quick(self, _execution: str) -> bool:
        """Return True: no code of a user runs in its inbox."""
        return True

    def options(self, _execution: str) -> Options:
        """Return the defaults."""
        return Options()

    def decode(self, data: bytes | None) -> Any:
        """Return which task it is; `None` before it is known."""
        return None if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        """Return a state as bytes."""
        return bodies.encode(state)

    def cancel(self, target: Any) -> dict[str, Any]:
        """Return the message that ends it: it leaves its lane.

        Raises:
            BadOption: a part of it was meant.

        """
        if target is not None:
            msg = "an execution of kind 'dispatched' can only be cancelled as a whole"
            raise BadOption(msg)
        return {"do": "cancel"}

    def is_cancel(self, body: Any) -> bool:
        """Return whether a message means nothing to one that has ended."""
        return type(body) is dict and body.get("do") in ("cancel", BEGIN["do"])

    def farewell(self, state: bytes | None) -> list[Outgoing]:
        """Return the messages to others when it is ended without a run."""
        return _leaves(self.decode(state), "")

    def run(self, context: Context, state: Any, batch: Sequence[Envelope]) -> Outcome:
        """Hand out the task, or end with its end."""
        outcome = Outcome(state=None if state is None else dict(state))
        for each in batch:
            match each:
                case Message(body={"tasker": str(tasker), "step": str(step), "input": given}):
                    if outcome.state is None:
                        _take(context, tasker, step, given, each.body, outcome)
                case Message(body={"do": "begin"}):
                    _begin(context, outcome)
                case Message(body={"do": "cancel"}):
                    outcome.status = Status.CANCELLED
                case TaskStarted():
                    _tell_start(context, outcome)
                case TaskEnded():
                    _end(each, outcome)
                case _:
                    raise MessageRefused(f"{each!r:.100} refused: it only has a task done")
        if outcome.state is None:
            raise MessageRefused(f"{context.id!r} has no task: dispatch one in a workflow")
        if outcome.status in ENDED:
            outcome.tasks = []
            outcome.messages += _leaves(outcome.state, context.id)
        return outcome


def _take(  # noqa: PLR0917 - what a message has
    context: Context, tasker: str, step: str, given: Any, body: dict[str, Any], outcome: Outcome
) -> None:
    """Take the task; hand it out, or enter its lane."""
    outcome.state = {"tasker": tasker, "step": step}
    lane = body.get("lane")
    if lane is None:
        # Its id is that of the execution, which names the step.
        outcome.tasks.append(NewTask(context.id, tasker, task_body(step, given)))
        return
    outcome.state |= {"lane": lane["to"], "id": context.id, "input": given, "tells": body["tells"]}
    outcome.messages.append(Outgoing(lane["to"], {**lane["body"], "enter": context.id}, LANE))


def _begin(context: Context, outcome: Outcome) -> None:
    state = outcome.state
    if state is not None and "input" in state:
        body = task_body(state["step"], state.pop("input"))
        tells = state["tells"]
        outcome.tasks.append(NewTask(context.id, state["tasker"], body, tell_start=tells))


def _end(ended: TaskEnded, outcome: Outcome) -> None:
    if ended.ok:
        outcome.status, outcome.result, outcome.error = Status.DONE, ended.value, None
        return
    # In a lane, it makes room: a retry is another execution.
    in_lane = outcome.state is not None and "lane" in outcome.state
    outcome.status = Status.FAILED if in_lane else Status.STUCK
    outcome.error = ended.error


def _tell_start(context: Context, outcome: Outcome) -> None:
    if context.parent is not None:
        told = {"do": "started", "step": context.id}
        outcome.messages.append(Outgoing(context.parent, told))


def _leaves(state: Any, execution: str) -> list[Outgoing]:
    """Return what tells the lane of a task that it has ended."""
    if state is None or "lane" not in state:
        return []
    return [Outgoing(state["lane"], {"leave": state.get("id", execution)})]
