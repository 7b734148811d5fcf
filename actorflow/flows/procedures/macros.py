"""Macros: procedures that rewrite their tree into that of another procedure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.execution.run import is_live

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


class Macro(Procedure):
    """Emit the same execute message again, with another tree."""

    __slots__ = ()

    def execute(self) -> list[Message]:
        """Emit the rewritten tree; the node is entered with the new message."""
        again = {key: value for key, value in self.message.items() if key not in ("m", "pr", "er")}
        again["tree"] = self.rewritten()
        again["rewritten"] = True
        self.node.tree = self.tree
        if is_live(self.run, self.node.parent):
            again["trailing"] = True
        return [again]

    def rewritten(self) -> Tree:
        """Return the new tree."""
        raise NotImplementedError

    def split(self) -> tuple[list[Tree], list[Tree]]:
        """Return the attributes and the other children."""
        children = self.tree[1]
        atts = [child for child in children if child[0] == "_att"]
        return atts, [child for child in children if child[0] != "_att"]


def make_def(body: list[Tree], line: int, *params: str) -> Tree:
    """Return the tree of a function with the given parameters."""
    return ["def", [*(["_att", [[name, [], line]], line] for name in params), *body], line]
