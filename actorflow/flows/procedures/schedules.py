"""Time: sleep, schedule, cron, every."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.macros import Macro, make_def
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.signals import Watcher
from actorflow.flows.values import to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Tree


@procedure("sleep")
class Sleep(Procedure):
    """Reply after a while."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Schedule the reply."""
        text = self.att("for", "in")
        values = self.unkeyed()
        if text is None:
            text = values[0] if values else self.payload.get("ret")
        message = self.reply()[0]
        return [
            self.wrap(
                "schedule",
                self.node.nid,
                type="in",
                string=to_text(text),
                message=message,
                payload={},
            )
        ]


@procedure("schedule")
class Schedule(Watcher):
    """Run a function in, at, or by cron and every."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Schedule the function and let the parent go on."""
        if self.function() is None:
            raise FlowError("schedule needs a function")
        kind, text = None, None
        for key, value in self.node.atts or ():
            if key in ("in", "at", "cron", "every"):
                kind, text = key, value
        if text is None:
            texts = [value for value in self.unkeyed() if type(value) in (str, int, float)]
            if not texts:
                raise FlowError("schedule needs a time: in:, at:, cron: or every:")
            text = texts[0]
        message = self.application()
        schedule = self.wrap(
            "schedule", self.node.nid, string=to_text(text), message=message, payload={}
        )
        if kind is not None:
            schedule["type"] = kind
        self.node.own["set"] = True
        return [schedule, *self.flank()]


@procedure("cron", "every")
class Repeat(Macro):
    """``cron '...'`` and ``every '...'`` with a block."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Return a schedule."""
        atts, body = self.split()
        line = self.tree[2]
        if self.tree[0] == "cron":
            for position, att in enumerate(atts):
                if len(att[1]) == 1:
                    atts[position] = ["_att", [["cron", [], line], att[1][0]], *att[2:]]
                    break
        return ["schedule", [*atts, make_def(body, line, "msg")], line]
