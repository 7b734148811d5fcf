"""Leaving traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message


@procedure("trace", "echo")
class Trace(Procedure):
    """Keep a text with the execution; ret stays what it was."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Keep the text and reply."""
        values = self.unkeyed()
        text = to_text(values[-1] if values else self.payload.get("ret"))
        self.run.trace(self.node.nid, text)
        self.set_ret(self.ret0)
        return self.reply()
