"""Cancelling, killing, failing, and going on aside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from actorflow.flows.failure import FlowError, error_dict
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import Value, to_text, truthy

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Node


_NID = re.compile(r"\A0(_\d+)*(-\d+)?\Z")


class _Canceller(Procedure):
    """Something that cancels nodes."""

    __slots__ = ()
    keeps_atts = True

    def tagged(self, tag: Value) -> list[str]:
        """Return the nids of the live nodes that bear a tag."""
        name = to_text(tag)
        return [
            nid
            for nid, node in self.run.nodes.items()
            if node.tags and name in node.tags and node.state is None
        ]

    def is_ancestor(self, nid: str) -> bool:
        """Tell whether a node is this one or above it."""
        node: Node | None = self.node
        while node is not None:
            if node.nid == nid:
                return True
            node = self.run.nodes.get(node.parent or "")
        return False


@procedure("cancel", "kill")
class Cancel(_Canceller):
    """``cancel 'tag-or-nid'...``, ``cancel ref: 'tag'``, ``cancel nid: '0_1'``."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Cancel, and reply unless this node goes too."""
        nids: list[str] = []
        tags: list[Value] = []
        for key, value in self.node.atts or ():
            for one in value if type(value) is list else [value]:
                if key == "nid" or (key is None and _NID.match(to_text(one))):
                    nids.append(to_text(one))
                elif key in (None, "ref"):
                    tags.append(one)
        targets = nids + [nid for tag in tags for nid in self.tagged(tag)]
        out = [self.wrap("cancel", nid, flavour=self.node.heap) for nid in dict.fromkeys(targets)]
        return out if any(self.is_ancestor(nid) for nid in targets) else out + self.reply()


@procedure("abort", "kabort")
class Abort(_Canceller):
    """Cancel (or kill) the whole execution: all nodes that have no parent left."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Cancel the tops."""
        nodes = self.run.nodes
        flavour = "kill" if self.node.heap == "kabort" else "cancel"
        tops = [
            nid for nid, node in nodes.items() if node.parent not in nodes and node.state is None
        ]
        out = [self.wrap("cancel", nid, flavour=flavour) for nid in tops]
        for message in out:
            message["from"] = str(self.message.get("sm"))
        return out


@procedure("fail", "error")
class Fail(Procedure):
    """Fail on purpose; the failure is the parent's."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Send the failure to the parent."""
        values = self.unkeyed()
        text = to_text(values[0] if values else self.payload.get("ret")) or "error"
        error = error_dict(FlowError(text), procedure=self.node.heat0, line=self.tree[2])
        return [self.wrap("failed", self.node.parent or self.node.nid, error=error)]


@procedure("part", "flank")
class Aside(Procedure):
    """Reply at once, with the own nid, and go on aside.

    A ``flank`` ends with its parent, a ``part`` does not.

    With ``r: false`` (or ``reply: false``) there is no reply at all.
    """

    __slots__ = ()
    keeps_atts = True

    def start(self) -> list[Message]:
        """Begin with the attributes, if there are any."""
        return super().start() if self.att_count() else self._step_aside(0)

    def receive_last_att(self, index: int) -> list[Message]:
        """Go on after the attributes."""
        return self._step_aside(index + 1)

    def _step_aside(self, first: int) -> list[Message]:
        node = self.node
        wanted = next((value for key, value in node.atts or () if key in ("r", "reply")), True)
        out: list[Message] = []
        if truthy(wanted) and node.parent is not None:
            out = self.reply(ret=node.nid, flavour=node.heap)
        elif node.heap == "part":
            parent = self.parent_node()
            if parent is not None and node.nid in parent.cnodes:
                parent.cnodes.remove(node.nid)
        node.detached = True
        node.tree = self.tree
        return out + self.execute_child(first)
