"""``task``: work for a tasker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import UnknownTasker
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.attributes import reference_name
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import is_reference

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message, Node


@procedure("task")
class TaskProcedure(Procedure):
    """``task 'who' 'what' ...``: wait until the tasker returns it."""

    __slots__ = ()
    keeps_atts = True

    def start(self) -> list[Message]:
        """Evaluate the attributes; other children are ignored."""
        return super().start() if self.tree[1][0][0] == "_att" else self.receive_last()

    def receive_outside(self) -> list[Message]:
        """Reply with what the tasker returned."""
        return self.reply()

    def receive_last_att(self, index: int) -> list[Message]:
        """Emit the task."""
        return self.receive_last()

    def receive_last(self) -> list[Message]:
        """Emit the task."""
        unkeyed = self.node.unkeyed_atts()
        left = iter(unkeyed)
        tasker = name = None
        if len(unkeyed) < len(self.node.atts or ()):
            tasker, name = self.att("by", "for", "assign"), self.att("with", "task")
        if tasker is None:
            tasker = next(left, None)
        if name is None:
            name = next(left, None)
        who = reference_name(tasker) if is_reference(tasker) else tasker
        self.node.own["task"] = {"tasker": who, "name": name}
        return [self._wrap_task("task")]

    def _wrap_task(self, point: str) -> Message:
        own: dict[str, Any] = self.node.own
        own["cause"] = self.message.get("cause")
        attl: list[Any] = []
        attd: dict[str, Any] = {}
        for key, value in self.node.atts or ():
            if key is None:
                attl.append(value)
            else:
                attd[key] = value
        message = self.wrap(point, self.node.nid)
        message["tasker"] = own["task"]["tasker"]
        message["taskname"] = own["task"]["name"]
        message["attl"] = attl
        message["attd"] = attd
        message["tags"] = self._tags()
        return message

    def _tags(self) -> list[str]:
        tags: list[str] = []
        node: Node | None = self.node
        while node is not None:
            if node.tags:
                tags += node.tags
            node = self.run.nodes.get(node.parent or "")
        return tags

    def cancel(self, waiting: list[Message] | None) -> list[Message]:
        """Ask for the task back; the node ends when it returns, or at once if nobody has it."""
        if "task" not in self.node.own or self._is_unknown():
            return super().cancel(waiting)
        self.node.on_receive_last = waiting or None
        return [self._wrap_task("detask")]

    def _is_unknown(self) -> bool:
        """Return whether the task failed because there is no such tasker."""
        failure = self.node.failure
        unknown = failure is not None and failure["error"].get("kla") == UnknownTasker.__name__
        return unknown and "handed" not in self.node.own
