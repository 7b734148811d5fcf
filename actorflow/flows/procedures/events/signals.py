"""``trap``, ``do-trap`` and ``signal``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure, emit_waiting
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import Macro, make_def
from actorflow.flows.values.text import as_text
from actorflow.flows.values.values import (
    Value,
    is_function,
    is_reference,
    stored_integer,
    to_json,
    to_text,
    truthy,
)

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree

_CRITERIA = {
    "points": ("point", "points"),
    "tags": ("tag", "tags"),
    "heaps": ("heap", "heaps"),
    "heats": ("heat", "heats"),
    "names": ("name", "names"),
}


def _listed(value: Value) -> list[Value]:
    if type(value) is list and not is_reference(value) and (not value or value[0] != "_rxs"):
        return value
    return [value]


def _unique(values: list[Value]) -> list[Value]:
    unique: dict[str, Value] = {}
    for value in values:
        unique.setdefault(to_json(value), value)
    return list(unique.values())


class Watcher(Procedure):
    """Stays after its reply, and runs its function repeatedly."""

    __slots__ = ()
    keeps_atts = True
    trails = False

    def receive(self) -> list[Message]:
        """Collect the arguments; ignore the answers of the function."""
        if self.node.own.get("set"):
            return []
        return super().receive()

    def receive_non_att(self, index: int) -> list[Message]:
        """Take the function."""
        ret = self.payload.get("ret")
        if is_function(ret):
            self.node.own["fun"] = ret
        return super().receive_non_att(index)

    def function(self) -> Value:
        """Return the function, or None."""
        given = self.node.own.get("fun")
        return (
            given
            if given is not None
            else next((v for v in self.node.unkeyed_atts() if is_function(v)), None)
        )

    def application(self) -> dict[str, Any]:
        """Return the message that applies the function; it gets a new suffix with each release."""
        function = self.function()
        message = self.apply(function, [], sub=0)
        message["nid"] = function[1]["nid"]
        return message

    def flank(self) -> list[Message]:
        """Let the parent continue."""
        reply = self.reply(flavour="flank")
        self.node.detached = True
        return reply

    def cancel(self, waiting: list[Message] | None) -> list[Message]:
        """Reply at once; running applications of the function continue."""
        if not self.node.own.get("set"):
            return super().cancel(waiting)
        self.node.on_receive_last = waiting or None
        return emit_waiting(self) if waiting else self.reply()


def _number(count: Value) -> int:
    try:
        return stored_integer(count)
    except (TypeError, ValueError, OverflowError):
        raise FlowError(f"count: must be a number, not {as_text(count)}") from None


@procedure("trap")
class Trap(Watcher):
    """Watch messages; run the function for each match, or, without one, wait for the first."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Create the variables that the function closes over."""
        self.node.vars = self.node.vars or {}

    def receive_last(self) -> list[Message]:
        """Set the trap."""
        node = self.node
        blocking = self.function() is None
        trap: dict[str, Any] = {
            "nid": node.nid,
            "bnid": node.parent or node.nid,
            "range": to_text(self.att("range", "scope")) or "subnid",
            **self._criteria(),
        }
        count = 1 if blocking else self.att("count")
        if count is not None:
            trap["count"] = _number(count)
        trap["pl"] = self.att("payload", "pl") or "trap"
        trap["message"] = self.reply()[0] if blocking else self.application()
        node.own["set"] = True
        out = [self.wrap("trap", node.nid, trap=trap)]
        return out if blocking else out + self.flank()

    def _criteria(self) -> dict[str, list[Value]]:
        """Return the criteria for messages."""
        wanted = {
            criterion: _listed(value)
            for criterion, names in _CRITERIA.items()
            if (value := self.att(*names)) is not None
        }
        if "points" not in wanted and "tags" not in wanted:
            words = [value for value in self.node.unkeyed_atts() if not is_function(value)]
            if words:
                wanted["points"] = _listed(words[0])
        elif "points" not in wanted:
            wanted["points"] = ["entered"]
        signals = self.att("sig", "signal", "signals")
        if signals is not None:
            wanted["points"] = _unique([*wanted.get("points", ()), "signal"])
            wanted["names"] = _unique([*wanted.get("names", ()), *_listed(signals)])
        return wanted


@procedure("do-trap")
class DoTrap(Macro):
    """A trap with a block instead of a function."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Wrap the block into a def."""
        atts, body = self.split()
        return ["trap", [*atts, make_def(body, self.tree[2], "msg")], *self.tree[2:]]


@procedure("signal")
class SignalProcedure(Procedure):
    """Emit a signal, to this execution or another; signals are not stored."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Emit the signal, if it has a name, and reply."""
        name = self.att("name")
        if name is None:
            name = next(iter(self.node.unkeyed_atts()), None)
        if not truthy(name):
            return self.reply()
        signal = self.wrap("signal", self.node.nid, name=name)
        payload = self.att("payload")
        if payload is not None:
            signal["payload"] = payload
        exid = self.att("exid")
        if exid is not None and exid != self.run.exid:
            signal["exid"] = to_text(exid)
            signal.pop("nid")
        return [signal, *self.reply()]
