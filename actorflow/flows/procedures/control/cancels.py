"""``cancel``, ``kill``, ``abort`` and ``fail``: what ends nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError, error_dict
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.execution.run import is_inside, topmost
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.text import as_text
from actorflow.flows.values.values import truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


_NID = re.compile(r"\A\d+(_\d+)*(-\d+)?\Z")
_NOBODY = "9"
"""A nid that no node has, so that the cancel does not come from a parent."""


@procedure("cancel", "kill")
class CancelProcedure(Procedure):
    """``cancel 'tag-or-nid'...``, ``cancel ref: 'tag'``, ``cancel nid: '0_1'``."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Cancel, and reply unless this node is also cancelled."""
        targets = self._targets()
        out = [self.wrap("cancel", nid, flavour=self.node.heap) for nid in targets]
        return (
            out
            if any(is_inside(self.run, self.node, nid) for nid in targets)
            else out + self.reply()
        )

    def _targets(self) -> list[str]:
        """Return the nids to cancel: first those given, then those of nodes with a given tag."""
        words: list[str] = []
        for value in [*self.node.unkeyed_atts(), self.att("nid"), self.att("ref")]:
            listed = value if type(value) is list else [value]
            if all(type(one) is str for one in listed):
                words += listed
        nids = [word for word in words if _NID.match(word)]
        tags = {word for word in words if not _NID.match(word)}
        if tags:
            nids += [nid for nid, node in self.run.nodes.items() if tags & set(node.tags or ())]
        return list(dict.fromkeys(nids))


@procedure("abort", "kabort")
class Abort(Procedure):
    """Cancel (or kill) the whole execution: all nodes without a parent that waits for them."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Cancel the topmost nodes."""
        flavour = "kill" if self.node.heap == "kabort" else "cancel"
        nodes = self.run.nodes
        out = [
            self.wrap("cancel", nid, flavour=flavour)
            for nid in topmost(self.run)
            if flavour == "kill" or not nodes[nid].is_cancelled
        ]
        for message in out:
            message["from"] = _NOBODY
        return out


@procedure("fail", "error")
class FailProcedure(Procedure):
    """Fail on purpose; it is the parent that fails."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Send the failure to the parent."""
        ret = self.payload.get("ret")
        text = as_text(ret) if truthy(ret) else "error"
        error = error_dict(FlowError(text), procedure=self.node.heat0, line=self.tree[2])
        return [self.wrap("failed", self.node.parent or self.node.nid, error=error)]
