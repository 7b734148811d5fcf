"""match: a case whose candidates take values apart and bind variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.flows.node import child_id, child_nid
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.conditionals import Case, is_else
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import (
    MISSING,
    Value,
    get_path,
    groups,
    is_regex,
    same,
    to_regex,
    to_text,
    truthy,
)

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Tree

_PATTERNS = {
    "_arr": "_pat_arr",
    "_obj": "_pat_obj",
    "or": "_pat_or",
    "guard": "_pat_guard",
    "bind": "_pat_guard",
    "_rxs": "_pat_regex",
}
_SPLAT = re.compile(r"\A(.*)__(_|\d+)\Z")
_BINDABLE = re.compile(r"\A[a-z_]")


def is_word(tree: Tree) -> bool:
    """Tell whether a tree is a bare word."""
    return type(tree[0]) is str and tree[1] == [] and bool(_BINDABLE.match(tree[0]))


def to_pattern(tree: Tree) -> Tree:
    """Turn an array, object, or, guard or regular expression into a pattern, all the way down."""
    head = tree[0]
    if type(tree[1]) is not list:
        return tree
    if any(child[0] == "_att" and child[1][0][0] == "!" for child in tree[1]):
        kept = [child for child in tree[1] if not (child[0] == "_att" and child[1][0][0] == "!")]
        return [head, kept, *tree[2:]]
    if head == "or!":
        return ["or", *tree[1:]]
    if head not in _PATTERNS:
        return tree
    if head == "_rxs":
        return ["_pat_regex", *tree[1:]]
    children = []
    position = 0
    for child in tree[1]:
        if child[0] == "_att":
            unwrap = head in ("or", "guard", "bind") and len(child[1]) == 1
            children.append(to_pattern(child[1][0]) if unwrap else child)
            continue
        children.append(child if head == "_obj" and position % 2 == 0 else to_pattern(child))
        position += 1
    return [_PATTERNS[head], children, *tree[2:]]


@procedure("match")
class Match(Case):
    """A value (or ret), then pairs of pattern and branch."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Make patterns of the candidates."""
        super().pre_execute()
        children = list(self.tree[1])
        first = self.att_count()
        odd = (len(children) - first) % 2
        for index in range(first + odd, len(children), 2):
            children[index] = to_pattern(children[index])
        self.rewrite([self.tree[0], children, *self.tree[2:]])

    def is_catch_all(self, tree: Tree) -> bool:
        """Tell whether a candidate is ``else`` or ``_``."""
        return is_else(tree) or (tree[0] == "_" and tree[1] == [])

    def candidate(self, index: int) -> list[Message]:
        """Evaluate a pattern, which finds the value in the payload."""
        payload = {k: v for k, v in self.payload.items() if not k.startswith("_pat_")}
        self.payload = payload
        children = self.tree[1]
        if index < len(children) and not self.is_catch_all(children[index]):
            head = children[index][0]
            if type(head) is str and head.startswith("_pat_"):
                self.payload = {**payload, "_pat_val": self.node.own["key"]}
            elif is_word(children[index]) and not self._is_known(head):
                self.set_ret(self.ret0)
                return self.execute_child(index + 1, vars={head: self.node.own["key"]})
        return super().candidate(index)

    def _is_known(self, name: str) -> bool:
        from actorflow.flows import lookup  # noqa: PLC0415 - only needed here

        return lookup.variable(self.run, self.node, name) is not MISSING

    def judge(self, key: Value, candidate: Value) -> dict[str, Value] | None:
        """Take a pattern's bindings, or compare a plain value."""
        if "_pat_binding" in self.payload:
            binding: dict[str, Value] | None = self.payload["_pat_binding"]
            self.payload = {k: v for k, v in self.payload.items() if not k.startswith("_pat_")}
            return binding
        if is_regex(candidate):
            return super().judge(key, candidate)
        return {} if same(key, candidate) else None


