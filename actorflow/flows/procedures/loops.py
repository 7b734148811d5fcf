"""cursor, loop, until, while, and how to leave or steer them: break, continue, move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.failure import FlowError
from actorflow.flows.node import child_id, child_nid
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.sequences import Taggable
from actorflow.flows.values import Value, is_reference, to_text, truthy

if TYPE_CHECKING:
    from typing import ClassVar

    from actorflow.flows.node import Message, Node, Tree


class _Steerable(Taggable):
    """A procedure that understands break, continue and perhaps move."""

    __slots__ = ()
    words: ClassVar[tuple[str, ...]] = ("break", "continue")

    def pre_execute(self) -> None:
        node = self.node
        node.vars = node.vars or {}
        for word in self.words:
            node.vars[word] = ["_proc", {"proc": word, "nid": node.nid}, self.tree[2]]

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
        state = node.state
        if state == "ended" or (state == "closed" and flavour != "break"):
            return []
        if flavour == "break":
            self.run.close(node, self.message)
            return self.cancel(None)
        waiting = self.steer(flavour)
        self.run.close(node, self.message)
        return self.cancel(waiting)

    def cancel_when_closed(self, status: dict[str, Any]) -> list[Message]:
        """Let a cancel end a loop that was about to go on."""
        if status.get("flavour") in ("continue", "move"):
            self.run.close(self.node, self.message)
            return self.cancel(None)
        return super().cancel_when_closed(status)

    def steer(self, flavour: str) -> list[Message]:
        """Return what starts the next pass."""
        self.next_pass()
        return self.execute_child(self.entry(flavour))

    def entry(self, flavour: str) -> int:
        """Return the child a new pass starts with."""
        return self.att_count()


def _strings(tree: Tree, *keys: str) -> list[Value]:
    """Return the plain strings among the attributes of a tree, keyed or (without keys) unkeyed."""
    found: list[Value] = []
    for child in tree[1] if type(tree[1]) is list else ():
        if child[0] == "_att" and child[1][-1][0] == "_sqs":
            key = child[1][0][0] if len(child[1]) > 1 else None
            if key in keys or (key is None and not keys):
                found.append(child[1][-1][1])
    return found


def _tagged(tree: Tree, target: str) -> bool:
    """Tell whether a tree bears a tag."""
    return target in _strings(tree, "tag", "tags")


def _named(tree: Tree, target: str) -> bool:
    """Tell whether a tree is meant: by its head, or by a string that it is or is given."""
    return bool(tree[0] == target or tree[1] == target or target in _strings(tree))


@procedure("cursor")
class Cursor(_Steerable):
    """Children in order; break ends it, continue starts over, move goes to a child."""

    __slots__ = ()
    words = ("break", "continue", "move")

    def receive_last_att(self, index: int) -> list[Message]:
        """Begin with the first child, or the one that ``start:`` names."""
        start = self.att("start")
        if start is None:
            return super().receive_last_att(index)
        return self.execute_child(self.find_child(start))

    def find_child(self, target: Value) -> int:
        """Return the position of the child that ``target`` names.

        Raises FlowError when there is none.
        """
        name = (
            target[1].get("proc") or target[1].get("ref") or ""
            if is_reference(target)
            else to_text(target)
        )
        children = self.tree[1]
        for names in (_tagged, _named):
            for index, child in enumerate(children):
                if child[0] != "_att" and names(child, name):
                    return index
        raise FlowError(f'move target "{name}" not found')

    def steer(self, flavour: str) -> list[Message]:
        """Return what starts the next pass, marked as such."""
        out = super().steer(flavour)
        out[0]["orl"] = flavour
        return out

    def entry(self, flavour: str) -> int:
        """Return the child that continue or move starts with."""
        return self.find_child(self.message.get("to")) if flavour == "move" else self.att_count()


@procedure("loop")
class Loop(Cursor):
    """A cursor that starts over after its last child."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Start over."""
        first = self.att_count()
        if first >= len(self.tree[1]):
            return self.reply()
        self.next_pass()
        return self.execute_child(first)


@procedure("until", "while")
class Until(_Steerable):
    """Test, body, test, body...; ret is the last ret of the body, or that of the entry."""

    __slots__ = ()
    unatts = True
    keeps_atts = True

    def receive_non_att(self, index: int) -> list[Message]:
        """Judge the test, or go on in the body."""
        first = self.att_count()
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
        if first + 1 < len(self.tree[1]):
            return self.execute_child(first + 1)
        self.next_pass()
        return self.execute_child(first)


class _Steer(Procedure):
    """Something that addresses an enclosing loop."""

    __slots__ = ()
    keeps_atts = True

    def targets(self) -> list[str]:
        """Return the nids of the loops meant.

        By ``ref:``, by the word's own nid, or the nearest.
        """
        ref = self.att("ref")
        if ref is not None:
            tags = ref if type(ref) is list else [ref]
            found = [
                nid
                for nid, node in self.run.nodes.items()
                if node.tags and node.state != "ended" and any(tag in node.tags for tag in tags)
            ]
            if not found:
                raise FlowError(f'no node with tag "{to_text(ref)}"')
            return found
        nid = self.att("nid")
        if nid is not None:
            return [to_text(nid)]
        if self.node.heat is not None:
            return [self.node.heat[1]["nid"]]
        nearest = self._nearest()
        if nearest is None:
            raise FlowError(f"{self.node.heap} outside of a loop")
        return [nearest]

    def _nearest(self) -> str | None:
        node: Node | None = self.run.nodes.get(self.node.parent or "")
        while node is not None:
            if node.heap in ("cursor", "loop", "until", "while"):
                return node.nid
            node = self.run.nodes.get(node.parent or "")
        return None

    def is_ancestor(self, nid: str) -> bool:
        """Tell whether a node is above this one."""
        node: Node | None = self.node
        while node is not None:
            if node.nid == nid:
                return True
            node = self.run.nodes.get(node.parent or "")
        return False

    def emit(self, **fields: Any) -> list[Message]:
        """Cancel the loops meant; reply only when this node does not go with them."""
        targets = self.targets()
        flavour = self.node.heap
        out = [self.wrap("cancel", nid, flavour=flavour, **fields) for nid in targets]
        return out if any(self.is_ancestor(nid) for nid in targets) else out + self.reply()


@procedure("break", "continue")
class Break(_Steer):
    """Leave a loop, or start it over; ret is the argument, if any."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Cancel the loop."""
        values = self.unkeyed()
        if values:
            self.set_ret(values[-1])
        return self.emit()


@procedure("move")
class Move(_Steer):
    """``move to: x``: go to a child of the cursor."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Cancel the cursor, telling it where to go on."""
        target = self.att("to")
        if target is None:
            values = self.unkeyed()
            target = values[0] if values else None
        if target is None:
            raise FlowError("move needs to know where: move to: 'x'")
        return self.emit(to=target)


__all__ = ["Break", "Cursor", "Loop", "Move", "Until", "child_id", "child_nid"]
