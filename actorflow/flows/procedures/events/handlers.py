"""``on_error``, ``on_cancel``, ``on_timeout``, ``on_receive`` as lines, and ``on``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.attributes import store_handler
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import Macro, make_def
from actorflow.flows.values.regexes import to_regex
from actorflow.flows.values.text import shown
from actorflow.flows.values.values import Value, is_function, is_regex, truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree

_KINDS = ("error", "cancel", "timeout", "receive")


@procedure(*(f"on_{kind}" for kind in _KINDS))
class OnSomething(Procedure):
    """Add a handler to the parent; other arguments are criteria for errors."""

    __slots__ = ()
    unatts = True
    collects = True
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Store the handler, if one is given, and reply."""
        kind = (self.node.heap or "").removeprefix("on_")
        is_last = kind in ("cancel", "timeout")
        given: list[Value] = [self.payload.get("ret")] if is_last else self.node.rets or []
        function = next((one for one in given if is_function(one) and one[0] == "_func"), None)
        if function is not None:
            flagged = [function[0], {**function[1], f"on_{kind}": True}, function[2]]
            store_handler(self, kind, self._criteria() if kind == "error" else ["*"], flagged)
            if is_last:
                self.set_ret(flagged)
        return self.reply(from_on=kind)

    def _criteria(self) -> list[Value]:
        """Return the criteria for errors: a class, a text or class, or an expression."""
        rets, line = self.node.rets or [], self.tree[2]
        criteria: list[Value] = []
        name = self.att("class", "klass")
        if truthy(name):
            criteria.append(["class", name, line])
        text = next((ret for ret in rets if type(ret) is str), None)
        if text is not None:
            criteria.append(["string", text, line])
        for ret in [ret for ret in rets if is_regex(ret)][:1]:
            to_regex(ret, self.run.sizes.limits)  # raises now, not when there is an error to handle
            criteria.append(["regex", *ret[1:]])
        return criteria or ["*"]


@procedure("on")
class On(Macro):
    """``on error``... is on_error with a block; ``on 'name'`` traps a signal."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Return an on_x or a trap."""
        atts, body = self.split()
        line = self.tree[2]
        words = {place: att[1][0] for place, att in enumerate(atts) if len(att[1]) == 1}
        for place, word in words.items():
            if word[0] in _KINDS and word[1] == []:
                del atts[place]
                params = ("msg", "err") if word[0] == "error" else ("msg",)
                return [f"on_{word[0]}", [*atts, make_def(body, line, *params)], line]
        if not words:
            raise FlowError(f"signal name not found in {shown(self.tree)}")
        place, subject = next(iter(words.items()))
        del atts[place]
        point = ["_att", [["point", [], line], ["_sqs", "signal", line]], line]
        name = ["_att", [["name", [], line], subject], line]
        function = [make_def(body, line, "msg")] if body else []
        if not any(att[1][0][0] == "payload" for att in atts):
            atts.append(["_att", [["payload", [], line], ["_sqs", "event", line]], line])
        return ["trap", [point, name, *atts, *function], line]
