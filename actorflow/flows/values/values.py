"""The values of flows: truth, types, text, comparison, merging.

Values are JSON values and are treated as immutable: every change returns a new container that
shares what did not change. Functions, procedures and taskers are values too: trees whose head
starts with an underscore.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

Value = Any


class _Missing:
    """The type of ``MISSING``, which distinguishes a missing value from null."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()
LEAST_INTEGER, GREATEST_INTEGER = -(2**63), 2**64 - 1
"""The integers that can be stored."""
_REFERENCES: Final = {"_func": 1, "_proc": 1, "_tasker": 1}


def truthy(value: Value) -> bool:
    """Return whether a value counts as true: only false and null do not.

    >>> truthy(0), truthy(""), truthy(None)
    (True, True, False)
    """
    return value is not None and value is not False


def is_reference(value: Value) -> bool:
    """Return whether ``value`` is a function, a procedure or a tasker."""
    if type(value) is not list or len(value) != 3:  # noqa: PLR2004
        return False
    return type(value[0]) is str and value[0] in _REFERENCES and type(value[1]) is dict


def is_function(value: Value) -> bool:
    """Return whether ``value`` can be applied: a function or a procedure."""
    return (
        type(value) is list
        and len(value) == 3  # noqa: PLR2004
        and value[0] in ("_func", "_proc")
        and type(value[1]) is dict
    )


def dup_function(value: Value) -> Value:
    """Return a copy of a function value that does not change when the original is called."""
    if type(value) is not list or len(value) != 3 or value[0] != "_func":  # noqa: PLR2004
        return value
    if type(value[1]) is dict:
        return [value[0], dict(value[1]), value[2]]
    return value


def is_regex(value: Value) -> bool:
    """Return whether ``value`` is a regular expression: ``["_rxs", "/ab/i", line]``."""
    if type(value) is not list or len(value) != 3:  # noqa: PLR2004
        return False
    return bool(value[0] == "_rxs" and type(value[1]) is str)


_REGEX_TEXT = re.compile(r"\A/(.*)/([a-z]*)\Z", re.DOTALL)


def regex_parts(text: str) -> tuple[str, str]:
    """Return the source and the option letters of ``/source/letters``, or of a bare source."""
    match = _REGEX_TEXT.match(text)
    return (match.group(1), match.group(2)) if match else (text, "")


def regex_source(value: Value) -> str:
    """Return a regular expression as it appears in strings: ``(?-mix:...)``."""
    source, letters = regex_parts(value[1])
    on = "".join(letter for letter in "mix" if letter in letters)
    off = "".join(letter for letter in "mix" if letter not in letters)
    return f"(?{on}{'-' + off if off else ''}:{source})"


def type_name(value: Value) -> str:  # noqa: PLR0911
    """Return the flow name of the type of a value.

    >>> [type_name(v) for v in (1, "a", None, True, [], {})]
    ['number', 'string', 'null', 'boolean', 'array', 'object']
    """
    if value is None:
        return "null"
    if value is True or value is False:
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    if is_reference(value):
        return {"_func": "function", "_proc": "procedure", "_tasker": "tasker"}[value[0]]
    if is_regex(value):
        return "regex"
    return "array"


_KIND: Final = {"null": "NilClass", "string": "String", "array": "Array", "object": "Hash"}


def kind_name(value: Value) -> str:
    """Return the name of a type as error messages use it: ``Integer``, ``String``..."""
    if value is True:
        return "TrueClass"
    if value is False:
        return "FalseClass"
    if isinstance(value, int):
        return "Integer"
    if isinstance(value, float):
        return "Float"
    return _KIND.get(type_name(value), "Array")


def to_json(value: Value) -> str:
    """Return the compact JSON text of a value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_text(value: Value) -> str:
    """Return a value as it appears inside a string.

    Null is empty, a string is itself, anything else is JSON.
    """
    if type(value) is str:
        return value
    if value is None:
        return ""
    if is_regex(value):
        return regex_source(value)
    return to_json(value)


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal; unlike in Python, a boolean never equals a number.

    >>> same(1, True), same(1, 1.0), same([1], [1])
    (False, True, True)
    """
    left_bool, right_bool = type(left) is bool, type(right) is bool
    if left_bool or right_bool:
        return left_bool and right_bool and left == right
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    return bool(left == right)


def integral(number: Value) -> Value:
    """Turn a float without a fraction into an integer.

    >>> integral(3.0), integral(4.5), integral(2)
    (3, 4.5, 2)
    """
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number


def stored_integer(value: Value) -> int:
    """Return a number, or the text of one, as an integer that can be stored.

    >>> stored_integer(3.0), stored_integer("-7")
    (3, -7)

    Raises TypeError, ValueError or OverflowError for other values.
    """
    number = int(value)
    if not LEAST_INTEGER <= number <= GREATEST_INTEGER:
        raise OverflowError("a whole number has at most 64 bits")
    return number


def deep_merge(low: Value, high: Value) -> Value:
    """Merge objects by key and arrays by index; for other values, ``high`` wins."""
    if type(low) is dict and type(high) is dict:
        merged = dict(low)
        for key, value in high.items():
            merged[key] = deep_merge(low[key], value) if key in low else value
        return merged
    if type(low) is list and type(high) is list:
        shared = [deep_merge(a, b) for a, b in zip(low, high, strict=False)]
        return shared + (low[len(high) :] or high[len(low) :])
    return high
