"""Values as flows see them.

Truth, type names, texts, function values, merging, and paths into them.

Values are JSON values and are treated as immutable: every change returns a new container that
shares what did not change. Functions, procedures and taskers are values too: trees whose head
starts with an underscore.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from actorflow.flows.failure import FlowError

Value = Any


class _Missing:
    """The type of ``MISSING``, which tells "nothing there" from a null that is there."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()
_REFERENCES: Final = {"_func": 1, "_proc": 1, "_tasker": 1}


def truthy(value: Value) -> bool:
    """Only false and null are false.

    >>> truthy(0), truthy(""), truthy(None)
    (True, True, False)
    """
    return value is not None and value is not False


def is_reference(value: Value) -> bool:
    """Tell whether ``value`` is a function, a procedure or a tasker."""
    if type(value) is not list or len(value) != 3:  # noqa: PLR2004
        return False
    return type(value[0]) is str and value[0] in _REFERENCES


def is_function(value: Value) -> bool:
    """Tell whether ``value`` is something that can be applied: a function or a procedure."""
    return (
        type(value) is list
        and len(value) == 3  # noqa: PLR2004
        and value[0] in ("_func", "_proc")
        and type(value[1]) is dict
    )


def dup_function(value: Value) -> Value:
    """Return a copy of a function value that does not change when the original is called."""
    if type(value) is list and len(value) == 3 and value[0] == "_func":  # noqa: PLR2004
        return [value[0], dict(value[1]), value[2]]
    return value


def is_regex(value: Value) -> bool:
    """Tell whether ``value`` is a regular expression (a ``_rxs`` tree)."""
    return type(value) is list and len(value) == 3 and value[0] == "_rxs"  # noqa: PLR2004


_REGEX_TEXT = re.compile(r"\A/(.*)/([a-z]*)\Z", re.DOTALL)
_REGEX_FLAGS: Final = {"i": re.IGNORECASE, "x": re.VERBOSE, "m": re.DOTALL}


def _regex_parts(text: str) -> tuple[str, str]:
    match = _REGEX_TEXT.match(text)
    return (match.group(1), match.group(2)) if match else (text, "")


def regex_source(value: Value) -> str:
    """Return a regular expression as it is shown inside texts: ``(?-mix:...)``."""
    source, letters = _regex_parts(value[1])
    on = "".join(letter for letter in "mix" if letter in letters)
    off = "".join(letter for letter in "mix" if letter not in letters)
    return f"(?{on}{'-' + off if off else ''}:{source})"


def to_regex(value: Value) -> re.Pattern[str]:
    """Compile a regular expression value, or a plain string, to a pattern.

    Raises FlowError for anything else, or when the expression is not valid.
    """
    text = value[1] if is_regex(value) else value
    if type(text) is not str:
        raise FlowError(f"cannot turn {type_name(value)} into a regular expression")
    source, letters = _regex_parts(text)
    flags = re.MULTILINE
    for letter in letters:
        flags |= _REGEX_FLAGS.get(letter, re.NOFLAG)
    try:
        return re.compile(source, flags)
    except re.error as error:
        raise FlowError(f"invalid regular expression {source!r}: {error}") from error


def groups(match: re.Match[str]) -> list[str | None]:
    """Return the whole match followed by its groups."""
    return [match.group(0), *match.groups()]


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
    """Return the word error texts use for a kind of value: ``Integer``, ``String``..."""
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

    Null is empty, strings are themselves, the rest is JSON.
    """
    if type(value) is str:
        return value
    if value is None:
        return ""
    if is_regex(value):
        return regex_source(value)
    return to_json(value)


def same(left: Value, right: Value) -> bool:
    """Compare by value; unlike Python's ``==``, a boolean is never equal to a number.

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


def deep_merge(low: Value, high: Value) -> Value:
    """Merge objects by key and arrays by index; where both have a plain value, ``high`` wins."""
    if type(low) is dict and type(high) is dict:
        merged = dict(low)
        for key, value in high.items():
            merged[key] = deep_merge(low[key], value) if key in low else value
        return merged
    if type(low) is list and type(high) is list:
        shared = [deep_merge(a, b) for a, b in zip(low, high, strict=False)]
        return shared + (low[len(high) :] or high[len(low) :])
    return high


# -- paths -----------------------------------------------------------------------------------


def path_text(path: list[Value]) -> str:
    """Return a path as it is written: ``f.a.0``."""
    return ".".join(key if type(key) is str else to_json(key) for key in path)


_PATH_STEP: Final = re.compile(
    r"""\.?(?:(?P<name>[^.\[\]'"\s]+)|\[(?P<number>-?\d+)\]|\[(?P<quote>['"]?)(?P<key>[^\]'"]+)(?P=quote)\])"""
)
_NUMBER: Final = re.compile(r"-?\d+")
_ENDS: Final = {"first": 0, "last": -1}


def parse_path(text: str) -> list[Value]:
    """Return the keys of a path that is given as a text.

    Raises FlowError when the text is none.

    >>> parse_path("f.a.0"), parse_path("a['b c'][-1]")
    (['f', 'a', 0], ['a', 'b c', -1])
    """
    path: list[Value] = []
    end = 0
    while end < len(text):
        step = _PATH_STEP.match(text, end)
        if step is None:
            raise FlowError(f"couldn't determine path from {to_json(text)}")
        key = step["key"]
        name = step["number"] or step["name"]
        if key is None:
            key = int(name) if _NUMBER.fullmatch(name) else name
        path.append(key)
        end = step.end()
    return path


