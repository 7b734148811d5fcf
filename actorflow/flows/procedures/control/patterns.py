"""``match``, and the patterns that are its candidates: they take values apart and bind variables.

The value to match is in the payload as ``_pat_val``; a pattern replies with ``_pat_binding``: the
variables for the branch, or null if it does not match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution import names
from actorflow.flows.execution.node import child_nid
from actorflow.flows.execution.procedure import Procedure, attribute_count
from actorflow.flows.execution.rewrites import replace_around
from actorflow.flows.procedures.control.conditionals import Case, is_else
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.paths import get_path
from actorflow.flows.values.regexes import groups, to_regex
from actorflow.flows.values.values import (
    MISSING,
    Value,
    is_reference,
    same,
    to_text,
    truthy,
)

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree

_PATTERNS = {
    "_arr": "_pat_arr",
    "_obj": "_pat_obj",
    "or": "_pat_or",
    "guard": "_pat_guard",
    "bind": "_pat_guard",
    "_rxs": "_pat_regex",
    "or!": "or",
}
_PATTERN_HEADS = frozenset(_PATTERNS.values()) - {"or"}
_SPLAT = re.compile(r"\A(.*)__(_|\d+)\Z")
_WORD = re.compile(r"[a-z][a-z0-9]*")


# -- the trees of patterns -------------------------------------------------------------------


def to_pattern(tree: Tree) -> Tree:
    """Turn an array, object, or, guard or regular expression into a pattern, recursively.

    One that is followed by ``!`` stays as it is.
    """
    head, children = tree[0], tree[1]
    if head == "_rxs":
        return ["_pat_regex", *tree[1:]]
    if type(children) is not list or (head != "_att" and head not in _PATTERNS):
        return tree
    kept = [child for child in children if not _is_flag(child, "!")]
    if len(kept) < len(children):
        return [head, kept, *tree[2:]]
    return [_PATTERNS.get(head, head), [to_pattern(child) for child in children], *tree[2:]]


def _is_flag(tree: Tree, word: str) -> bool:
    """Return whether a tree is the attribute ``word`` without a value."""
    return tree[0] == "_att" and len(tree[1]) == 1 and tree[1][0][:2] == [word, []]


def is_pattern(tree: Tree) -> bool:
    """Return whether a tree is a pattern."""
    return tree[0] in _PATTERN_HEADS


def word_of(tree: Tree) -> str | None:
    """Return the word that a part of a pattern binds (``_``: none), or None if it is not a word."""
    head: str = tree[0]
    if head == "_" or (tree[1] == [] and _WORD.fullmatch(head)):
        return head
    return None


def splat_of(tree: Tree) -> tuple[str, int | None] | None:
    """Return the name in ``name__2`` or ``name___``, and the number of elements (None: any)."""
    match = _SPLAT.match(tree[0])
    if match is None:
        return None
    return match.group(1), None if match.group(2) == "_" else int(match.group(2))


# -- patterns --------------------------------------------------------------------------------


class Pattern(Procedure):
    """The base of patterns."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Begin without bindings."""
        self.node.own["binding"] = {}

    @property
    def value(self) -> Value:
        """The value to match."""
        entry = self.node.payload
        return entry["_pat_val"] if "_pat_val" in entry else entry.get("ret")

    def start(self) -> list[Message]:
        """Begin with the attributes, or the first part."""
        if not self.tree[1]:
            return self.end({} if self.value == [] else None)
        return self.execute_child(0) if attribute_count(self.tree) else self.receive_last_att(-1)

    def end(self, binding: dict[str, Value] | None) -> list[Message]:
        """Reply with the bindings, or null."""
        payload = {k: v for k, v in self.payload.items() if k != "_pat_val"}
        self.payload = {**payload, "_pat_binding": binding}
        return self.reply()

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Evaluate a part; a pattern gets its part of the value.

        A word needs no node: its answer is sent at once.
        """
        own, part = self.node.own, self.tree[1][index]
        word = None if part[0] == "_att" or is_pattern(part) else word_of(part)
        takes_many = part[0] != "_att" and word is None and splat_of(part) is not None
        if is_pattern(part) or takes_many:
            own["sub"] = self.sub_value(index)
            self.payload = {**self.payload, "_pat_val": own["sub"][1]}
        else:
            own.pop("sub", None)
            self.payload = {k: v for k, v in self.payload.items() if k != "_pat_val"}
        if word is None and not takes_many:
            return super().execute_child(index, sub, **fields)
        answer = self.reply(virtual=True)[0]
        answer.update({"nid": self.node.nid, "from": child_nid(self.node.nid, index)})
        return [answer]

    def sub_value(self, index: int) -> list[Value]:
        """Return the number of elements that a part is to match, and their value."""
        return [1, self.value]

    def take_binding(self) -> dict[str, Value] | None:
        """Take the bindings of a nested pattern out of the payload."""
        payload = dict(self.payload)
        binding: dict[str, Value] | None = payload.pop("_pat_binding", None)
        self.payload = payload
        return binding

    def bind(self, binding: dict[str, Value]) -> None:
        """Add to the bindings."""
        self.node.own["binding"] = {**self.node.own["binding"], **binding}


@procedure("_pat_arr")
class ArrayPattern(Pattern):
    """``[ 1 x _ rest___ ]``: element by element."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Begin, if the value is an array."""
        self.node.own["at"] = 0
        return super().start() if type(self.value) is list else self.end(None)

    def receive_non_att(self, index: int) -> list[Message]:
        """Match an element and go to the next."""
        own, part, value = self.node.own, self.tree[1][index], self.value
        size = 1
        element = value[own["at"]] if own["at"] < len(value) else None
        if is_pattern(part):
            binding = self.take_binding()
            if binding is None:
                return self.end(None)
            size = own["sub"][0]
            self.bind(binding)
        elif (word := word_of(part)) is not None:
            if word != "_":
                self.bind({word: element})
        elif (splat := splat_of(part)) is not None:
            size, taken = own["sub"]
            if splat[0]:
                self.bind({splat[0]: taken})
        elif not same(element, self.payload.get("ret")):
            return self.end(None)
        own["at"] += size
        return self.end(None) if own["at"] > len(value) else super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Match if nothing is left."""
        own = self.node.own
        return self.end(own["binding"] if own["at"] == len(self.value) else None)

    def sub_value(self, index: int) -> list[Value]:
        """Return the next element, or as many as there are for a splat."""
        at, value = self.node.own["at"], self.value
        splat = _splat_in(self.tree[1][index])
        if splat is None:
            return [1, value[at] if at < len(value) else None]
        following = sum(_least(part) for part in self.tree[1][index + 1 :])
        size = max(len(value) - at - following, 0)
        taken = value[at : at + (size if splat[1] is None else min(size, splat[1]))]
        return [len(taken), taken]


def _splat_in(part: Tree) -> tuple[str, int | None] | None:
    """Return the splat of a part of an array pattern, also inside a guard."""
    if not is_pattern(part):
        return splat_of(part)
    name = part[1][0] if part[0] == "_pat_guard" and part[1] else part
    return splat_of(name) if name[1] == [] else None


def _least(part: Tree) -> int:
    """Return how many elements a splat has to leave for a part."""
    if part[0] == "_att":
        return 0
    splat = _splat_in(part)
    return 1 if splat is None or splat[1] is None else splat[1]


@procedure("_pat_obj")
class ObjectPattern(Pattern):
    """``{ key: pattern ... }``: more keys are allowed, unless ``only``."""

    __slots__ = ()
    keeps_atts = True

    def pre_execute(self) -> None:
        """Read ``only`` as ``only: true``, and paths as keys."""
        super().pre_execute()
        children = []
        for position, child in enumerate(self.tree[1]):
            one = child
            if _is_flag(child, "only"):
                one = ["_att", [["_sqs", "only", -1], ["_boo", True, -1]], *child[2:]]
            elif position % 2 == 0 and child[0] == "_ref":
                one = ["_rep", *child[1:]]
            children.append(one)
        known = self.tree
        if children != known[1]:
            self.rewrite([known[0], children, *known[2:]])
            replace_around(self.run, self.node, known, self.tree)

    def start(self) -> list[Message]:
        """Begin, if the value is an object."""
        return super().start() if type(self.value) is dict else self.end(None)

    def receive_last_att(self, index: int) -> list[Message]:
        """Begin with the first key."""
        quoted = self.att("quote") == "keys"
        parts = self.tree[1][index + 1 :]
        parts[::2] = [self._key(part, quoted=quoted) for part in parts[::2]]
        self.rewrite([self.tree[0], self.tree[1][: index + 1] + parts, *self.tree[2:]])
        self.node.own["keys"] = []
        return super().receive_last_att(index)

    def _key(self, tree: Tree, *, quoted: bool) -> Tree:
        """Return a key as a string: a word is the value of its variable, if any, or itself."""
        if tree[1] != []:
            plain = quoted and type(tree[1]) is not list
            return ["_sqs", to_text(tree[1]), *tree[2:]] if plain else tree
        found = MISSING if quoted else names.variable(self.run, self.node, tree[0])
        word = tree[0] if found is MISSING or is_reference(found) else found
        return ["_sqs", word, *tree[2:]]

    def receive_non_att(self, index: int) -> list[Message]:
        """Take a key, then match the value at it."""
        own, ret = self.node.own, self.payload.get("ret")
        if "found" not in own:
            path = ret if type(ret) is list else [ret]
            found, _ = get_path(self.value, path)
            if found is MISSING:
                return self.end(None)
            own["found"] = [found]
            own["keys"].append(ret)
        elif not self._fits(self.tree[1][index], own.pop("found")[0]):
            return self.end(None)
        return super().receive_non_att(index)

    def _fits(self, part: Tree, found: Value) -> bool:
        if is_pattern(part):
            binding = self.take_binding()
            self.bind(binding or {})
            return binding is not None
        word, splat = word_of(part), splat_of(part)
        if word is None and splat is None:
            return same(found, self.payload.get("ret"))
        name = splat[0] if word is None and splat is not None else word
        if name and name != "_":
            self.bind({name: found})
        return True

    def receive_last(self) -> list[Message]:
        """Match, unless there are other keys in spite of ``only``."""
        own = self.node.own
        keys = {to_text(key) for key in own["keys"]}
        strange = truthy(self.att("only")) and keys != set(self.value)
        return self.end(None if strange else own["binding"])

    def sub_value(self, index: int) -> list[Value]:
        """Return the value at the key."""
        return [1, self.node.own["found"][0]]


@procedure("_pat_or")
class OrPattern(Pattern):
    """``a or b``: the first that matches."""

    __slots__ = ()
    unatts = True

    def receive_non_att(self, index: int) -> list[Message]:
        """Stop at the first that matches."""
        part = self.tree[1][index]
        if is_pattern(part):
            binding = self.take_binding()
            if binding is not None:
                return self.end(binding)
        elif word_of(part) == "_" and self.value != "_":
            return self.end(None)
        elif same(self.payload.get("ret"), self.value):
            return self.end({})
        return super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Reply that none matches."""
        return self.end(None)


