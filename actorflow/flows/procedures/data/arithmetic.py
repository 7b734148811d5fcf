"""Arithmetic: ``+``, ``-``, ``*``, ``/`` and ``%``."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.sizes import Sizes, check_elements
from actorflow.flows.values.text import as_text
from actorflow.flows.values.values import (
    GREATEST_INTEGER,
    LEAST_INTEGER,
    Value,
    integral,
    is_reference,
    kind_name,
    truthy,
)

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")


def _number(value: Value, sign: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FlowError(f"cannot compute {sign} with {kind_name(value)}")
    return value


def _float(value: Value, sign: str) -> float:
    """Return a float: the number at the start of a string, 0 for null."""
    if type(value) is str:
        match = _NUMBER.match(value)
        return float(match.group()) if match else 0.0
    return 0.0 if value is None else float(_number(value, sign))


def _combine(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if right == 0:
        raise FlowError("divided by 0")
    return left % right if sign == "%" else left / right


def _concatenate(first: Value, rest: list[Value], sizes: Sizes) -> Value:
    """Add to a string, an array or an object."""
    if type(first) is str:
        return sizes.join([first, *map(as_text, rest)])
    if type(first) is list:
        parts = [value if type(value) is list else [value] for value in rest]
        check_elements(sum(map(len, parts), len(first)), sizes.limits, "+")
        joined = list(first)
        for part in parts:
            joined.extend(part)
        return sizes.check_parts(joined, parts, levels=0)
    merged = dict(first)
    for value in rest:
        if type(value) is not dict:
            raise FlowError(f"cannot add {kind_name(value)} to an object")
        merged.update(value)
    return sizes.check_parts(merged, rest, levels=0)


def _fitting(total: float, sign: str) -> Value:
    """Return a result: an integer if it has no fraction. Raises FlowError if it is too large."""
    if not math.isfinite(total):
        raise FlowError(f"the result of {sign} is not a number")
    result = integral(total)
    if type(result) is int and not LEAST_INTEGER <= result <= GREATEST_INTEGER:
        if type(total) is float:
            return total
        raise FlowError(f"the result of {sign} is too big: a whole number has at most 64 bits")
    return result


def compute(sign: str, values: list[Value], sizes: Sizes) -> Value:
    """Fold ``values`` with one operator. If the first is a string, ``+`` concatenates."""
    if all(value is None for value in values):
        return 1 if sign in ("*", "/") else 0
    first = values[0]
    if sign == "+" and type(first) in (str, list, dict) and not is_reference(first):
        return _concatenate(first, values[1:], sizes)
    if sign == "/" or (sign != "+" and any(type(value) is float for value in values)):
        numbers = [_float(value, sign) for value in values]
    else:
        numbers = [_number(value, sign) for value in values]
    total = -numbers[0] if sign == "-" and len(numbers) == 1 else numbers[0]
    for number in numbers[1:]:
        total = _combine(sign, total, number)
    return _fitting(total, sign)


def _joined(values: list[Value], joiner: Value) -> list[Value]:
    """Insert a joiner between values; a string joiner makes the first value a string."""
    out: list[Value] = []
    for value in values:
        out += (joiner, value) if out else (value,)
    return [as_text(out[0]), *out[1:]] if out and type(joiner) is str else out


@procedure("+", "-", "*", "/", "%")
class Arithmetic(Procedure):
    """Fold the arguments; a single array, or ret, is folded itself."""

    __slots__ = ()
    unatts = True
    collects = True
    keeps_atts = True

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
        joiner = self.att("join")
        if truthy(joiner):
            values = _joined(values, joiner)
        return self.reply(ret=compute(sign, values, self.run.sizes))
