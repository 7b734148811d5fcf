"""Arrays and objects, types, ranges, chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.iterators import sort_key
from actorflow.flows.procedures.simple import Simple, simple
from actorflow.flows.values import (
    MISSING,
    Value,
    get_key,
    is_reference,
    kind_name,
    same,
    slice_value,
    to_text,
    type_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _array(call: Simple) -> list[Value]:
    value = call.collection()
    if type(value) is not list:
        raise FlowError(f"{call.name} needs an array, not {kind_name(value)}")
    return value


@simple("length", "size")
def length(call: Simple) -> Value:
    """Return the number of elements, entries or characters."""
    return len(call.collection())


@simple("reverse")
def reverse(call: Simple) -> Value:
    """Return an array or a string backwards."""
    value = call.collection()
    if type(value) is dict:
        raise FlowError("reverse needs an array or a string, not an object")
    return value[::-1]


def _object(call: Simple) -> dict[str, Value]:
    value = call.collection()
    if type(value) is not dict:
        raise FlowError(f"{call.name} needs an object, not {kind_name(value)}")
    return value


@simple("keys")
def keys(call: Simple) -> Value:
    """Return the keys of an object."""
    return list(_object(call))


@simple("values")
def values(call: Simple) -> Value:
    """Return the values of an object."""
    return list(_object(call).values())


@simple("empty?")
def empty(call: Simple) -> Value:
    """Tell whether a collection or a string is empty; null is."""
    if call.argument() is None:
        return True
    return not call.collection()


@simple("includes?", "include?")
def includes(call: Simple) -> Value:
    """Tell whether a collection has an element or a key; the first array or object given is it."""
    given = call.arguments()
    pool = [*given, call.ret0]
    where = next((one for one in pool if type(one) in (list, dict) and not is_reference(one)), None)
    if where is None:
        raise FlowError("missing collection")
    rest = [one for one in given if one is not where]
    if not rest:
        raise FlowError("missing element")
    if type(where) is dict:
        return to_text(rest[0]) in where
    return any(same(one, rest[0]) for one in where)


@simple("merge")
def merge(call: Simple) -> Value:
    """Merge objects, or arrays by index; later ones win, ret comes first if it is of their kind.

    Anything else among the arguments is refused, unless ``lax: true`` (or ``strict: false``).
    """
    given = call.arguments()
    pool = [*given, call.ret0]
    kind = next((type(one) for one in pool if type(one) in (dict, list)), None)
    if kind is None:
        raise FlowError("found no array or object to merge")
    lax = call.att("lax", "loose") is True or call.att("strict") is False
    stranger = next((one for one in given if type(one) is not kind), None)
    if stranger is not None and not lax:
        what = "object" if kind is dict else "array"
        raise FlowError(f"found a non-{what} item ({kind_name(stranger)} item)")
    wanted = [one for one in (call.ret0, *given) if type(one) is kind]
    if kind is dict:
        return {key: value for one in wanted for key, value in one.items()}
    merged: list[Value] = []
    for one in wanted:
        merged[: len(one)] = one
    return merged


@simple("flatten")
def flatten(call: Simple) -> Value:
    """Take arrays inside an array apart, all of them or to a depth."""
    given = call.arguments()
    depth = next((one for one in given if isinstance(one, int) and not isinstance(one, bool)), -1)

    def flat(items: list[Value], left: int) -> list[Value]:
        out: list[Value] = []
        for item in items:
            if type(item) is list and not is_reference(item) and left != 0:
                out.extend(flat(item, left - 1))
            else:
                out.append(item)
        return out

    return flat(_array(call), depth)


@simple("range", shows=True)
def range_(call: Simple) -> Value:
    """Return the integers from start (0) to end (not included) by step (1, or -1 downwards)."""
    given = [int(one) for one in call.arguments()]
    start = call.att("from", "start")
    end = call.att("to", "end")
    step = call.att("by", "step")
    if end is None and start is None:
        if not given:
            raise FlowError("range needs an end")
        if len(given) == 1:
            start, end = 0, given[0]
        else:
            start, end = given[0], given[1]
            if step is None and len(given) > 2:  # noqa: PLR2004
                step = given[2]
    start, end = int(start or 0), int(end or 0)
    step = int(step) if step is not None else (1 if end >= start else -1)
    if step == 0:
        raise FlowError("range cannot go by 0")
    return list(range(start, end, step))


@simple("sort")
def sort(call: Simple) -> Value:
    """Return an array in order; mixed values are ordered by their JSON text."""
    value = call.collection()
    if type(value) is dict:
        return dict(sorted(value.items()))
    items = _array(call)
    return sorted(items, key=sort_key(items))


def _extreme(call: Simple, choose: Callable[..., Any]) -> Value:
    items = _array(call)
    return choose(items, key=sort_key(items)) if items else None


@simple("max")
def max_(call: Simple) -> Value:
    """Return the greatest element."""
    return _extreme(call, max)


@simple("min")
def min_(call: Simple) -> Value:
    """Return the least element."""
    return _extreme(call, min)


@simple("shuffle", "sample")
def shuffle(call: Simple) -> Value:
    """Return the elements in a random order, all or a number of them."""
    items = list(_array(call))
    count = next((one for one in call.arguments() if isinstance(one, int)), None)
    if call.run.rng is None:
        raise FlowError(f"{call.name} needs a source of chance, and this run was given none")
    call.run.rng.shuffle(items)
    if call.name == "sample" and count is None:
        return items[0] if items else None
    return items if count is None else items[:count]


@simple("to-array")
def to_array(call: Simple) -> Value:
    """Return an array: an array as it is, an object as pairs, anything else alone in one."""
    value = call.argument()
    if type(value) is list and not is_reference(value):
        return value
    if type(value) is dict:
        return [list(pair) for pair in value.items()]
    return [value]


@simple("to-object")
def to_object(call: Simple) -> Value:
    """Return an object made of keys and values in turn, or of pairs."""
    value = call.argument()
    if type(value) is dict:
        return value
    if type(value) is not list:
        raise FlowError(f"to-object needs an array, not {kind_name(value)}")
    if value and all(type(one) is list and len(one) == 2 for one in value):  # noqa: PLR2004
        return {to_text(key): one for key, one in value}
    if len(value) % 2:
        raise FlowError("to-object needs a value for each key: the array has an odd length")
    return {to_text(key): one for key, one in zip(value[::2], value[1::2], strict=True)}


def _cut(call: Simple) -> tuple[Value, list[Value]]:
    given = call.arguments()
    for position, one in enumerate(given):
        if type(one) in (list, str) and not is_reference(one):
            return one, given[:position] + given[position + 1 :]
    if type(call.ret0) in (list, str):
        return call.ret0, given
    raise FlowError(f"{call.name} needs an array or a string")


@simple("slice")
def slice_(call: Simple) -> Value:
    """Return a part: ``slice c from to`` (included), or from:, to:, count:."""
    value, rest = _cut(call)
    spec: dict[str, Value] = {
        "start": call.att("from", "start"),
        "end": call.att("to", "end"),
        "step": call.att("by", "step"),
        "count": call.att("count", "length"),
    }
    if rest:
        spec["start"] = rest[0]
    if len(rest) > 1:
        spec["end"] = rest[1]
    return slice_value(value, spec)


def _at(value: Value, key: Value) -> Value:
    if type(key) is list:
        if "*" in key:
            return list(value.values()) if type(value) is dict else list(value)
        return [_at(value, one) for one in key]
    found = get_key(value, key)
    return None if found is MISSING else found


@simple("index")
def index(call: Simple) -> Value:
    """Return what stands at an index or key, or null; an array of them gives an array."""
    given = call.arguments()
    value, keys = (
        (call.ret0, given) if len(given) == 1 else (given[0] if given else None, given[1:])
    )
    if type(value) not in (list, dict, str) and given:
        value, keys = given[-1], given[:-1]
    at = keys[0] if keys else call.att("at")
    if type(value) not in (list, dict, str):
        raise FlowError(f"index needs an array, an object or a string, not {kind_name(value)}")
    return _at(value, at)


@simple("type-of", "type")
def type_of(call: Simple) -> Value:
    """Return the name of the type of a value."""
    return type_name(call.argument())


_TYPES = {
    "array?": "array",
    "object?": "object",
    "string?": "string",
    "number?": "number",
    "boolean?": "boolean",
    "bool?": "boolean",
    "null?": "null",
    "nil?": "null",
    "function?": "function",
    "false?": "false",
    "true?": "true",
}


@simple(*_TYPES)
def is_type(call: Simple) -> Value:
    """Tell whether a value is of a type."""
    wanted = _TYPES[call.name]
    value = call.argument()
    if wanted in ("true", "false"):
        return value is (wanted == "true")
    return type_name(value) == wanted


@simple("rand")
def rand(call: Simple) -> Value:
    """Return a random number: below 1, below the argument, or between two."""
    rng = call.run.rng
    if rng is None:
        raise FlowError("rand needs a source of chance, and this run was given none")
    given = call.arguments()
    if not given:
        return rng.random()
    low, high = (0, given[0]) if len(given) == 1 else (given[0], given[1])
    if isinstance(low, int) and isinstance(high, int):
        return rng.randrange(low, high) if high > low else low
    return rng.uniform(low, high)
