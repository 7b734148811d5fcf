"""``concurrence``: branches that run at once; ``part`` and ``flank``: detached branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError, error_dict
from actorflow.flows.execution.node import suffix_of
from actorflow.flows.execution.procedure import (
    Procedure,
    attribute_count,
    emit_waiting,
    reply_cancelled,
)
from actorflow.flows.procedures.control.branches import Branching
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import make_def
from actorflow.flows.values.values import dup_function, truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree

_LINES = frozenset(("on_receive", "on_merge", "child_on_error", "children_on_error"))
"""Lines below a concurrence that are attributes of it."""
_DEFINITIONS = frozenset(("def", "fun", "define"))


def _as_function(children: list[Tree], line: int) -> Tree:
    """Return the function of a line, or a new one around its block."""
    only = children[0] if len(children) == 1 else None
    if only is not None and only[0] in _DEFINITIONS:
        return only
    if only is not None and only[0] == "_att":
        return _as_function(only[1], line)
    return make_def(children, line)


@procedure("concurrence")
class Concurrence(Branching):
    """Run all branches at once; reply with their merged payloads when enough have replied."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Take ``on_receive``, ``on_merge``... lines as attributes."""
        children = self.tree[1]
        if any(child[0] in _LINES for child in children):
            atts: list[Tree] = []
            branches: list[Tree] = []
            for child in children:
                if child[0] in _LINES:
                    head, inner, line = child[:3]
                    atts.append(["_att", [[head, [], line], _as_function(inner, line)], line])
                else:
                    (atts if child[0] == "_att" else branches).append(child)
            self.rewrite([self.tree[0], atts + branches, *self.tree[2:]])

    def start(self) -> list[Message]:
        """Begin with the attributes, or the branches."""
        return self.execute_child(0) if attribute_count(self.tree) else self.branches()

    def receive_last_att(self, index: int) -> list[Message]:
        """Start the branches."""
        return self.branches()

    def branches(self) -> list[Message]:
        """Start all branches; without any, reply."""
        first = attribute_count(self.tree)
        children = self.tree[1]
        count = len(children) - first
        if count == 0:
            return self.reply()
        self.run.check_room(count)
        self.node.own["count"] = count
        shown, out = self.payload, []
        for index in range(first, len(children)):
            if "ret" in shown:
                self.payload = {**shown, "ret": dup_function(shown["ret"])}
            out += self.execute_child(index)
        self.payload = shown
        return out

    def branch_count(self) -> int:
        """Return how many branches there are."""
        count: int = self.node.own["count"]
        return count

    def receive(self) -> list[Message]:
        """Take an attribute, a branch's reply, or the answer of a receiver or merger function."""
        came_from = self.message.get("from")
        if came_from is None or "count" not in self.node.own:
            return super().receive()
        if suffix_of(came_from) == suffix_of(self.node.nid):
            return self.receive_branch()
        if self.message.get("from_on_error") == self.node.nid:
            return self.reply()
        if self.is_verdict():
            return self.receive_verdict()
        return self.receive_merged(self.payload)

    def receive_when_closed(self) -> list[Message]:
        """Wait for the branches as usual; messages that wait for the last one replace the reply.

        A merge that fails does not keep the node from ending; the history shows why it did.
        """
        node = self.node
        if "count" not in node.own:
            return super().receive_when_closed()
        try:
            out = self.receive()
            if not out and not node.own.get("over") and not self.run.has_live_children(node):
                out = self.conclude_early()
        except FlowError as error:
            self.message["error"] = error_dict(error, procedure=node.heat0, line=self.tree[2])
            out = []
        if not (out or node.own.get("replied") or self.run.has_live_children(node)):
            self.payload = node.payload
            out = reply_cancelled(self)
        if not out or not node.on_receive_last:
            return out
        for key in ("merged", "replied"):
            node.own.pop(key, None)
        return emit_waiting(self)

    def cancel_when_closed(self, status: dict[str, Any]) -> list[Message]:
        """Cancel a receiver or merger function that was applied after the first cancel."""
        own, nodes = self.node.own, self.run.nodes
        applied = [own.get("merging"), *own.get("receiving", ())[:1]]
        return super().cancel_when_closed(status) + [
            self.wrap("cancel", nid)
            for nid in applied
            if (node := nodes.get(nid or "")) is not None and not node.is_cancelled
        ]

    def add_message(self) -> list[Message]:
        """Add branches and start them."""
        own = self.node.own
        trees = self.message.get("trees")
        if trees is None or "count" not in own or own.get("over"):
            return super().add_message()
        head, children, *place = self.tree
        first = len(children)
        self.rewrite([head, children + trees, *place])
        if self.message.get("payload") is None:
            self.payload = self.node.payload
        own["count"] += len(trees)
        return [
            message
            for index in range(first, first + len(trees))
            for message in self.execute_child(index)
        ]


@procedure("part", "flank")
class DetachedBranch(Procedure):
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
