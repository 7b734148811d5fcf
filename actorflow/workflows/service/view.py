"""An instance as people and programs see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.workflows.instance.state import DecisionMode, WorkState, WorkType

if TYPE_CHECKING:
    from actorflow.workflows.instance.state import InstanceState, WorkStatus
    from actorflow.workflows.service.stored import CodeVersion, StoredInstance

__all__ = ["WorkflowView"]


class WorkflowView:
    """An instance at one moment, as it is stored."""

    __slots__ = ("_killed", "has_inbox", "state", "tags", "versions")

    def __init__(self, stored: StoredInstance, *, killed: bool = False) -> None:
        self.state: InstanceState = stored.instance
        """All of it: branches, executions, statuses, waits, buffer, as the seed names them."""
        self.tags: dict[str, Any] = stored.tags
        """What it can be found by."""
        self.versions: list[CodeVersion] = stored.versions
        """Which code has run it, since when; the last is the one that runs it now."""
        self.has_inbox = stored.inbox
        """Whether it was started with an inbox of its own."""
        self._killed = killed

    def __repr__(self) -> str:
        return f"<{self.state.workflow_name} {self.state.id!r} {self.mode}>"

    @property
    def workflow(self) -> str:
        """The name of its class."""
        return self.state.workflow_name

    @property
    def mode(self) -> DecisionMode:
        """Whether decisions are taken, and if not, why."""
        return DecisionMode.KILLED if self._killed else self.state.decision_mode

    @property
    def version(self) -> str | None:
        """Which code has run it last."""
        return self.versions[-1].version if self.versions else None

    @property
    def properties(self) -> dict[str, Any]:
        """The properties as the last branch has left them."""
        return self.state.properties[-1].values

    @property
    def error(self) -> Any:
        """Why its code cannot go on: the name, message and stack of the error."""
        return self.state.error

    @property
    def running(self) -> list[WorkStatus]:
        """Tasks and sub-workflows that have not ended."""
        return [
            status
            for status in self.state.statuses
            if status.status is WorkState.SCHEDULED and status.type is not WorkType.WAIT
        ]

    @property
    def failed(self) -> list[WorkStatus]:
        """Works that have failed and can be retried."""
        return [each for each in self.state.statuses if each.status is WorkState.FAILED]

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        state: dict[str, Any] = msgspec.to_builtins(self.state, builtin_types=(bytes,))
        fields = {name: getattr(self.state, name) for name in _SHOWN}
        return {
            **msgspec.to_builtins(fields, builtin_types=(bytes,)),
            **state,
            "decision_mode": str(self.mode),
            "tags": self.tags,
            "version": self.version,
            "versions": msgspec.to_builtins(self.versions),
        }


_SHOWN = (
    "id", "custom_id", "workflow_name", "programming_language", "branches", "executions",
    "statuses", "waits", "properties", "buffer", "ongoing_index", "decision_mode",
    "decision_ongoing", "decision_current_index",
)  # fmt: skip
