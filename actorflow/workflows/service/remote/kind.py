"""Workflows of other languages as a kind of execution: each decision is a task of the engine.

The task is stored with the state that waits for it, comes back when its worker dies, and its end is
a message to the instance, like the end of any task. So a decision survives what a task survives.
"""

from __future__ import annotations

from types import new_class
from typing import TYPE_CHECKING, Any

from actorflow.engine.kind import NewTask
from actorflow.workflows.remote import RemoteWorkflow
from actorflow.workflows.service.kind import WorkflowKind
from actorflow.workflows.service.names import decision_id, decision_tasker

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import ExecutionRow
    from actorflow.workflows.instance.instance import Instance
    from actorflow.workflows.workflow import Workflow

__all__ = ["declare", "remote_kind"]


class _RemoteDecider:
    """Stands where a decider would: the answers come as messages."""

    def decide(self, _cls: type[Workflow[Any]], _instance: Instance, *, at: float) -> None:
        """Take no decision."""

    def forget(self, _instance: str) -> None:
        """Forget nothing: there is no code in memory."""


def remote_kind(
    cls: type[RemoteWorkflow[Any]],
    inbox: Callable[[], Any] | None = None,
    look: Callable[[str], ExecutionRow | None] | None = None,
) -> WorkflowKind:
    """Return the kind of a workflow whose code is elsewhere."""
    return WorkflowKind(
        cls,
        _RemoteDecider(),
        inbox=inbox,
        language=cls._actorflow_lang,
        hand_out=_decision,
        look=look,
    )


def _decision(instance: Instance) -> NewTask:
    uuid = instance.state.decision_uuid
    return NewTask(
        decision_id(uuid), decision_tasker(instance.state.workflow_name), {"decision": uuid}
    )


def declare(name: str, **place: Any) -> type[RemoteWorkflow[Any]]:
    """Return a class that declares a workflow of another language: `lang`, `env`, `lease`."""
    namespace = {
        "__qualname__": f"declare.<locals>.{name}",
        "__module__": RemoteWorkflow.__module__,
    }
    made: type[RemoteWorkflow[Any]] = new_class(
        name, (RemoteWorkflow,), place, lambda body: body.update(namespace)
    )
    return made
