"""``cursor``, ``loop``, ``until``, ``while``; and ``break``, ``continue``, ``move``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure, attribute_count
from actorflow.flows.execution.run import is_inside
from actorflow.flows.procedures.control.sequences import Taggable
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.text import shown
from actorflow.flows.values.values import Value, truthy

if TYPE_CHECKING:
    from typing import ClassVar

    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


class _Steerable(Taggable):
    """A procedure that understands break, continue and perhaps move."""

    __slots__ = ()
    keeps_atts = True
    words: ClassVar[tuple[str, ...]] = ("break", "continue")

    def pre_execute(self) -> None:
        nid, line = self.node.nid, self.tree[2]
        self.node.vars = {word: ["_proc", {"proc": word, "nid": nid}, line] for word in self.words}

    def execute_child(self, index: int, sub: int | None = None, **fields: Any) -> list[Message]:
        """Run a child in the current pass."""
        if sub is None:
            sub = self.node.own.get("sub")
        return super().execute_child(index, sub, **fields)

    def next_pass(self) -> None:
        """Begin a new pass: children get a new suffix."""
        self.node.own["sub"] = self.run.next_sub()

    def cancel_message(self) -> list[Message]:
        """Take break, continue and move as well as a plain cancel."""
        flavour = self.message.get("flavour")
        if flavour not in ("break", "continue", "move"):
            return super().cancel_message()
        node = self.node
        if self.message.get("payload") is None:
            self.payload = node.payload
        status = node.status[-1] if node.status else None
        if status is not None:
            if status["status"] != "ended" and self._leads_here(status):
                return self.reply()
            if status["status"] == "ended" or flavour != "break":
                return []
        if flavour == "break":
            self.run.close(node, self.message)
            return self.cancel(None)
        waiting = self.steer(flavour)
        self.run.close(node, self.message)
        return self.cancel(waiting)

    def cancel_when_closed(self, status: dict[str, Any]) -> list[Message]:
        """Let a cancel end a loop that was about to continue."""
        if status.get("flavour") in ("continue", "move"):
            self.run.close(self.node, self.message)
            return self.cancel(None)
        return super().cancel_when_closed(status)

    def steer(self, flavour: str) -> list[Message]:
        """Return the messages that start the next pass."""
        entry = self.entry(flavour)
        self.next_pass()
        return self.execute_child(entry)

    def entry(self, flavour: str) -> int:
        """Return the first child of a new pass."""
        return attribute_count(self.tree)


def _atts(tree: Tree) -> list[Tree]:
    """Return the attributes of a tree, each as its parts: a value, or a key and a value."""
    return [child[1] for child in tree[1] if child[0] == "_att"] if type(tree[1]) is list else []


def _is_string(tree: Tree, text: str) -> bool:
    return tree[0] in ("_sqs", "_dqs") and tree[1] == text


def _is_tagged(tree: Tree, name: str) -> bool:
    return any(
        len(parts) > 1 and parts[0][0] == "tag" and _is_string(parts[1], name)
        for parts in _atts(tree)
    )


def _is_given(tree: Tree, name: str) -> bool:
    return any(len(parts) == 1 and _is_string(parts[0], name) for parts in _atts(tree))


def _is_named(tree: Tree, name: str) -> bool:
    return bool(tree[0] == name)


def _is_here(tree: Tree, _: str) -> bool:
    return bool(tree[0] == "_") and any(parts[0][0] == "here" for parts in _atts(tree))


_WAYS_TO_MEAN = (_is_tagged, _is_given, _is_string, _is_named, _is_here)
"""The ways to refer to a child, in order of precedence."""


@procedure("cursor")
class Cursor(_Steerable):
    """Children in order; break ends it, continue starts over, move goes to a child."""

    __slots__ = ()
    words = ("break", "continue", "move")

    def tags_in(self, index: int) -> Value:
        """Return the value of an attribute if it can be tags: a string, or an array of strings."""
        ret = self.payload.get("ret")
        names = ret if type(ret) is list else [ret]
        return names if names and all(type(name) is str for name in names) else None

    def receive_last_att(self, index: int) -> list[Message]:
        """Begin with the first child, or the one that ``start:`` names."""
        start = self.att("start", "initial")
        if not truthy(start):
            return super().receive_last_att(index)
        return self.execute_child(self.find_child(start))

    def find_child(self, target: Value) -> int:
        """Return the position of the child that ``target`` names.

        Raises FlowError if it is missing.
        """
        children = self.tree[1]
        for means in _WAYS_TO_MEAN:
            for index, child in enumerate(children):
                if child[0] != "_att" and means(child, target):
                    return index
        raise FlowError(f"move target {shown(target)} not found")

    def steer(self, flavour: str) -> list[Message]:
        """Return the messages that start the next pass, marked with the flavour."""
        out = super().steer(flavour)
        out[0]["orl"] = flavour
        return out

    def entry(self, flavour: str) -> int:
        """Return the child that continue or move starts with."""
        if flavour != "move":
            return attribute_count(self.tree)
        target = self.message.get("to")
        if type(target) is not str:
            raise FlowError(f"move target {shown(target)} is not a string")
        return self.find_child(target)


@procedure("loop")
class LoopProcedure(Cursor):
    """A cursor that starts over after its last child."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Start over."""
        first = attribute_count(self.tree)
        if first >= len(self.tree[1]):
            return self.reply()
        self.next_pass()
        return self.execute_child(first)


