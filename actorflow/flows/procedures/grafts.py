"""Putting another flow in the place of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message


@procedure("graft", "import")
class Graft(Procedure):
    """``graft 'name'``: execute a subflow at this very node."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Remember who executed this node."""
        self.node.own["sm"] = self.message.get("sm")

    def receive_last(self) -> list[Message]:
        """Execute the subflow with the payload of the entry."""
        values = self.unkeyed()
        given = self.att("tree", "flow", "flo")
        name = to_text(given if given is not None else values[0] if values else None)
        tree = self.run.loader.subflow(self.run.domain, name)
        if tree is None:
            raise FlowError(f'cannot find subflow "{name}" in domain "{self.run.domain}"')
        node = self.node
        emitted = self.wrap("execute", node.nid)
        emitted.update({"from": node.parent, "tree": tree, "payload": node.payload})
        sm = node.own.get("sm")
        if sm is None:
            emitted.pop("sm")
        else:
            emitted["sm"] = sm
        if node.vars is not None:
            emitted["vars"] = node.vars
        return [emitted]