def _index(key: Value) -> int | None:
    if type(key) is int:
        return key
    if type(key) is not str:
        return None
    if _NUMBER.fullmatch(key):
        return int(key)
    return _ENDS.get(key.lower())


def is_index(key: Value) -> bool:
    """Tell whether a key can stand for a place in an array."""
    return type(key) in (dict, list) or _index(key) is not None


def is_many(key: Value) -> bool:
    """Tell whether a key stands for several: a slice, or a list of keys."""
    return type(key) is dict or type(key) is list


def _bound(value: Value, default: int) -> int:
    return default if value is None else int(value)


def slice_value(value: Value, spec: dict[str, Value]) -> Value:
    """Return the part of an array or string that a slice asks for.

    A slice is ``{start, count}`` or ``{start, end, step}``; its end is included, as in ``a[1:3]``
    which takes three elements.
    """
    size = len(value)
    if spec.get("count") is not None:
        start = _bound(spec.get("start"), 0)
        start = start + size if start < 0 else start
        count = int(spec["count"])
        return value[max(start, 0) : max(start, 0) + count] if count > 0 else value[:0]
    step = _bound(spec.get("step"), 1) or 1
    start = _bound(spec.get("start"), 0 if step > 0 else size - 1)
    end = _bound(spec.get("end"), size - 1 if step > 0 else 0)
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    picked = range(start, end + (1 if step > 0 else -1), step)
    parts = [value[i] for i in picked if 0 <= i < size]
    return "".join(parts) if type(value) is str else parts


def get_key(value: Value, key: Value) -> Value:
    """Return what stands under one key of a path, or ``MISSING``."""
    if type(value) is dict:
        return value.get(key if type(key) is str else to_text(key), MISSING)
    if type(value) is list or type(value) is str:
        if type(key) is dict:
            return slice_value(value, key)
        if type(key) is list:
            return [None if (v := get_key(value, k)) is MISSING else v for k in key]
        index = _index(key)
        if index is not None and -len(value) <= index < len(value):
            return value[index]
    return MISSING


def single_keys(value: Value, key: Value) -> list[Value]:
    """Return the keys that a slice or a list of keys stands for in ``value``, each once."""
    if type(key) is list:
        keys = [one for part in key for one in single_keys(value, part)]
    elif type(key) is dict:
        keys = slice_value(list(range(len(value))), key) if type(value) is list else []
    else:
        keys = [key]
    return [one for place, one in enumerate(keys) if one not in keys[:place]]


def get_path(value: Value, path: list[Value]) -> tuple[Value, int]:
    """Follow ``path``; return what is found, or ``MISSING``, and the number of keys followed.

    A path with a slice or a list of keys finds an array of what is there.
    """
    for depth, key in enumerate(path):
        if is_many(key):
            return _get_many(value, key, path[depth + 1 :]), depth
        value = get_key(value, key)
        if value is MISSING:
            return MISSING, depth
    return value, len(path)


def _get_many(value: Value, key: Value, rest: list[Value]) -> Value:
    keys = single_keys(value, key)
    many = any(is_many(one) for one in rest)
    found: list[Value] = []
    for one in keys:
        below, _ = get_path(value, [one, *rest])
        if below is not MISSING:
            found += below if many else [below]
    return found if found or value == [] else MISSING


def set_path(container: Value, path: list[Value], value: Value) -> Value:
    """Return a copy of ``container`` with ``value`` at ``path``; only the last key may be new.

    A slice or a list of keys sets each of its places. Raises FlowError when a container on the way
    is missing.
    """
    key, rest = path[0], path[1:]
    if is_many(key):
        for one in single_keys(container, key):
            container = set_path(container, [one, *rest], value)
        return container
    if rest:
        inner = get_key(container, key)
        if type(inner) is not dict and type(inner) is not list:
            raise FlowError(f'couldn\'t set "{path_text(path)}": no object or array at "{key}"')
        value = set_path(inner, rest, value)
    if type(container) is dict:
        changed = dict(container)
        changed[key if type(key) is str else to_text(key)] = value
        return changed
    index = _index(key)
    if type(container) is not list or index is None or index < -len(container):
        raise FlowError(f'couldn\'t set "{path_text(path)}" in {kind_name(container)}')
    items = list(container)
    items.extend([None] * (index + 1 - len(items)))
    items[index] = value
    return items


def _place(key: Value) -> tuple[int, str]:
    index = _index(key)
    return (0, to_text(key)) if index is None else (index, "")


def del_path(container: Value, path: list[Value]) -> Value:
    """Return a copy without what stands at ``path``, or the same when nothing does."""
    key, rest = path[0], path[1:]
    if is_many(key):
        for one in sorted(single_keys(container, key), key=_place, reverse=True):
            container = del_path(container, [one, *rest])
        return container
    inner = get_key(container, key)
    if inner is MISSING:
        return container
    if rest:
        return set_path(container, [key], del_path(inner, rest))
    if type(container) is dict:
        changed = dict(container)
        changed.pop(key if type(key) is str else to_text(key), None)
        return changed
    items = list(container)
    del items[_index(key) or 0]
    return items