@procedure("until", "while")
class UntilProcedure(_Steerable):
    """Test, body, test, body...; ret is that of the last body, or that on entry."""

    __slots__ = ()
    unatts = True

    def tags_in(self, index: int) -> Value:
        """Take no attribute as a tag."""
        return None

    def receive_non_att(self, index: int) -> list[Message]:
        """Judge the test, or go on in the body."""
        first = attribute_count(self.tree)
        own = self.node.own
        if index == first:
            return self._judge(first)
        if index + 1 < len(self.tree[1]):
            return self.execute_child(index + 1)
        own["ret"] = [self.payload.get("ret")]
        self.set_ret(self.ret0)
        self.next_pass()
        return self.execute_child(first)

    def _judge(self, first: int) -> list[Message]:
        met = truthy(self.payload.get("ret"))
        if met == (self.node.heap == "until"):
            kept = self.node.own.get("ret")
            return self.reply(ret=kept[0] if kept else self.ret0)
        self.set_ret(self.ret0)
        return self.execute_child(first + 1)


class _Steer(Procedure):
    """Addresses a loop: the one with a given tag, or the enclosing one."""

    __slots__ = ()
    keeps_atts = True

    def target(self, ref: Value) -> str | None:
        """Return the nid of the first node with the tag, else that of the enclosing loop."""
        tags = ref if type(ref) is list else [ref]
        for nid, node in self.run.nodes.items():
            if node.tags and node.state != "ended" and any(tag in node.tags for tag in tags):
                return nid
        return None if self.node.heat is None else self.node.heat[1].get("nid")


@procedure("break", "continue")
class Break(_Steer):
    """Leave or restart a loop, with the argument as its ret; without a loop, do nothing."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Cancel the loop, and reply unless this node is inside."""
        values = self.node.unkeyed_atts()
        nid = self.target(self.att("ref"))
        if nid is None:
            self.set_ret(self.ret0)
            return self.reply()
        if values:
            self.set_ret(values[0])
        out = [self.wrap("cancel", nid, flavour=self.node.heap)]
        return out if is_inside(self.run, self.node, nid) else out + self.reply(ret=self.ret0)


@procedure("move")
class Move(_Steer):
    """``move to: x``: continue at a child of the enclosing cursor, or of the one with a tag."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Cancel the cursor, with the child to continue at."""
        values = self.node.unkeyed_atts()
        nid = self.target(self.att("ref") or (values[0] if values else None))
        if nid is None:
            return self.reply()
        out = [self.wrap("cancel", nid, flavour="move", to=self.att("to"))]
        return out if is_inside(self.run, self.node, nid) else out + self.reply()