class Pattern(Procedure):
    """What patterns share: they take ``_pat_val`` on entry and leave ``_pat_binding``."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Take the value to match out of the payload."""
        own = self.node.own
        own["val"] = self.payload.get("_pat_val", self.payload.get("ret"))
        own["binding"] = {}
        self.payload = self.clean()
        self.node.payload = self.payload

    def clean(self) -> dict[str, Any]:
        """Return the payload without what patterns put there."""
        return {k: v for k, v in self.payload.items() if not k.startswith("_pat_")}

    def end(self, *, matched: bool) -> list[Message]:
        """Reply with the bindings, or null."""
        binding = self.node.own["binding"] if matched else None
        self.payload = {**self.clean(), "_pat_binding": binding}
        return self.reply()

    def sub_result(self, value: Value) -> bool:
        """Judge what a child gave for ``value``: a sub-pattern's bindings or a plain value."""
        own = self.node.own
        if "_pat_binding" in self.payload:
            binding = self.payload["_pat_binding"]
            self.payload = self.clean()
            if binding is None:
                return False
            own["binding"] = {**own["binding"], **binding}
            return True
        candidate = self.payload.get("ret")
        if is_regex(candidate) and type(value) is str:
            return to_regex(candidate).search(value) is not None
        return same(candidate, value)

    def ask(self, index: int, value: Value) -> list[Message]:
        """Evaluate child ``index`` against ``value``."""
        head = self.tree[1][index][0]
        if type(head) is str and head.startswith("_pat_"):
            self.payload = {**self.clean(), "_pat_val": value}
        return self.execute_child(index)

    def step(self, index: int) -> list[Message]:
        """Send oneself the receive of a child that needs no node."""
        nid = self.node.nid
        message = self.wrap("receive", nid, virtual=True)
        message["from"] = child_nid(nid, index)
        return [message]


@procedure("_pat_arr")
class ArrayPattern(Pattern):
    """``[ 1 x _ rest___ ]``: element by element."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Fail at once when the value is no array."""
        if self.att_count():
            return self.execute_child(0)
        return self._begin(0)

    def receive_last_att(self, index: int) -> list[Message]:
        """Begin after the attributes."""
        return self._begin(index + 1)

    def _begin(self, first: int) -> list[Message]:
        if type(self.node.own["val"]) is not list:
            return self.end(matched=False)
        self.node.own["at"] = 0
        return self._element(first)

    def _element(self, index: int) -> list[Message]:
        own = self.node.own
        children, value = self.tree[1], own["val"]
        if index >= len(children):
            return self.end(matched=own["at"] == len(value))
        child = children[index]
        splat = _SPLAT.match(child[0]) if is_word(child) else None
        if splat is None and own["at"] >= len(value):
            return self.end(matched=False)
        if is_word(child):
            return self.step(index)
        return self.ask(index, value[own["at"]])

    def receive_non_att(self, index: int) -> list[Message]:
        """Judge an element and go to the next."""
        own = self.node.own
        value, child = own["val"], self.tree[1][index]
        if is_word(child):
            if not self._bind(child[0], index):
                return self.end(matched=False)
        elif self.sub_result(value[own["at"]]):
            own["at"] += 1
        else:
            return self.end(matched=False)
        return self._element(index + 1)

    def _bind(self, word: str, index: int) -> bool:
        own = self.node.own
        value, at = own["val"], own["at"]
        splat = _SPLAT.match(word)
        if splat is None:
            if word != "_":
                own["binding"] = {**own["binding"], word: value[at]}
            own["at"] += 1
            return True
        name, count = splat.groups()
        following = len(self.tree[1]) - index - 1
        size = len(value) - at - following if count == "_" else int(count)
        if size < 0 or at + size > len(value):
            return False
        if name:
            own["binding"] = {**own["binding"], name: value[at : at + size]}
        own["at"] += size
        return True


