"""One decision that a script takes: what each of its requests is answered.

A script asks for a branch, executes it, which may ask for steps, and says where the branch has
left the properties; then it asks for the next branch. After the last one, the decision is taken.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from actorflow.workflows.agent.wire import (
    branch_to_wire,
    calls_from_wire,
    write_broken,
    write_completed,
)
from actorflow.workflows.errors import OutOfTurn, WorkflowModified
from actorflow.workflows.instance.decision import AnswerStatus, BranchCursor, DecisionSession
from actorflow.workflows.instance.state import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.workflows.instance.instance import Instance

__all__ = ["DecisionCursor"]


class DecisionCursor:
    """Answers the script that takes the ongoing decision of an instance. Not thread-safe.

    A request that raises has changed nothing.

    Args:
        instance: is only read; what a decision depends on does not change while it is ongoing.

    """

    def __init__(self, instance: Instance) -> None:
        self._session = DecisionSession(instance)
        self._workflow = instance.state.workflow_name
        self._branch: BranchCursor | None = None
        self._modified: WorkflowModified | None = None

    @property
    def uuid(self) -> str:
        """What the instance calls the decision."""
        return self._session.uuid

    def next_branch(self) -> dict[str, Any]:
        """Return the next branch with its properties; `{}` when all are executed.

        A branch that was not finished is returned again, to be executed from its start.

        Raises:
            OutOfTurn: the code was modified.

        """
        self._refuse_if_modified()
        session, branch = self._session, self._branch
        key = session.next_branch() if branch is None else branch.key
        if key is None:
            return {}
        found = session.branch(key)
        session.fresh = found.start_index == session.index
        self._branch = BranchCursor(key, found)
        return {
            "branch": branch_to_wire(key, found),
            "properties": deepcopy(session.first_properties(key)),
        }

    def finish_branch(self, properties: dict[str, Any], output: Any = UNSET) -> dict[str, Any]:
        """Take the properties and the output with which a branch has ended, or waits.

        Raises:
            OutOfTurn: no branch is being executed.

        """
        self._current()
        self._session.finish(properties, output)
        self._branch = None
        return {}

    def execute(self, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Schedule the steps that are unknown; return whether all are complete, and their outputs.

        A failed step is reported to code that asked for it with `raises`, and to code that an
        event has interrupted.

        Raises:
            OutOfTurn: no branch is being executed.
            InvalidStep: one of the steps makes no sense. None was scheduled.

        """
        branch = self._current()
        calls = calls_from_wire(steps)
        try:
            answer = self._session.execute(branch, calls)
        except WorkflowModified as error:
            self._modified = error
            return {"status": "modified"}
        reply: dict[str, Any] = {"status": str(answer.status)}
        if answer.status is AnswerStatus.COMPLETED:
            reply["outputs"] = deepcopy(answer.outputs)
        elif answer.failed is not None:
            reply["error"] = deepcopy(answer.failed.error)
        if answer.properties is not None:
            reply["properties"] = deepcopy(answer.properties)
        return reply

    def completed(self) -> dict[str, Any]:
        """Return the answer to the decision, after the last branch."""
        return write_completed(self._session.decisions)

    def broken(self, error: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a decision that cannot be taken: nothing of it is kept.

        Args:
            error: `kind` ("failed" or "modified"), `name`, `message`, `stacktrace`, and what else
                there is to say.

        """
        modified = error.get("kind") == "modified"
        told = {name: value for name, value in error.items() if value is not None}
        known = {
            "branch_key": None if self._branch is None else self._branch.key,
            "kind": "modified" if modified else "failed",
            "name": "WorkflowModified" if modified else "Error",
            "message": str(self._modified) if modified and self._modified else "",
            "stacktrace": "",
        }
        return write_broken({**known, **told}, modified=modified)

    def _current(self) -> BranchCursor:
        self._refuse_if_modified()
        if self._branch is None:
            raise OutOfTurn(
                f"no branch of the decision {self.uuid!r} is being executed: GET branch first"
            )
        return self._branch

    def _refuse_if_modified(self) -> None:
        if self._modified is not None:
            raise OutOfTurn(
                f"the decision {self.uuid!r} cannot be taken, because the code of "
                f"{self._workflow} was modified: POST error with the kind 'modified'"
            )
