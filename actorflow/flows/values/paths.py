"""Paths into values: reads, sets and deletes values at ``f.a.0`` or ``a[1:3]``."""

from __future__ import annotations

import re
from typing import Final

from actorflow.flows.errors import FlowError, LimitExceeded
from actorflow.flows.limits import LIMITS, Limits
from actorflow.flows.values.values import MISSING, Value, kind_name, to_json, to_text


def path_text(path: list[Value]) -> str:
    """Return a path as it is written: ``f.a.0``."""
    return ".".join(key if type(key) is str else to_json(key) for key in path)


_PATH_STEP: Final = re.compile(
    r"""\.?(?:(?P<name>[^.\[\]'"\s]+)|\[(?P<number>-?\d+)\]|\[(?P<quote>['"]?)(?P<key>[^\]'"]+)(?P=quote)\])"""
)
_NUMBER: Final = re.compile(r"-?\d+")
_DIGITS: Final = 19
"""With fewer digits a number can be stored as a whole number."""
_ENDS: Final = {"first": 0, "last": -1}


def parse_path(text: str) -> list[Value]:
    """Return the keys of a path given as text. Raises FlowError if it is not a path.

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
            key = int(name) if _NUMBER.fullmatch(name) and len(name) < _DIGITS else name
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
    """Return whether a key can be an index into an array."""
    return type(key) in (dict, list) or _index(key) is not None


def is_many(key: Value) -> bool:
    """Return whether a key selects several elements: a slice, or a list of keys."""
    return type(key) is dict or type(key) is list


def _bound(value: Value, default: int) -> int:
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise FlowError(f"cannot slice with {to_json(value)}: it is not a number") from None


def slice_value(value: Value, spec: dict[str, Value]) -> Value:
    """Return the part of an array or string that a slice selects.

    A slice is ``{start, count}`` or ``{start, end, step}``; its end is included, as in ``a[1:3]``
    which takes three elements.
    """
    size = len(value)
    if spec.get("count") is not None:
        start = _bound(spec.get("start"), 0)
        start = start + size if start < 0 else start
        count = _bound(spec["count"], 0)
        return value[max(start, 0) : max(start, 0) + count] if count > 0 else value[:0]
    step = _bound(spec.get("step"), 1) or 1
    start = _bound(spec.get("start"), 0 if step > 0 else size - 1)
    end = _bound(spec.get("end"), size - 1 if step > 0 else 0)
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    picked = range(start, end + (1 if step > 0 else -1), step)
    parts = [value[i] for i in _inside(picked, size)]
    return "".join(parts) if type(value) is str else parts


def _inside(places: range, size: int) -> range:
    """Return the places that are from 0 to ``size``, without going through the others.

    >>> list(_inside(range(-(10**18), 10**18, 2), 5)), list(_inside(range(10**18, -1, -3), 5))
    ([0, 2, 4], [4, 1])
    """
    if places.step < 0:
        return _inside(places[::-1], size)[::-1]
    skipped = max(0, -(places.start // places.step))
    return range(places.start + skipped * places.step, min(places.stop, size), places.step)


def get_key(value: Value, key: Value) -> Value:
    """Return the value at one key of a path, or ``MISSING``."""
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
    """Return the distinct keys that a slice or a list of keys selects in ``value``."""
    if type(key) is dict:
        return slice_value(list(range(len(value))), key) if type(value) is list else []
    if type(key) is not list:
        return [key]
    keys: dict[tuple[type, Value], Value] = {}
    for one in (one for part in key for one in single_keys(value, part)):
        keys.setdefault((type(one), one if type(one) in (int, str) else to_json(one)), one)
    return list(keys.values())


def get_path(value: Value, path: list[Value]) -> tuple[Value, int]:
    """Follow ``path``; return the value found, or ``MISSING``, and the number of keys followed.

    For a path with a slice or a list of keys, that is an array of what exists.
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


def set_path(container: Value, path: list[Value], value: Value, limits: Limits = LIMITS) -> Value:
    """Return a copy of ``container`` with ``value`` at ``path``; only the last key may be new.

    A slice or a list of keys sets each element. Raises FlowError if a container on the path is
    missing, and LimitExceeded if an array would get too long.
    """
    key, rest = path[0], path[1:]
    if not rest and type(key) is str and type(container) is dict:
        return {**container, key: value}
    if type(container) is not dict and type(container) is not list:
        if is_many(key) and not single_keys(container, key):
            return container
        raise FlowError(f'couldn\'t set "{path_text(path)}" in {kind_name(container)}')
    changed = container.copy()
    for one in single_keys(container, key) if is_many(key) else (key,):
        inner = value
        if rest:
            inner = get_key(changed, one)
            if type(inner) is not dict and type(inner) is not list:
                raise FlowError(f'couldn\'t set "{path_text(path)}": no object or array at "{one}"')
            inner = set_path(inner, rest, value, limits)
        _put(changed, one, inner, path, limits)
    return changed


def _put(container: Value, key: Value, value: Value, path: list[Value], limits: Limits) -> None:
    """Set one key of a new container."""
    if type(container) is dict:
        container[key if type(key) is str else to_text(key)] = value
        return
    index = _index(key)
    if index is None or index < -len(container):
        raise FlowError(f'couldn\'t set "{path_text(path)}" in {kind_name(container)}')
    if index >= len(container):
        if index >= limits.elements:
            raise LimitExceeded(
                f'setting "{path_text(path)}" would make an array of {index + 1:,} elements, and it'
                f" may have {limits.elements:,}"
            )
        container.extend([None] * (index + 1 - len(container)))
    container[index] = value


def del_path(container: Value, path: list[Value]) -> Value:
    """Return a copy without the value at ``path``; the container itself if it has none."""
    key, rest = path[0], path[1:]
    keys = single_keys(container, key) if is_many(key) else [key]
    keys = [one for one in keys if get_key(container, one) is not MISSING]
    if not keys:
        return container
    if rest:
        if type(container) is str:
            raise FlowError(f'couldn\'t delete "{path_text(path)}" in {kind_name(container)}')
        changed = container.copy()
        for one in keys:
            _put(changed, one, del_path(get_key(container, one), rest), path, LIMITS)
        return changed
    if type(container) is dict:
        gone = {one if type(one) is str else to_text(one) for one in keys}
        return {name: value for name, value in container.items() if name not in gone}
    places = {(_index(one) or 0) % len(container) for one in keys}
    return [one for place, one in enumerate(container) if place not in places]
