"""An instance as people and programs see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.workflows.instance.kept import Kept
from actorflow.workflows.instance.state import UNSET, DecisionMode, StepState, StepType
from actorflow.workflows.wait import Event

if TYPE_CHECKING:
    from actorflow.workflows.instance.state import InstanceState, KeptEvent, StepStatus
    from actorflow.workflows.service.stored import CodeVersion, StoredInstance

__all__ = ["WorkflowView"]


class WorkflowView:
    """An instance at one moment, as it is stored."""

    __slots__ = ("_killed", "has_inbox", "state", "tags", "versions")

    def __init__(self, stored: StoredInstance, *, killed: bool = False) -> None:
        self.state: InstanceState = stored.instance
        """The whole state under its stored names: branches, executions, statuses, waits, buffer."""
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
        mode = self.state.decision_mode
        return DecisionMode.KILLED if self._killed and not self.state.ended else mode

    @property
    def held(self) -> bool:
        """Whether its code has not begun, because it waits for a moment or in a lane."""
        return self.state.held and not self.state.ended

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
    def result(self) -> Any:
        """What `handle` has returned, as plain data; also if the instance was cancelled."""
        output = self.state.branches[0].output if self.state.branches else UNSET
        return None if output is UNSET else output

    @property
    def kept(self) -> list[Event]:
        """Events that no wait has taken, oldest first."""
        return [Event(each.name, each.input) for each in Kept(self.state)]

    @property
    def kept_events(self) -> list[KeptEvent]:
        """The same with their numbers, ids, and times of reception."""
        return [*Kept(self.state)]

    @property
    def running(self) -> list[StepStatus]:
        """Tasks and sub-workflows that have not ended."""
        return [
            status
            for status in self.state.statuses
            if status.status is StepState.SCHEDULED and status.type is not StepType.WAIT
        ]

    @property
    def failed(self) -> list[StepStatus]:
        """Steps that have failed and can be retried."""
        return [each for each in self.state.statuses if each.status is StepState.FAILED]

    def plain(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        state: dict[str, Any] = msgspec.to_builtins(self.state, builtin_types=(bytes,))
        fields = {name: getattr(self.state, name) for name in _SHOWN}
        return {
            **msgspec.to_builtins(fields, builtin_types=(bytes,)),
            **state,
            "decision_mode": str(self.mode),
            "kept": msgspec.to_builtins([*Kept(self.state)], builtin_types=(bytes,)),
            "tags": self.tags,
            "version": self.version,
            "versions": msgspec.to_builtins(self.versions),
        }


_SHOWN = (
    "id", "custom_id", "workflow_name", "programming_language", "branches", "executions",
    "statuses", "waits", "properties", "buffer", "ongoing_index", "decision_mode",
    "decision_ongoing", "decision_current_index",
)  # fmt: skip
