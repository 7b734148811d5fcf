"""Fields and variables: ``set``, ``del``, ``push`` and ``twig``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution import names
from actorflow.flows.execution.procedure import Procedure, attribute_count
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.paths import parse_path, path_text
from actorflow.flows.values.values import MISSING, Value, is_reference, kind_name, truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree

_SPLAT = re.compile(r"\A(.*)__(_|\d+)\Z")


def is_word(tree: Tree) -> bool:
    """Return whether a tree is a bare word, other than ``_``."""
    return type(tree[0]) is str and tree[1] == [] and tree[0] != "_"


def as_path(tree: Tree) -> Tree:
    """Turn a word, a path or an interpolated string into a path to write to."""
    if tree[0] == "_ref":
        return ["_rep", *tree[1:]]
    if is_word(tree):
        return ["_rep", [["_sqs", tree[0], *tree[2:]]], *tree[2:]]
    return ["_rep", [tree], *tree[2:]] if tree[0] == "_dqs" else tree


def with_one_path(tree: Tree) -> Tree:
    """Return a tree whose first word or path is a path to write to."""
    children = list(tree[1])
    for index, child in enumerate(children):
        if child[0] == "_ref" or is_word(child):
            children[index] = as_path(child)
            break
    return [tree[0], children, *tree[2:]]


def as_value(tree: Tree) -> Tree:
    """Turn a bare word into a path to read, so that errors name the path."""
    if is_word(tree):
        return ["_ref", [["_sqs", tree[0], *tree[2:]]], *tree[2:]]
    return tree


def to_path(reference: Value) -> list[Value]:
    """Return a reference as a path: it is one, or a text like ``f.a.0``.

    >>> to_path("f.list.0"), to_path(["v", "x"])
    (['f', 'list', 0], ['v', 'x'])
    """
    if type(reference) is str:
        return parse_path(reference)
    return reference if type(reference) is list else []


def as_pairs(value: Value) -> Value:
    """Return an object as an array of pairs, anything else unchanged."""
    return [list(pair) for pair in value.items()] if type(value) is dict else value


@procedure("set", "setr")
class Set(Procedure):
    """``set path value``, or ``set path path... array``; with a path alone the value is ret."""

    __slots__ = ()
    unatts = True

    def pre_execute(self) -> None:
        """Turn all values except the last into paths."""
        children = list(self.tree[1])
        first = attribute_count(self.tree)
        values = len(children) - first
        last = len(children) - 1 if values > 1 else len(children)
        for index in range(first, len(children)):
            child = children[index]
            children[index] = as_path(child) if index < last else as_value(child)
        self.rewrite([self.tree[0], children, *self.tree[2:]])
        self.node.own["refs"] = []

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Run each child with the ret on entry."""
        if index < len(self.tree[1]):
            self.set_ret(self.ret0)
        return super().execute_child(index, sub, **fields)

    def receive_non_att(self, index: int) -> list[Message]:
        """Collect a path, or the path in a string that is not the last child."""
        children = self.tree[1]
        kind = children[index][0]
        if kind == "_rep" or (kind == "_sqs" and index + 1 < len(children)):
            self.node.own["refs"].append(self.payload.get("ret"))
        return super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Assign or destructure, and reply."""
        refs = [to_path(ref) for ref in self.node.own["refs"]]
        alone = len(self.tree[1]) - attribute_count(self.tree) == 1
        ret0 = self.ret0
        value = ret0 if alone else self.payload.get("ret")
        keeps_ret = self.tree[0] != "setr" and not any(map(_is_ret, refs))
        if len(refs) == 1:
            self._write(refs[0], value)
        elif refs:
            self._destructure(refs, as_pairs(value))
        self.set_ret(ret0 if keeps_ret else value)
        return self.reply()

    def _write(self, path: list[Value], value: Value) -> None:
        if not path:
            raise FlowError("cannot set: no path is given")
        self.payload = names.write(self.run, self.node, self.payload, path, value)

    def _destructure(self, paths: list[list[Value]], value: Value) -> None:
        if type(value) is not list:
            raise FlowError(f"cannot destructure {kind_name(value)}: an array is needed")
        at = 0
        for position, path in enumerate(paths):
            match = _SPLAT.match(path[-1]) if path and type(path[-1]) is str else None
            if match is None:
                self._write(path, value[at] if at < len(value) else None)
                at += 1
                continue
            name, count = match.groups()
            following = len(paths) - position - 1
            size = max(len(value) - at, 0) - following if count == "_" else int(count)
            if size < 0:
                raise FlowError(f"cannot destructure: too few elements for {path_text(path)}")
            if name:
                self._write([*path[:-1], name], value[at : at + size])
            at += size


def _is_ret(path: list[Value]) -> bool:
    """Return whether a path is the field ``ret``."""
    return path[1:] == ["ret"] and path[0] in ("f", "fld", "field")


@procedure("del", "delf")
class Delete(Procedure):
    """Remove paths; ret is the last value removed. ``delf`` ignores what does not exist."""

    __slots__ = ()
    unatts = True

    def pre_execute(self) -> None:
        """Turn words and paths into paths; other values are evaluated."""
        plain = ("_att", "_sqs", "_")
        children = [child if child[0] in plain else as_path(child) for child in self.tree[1]]
        self.rewrite([self.tree[0], children, *self.tree[2:]])
        self.node.own["paths"] = []

    def receive_non_att(self, index: int) -> list[Message]:
        """Collect the paths; other values leave ret unchanged."""
        if self.tree[1][index][0] == "_rep":
            self.node.own["paths"].append(self.payload.get("ret"))
        else:
            self.set_ret(self.ret0)
        return super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Remove and reply."""
        old: Value = None
        lax = self.tree[0] == "delf"
        for path in self.node.own["paths"]:
            self.payload, found = names.delete(self.run, self.node, self.payload, path)
            if found is MISSING and not lax:
                raise FlowError(f"couldn't unset {path_text(path)}")
            old = None if found is MISSING else found
        return self.reply(ret=old)


