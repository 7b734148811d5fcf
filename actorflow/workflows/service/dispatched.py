"""A dispatched task: an execution of its own, so that it outlives the instance it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.kind import Message, NewTask, Options, Outcome, Status, TaskEnded
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.service.names import DISPATCHED
from actorflow.workflows.service.outgoing import task_body

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

    def run(self, context: Context, state: Any, batch: Sequence[Envelope]) -> Outcome:
        """Hand out the task, or end with its end."""
        outcome = Outcome(state=state)
        for each in batch:
            match each:
                case Message(body={"tasker": str(tasker), "work": str(work), "input": given}):
                    if outcome.state is None:
                        outcome.state = {"tasker": tasker, "work": work}
                        body = task_body(work, given)
                        # Its id is that of the execution, which names the work.
                        outcome.tasks.append(NewTask(context.id, tasker, body))
                case TaskEnded(outcome="ok", value=value):
                    outcome.status, outcome.result, outcome.error = Status.DONE, value, None
                case TaskEnded(error=error):
                    outcome.status, outcome.error = Status.FAILED, error
                case _:
                    raise MessageRefused(f"{each!r:.100} refused: it only has a task done")
        if outcome.state is None:
            raise MessageRefused(f"{context.id!r} has no task: dispatch one in a workflow")
        if outcome.status is Status.DONE:
            outcome.tasks = []
        return outcome
