"""``part`` and ``flank``: branches that continue after their reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


@procedure("part", "flank")
class Aside(Procedure):
    """Reply at once, with the nid of this node, and continue.

    A ``flank`` is cancelled with its parent, a ``part`` is not; ``c:`` (``can:``, ``cancellable:``)
    overrides that. With ``r: false`` (or ``rep:``, ``reply:``) there is no reply.
    """

    __slots__ = ()
    keeps_atts = True

    def start(self) -> list[Message]:
        """Begin with the attributes, if there are any."""
        return super().start() if self.tree[1][0][0] == "_att" else self._step_aside(0)

    def receive_last_att(self, index: int) -> list[Message]:
        """Continue after the attributes."""
        return self._step_aside(index + 1)

    def _step_aside(self, first: int) -> list[Message]:
        node = self.node
        replies, ends = self.att("reply", "rep", "r"), self.att("cancellable", "can", "c")
        node.own["can"] = node.heap == "flank" if ends is None else truthy(ends)
        out: list[Message] = []
        if replies is None or truthy(replies):
            out = self.reply(ret=node.nid, flavour="flank" if node.own["can"] else "part")
        node.detached = True
        node.tree = self.tree
        return out + self.execute_child(first)

    def cancel_message(self) -> list[Message]:
        """Take a cancel; one from the parent only has an effect on a ``flank``."""
        came_from = self.message.get("from")
        from_parent = came_from is not None and came_from == self.node.parent
        if from_parent and not self.node.own.get("can"):
            return []
        return super().cancel_message()