@procedure("push", "pushr")
class Push(Procedure):
    """``push path value``: append a value (or ret) to an array."""

    __slots__ = ()
    unatts = True

    def pre_execute(self) -> None:
        """Turn the first word or path into a path to write to."""
        self.rewrite(with_one_path(self.tree))

    def receive_non_att(self, index: int) -> list[Message]:
        """Take the target, then the value; the last one counts."""
        own, ret = self.node.own, self.payload.get("ret")
        if not truthy(own.get("target")):
            own["target"] = ret
        else:
            own["value"] = [ret]
        return super().receive_non_att(index)

    def receive_last(self) -> list[Message]:
        """Push and reply."""
        own = self.node.own
        path = to_path(own.get("target"))
        value = own["value"][0] if "value" in own else self.ret0
        target = self._target(path)
        if type(target) is not list or is_reference(target):
            raise FlowError(f"cannot push to given target ({kind_name(target)})")
        if self.tree[0] != "pushr":
            self.set_ret(self.ret0)
        pushed = self.run.sizes.check_parts([*target, value], (value,))
        self.payload = names.write(self.run, self.node, self.payload, path, pushed)
        return self.reply()

    def _target(self, path: list[Value]) -> Value:
        try:
            return names.read(self.run, self.node, self.payload, path) if path else None
        except FlowError:
            return None


@procedure("twig")
class Twig(Procedure):
    """``twig path``: set a path to the tree of the last child; without a path, ret is the tree."""

    __slots__ = ()
    unatts = True

    def pre_execute(self) -> None:
        """Turn the first word or path into a path to write to."""
        self.rewrite(with_one_path(self.tree))

    def start(self) -> list[Message]:
        """Reply with a single tree, or begin with the path."""
        alone = len(self.tree[1]) - attribute_count(self.tree) == 1
        return self.reply(ret=self.tree[1][-1]) if alone else super().start()

    def receive_non_att(self, index: int) -> list[Message]:
        """Set the path and reply."""
        path = to_path(self.payload.get("ret"))
        if not path:
            raise FlowError("twig needs a path to keep a tree at")
        self.payload = names.write(self.run, self.node, self.payload, path, self.tree[1][-1])
        return self.reply()
