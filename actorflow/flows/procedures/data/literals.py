"""Literals: atoms, words, collections, strings, regular expressions, paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import NotFound, UnknownProcedure
from actorflow.flows.execution import names
from actorflow.flows.execution.node import child_id, child_nid
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.execution.rewrites import replace_around
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.paths import parse_path
from actorflow.flows.values.values import Value, dup_function, to_json, to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message

_ATOMS = frozenset(("_num", "_boo", "_sqs", "_nul"))
_RET = frozenset(("f.ret", "fld.ret", "field.ret"))
_MUTED = 999
"""Offset behind the children: the index for "a child has failed" in a ``_dmute``."""


@procedure("_num", "_boo", "_sqs", "_nul")
class Atom(Procedure):
    """A number, boolean, string or null: ret is the value."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once."""
        self.set_ret(self.tree[1])
        return self.reply()


@procedure("_func", "_proc", "_tasker")
class Reference(Procedure):
    """A function, procedure or tasker as a tree: ret is the tree."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once."""
        self.set_ret(self.tree)
        return self.reply()


@procedure("_val")
class WordProcedure(Procedure):
    """A word that refers to a value: ret is that value, after attributes and children."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once, or after the children."""
        return super().start() if self.tree[1] else self.receive_last()

    def receive_last(self) -> list[Message]:
        """Reply with the value."""
        self.set_ret(self.node.heat)
        return self.reply()


class _Collection(Procedure):
    """An array or object; if all elements are atoms, they are not evaluated one by one."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Take the attributes first."""
        return super().start() if self.tree[1][0][0] == "_att" else self.receive_last_att(-1)

    def receive_last_att(self, index: int) -> list[Message]:
        """Reply if all elements are atoms, else evaluate them."""
        elements = self.tree[1][index + 1 :]
        if all(element[0] in _ATOMS and element[1] != [] for element in elements):
            return self.reply_with([element[1] for element in elements])
        if self.node.rets is None:
            self.node.rets = []
        return super().receive_last_att(index)

    def receive_last(self) -> list[Message]:
        """Reply with the elements."""
        elements = list(self.node.rets or ())
        self.run.sizes.check_parts(elements, elements)
        return self.reply_with(elements)

    def reply_with(self, elements: list[Value]) -> list[Message]:
        """Reply with the collection of the elements."""
        raise NotImplementedError


@procedure("_arr")
class Array(_Collection):
    """An array."""

    __slots__ = ()

    def reply_with(self, elements: list[Value]) -> list[Message]:
        """Reply with the array."""
        return self.reply(ret=elements)


@procedure("_obj")
class Object(_Collection):
    """An object: keys and values alternate; a bare word as key is a string."""

    __slots__ = ()
    collects = True

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Rewrite a bare word as a string if it is a key."""
        children = self.tree[1]
        if len(self.node.rets or ()) % 2 == 0 and children[index][1] == []:
            key = ["_sqs", children[index][0], *children[index][2:]]
            known, quoted = self.tree, [*children[:index], key, *children[index + 1 :]]
            self.rewrite([known[0], quoted, *known[2:]])
            replace_around(self.run, self.node, known, self.tree)
        return super().execute_child(index, sub, **fields)

    def reply_with(self, elements: list[Value]) -> list[Message]:
        """Reply with the object."""
        pairs = zip(elements[::2], [*elements[1::2], None], strict=False)
        return self.reply(ret={to_text(key): value for key, value in pairs})


class _Parts(Procedure):
    """A literal with parts, each evaluated with the ret on entry."""

    __slots__ = ()
    collects = True
    keeps_atts = True

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        self.set_ret(self.ret0)
        return super().execute_child(index, sub, **fields)

    def parts(self) -> list[Value]:
        """Return the values of the parts."""
        return self.node.rets or []


@procedure("_dqs")
class Interpolated(_Parts):
    """A double-quoted string with ``$()`` in it."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the string; other values appear in it as JSON."""
        texts = (to_json(part) if type(part) is list else to_text(part) for part in self.parts())
        return self.reply(ret=self.run.sizes.join(texts))


@procedure("_rxs")
class RegexProcedure(_Parts):
    """A regular expression; ret is ``["_rxs", "/source/options", line]``."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the expression; an array in it is replaced by its elements."""
        source = self.run.sizes.join(_joined(part) for part in self.parts())
        return self.reply(ret=["_rxs", f"/{source}/{to_text(self.att('rxopts'))}", self.tree[2]])


def _joined(value: Value) -> str:
    return "".join(map(_joined, value)) if type(value) is list else to_text(value)


@procedure("_dol")
class Dollar(Procedure):
    """``$(a||b)``: the first alternative that is not empty."""

    __slots__ = ()

    def receive_non_att(self, index: int) -> list[Message]:
        """Reply with the first value that is neither empty nor false."""
        ret = self.payload.get("ret")
        if ret is False or ret == "":
            return self.execute_child(index + 1)
        return self.reply()


@procedure("_dmute")
class Muted(Procedure):
    """One alternative of ``$()``: a failure inside counts as an empty string."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Catch failures below."""
        node = self.node
        muted = {
            "point": "receive",
            "nid": node.nid,
            "from": child_nid(node.nid, _MUTED + len(self.tree[1])),
            "payload": {**self.payload, "ret": ""},
            "virtual": True,
        }
        node.handlers = {"error": [[["*"], muted]]}


class _Path(Procedure):
    """A path, whose elements are evaluated first; a single string may be a whole path."""

    __slots__ = ()
    collects = True

    def path(self) -> list[Value]:
        """Return the path."""
        rets = self.node.rets or []
        if len(rets) == 1 and type(rets[0]) is str and ("." in rets[0] or "[" in rets[0]):
            return parse_path(rets[0])
        return list(rets)


@procedure("_ref")
class PathReader(_Path):
    """A path that is read: ret is its value."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Look up the path; for a head that leads nowhere, ret is null."""
        path = self.path()
        try:
            value = names.read(self.run, self.node, self.payload, path)
        except NotFound:
            if not self._is_head():
                raise
            value = None
        if type(value) is list and value and value[0] == "_func" and self._is_head():
            value = self._own(path, value)
        self.set_ret(value)
        return self.reply()

    def _is_head(self) -> bool:
        """Return whether this is the head of a call."""
        parent = self.run.nodes.get(self.node.parent or "")
        return parent is not None and parent.heap == "_head" and child_id(self.node.nid) == 1

    def _own(self, path: list[Value], function: Value) -> Value:
        """Replace a function that is called by a copy that records the path."""
        if id(function) in self.run.fresh_functions:
            return function
        function = dup_function(function)
        self.run.fresh_functions[id(function)] = function
        if path[-1] != "ret":
            self.payload = names.write(self.run, self.node, self.payload, path, function)
        return function


@procedure("_rep")
class Path(_Path):
    """A path that is written to: ret is the path itself."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the path."""
        self.set_ret(self.path())
        return self.reply()


@procedure("_head")
class Head(Procedure):
    """A call whose head is an expression: evaluate it, then apply the result."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Evaluate the head; child 0 is only its text."""
        return self.execute_child(1)

    def receive(self) -> list[Message]:
        """Apply the head, then reply."""
        came_from = self.message.get("from")
        if came_from is None or child_id(came_from) != 1:
            return self.reply()
        heat = self.payload.get("ret")
        if heat is None:
            raise UnknownProcedure(f'don\'t know how to apply "{self.tree[1][0][1]}"')
        if self.tree[1][0][1] in _RET:
            heat = self.ret0
        return self.execute_child(2, heat=heat)
