"""on_error, on_cancel, on_timeout, on_receive as lines of their own; and ``on``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.macros import Macro, make_def
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import is_function

if TYPE_CHECKING:
    from actorflow.flows.node import Message, Node, Tree

_KINDS = ("error", "cancel", "timeout", "receive")
_TRANSPARENT = frozenset(("_if", "_unless"))


@procedure(*(f"on_{kind}" for kind in _KINDS))
class OnSomething(Procedure):
    """Give the parent a handler; other arguments are criteria for errors."""

    __slots__ = ()
    unatts = True
    collects = True
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Store the handler and reply."""
        kind = (self.node.heap or "").removeprefix("on_")
        rets = self.node.rets or []
        function = next((ret for ret in rets if is_function(ret)), None)
        if function is None:
            raise FlowError(f"{self.node.heap} needs a function")
        criteria = [ret for ret in rets if ret is not function]
        criteria += [
            value
            for key, value in self.node.atts or ()
            if key in ("class", "klass", "regex", "rex", "msg")
        ]
        parent: Node | None = self.parent_node()
        while parent is not None and parent.heap in _TRANSPARENT and parent.parent is not None:
            parent = self.run.find(parent.parent)
        if parent is not None:
            parent.handlers = parent.handlers or {}
            parent.handlers.setdefault(kind, []).append([criteria or ["*"], function])
        return self.reply(from_on=kind)


@procedure("on")
class On(Macro):
    """``on error``... is on_error with a block; ``on 'name'`` traps a signal."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Return an on_x or a trap."""
        atts, body = self.split()
        line = self.tree[2]
        subject, others = None, list(atts)
        for position, att in enumerate(others):
            if len(att[1]) == 1:
                subject = att[1][0]
                del others[position]
                break
        if subject is None:
            raise FlowError("on needs to know what: on 'signal', on error, on cancel or on timeout")
        if subject[0] in _KINDS and subject[1] == []:
            kind = subject[0]
            params = ("msg", "err") if kind == "error" else ("msg",)
            function = [make_def(body, line, *params)] if body else []
            return [f"on_{kind}", [*others, *function], line]
        point = ["_att", [["point", [], line], ["_sqs", "signal", line]], line]
        name = ["_att", [["name", [], line], subject], line]
        event = ["_att", [["payload", [], line], ["_sqs", "event", line]], line]
        function = [make_def(body, line, "msg")] if body else []
        return ["trap", [point, name, *others, event, *function], line]
