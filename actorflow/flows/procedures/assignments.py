"""Setting, deleting and pushing: fields and variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from actorflow.flows import lookup
from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import Value, dup_function, is_reference, kind_name, path_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Tree

_PATH_PARTS = re.compile(r"[^.\[\]]+")
_SPLAT = re.compile(r"\A(.*)__(_|\d+)\Z")


def as_path(tree: Tree) -> Tree:
    """Turn a word, a path or a string into a path to be written to."""
    if tree[0] == "_ref":
        return ["_rep", *tree[1:]]
    if type(tree[0]) is str and tree[1] == []:
        return ["_rep", [["_sqs", tree[0], *tree[2:]]], *tree[2:]]
    if tree[0] == "_sqs" and type(tree[1]) is str:
        parts = [part.strip("'\"") for part in _PATH_PARTS.findall(tree[1])]
        return ["_rep", [["_sqs", part, *tree[2:]] for part in parts], *tree[2:]]
    if tree[0] == "_dqs":
        return ["_rep", [tree], *tree[2:]]
    return tree


def as_value(tree: Tree) -> Tree:
    """Turn a bare word into a path to be read, so that a missing one is told by its path."""
    if type(tree[0]) is str and tree[1] == [] and tree[0][0] != "_":
        return ["_ref", [["_sqs", tree[0], *tree[2:]]], *tree[2:]]
    return tree


@procedure("set", "setr")
class Set(Procedure):
    """``set path value``, or ``set path path... array``; with a path alone the value is ret."""

    __slots__ = ()
    unatts = True
    collects = True

    def pre_execute(self) -> None:
        """Make paths of all values but the last."""
        children = list(self.tree[1])
        first = self.att_count()
        values = len(children) - first
        last = len(children) - 1 if values > 1 else len(children)
        for index in range(first, len(children)):
            child = children[index]
            children[index] = as_path(child) if index < last else as_value(child)
        self.rewrite([self.tree[0], children, *self.tree[2:]])

    def start(self) -> list[Message]:
        """Begin with the ret of the entry."""
        self.set_ret(self.ret0)
        return super().start()

    def receive_non_att(self, index: int) -> list[Message]:
        """Collect, giving each child the ret of the entry."""
        self.keep_ret()
        if index + 1 < len(self.tree[1]):
            self.set_ret(self.ret0)
            return self.execute_child(index + 1)
        return self.receive_last()

    def receive_last(self) -> list[Message]:
        """Assign or destructure, and reply."""
        rets = self.node.rets or []
        if not rets:
            return self.reply()
        ret0 = self.ret0
        paths, value = (rets, ret0) if len(rets) == 1 else (rets[:-1], rets[-1])
        keeps_ret = self.node.heap == "set"
        self.set_ret(ret0 if keeps_ret else value)
        if len(paths) == 1:
            self._write(paths[0], value)
        else:
            self._destructure(paths, value)
        return self.reply()

    def _write(self, path: list[Value], value: Value) -> None:
        if type(path) is not list or not path:
            raise FlowError(f"cannot set {kind_name(path)}: it is not a path")
        self.payload = lookup.write(self.run, self.node, self.payload, path, value)

    def _destructure(self, paths: list[list[Value]], value: Value) -> None:
        if type(value) is not list or is_reference(value):
            raise FlowError(f"cannot destructure {kind_name(value)}: an array is needed")
        at = 0
        for position, path in enumerate(paths):
            match = _SPLAT.match(path[-1]) if type(path[-1]) is str else None
            if match is None:
                self._write(path, value[at] if at < len(value) else None)
                at += 1
                continue
            name, count = match.groups()
            following = len(paths) - position - 1
            size = max(len(value) - at - following, 0) if count == "_" else int(count)
            if name:
                self._write([*path[:-1], name], value[at : at + size])
            at += size


@procedure("del", "delf")
class Delete(Procedure):
    """Remove paths; ret is what the last one was."""

    __slots__ = ()
    unatts = True
    collects = True

    def pre_execute(self) -> None:
        """Make paths of all values."""
        children = [child if child[0] == "_att" else as_path(child) for child in self.tree[1]]
        self.rewrite([self.tree[0], children, *self.tree[2:]])

    def receive_last(self) -> list[Message]:
        """Remove and reply."""
        old: Value = None
        for path in self.node.rets or ():
            self.payload, old = lookup.delete(self.run, self.node, self.payload, path)
        return self.reply(ret=old)


@procedure("push", "pushr")
class Push(Procedure):
    """``push path value``: put a value (or ret) at the end of an array."""

    __slots__ = ()
    unatts = True
    collects = True

    def pre_execute(self) -> None:
        """Make a path of the first value."""
        children = list(self.tree[1])
        first = self.att_count()
        if first < len(children):
            children[first] = as_path(children[first])
            self.rewrite([self.tree[0], children, *self.tree[2:]])

    def receive_last(self) -> list[Message]:
        """Push and reply."""
        rets = self.node.rets or []
        path = rets[0] if rets else None
        ret0 = self.ret0
        value = rets[-1] if len(rets) > 1 else ret0
        if type(path) is not list or not path:
            raise FlowError("push needs the path of an array to push to")
        target = self._target(path)
        if type(target) is not list or is_reference(target):
            raise FlowError(f"cannot push to given target ({kind_name(target)})")
        ret = dup_function(value) if self.node.heap == "pushr" else ret0
        self.set_ret(ret)
        self.payload = lookup.write(self.run, self.node, self.payload, path, [*target, value])
        return self.reply()

    def _target(self, path: list[Value]) -> Value:
        try:
            return lookup.read(self.run, self.node, self.payload, path)
        except FlowError:
            raise FlowError(f'cannot push to "{path_text(path)}": it is not there') from None