@procedure("_pat_obj")
class ObjectPattern(Pattern):
    """``{ key: pattern ... }``: more keys are fine, unless ``only``."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Take ``only`` as a flag and bare keys as strings."""
        super().pre_execute()
        children, position = [], 0
        for child in self.tree[1]:
            one = child
            if child[0] == "_att":
                if len(child[1]) == 1 and child[1][0][0] == "only":
                    self.node.own["only"] = True
                    continue
            else:
                if position % 2 == 0:
                    one = self._key(child)
                position += 1
            children.append(one)
        self.rewrite([self.tree[0], children, *self.tree[2:]])

    @staticmethod
    def _key(tree: Tree) -> Tree:
        if tree[0] == "_ref":
            parts = [to_text(part[1]) for part in tree[1]]
            return ["_sqs", ".".join(parts), *tree[2:]]
        return ["_sqs", tree[0], *tree[2:]] if tree[1] == [] else tree

    def start(self) -> list[Message]:
        """Fail at once when the value is no object."""
        if self.att_count():
            return self.execute_child(0)
        return self._begin(0)

    def receive_last_att(self, index: int) -> list[Message]:
        """Begin after the attributes."""
        return self._begin(index + 1)

    def _begin(self, first: int) -> list[Message]:
        own = self.node.own
        if type(own["val"]) is not dict:
            return self.end(matched=False)
        own["keys"] = 0
        return self._entry(first)

    def _entry(self, index: int) -> list[Message]:
        own = self.node.own
        if index >= len(self.tree[1]):
            return self.end(matched=not own.get("only") or own["keys"] == len(own["val"]))
        return self.execute_child(index)

    def receive_non_att(self, index: int) -> list[Message]:
        """Take a key, then judge what stands under it."""
        own = self.node.own
        position = index - self.att_count()
        if position % 2 == 0:
            key = to_text(self.payload.get("ret"))
            found = own["val"].get(key, MISSING)
            if found is MISSING:
                found, _ = get_path(own["val"], list(key.split(".")))
            if found is MISSING:
                return self.end(matched=False)
            own["keys"] += 1
            own["sub"] = [found]
            child = self.tree[1][index + 1]
            return self.step(index + 1) if is_word(child) else self.ask(index + 1, found)
        found = own["sub"][0]
        child = self.tree[1][index]
        if is_word(child):
            if child[0] != "_":
                own["binding"] = {**own["binding"], child[0]: found}
        elif not self.sub_result(found):
            return self.end(matched=False)
        return self._entry(index + 1)


@procedure("_pat_or")
class OrPattern(Pattern):
    """``a or b``: the first that fits."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Try the first."""
        return self.ask(0, self.node.own["val"])

    def receive_non_att(self, index: int) -> list[Message]:
        """Stop at the first that fits."""
        if self.sub_result(self.node.own["val"]):
            return self.end(matched=True)
        if index + 1 < len(self.tree[1]):
            return self.ask(index + 1, self.node.own["val"])
        return self.end(matched=False)


@procedure("_pat_guard")
class GuardPattern(Pattern):
    """``guard name pattern? test?``: bind, then look closer."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Bind the name, if there is one, then go to the pattern or test."""
        own = self.node.own
        first = self.tree[1][0]
        if first[0] == "_att":
            first = first[1][0]
        own["name"] = first[0].rstrip("_") if is_word(first) else ""
        if own["name"]:
            own["binding"] = {own["name"]: own["val"]}
            self.node.vars = {own["name"]: own["val"]}
        if not is_word(first):
            return self.ask(0, own["val"])
        if len(self.tree[1]) == 1:
            return self.end(matched=bool(own["name"]))
        return self.ask(1, own["val"])

    def receive_non_att(self, index: int) -> list[Message]:
        """Judge the pattern, or take the test's word."""
        own = self.node.own
        if "_pat_binding" in self.payload:
            bound = self.payload["_pat_binding"] or {}
            met = self.sub_result(own["val"])
            if "match" in bound and own["name"]:
                for key in ("match", "matched"):
                    own["binding"] = {**own["binding"], f"{own['name']}__{key}": bound[key]}
            self.node.vars = {**(self.node.vars or {}), **own["binding"]}
        else:
            ret = self.payload.get("ret")
            met = truthy(ret) if type(ret) is bool or ret is None else same(ret, own["val"])
        if not met:
            return self.end(matched=False)
        if index + 1 < len(self.tree[1]):
            return self.ask(index + 1, own["val"])
        return self.end(matched=True)


@procedure("_pat_regex")
class RegexPattern(Pattern):
    """A regular expression as a pattern: binds ``matched`` and ``match``."""

    __slots__ = ()
    collects = True

    def receive_last(self) -> list[Message]:
        """Match."""
        own = self.node.own
        options = to_text(self.att("rxopts"))
        source = "".join(to_text(part) for part in self.node.rets or ())
        regex = ["_rxs", f"/{source}/{options}", self.tree[2]]
        value = own["val"]
        match = to_regex(regex).search(value) if type(value) is str else None
        if match is None:
            return self.end(matched=False)
        own["binding"] = {"matched": match.group(0), "match": groups(match)}
        return self.end(matched=True)


__all__ = ["Match", "child_id"]
