"""``graft``: executes a subflow in place of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.node import child_id
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.execution.rewrites import replace_around
from actorflow.flows.language.checks import check_depth
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.text import shown
from actorflow.flows.values.values import dup_function, to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


@procedure("graft", "import")
class Graft(Procedure):
    """``graft 'name'``: execute a subflow at this node."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Remember how this node was executed."""
        payload = self.payload
        if "ret" in payload:
            payload = {**payload, "ret": dup_function(payload["ret"])}
        self.node.own["message"] = {**self.message, "tree": None, "payload": payload}

    def receive_last(self) -> list[Message]:
        """Execute the subflow as this node was executed, and put it in the parent's tree."""
        name = self.att("tree", "subtree", "flow", "subflow", "twig")
        if name is None:
            name = next(iter(self.node.unkeyed_atts()), None)
        tree = self.run.loader.subflow(self.run.domain, to_text(name))
        if tree is None:
            raise FlowError(f"no subtree {shown(name)} found (domain {shown(self.run.domain)})")
        node = self.node
        check_depth(tree, self.run.sizes.limits, above=node.nid.count("_"))
        if node.parent is not None:
            self._replant(node.parent, child_id(node.nid), tree)
            replace_around(self.run, node, self.tree, tree)
        return [{**node.own["message"], "tree": tree}]

    def _replant(self, nid: str, index: int, tree: Tree) -> None:
        """Replace a child in the tree of the node that has it."""
        run = self.run
        node = run.find(nid)
        if node is None:
            return
        old = run.tree_of(node)
        if type(old[1]) is not list or index >= len(old[1]):
            return
        new = [old[0], [*old[1][:index], tree, *old[1][index + 1 :]], *old[2:]]
        run.trees[nid] = new
        if node.tree is not None or node.parent is None:
            node.tree = new
        else:
            self._replant(node.parent, child_id(nid), new)
