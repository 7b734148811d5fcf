"""Values as they stand in a flow: atoms, words, collections, strings, expressions, paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows import lookup
from actorflow.flows.failure import UnknownProcedure
from actorflow.flows.node import child_id, child_nid
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import is_reference, to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Tree

_ATOMS = frozenset(("_num", "_boo", "_sqs", "_nul"))
_MUTED = 1000
"""Child position that stands for "the failure of a child" in a ``_dmute``."""


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
    """A function, procedure or tasker that stands in a tree: ret is the whole tree."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once."""
        self.set_ret(self.tree)
        return self.reply()


@procedure("_val")
class Word(Procedure):
    """A word that stands for a value: ret is that value; attributes only have their effects."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once, or after the attributes."""
        children = self.tree[1]
        if type(children) is list and children and children[0][0] == "_att":
            return super().start()
        return self.receive_last()

    def receive_last_att(self, index: int) -> list[Message]:
        """Reply after the attributes."""
        return self.receive_last()

    def receive_last(self) -> list[Message]:
        """Reply with the value."""
        self.set_ret(self.node.heat)
        return self.reply()


def _all_atoms(tree: Tree) -> bool:
    return all(child[0] in _ATOMS for child in tree[1])


@procedure("_arr")
class Array(Procedure):
    """An array; one of plain values only replies at once."""

    __slots__ = ()
    collects = True

    def start(self) -> list[Message]:
        """Reply at once when all elements are plain."""
        if _all_atoms(self.tree):
            return self.reply(ret=[child[1] for child in self.tree[1]])
        return super().start()

    def receive_last(self) -> list[Message]:
        """Reply with the elements."""
        return self.reply(ret=list(self.node.rets or ()))


@procedure("_obj")
class Object(Procedure):
    """An object: keys and values alternate; a bare word as key is a string."""

    __slots__ = ()
    collects = True

    def pre_execute(self) -> None:
        """Turn bare words in key position into strings."""
        children, position, changed = [], 0, False
        for child in self.tree[1]:
            one = child
            if child[0] != "_att":
                if position % 2 == 0 and child[1] == [] and child[0][0] != "_":
                    one = ["_sqs", child[0], *child[2:]]
                    changed = True
                position += 1
            children.append(one)
        if changed:
            self.node.own["words"] = True
            self.rewrite([self.tree[0], children, *self.tree[2:]])

    def start(self) -> list[Message]:
        """Reply at once when all keys and values are plain (and no key was a bare word)."""
        if not self.node.own.pop("words", False) and _all_atoms(self.tree):
            values = [child[1] for child in self.tree[1]]
            return self.reply(
                ret={to_text(k): v for k, v in zip(values[::2], values[1::2], strict=False)}
            )
        return super().start()

    def receive_last(self) -> list[Message]:
        """Reply with the object."""
        rets = self.node.rets or []
        return self.reply(ret={to_text(k): v for k, v in zip(rets[::2], rets[1::2], strict=False)})


class _Parts(Procedure):
    """Something made of parts, each evaluated with the ret the whole had on entry."""

    __slots__ = ()
    collects = True
    keeps_atts = True

    def start(self) -> list[Message]:
        self.set_ret(self.ret0)
        return super().start()

    def receive_non_att(self, index: int) -> list[Message]:
        self.keep_ret()
        if index + 1 < len(self.tree[1]):
            self.set_ret(self.ret0)
            return self.execute_child(index + 1)
        return self.receive_last()

    def text(self) -> str:
        """Return the parts as one string."""
        return "".join(to_text(part) for part in self.node.rets or ())


@procedure("_dqs")
class Interpolated(_Parts):
    """A double-quoted string with ``$()`` in it."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the string."""
        return self.reply(ret=self.text())


@procedure("_rxs")
class Regex(_Parts):
    """A regular expression; ret is ``["_rxs", "/source/options", line]``."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the expression."""
        return self.reply(
            ret=["_rxs", f"/{self.text()}/{to_text(self.att('rxopts'))}", self.tree[2]]
        )


@procedure("_dol")
class Dollar(Procedure):
    """``$(a||b)``: the first alternative that gives something."""

    __slots__ = ()

    def receive_non_att(self, index: int) -> list[Message]:
        """Reply with the first value that is neither empty, false nor null."""
        ret = self.payload.get("ret")
        if ret is None or ret is False or ret == "":
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
            "from": child_nid(node.nid, _MUTED),
            "payload": {**self.payload, "ret": ""},
            "virtual": True,
        }
        node.handlers = {"error": [[["*"], muted]]}


@procedure("_ref")
class Reader(Procedure):
    """A path that is read: ret is what it stands for."""

    __slots__ = ()
    collects = True

    def receive_last(self) -> list[Message]:
        """Look the path up."""
        self.set_ret(lookup.read(self.run, self.node, self.payload, self.node.rets or []))
        return self.reply()


@procedure("_rep")
class Path(Procedure):
    """A path that is written to: ret is the path itself."""

    __slots__ = ()
    collects = True

    def receive_last(self) -> list[Message]:
        """Reply with the path."""
        self.set_ret(list(self.node.rets or ()))
        return self.reply()


@procedure("_head")
class Head(Procedure):
    """A call whose head is an expression: evaluate it, then apply what it gives."""

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
        if type(heat) is str:
            named = lookup.variable(self.run, self.node, heat)
            heat = named if is_reference(named) else heat
        return self.execute_child(2, heat=heat)