@procedure("_pat_guard")
class GuardPattern(Pattern):
    """``guard name pattern-or-test...``: bind, then match or test."""

    __slots__ = ()
    unatts = True

    def pre_execute(self) -> None:
        """Turn the name into a string."""
        super().pre_execute()
        children, first = list(self.tree[1]), attribute_count(self.tree)
        if first < len(children) and children[first][1] == []:
            children[first] = ["_sqs", children[first][0], *children[first][2:]]
            self.rewrite([self.tree[0], children, *self.tree[2:]])

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Pass the bindings to a test."""
        own, part = self.node.own, self.tree[1][index]
        if "name" in own and not is_pattern(part) and word_of(part) is None:
            fields["vars"] = dict(own["binding"])
        return super().execute_child(index, sub, **fields)

    def receive_non_att(self, index: int) -> list[Message]:
        """Take the name, a match, or the result of a test."""
        own, part, ret = self.node.own, self.tree[1][index], self.payload.get("ret")
        if is_pattern(part):
            if not self._take_pattern():
                return self.end(None)
        elif word_of(part) is None:
            if "name" not in own and type(ret) is str:
                if ret == "_":
                    return self.end(None)
                splat = _SPLAT.match(ret)
                own["name"] = splat.group(1) if splat else ret
                self.bind({own["name"]: self.value} if own["name"] else {})
            elif ret is False:
                return self.end(None)
        return super().receive_non_att(index)

    def _take_pattern(self) -> bool:
        """Add the bindings of a pattern; the match of an expression is bound to the name."""
        bound: dict[str, Value] | None = self.payload.get("_pat_binding")
        if bound is None:
            return False
        name = self.node.own.get("name")
        if name and truthy(bound.get("match")):
            caught = {f"{name}__match": bound["match"], f"{name}__matched": self.value}
            bound = {**bound, **caught}
            self.payload = {**self.payload, "_pat_binding": bound}
        self.bind(bound)
        return True

    def receive_last(self) -> list[Message]:
        """Match."""
        self.payload = {**self.payload, "_pat_binding": self.node.own["binding"]}
        return self.reply()


@procedure("_pat_regex")
class RegexPattern(Pattern):
    """A regular expression as a pattern: binds ``matched`` and ``match``."""

    __slots__ = ()
    collects = True
    keeps_atts = True

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Evaluate each part with the ret on entry."""
        self.set_ret(self.ret0)
        return super().execute_child(index, sub, **fields)

    def receive_last(self) -> list[Message]:
        """Match."""
        value = self.value
        if type(value) is not str:
            return self.end(None)
        source = "".join(to_text(part) for part in self.node.rets or ())
        regex = ["_rxs", f"/{source}/{to_text(self.att('rxopts'))}", self.tree[2]]
        match = to_regex(regex, self.run.sizes.limits).search(value)
        return self.end({"matched": value, "match": groups(match)} if match else None)


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
