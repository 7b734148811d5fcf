"""The errors of workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BranchClosed",
    "Interrupted",
    "InvalidWork",
    "InvalidWorkflow",
    "JobGone",
    "MessageRefused",
    "NotInWorkflow",
    "OutOfTurn",
    "WorkFailed",
    "WorkflowModified",
]


class InvalidWorkflow(ActorflowError, TypeError):
    """A class cannot be a workflow: it has no `handle`, or uses a reserved name."""


class InvalidWork(ActorflowError, TypeError):
    """Something that is not a work was given to `execute`, `dispatch` or `first`."""


class JobGone(ActorflowError):
    """A worker answered a job that is no longer its own. Drop it; nothing was changed.

    Its lease ran out and another worker has it, it was answered already, its instance has ended, or
    it is a decision and the engine was restarted: that is handed out again, under another uuid.
    """


class OutOfTurn(ActorflowError):
    """A request of a worker came out of turn. Nothing was changed."""


class MessageRefused(ActorflowError, ValueError):
    """Something that no workflow understands was sent to one; stored, it becomes a dead letter."""


class NotInWorkflow(ActorflowError, RuntimeError):
    """`execute`, `wait` or another such method was called outside a running workflow."""


class WorkflowModified(ActorflowError):
    """The code of a running workflow does something else than what is recorded.

    Nothing of the decision is kept. Deploy code that does what is recorded, then resume.
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
            f"{recorded}, and now does {found}; deploy code that does what is recorded (see "
            "`patched`), then resume"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self),
            (self.workflow, self.branch, self.position, self.recorded, self.found),
        )


class WorkFailed(ActorflowError):
    """A work has failed for good, and was executed with `raises=True`.

    Without `raises=True` the branch stays where it is until the work is retried.
    """

    def __init__(self, work: str, name: str, error: Mapping[str, Any]) -> None:
        self.work = work
        self.name = name
        self.error = dict(error)
        text = f"{error.get('name', 'Error')}: {error.get('message', '')}".rstrip(": ")
        super().__init__(f"{name} ({work}) failed with {text}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.work, self.name, self.error)


class Interrupted(WorkFailed):
    """An event has come that stops what the workflow is doing; see `Interrupt`.

    An `on_` method that does not catch it ends there.
    """

    def __init__(self, work: str, name: str, error: Mapping[str, Any]) -> None:
        super().__init__(work, name, error)
        self.args = (f"{name} ({work}) was interrupted by an event: catch Interrupted in handle",)


class BranchClosed(BaseException):
    """Unwinds a branch whose frame is given up; it is replayed when it is needed again.

    Not an `Exception`, so that the workflow's own `except Exception` lets it pass.
    """
