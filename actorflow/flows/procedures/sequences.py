"""One child after the other; and doing nothing in several ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.node import child_nid
from actorflow.flows.procedures.attributes import add_tags
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message


class Taggable(Procedure):
    """A procedure whose unkeyed string attribute is a tag."""

    __slots__ = ()
    keeps_atts = True

    def receive_att(self, index: int) -> list[Message]:
        """Take a string without a key as a tag."""
        out: list[Message] = []
        atts = self.node.atts or []
        if (
            len(self.tree[1][index][1]) == 1
            and atts
            and atts[-1][0] is None
            and type(atts[-1][1]) is str
        ):
            out = add_tags(self, self.node, atts.pop()[1])
        return out + super().receive_att(index)

    def cancel_when_closed(self, status: dict[str, Any]) -> list[Message]:
        """Let a cancel end the on_error handler that runs."""
        if status.get("flavour") == "on-error":
            self.run.close(self.node, self.message)
            return self.cancel(None)
        return []


@procedure("sequence", "begin")
class Sequence(Taggable):
    """Children in order; ret is that of the last."""

    __slots__ = ()


@procedure("noret")
class NoRet(Procedure):
    """Children in order; ret is what it was on entry."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the ret of the entry."""
        return self.reply(ret=self.ret0)


@procedure("noeval")
class NoEval(Procedure):
    """Skip the children."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Reply at once."""
        return self.reply()


@procedure("stall")
class Stall(Procedure):
    """Never reply."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Stay."""
        return []


@procedure("_skip")
class Skip(Procedure):
    """Reply after a number of messages to oneself."""

    __slots__ = ()
    keeps_atts = True

    def receive(self) -> list[Message]:
        """Count down."""
        own = self.node.own
        if "count" not in own:
            values = self.unkeyed()
            own["count"] = int(values[0]) if values else 1
            self.set_ret(self.ret0)
        own["count"] -= 1
        if own["count"] < 1:
            return self.reply()
        nid = self.node.nid
        again = self.wrap("receive", nid, virtual=True)
        again["from"] = child_nid(nid, 1)
        return [again]


@procedure("_err")
class Oops(Procedure):
    """Fail with the text of the children; for tests."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Raise."""
        raise RuntimeError(to_text(self.payload.get("ret")))
