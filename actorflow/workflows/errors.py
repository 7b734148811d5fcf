"""The errors of workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import ExecutionFailed
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BranchClosed",
    "Failed",
    "Interrupted",
    "InvalidStep",
    "InvalidWorkflow",
    "JobGone",
    "MessageRefused",
    "NotInWorkflow",
    "OutOfTurn",
    "Refused",
    "StepFailed",
    "WorkflowFailed",
    "WorkflowModified",
    "refusal_of",
]


class InvalidWorkflow(ActorflowError, TypeError):
    """A class cannot be a workflow: it has no `handle`, or uses a reserved name."""


class InvalidStep(ActorflowError, TypeError):
    """Something that is not a step was given to `execute`, `dispatch` or `first`."""


class JobGone(ActorflowError):
    """A worker answered a job that it no longer holds. Drop the job; nothing was changed.

    Its lease ran out and another worker has it, it was answered already, its instance has ended, or
    it is a decision and the engine was restarted: that is handed out again, under another uuid.
    """


class OutOfTurn(ActorflowError):
    """A request of a worker came out of turn. Nothing was changed."""


class MessageRefused(ActorflowError, ValueError):
    """Something that no workflow understands was sent to one; stored, it becomes a dead letter."""


class NotInWorkflow(ActorflowError, RuntimeError):
    """`execute`, `wait` or another such method was called outside a running workflow."""


class Refused(ActorflowError):
    """A workflow has refused an event. The instance goes on as if the event had never come.

    Raise it in `on_event`: `raise af.Refused("must be positive")`. `ask` raises it to its caller.
    """


class Failed(ActorflowError):
    """Ends a workflow with a failure: `raise af.Failed("declined", data={"code": 51})`.

    Its callers get `WorkflowFailed` with the message and the data (plain data); a workflow that
    executes it gets `StepFailed`. Any other exception only stops a workflow until it is fixed.
    """

    def __init__(self, message: str = "", data: Any = None) -> None:
        super().__init__(message)
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.data)


class WorkflowFailed(ExecutionFailed):
    """A workflow has failed: its code has raised `Failed`.

    `data` is what it was raised with.
    """

    def __init__(self, message: str, failure: Any = None, data: Any = None) -> None:
        super().__init__(message, failure, ended=True, data=data)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.failure, self.data)


class WorkflowModified(ActorflowError):
    """The code of a running workflow asks for other steps than the recorded ones.

    Nothing of the decision is kept. Deploy code that repeats the recorded steps, then resume.
    """

    def __init__(
        self, workflow: str, branch: str, position: str, recorded: str, found: str
    ) -> None:
        self.workflow = workflow
        self.branch = branch
        self.position = position
        self.recorded = recorded
        self.found = found
        super().__init__(
            f"the code of {workflow} was modified: {branch} at position {position} recorded "
            f"{recorded}, and now does {found}; deploy code that repeats the recorded steps (see "
            "`patched`), then resume"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self),
            (self.workflow, self.branch, self.position, self.recorded, self.found),
        )


class StepFailed(ActorflowError):
    """A step has failed for good, and was executed with `raises=True`.

    Without `raises=True` the branch stays where it is until the step is retried.
    """

    def __init__(self, step: str, name: str, error: Mapping[str, Any]) -> None:
        self.step = step
        self.name = name
        self.error = dict(error)
        text = f"{error.get('name', 'Error')}: {error.get('message', '')}".rstrip(": ")
        super().__init__(f"{name} ({step}) failed with {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.step, self.name, self.error)


class Interrupted(StepFailed):
    """An event has come that stops what the workflow is doing; see `Interrupt`.

    An `on_` method that does not catch it ends there.
    """

    def __init__(self, step: str, name: str, error: Mapping[str, Any]) -> None:
        super().__init__(step, name, error)
        self.args = (f"{name} ({step}) was interrupted by an event: catch Interrupted in handle",)


def refusal_of(error: Mapping[str, Any]) -> str:
    """Return why an event was refused, from the error as plain data."""
    if error["name"] == Refused.__name__:
        return str(error["message"])
    return f"{error['name']}: {error['message']}"


class BranchClosed(BaseException):
    """Unwinds a branch whose frame is given up; it is replayed when it is needed again.

    Not an `Exception`, so that the workflow's own `except Exception` lets it pass.
    """
