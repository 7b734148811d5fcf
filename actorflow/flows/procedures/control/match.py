"""``match``: a case whose candidates are patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.procedure import attribute_count
from actorflow.flows.execution.rewriting import replace_around
from actorflow.flows.procedures.control.conditionals import Case, is_else
from actorflow.flows.procedures.control.patterns import is_pattern, to_pattern
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import Value, same

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


@procedure("match")
class Match(Case):
    """A value (or ret), then pairs of pattern and branch."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Turn the candidates into patterns."""
        is_shared = self.tree is self.message["tree"]
        super().pre_execute()
        children = list(self.tree[1])
        first = attribute_count(self.tree)
        odd = (len(children) - first) % 2
        for index in range(first + odd, len(children), 2):
            known = children[index]
            children[index] = to_pattern(known)
            if children[index] is not known and (is_shared or known[0] != "_rxs"):
                replace_around(self.run, self.node, known, children[index])
        self.rewrite([self.tree[0], children, *self.tree[2:]])

    def is_catch_all(self, tree: Tree) -> bool:
        """Return whether a candidate is ``else`` or ``_``."""
        return is_else(tree) or tree[:2] == ["_", []]

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Pass the value to a pattern."""
        children = self.tree[1]
        if index < len(children) and is_pattern(children[index]):
            self.payload = {**self.payload, "_pat_val": self.node.own["key"]}
        return super().execute_child(index, sub, **fields)

    def judge(self, key: Value, candidate: Value) -> tuple[bool, dict[str, Value] | None]:
        """Take the bindings of a pattern, or compare a value, which binds nothing."""
        if "_pat_binding" not in self.payload:
            return same(key, candidate), None
        payload = dict(self.payload)
        binding = payload.pop("_pat_binding")
        self.payload = payload
        return binding is not None, binding
