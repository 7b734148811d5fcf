"""+ - * / %."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.base import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values import Value, integral, is_reference, kind_name, to_text

if TYPE_CHECKING:
    from actorflow.flows.node import Message


def _number(value: Value, sign: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FlowError(f"cannot compute {sign} with {kind_name(value)}")
    return value


_LEAST, _GREATEST = -(2**63), 2**64 - 1
"""What can be stored as a whole number."""


def _combine(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if right == 0:
        raise FlowError("divided by 0")
    if sign == "%":
        return left % right
    exact = isinstance(left, int) and isinstance(right, int) and left % right == 0
    return left // right if exact else left / right


def _concatenate(first: Value, rest: list[Value]) -> Value:
    """Add to a string, an array or an object."""
    if type(first) is str:
        return first + "".join(to_text(value) for value in rest)
    if type(first) is list:
        joined = list(first)
        for value in rest:
            joined.extend(value if type(value) is list else [value])
        return joined
    merged = dict(first)
    for value in rest:
        if type(value) is not dict:
            raise FlowError(f"cannot add {kind_name(value)} to an object")
        merged.update(value)
    return merged


def compute(sign: str, values: list[Value]) -> Value:
    """Fold ``values`` with one operator. A string in front makes ``+`` concatenate."""
    if not values:
        return 1 if sign in ("*", "/") else 0
    first = values[0]
    if sign == "+" and type(first) in (str, list, dict) and not is_reference(first):
        return _concatenate(first, values[1:])
    total = _number(first, sign)
    if len(values) == 1:
        return integral(-total) if sign == "-" else integral(total)
    for value in values[1:]:
        total = _combine(sign, total, _number(value, sign))
    if not math.isfinite(total):
        raise FlowError(f"the result of {sign} is not a number")
    result = integral(total)
    if type(result) is int and not _LEAST <= result <= _GREATEST:
        if type(total) is float:
            return total
        raise FlowError(f"the result of {sign} is too big: a whole number has at most 64 bits")
    return result


@procedure("+", "-", "*", "/", "%")
class Arithmetic(Procedure):
    """Fold the arguments; a lone array, or ret, is folded itself."""

    __slots__ = ()
    unatts = True
    collects = True
    keeps_atts = True

    def pre_execute(self) -> None:
        """Read a bare ``_`` as no argument at all."""
        children = self.tree[1]
        if any(child[0] == "_" and child[1] == [] for child in children):
            kept = [child for child in children if child[0] != "_" or child[1]]
            nothing = ["_att", [["_", [], self.tree[2]]], self.tree[2]]
            self.rewrite([self.tree[0], [nothing, *kept], *self.tree[2:]])

    def receive_last(self) -> list[Message]:
        """Compute and reply."""
        sign = self.node.heap or ""
        values = self.node.rets or []
        if not values and type(self.ret0) is list:
            values = [self.ret0]
        alone = values[0] if len(values) == 1 else None
        if type(alone) is list and not is_reference(alone):
            values = alone
        if sign == "%" and len(values) < 2:  # noqa: PLR2004
            raise FlowError("modulo % requires at least 2 arguments")
        joiner = self.att("join", "joiner")
        if joiner is not None and sign == "+":
            return self.reply(ret=to_text(joiner).join(to_text(value) for value in values))
        return self.reply(ret=compute(sign, values))
