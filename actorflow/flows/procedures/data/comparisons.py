"""Comparisons, ``and``, ``or`` and ``not``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import Value, kind_name, same, truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


_ORDERS = frozenset(("<", ">", "<=", ">="))


def compare(sign: str, left: Value, right: Value) -> bool:
    """Compare two values. Raises FlowError for values of different types, except by equality."""
    if sign in ("=", "=="):
        return same(left, right)
    if sign in ("!=", "<>"):
        return not same(left, right)
    numbers = all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in (left, right)
    )
    if not numbers and not (type(left) is str and type(right) is str):
        raise FlowError(f"cannot compare {kind_name(left)} and {kind_name(right)} with {sign}")
    if sign == "<":
        return bool(left < right)
    if sign == ">":
        return bool(left > right)
    return bool(left <= right) if sign == "<=" else bool(left >= right)


@procedure("=", "==", "!=", "<>", "<", ">", "<=", ">=")
class Compare(Procedure):
    """Compare the last two arguments, or the first and the last for equality."""

    __slots__ = ()
    collects = True

    def receive_last(self) -> list[Message]:
        """Compare and reply; with fewer than two arguments, the result is true."""
        values = self.node.rets or []
        sign = self.node.heap or ""
        left = -2 if sign in _ORDERS else 0
        self.set_ret(len(values) < 2 or compare(sign, values[left], values[-1]))  # noqa: PLR2004
        return self.reply()


@procedure("and", "or")
class AndOr(Procedure):
    """Stop at the first decisive value, which may be that of an attribute; ret is that value."""

    __slots__ = ()

    def start(self) -> list[Message]:
        """Begin with the result for no values."""
        self.set_ret(self.node.heap == "and")
        return super().start()

    def receive_att(self, index: int) -> list[Message]:
        """Stop or continue."""
        return self.receive_non_att(index)

    def receive_non_att(self, index: int) -> list[Message]:
        """Stop or continue."""
        if truthy(self.payload.get("ret")) == (self.node.heap == "or"):
            return self.reply()
        return self.execute_child(index + 1)


@procedure("not")
class Not(Procedure):
    """Negate the last value."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Negate and reply."""
        self.set_ret(not truthy(self.payload.get("ret")))
        return self.reply()
