"""``if``, ``unless``, ``cond`` and ``case``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.procedure import Procedure, attribute_count
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.regexes import groups, to_regex
from actorflow.flows.values.values import (
    Value,
    is_reference,
    is_regex,
    regex_source,
    same,
    to_text,
    truthy,
)

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


@procedure("if", "unless", "ife", "unlesse", "_if", "_unless")
class If(Procedure):
    """Condition, then, else; if no branch is taken, ret is that on entry."""

    __slots__ = ()
    unatts = True

    def receive_non_att(self, index: int) -> list[Message]:
        """Choose the branch, or reply after it."""
        first = attribute_count(self.tree)
        if index > first:
            return self.reply()
        met = truthy(self.payload.get("ret"))
        if self.node.heap in ("unless", "unlesse", "_unless"):
            met = not met
        branch = first + (1 if met else 2)
        if branch < len(self.tree[1]):
            return self.execute_child(branch)
        return self.reply(ret=self.ret0)


def is_else(tree: Tree) -> bool:
    """Return whether a tree is the word ``else``."""
    return bool(tree[0] == "else" and tree[1] == [])


def flatten_pairs(children: list[Tree]) -> list[Tree]:
    """Move branches that are children of their candidate behind it."""
    flat: list[Tree] = []
    for child in children:
        if child[0] == "_head" and child[1][2][1] and child[1][2][1][0][0] != "_att":
            flat += (child[1][1], _as_one(child[1][2][1], child[2]))
        elif child[0] == "else" and child[1]:
            flat += (["else", [], *child[2:]], _as_one(child[1], child[2]))
        else:
            flat.append(child)
    return flat


def _as_one(children: list[Tree], line: int) -> Tree:
    return children[0] if len(children) == 1 else ["sequence", children, line]


@procedure("cond")
class Cond(Procedure):
    """Pairs of test and branch; the branch of the first true test is run."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Flatten the pairs."""
        flat = flatten_pairs(self.tree[1])
        if len(flat) != len(self.tree[1]):
            self.rewrite([self.tree[0], flat, *self.tree[2:]])

    def start(self) -> list[Message]:
        """Begin with the first test."""
        first = attribute_count(self.tree)
        return self._test(first) if first == 0 else super().start()

    def receive_last_att(self, index: int) -> list[Message]:
        """Go to the first test, if there is one."""
        return self._test(index + 1) if index + 1 < len(self.tree[1]) else self.reply()

    def receive_non_att(self, index: int) -> list[Message]:
        """Take the branch, or the next test."""
        position = index - attribute_count(self.tree)
        if position % 2 == 1:
            return self.reply()
        if truthy(self.payload.get("ret")):
            return self._branch(index + 1)
        return self._test(index + 2)

    def _test(self, index: int) -> list[Message]:
        children = self.tree[1]
        if index < len(children) and is_else(children[index]):
            return self._branch(index + 1)
        return self._branch(index)

    def _branch(self, index: int) -> list[Message]:
        """Run a test or a branch; without one, reply with the ret on entry."""
        if index >= len(self.tree[1]):
            self.set_ret(self.ret0)
        return self.execute_child(index)


@procedure("case")
class Case(Procedure):
    """A value (or ret), then pairs of candidate and branch; an array lists candidates."""

    __slots__ = ()
    unatts = True

    def pre_execute(self) -> None:
        """Flatten the pairs."""
        flat = flatten_pairs(self.tree[1])
        if len(flat) != len(self.tree[1]):
            self.rewrite([self.tree[0], flat, *self.tree[2:]])

    def start(self) -> list[Message]:
        """Begin with the value, the first candidate, or the attributes."""
        return self.execute_child(0) if attribute_count(self.tree) else self._begin(0)

    def receive_last_att(self, index: int) -> list[Message]:
        """Begin after the attributes."""
        return self._begin(index + 1)

    def _begin(self, first: int) -> list[Message]:
        if (len(self.tree[1]) - first) % 2 == 1:
            return self.execute_child(first)
        self.node.own["key"] = self.ret0
        return self.candidate(first)

    def receive_non_att(self, index: int) -> list[Message]:
        """Take the value, judge a candidate, or reply after a branch."""
        own = self.node.own
        ret = self.payload.get("ret")
        first = attribute_count(self.tree)
        if "key" not in own:
            own["key"] = ret
            return self.candidate(first + 1)
        odd = (len(self.tree[1]) - first) % 2
        if (index - first - odd) % 2 == 1:
            return self.reply()
        fits, variables = self.judge(own["key"], ret)
        return self.branch(index + 1, variables) if fits else self.candidate(index + 2)

    def candidate(self, index: int) -> list[Message]:
        """Evaluate a candidate; ``else`` always matches; after the last one, reply."""
        children = self.tree[1]
        self.set_ret(self.ret0)
        if index >= len(children):
            return self.reply()
        if self.is_catch_all(children[index]):
            return self.execute_child(index + 1)
        return self.execute_child(index)

    def is_catch_all(self, tree: Tree) -> bool:
        """Return whether a candidate always matches."""
        return is_else(tree)

    def branch(self, index: int, variables: dict[str, Value] | None) -> list[Message]:
        """Run a branch with the variables that the candidate has bound, if any."""
        self.set_ret(self.ret0)
        if variables is None:
            return self.execute_child(index)
        return self.execute_child(index, vars=variables)

    def judge(self, key: Value, candidate: Value) -> tuple[bool, dict[str, Value] | None]:
        """Return whether the candidate matches, and the variables that it binds, if any."""
        candidates = (
            candidate if type(candidate) is list and not _is_atom(candidate) else [candidate]
        )
        for one in candidates:
            if is_regex(one):
                regex = to_regex(one, self.run.sizes.limits)
                match = regex.search(key) if type(key) is str else None
                if match:
                    return True, {"matched": regex_source(one), "match": groups(match)}
            elif same(one, key):
                return True, {"matched": one}
        return False, None


def _is_atom(value: Value) -> bool:
    return is_regex(value) or is_reference(value)


__all__ = ["Case", "Cond", "If", "is_else", "to_text"]
