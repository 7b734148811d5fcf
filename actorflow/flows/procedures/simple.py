"""Simple procedures, which compute a value from their arguments, and macros, which rewrite trees.

::

    @simple("double")
    def double(call):
        return 2 * call.argument()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.execution.run import is_live
from actorflow.flows.procedures.registry import procedure

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree
    from actorflow.flows.values.values import Value


class Simple(Procedure):
    """Evaluate the arguments, compute, reply."""

    __slots__ = ()
    unatts = True
    collects = True
    keeps_atts = True
    function: ClassVar[Callable[[Simple], Value]]
    shows: ClassVar[bool] = False
    """Whether the result is also the ret of the last message received, not only of the reply."""

    def receive_last(self) -> list[Message]:
        """Compute and reply."""
        result = type(self).function(self)
        if self.shows:
            self.set_ret(result)
            return self.reply()
        return self.reply(ret=result)

    def arguments(self) -> list[Value]:
        """Return the arguments, in order."""
        if self.unatts:
            return list(self.node.rets or ())
        return self.node.unkeyed_atts() + list(self.node.rets or ())

    def argument(self) -> Value:
        """Return the last argument, or ret without any."""
        values = self.arguments()
        return values[-1] if values else self.ret0

    @property
    def name(self) -> str:
        """The name by which the procedure was called."""
        return self.node.heap or ""


def simple(
    *names: str, unatts: bool = True, shows: bool = False
) -> Callable[[Callable[[Simple], Value]], Callable[[Simple], Value]]:
    """Register a function as a procedure; it is called with a `Simple`."""

    def register(function: Callable[[Simple], Value]) -> Callable[[Simple], Value]:
        body = {
            "__slots__": (),
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": f"simple.{function.__name__}",
            "function": staticmethod(function),
            "unatts": unatts,
            "shows": shows,
        }
        procedure(*names)(type(function.__name__, (Simple,), body))
        return function

    return register


class Macro(Procedure):
    """Emit the same execute message again, with another tree."""

    __slots__ = ()

    def execute(self) -> list[Message]:
        """Emit the rewritten tree; the node is entered with the new message."""
        again = {key: value for key, value in self.message.items() if key not in ("m", "pr", "er")}
        again["tree"] = self.rewritten()
        again["rewritten"] = True
        self.node.tree = self.tree
        if is_live(self.run, self.node.parent):
            again["trailing"] = True
        return [again]

    def rewritten(self) -> Tree:
        """Return the new tree."""
        raise NotImplementedError

    def split(self) -> tuple[list[Tree], list[Tree]]:
        """Return the attributes and the other children."""
        children = self.tree[1]
        atts = [child for child in children if child[0] == "_att"]
        return atts, [child for child in children if child[0] != "_att"]


def make_def(body: list[Tree], line: int, *params: str) -> Tree:
    """Return the tree of a function with the given parameters."""
    return ["def", [*(["_att", [[name, [], line]], line] for name in params), *body], line]
