"""Arrays and objects, types, ranges, random choices."""

from __future__ import annotations

from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import FlowError
from actorflow.flows.procedures.data.sort import order
from actorflow.flows.procedures.simple import Simple, simple
from actorflow.flows.values.paths import get_key
from actorflow.flows.values.sizes import check_elements
from actorflow.flows.values.text import as_text
from actorflow.flows.values.values import (
    MISSING,
    Value,
    is_reference,
    kind_name,
    same,
    to_json,
    to_text,
    truthy,
    type_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST, _GREATEST = -(2**63), 2**63 - 1


@simple("length", "size")
def length(call: Simple) -> Value:
    """Return the number of elements, entries or characters."""
    value = call.argument()
    if type(value) not in (list, dict, str):
        raise FlowError("found no argument that has a length")
    return len(value)


@simple("reverse")
def reverse(call: Simple) -> Value:
    """Return an array or a string in reverse order."""
    value = call.argument()
    if type(value) not in (list, str):
        raise FlowError("found no argument that could be reversed")
    return value[::-1]


def _entries(call: Simple) -> dict[Any, Value]:
    """Return the entries of an object, or those of an array by index."""
    value = call.argument()
    if value is None:
        raise FlowError("no argument given")
    if type(value) not in (list, dict):
        raise FlowError(f"received argument of class {kind_name(value)}, no {call.name}")
    return value if type(value) is dict else dict(enumerate(value))


@simple("keys")
def keys(call: Simple) -> Value:
    """Return the keys of an object, or the indexes of an array."""
    return list(_entries(call))


@simple("values")
def values(call: Simple) -> Value:
    """Return the values of an object, or the elements of an array."""
    return list(_entries(call).values())


@simple("empty?")
def empty(call: Simple) -> Value:
    """Return whether a collection or a string is empty; null is, too."""
    value = call.payload.get("ret")
    if value is not None and type(value) not in (list, dict, str):
        raise FlowError("argument is not an array, an object, a string or null")
    return not value


@simple("includes?", "include?")
def includes(call: Simple) -> Value:
    """Return whether the collection (the first array or object given) has an element or key."""
    given = call.arguments()
    place = next((i for i, one in enumerate(given) if type(one) in (list, dict)), None)
    where = call.ret0 if place is None else given.pop(place)
    if type(where) not in (list, dict):
        raise FlowError("missing collection")
    if not given:
        raise FlowError("missing element")
    if type(where) is dict:
        return type(given[0]) is str and given[0] in where
    return any(same(one, given[0]) for one in where)


@simple("merge")
def merge(call: Simple) -> Value:
    """Merge objects, or arrays by index; later ones win; a single one is merged into ret.

    Anything else among the arguments is refused, unless ``lax: true`` (or ``strict: false``).
    """
    given = call.arguments()
    kind = next((type(one) for one in given if type(one) in (dict, list)), dict)
    wanted = [one for one in given if type(one) is kind]
    if not wanted:
        raise FlowError("found no array or object to merge")
    lax = call.att("lax", "loose") is True or call.att("strict") is False
    stranger = next((one for one in given if type(one) is not kind), MISSING)
    if stranger is not MISSING and not lax:
        what = "object" if kind is dict else "array"
        other = "array" if type(stranger) is list else type_name(stranger)
        raise FlowError(f"found a non-{what} item ({other} item)")
    if len(wanted) == 1 and type(call.ret0) is kind:
        wanted.insert(0, call.ret0)
    if kind is dict:
        entries = {key: value for one in wanted for key, value in one.items()}
        return call.run.sizes.check_parts(entries, wanted[1:], levels=0)
    merged: list[Value] = []
    for one in wanted:
        merged[: len(one)] = one
    return call.run.sizes.check_parts(merged, wanted[1:], levels=0)


@simple("flatten")
def flatten(call: Simple) -> Value:
    """Flatten an array, completely or to a depth."""
    given = call.arguments()
    depth = next((one for one in given if type(one) is int), -1)
    array = next((one for one in [*given, call.ret0] if type(one) is list), None)
    if array is None:
        raise FlowError("missing collection")

    def flat(items: list[Value], left: int) -> list[Value]:
        out: list[Value] = []
        for item in items:
            if type(item) is list and not is_reference(item) and left != 0:
                out.extend(flat(item, left - 1))
            else:
                out.append(item)
        return out

    return flat(array, depth)


@simple("range", shows=True)
def range_(call: Simple) -> Value:
    """Return the numbers from start (0) to end (exclusive) by step (1, or -1 downwards)."""
    given = [int(one) for one in call.arguments() if _is_number(one)]
    start, end = (0, *given, 0)[:2] if len(given) < 2 else given[:2]  # noqa: PLR2004
    step = given[2] if len(given) > 2 else -1 if start > end else 1  # noqa: PLR2004
    start = _or_given(start, call.att("start", "from"))
    end = _or_given(end, call.att("end", "to"))
    step = _or_given(step, call.att("step", "by", "inc"))
    if not all(map(_is_number, (start, end, step))):
        raise FlowError("range needs numbers")
    if step == 0:
        raise FlowError("range step is 0")
    if not all(_LEAST <= one <= _GREATEST for one in (start, end, start + step, end + step)):
        raise FlowError(f"range from {start} to {end} by {step} goes beyond 64 bits")
    count = (end - start) / step
    check_elements(count, call.run.sizes.limits, call.name)
    numbers = []
    while start < end if step > 0 else start > end:
        numbers.append(start)
        if len(numbers) > count + 1:
            raise FlowError(f"range step {step} is too small to get from {start} to {end}")
        start += step
    return numbers


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and type(value) is not bool


def _or_given(value: Value, given: Value) -> Value:
    return given if truthy(given) else value


@simple("max", "min")
def extreme(call: Simple) -> Value:
    """Return the greatest or least element or value; with ``lax: true``, by JSON text."""
    value = call.argument()
    if type(value) not in (list, dict):
        raise FlowError(f"found no argument that can {call.name}")
    items = list(value.values()) if type(value) is dict else value
    if not items:
        return None
    choose = max if call.name == "max" else min
    if call.att("lax", "loose") is True:
        return choose(items, key=to_json)
    return choose(items, key=cmp_to_key(order))


@simple("shuffle", "sample")
def shuffle(call: Simple) -> Value:
    """Return the elements in random order, all or some; sample without a number returns one."""
    given = call.arguments()
    array = next((one for one in [*given, call.ret0] if type(one) is list), None)
    if array is None:
        raise FlowError(f"no array to {call.name}")
    count = call.att("count")
    if count is None:
        count = next((one for one in given if type(one) is int), None)
    if count is not None and (type(count) is not int or count < 0):
        raise FlowError(f"{call.name} takes a number of elements, not {to_json(count)}")
    if call.run.rng is None:
        raise FlowError(
            f"{call.name} needs random numbers, and this run was given no source of them"
        )
    chosen = call.run.rng.sample(array, len(array) if count is None else min(count, len(array)))
    if count is None and call.name == "sample":
        return chosen[0] if chosen else None
    return chosen


@simple("to-array")
def to_array(call: Simple) -> Value:
    """Return an array: an array itself, an object as pairs, null as [], a value as [value]."""
    value = call.argument()
    if type(value) is list:
        return value
    if type(value) is dict:
        return [list(pair) for pair in value.items()]
    return [] if value is None else [value]


@simple("to-object")
def to_object(call: Simple) -> Value:
    """Return an object from alternating keys and values, or from pairs."""
    value = call.argument()
    if type(value) is dict:
        return value
    if type(value) is not list:
        raise FlowError("to-object wants an array (or an object)")
    if len(value) % 2:
        raise FlowError("to-object expects array with even length")
    if all(type(one) is list for one in value):
        if not all(1 <= len(one) <= 2 for one in value):  # noqa: PLR2004
            raise FlowError("to-object needs pairs of key and value")
        return {to_text(one[0]): one[1] if one[1:] else None for one in value}
    return {to_text(key): one for key, one in zip(value[::2], value[1::2], strict=True)}


def _to_cut(call: Simple) -> Value:
    """Return the first array, object or string given, or ret."""
    given = (one for one in call.arguments() if type(one) in (list, dict, str))
    value = next(given, call.ret0)
    if type(value) not in (list, dict, str):
        raise FlowError(f"cannot slice instance of {kind_name(value)}")
    return value


def _place(call: Simple, *keys: str) -> int | None:
    value = call.att(*keys)
    if value is None or type(value) is int:
        return value
    raise FlowError(f"slice needs an integer as {keys[0]}:, not {as_text(value)}")


@simple("slice")
def slice_(call: Simple) -> Value:
    """Return a part: ``slice c from to`` (inclusive), or from:, to: or count:, and step:.

    A part that would begin beyond the end is an empty string.
    """
    value = _to_cut(call)
    given = [one for one in call.arguments() if type(one) is int]
    start = _place(call, "from", "start")
    if start is None:
        start = given.pop(0) if given else 0
    end = _place(call, "to", "end")
    if end is None and given:
        end = given.pop(0)
    elif end is None:
        count = _place(call, "count")
        if count is None:
            raise FlowError("slice needs an end, or count:")
        end = start + count - 1
    step = _place(call, "step") or 1
    if type(value) is dict:
        raise FlowError("cannot slice instance of Hash")
    end += len(value) if end < 0 else 0
    if start >= len(value):
        return ""
    if step < 1:
        raise FlowError("slice cannot go backwards")
    places = range(start, min(end + 1, len(value)), step)
    check_elements(len(places), call.run.sizes.limits, call.name)
    parts = [value[place] if place >= -len(value) else None for place in places]
    return "".join(part or "" for part in parts) if type(value) is str else parts


def _at(value: Value, key: Value) -> Value:
    if type(key) is list:
        if "*" in key:
            return list(value.values()) if type(value) is dict else list(value)
        return [_at(value, one) for one in key]
    found = get_key(value, key)
    return None if found is MISSING else found


@simple("index")
def index(call: Simple) -> Value:
    """Return the element at an index, or an empty string.

    For an array of indexes, return an array; for the key of an object, its value or null.
    """
    given = call.arguments()
    value = next((one for one in given if type(one) in (list, dict, str)), call.ret0)
    at = call.att("at")
    if at is None:
        at = next((one for one in given if type(one) is int), None)
    if at is None and len(given) == 1:
        value, at = call.ret0, given[0]
    if type(value) not in (list, dict, str):
        raise FlowError(f"cannot slice instance of {kind_name(value)}")
    found = _at(value, at)
    return found if truthy(found) or type(at) is not int else ""


@simple("type-of", "type")
def type_of(call: Simple) -> Value:
    """Return the name of the type of a value; functions and expressions are arrays."""
    value = call.argument()
    return "array" if type(value) is list else type_name(value)


_TYPES: dict[str, Callable[[Value], bool]] = {
    **dict.fromkeys(("array?", "list?"), lambda value: type(value) is list),
    **dict.fromkeys(("object?", "hash?", "dict?"), lambda value: type(value) is dict),
    "string?": lambda value: type(value) is str,
    "number?": lambda value: type(value) in (int, float),
    **dict.fromkeys(("boolean?", "bool?"), lambda value: type(value) is bool),
    **dict.fromkeys(("null?", "nil?"), lambda value: value is None),
    "function?": lambda value: type_name(value) == "function",
    "false?": lambda value: value is False,
    "true?": lambda value: value is True,
    "pair?": lambda value: type(value) is list and len(value) == 2,  # noqa: PLR2004
    "float?": lambda value: type(value) is float,
}


@simple(*_TYPES)
def is_type(call: Simple) -> Value:
    """Return whether a value has the type that the name says."""
    return _TYPES[call.name](call.argument())


@simple("rand", unatts=False, shows=True)
def rand(call: Simple) -> Value:
    """Return a random number: below the argument (or ret), or between two."""
    given: list[Value] = [one for one in call.node.unkeyed_atts() if _is_number(one)]
    given = given or [call.payload.get("ret")]
    low, high = given[:2] if len(given) > 1 else [0, *given]
    if not _is_number(high):
        raise FlowError(f"'{call.tree[0]}' expects an integer or a float")
    rng = call.run.rng
    if rng is None:
        raise FlowError("rand needs random numbers, and this run was given no source of them")
    if low >= high:
        raise FlowError(f"there is no number between {low} and {high}")
    if isinstance(low, int) and isinstance(high, int):
        return rng.randrange(low, high)
    return rng.uniform(low, high)
