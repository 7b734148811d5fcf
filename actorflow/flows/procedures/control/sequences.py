"""``sequence``, ``noret``, ``noeval`` and ``stall``: one child after the other, or none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.node import child_nid
from actorflow.flows.execution.procedure import Procedure, attribute_count, messages_after_children
from actorflow.flows.procedures.attributes import add_tags
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import Value, stored_integer, to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


class Taggable(Procedure):
    """A procedure whose first unkeyed attributes may be tags."""

    __slots__ = ()

    def receive_att(self, index: int) -> list[Message]:
        """Add the attribute as a tag, if it can be one."""
        tags = None if self.node.tags else self.tags_in(index)
        out = [] if tags is None else add_tags(self, self.node, tags)
        return out + super().receive_att(index)

    def tags_in(self, index: int) -> Value:
        """Return the value of attribute ``index`` if it can be a tag: a string without a key."""
        ret = self.payload.get("ret")
        return ret if type(ret) is str and len(self.tree[1][index][1]) == 1 else None

    def cancel_when_closed(self, status: dict[str, Any]) -> list[Message]:
        """Let a cancel end a running on_error handler."""
        if status.get("flavour") != "on-error":
            return super().cancel_when_closed(status)
        waiting = messages_after_children(self)
        handled = bool(waiting) and "on_receive_last" not in self.message
        self.run.close(self.node, self.message, handled=handled)
        return self.cancel(waiting)


@procedure("sequence", "begin")
class Sequence(Taggable):
    """Children in order; ret is that of the last."""

    __slots__ = ()


@procedure("noret")
class NoRet(Procedure):
    """Children in order; ret is that on entry."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the ret on entry."""
        self.set_ret(self.ret0)
        return self.reply()


@procedure("noeval")
class NoEval(Procedure):
    """Skip the children."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once."""
        return self.reply()


@procedure("stall")
class Stall(Procedure):
    """Never reply; only the attributes are evaluated."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Begin with the attributes, if there are any."""
        return super().start() if attribute_count(self.tree) else []

    def receive_last_att(self, index: int) -> list[Message]:
        """Stay."""
        return []


@procedure("_skip")
class SkipProcedure(Procedure):
    """Reply after a number of messages to itself."""

    __slots__ = ()

    def receive(self) -> list[Message]:
        """Count down, once the number is known."""
        return self._count_down() if "count" in self.node.own else super().receive()

    def receive_last(self) -> list[Message]:
        """Take the number, which is 0 by default."""
        digits = re.match(r"\s*-?\d+", to_text(self.payload.get("ret")))
        try:
            self.node.own["count"] = stored_integer(digits[0]) if digits else 0
        except (ValueError, OverflowError):
            raise FlowError("the number given to _skip is too big") from None
        self.set_ret(self.ret0)
        return self._count_down()

    def _count_down(self) -> list[Message]:
        own = self.node.own
        own["count"] -= 1
        if own["count"] < 1:
            return self.reply()
        nid = self.node.nid
        again = self.wrap("receive", nid, virtual=True)
        again["from"] = child_nid(nid, len(self.tree[1]))
        return [again]


@procedure("_err")
class Oops(Taggable):
    """Takes the place of a node that failed without a procedure, while a handler runs."""

    __slots__ = ()
