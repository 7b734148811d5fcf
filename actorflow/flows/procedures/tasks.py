"""Giving work to somebody outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.attributes import reference_name
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import is_reference, to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Node


@procedure("task")
class Task(Procedure):
    """``task 'who' 'what' ...``: wait until the tasker gives it back."""

    __slots__ = ()
    keeps_atts = True

    def receive_outside(self) -> list[Message]:
        """Reply with what the tasker returned."""
        return self.reply()

    def receive_last_att(self, index: int) -> list[Message]:
        """Hand the task out."""
        return self.receive_last()

    def receive_last(self) -> list[Message]:
        """Hand the task out."""
        values = self.unkeyed()
        tasker = self.att("by", "for", "assign")
        left = list(values)
        if tasker is None:
            if not left:
                raise FlowError("task needs a tasker: task 'alice', or task by: 'alice'")
            tasker = left.pop(0)
        name = self.att("with", "task")
        if name is None:
            name = left[0] if left else None
        own = self.node.own
        who = reference_name(tasker) if is_reference(tasker) else to_text(tasker)
        own["task"] = {"tasker": who, "name": name}
        if self.message.get("cause"):
            own["cause"] = self.message["cause"]
        return [self._wrap_task("task")]

    def _wrap_task(self, point: str) -> Message:
        own: dict[str, Any] = self.node.own
        return self.wrap(
            point,
            self.node.nid,
            tasker=own["task"]["tasker"],
            taskname=own["task"]["name"],
            attl=self.unkeyed(),
            attd={key: value for key, value in self.node.atts or () if key is not None},
            tags=self._tags(),
        )

    def _tags(self) -> list[str]:
        tags: list[str] = []
        node: Node | None = self.node
        while node is not None:
            tags += node.tags or ()
            node = self.run.nodes.get(node.parent or "")
        return tags

    def cancel(self, waiting: list[Message] | None) -> list[Message]:
        """Ask for the task back; the node ends when it has come, at once if nobody has it."""
        if "handed" not in self.node.own:
            return super().cancel(waiting)
        self.node.on_receive_last = waiting or None
        return [self._wrap_task("detask")]
