"""Policies: compositions of behaviours, from text or from Python, one by one or as a grid.

In text a policy is written as it is built, in lower case, for the messages of the lab:
`unique` is the newest per key, `priority` the highest priority first, `chunk(queue, 1000,
weight=size)` weighs by size. A list in braces makes a grid: `linger(queue, {1ms, 5ms, 20ms})`.
`package.module:Class` is a behaviour of your own.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from actorflow.behaviours import (
    Adaptive,
    Bounded,
    Bucket,
    Chunk,
    Coalesce,
    CoDel,
    Deadline,
    Debounce,
    Dedup,
    Expire,
    Fair,
    Lanes,
    Lifo,
    Linger,
    PadTo,
    PerKey,
    Priority,
    Queue,
    Rate,
    Sample,
    Shortest,
    Stack,
    TableUnique,
    Throttle,
    Unique,
    Window,
)
from actorflow.behaviours.adapt import adapt
from actorflow.lab.models.notation import (
    BadNotation,
    BareWord,
    NamedCall,
    Term,
    bind,
    check_unit,
    parse,
)
from actorflow.lab.models.traffic import AT, KEY, PRIORITY, SIZE
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "BEHAVIOURS",
    "BUILT_INS",
    "FIELDS",
    "KINDS",
    "NamedBehaviour",
    "Policy",
    "parse_policies",
    "policy_of",
    "powers_of_two",
    "resolve",
]

BUILT_INS = (
    "queue", "stack", "unique", "table_unique", "coalesce", "priority", "fair",
    "chunk(queue, 100)", "bounded(queue, 1000, drop_oldest)", "linger(queue, 10ms)",
    "throttle(queue, 10ms)", "debounce(queue, 5ms, 50ms)", "expire(queue, 1s)",
    "adaptive(queue, 50ms)", "bucket", "deadline(queue, 50ms)", "rate(queue, 1000)",
    "per_key(queue)", "pad_to(queue, 32)", "shortest", "sample(1000)", "lifo(queue, 100)",
    "lanes(queue, queue)", "codel(queue, 5ms, 100ms)", "window(100ms)", "dedup(queue, 1s)",
)  # fmt: skip
"""One of each behaviour, for a first look; `all` in text."""


@dataclass(frozen=True, slots=True)
class NamedBehaviour:
    """A behaviour that text can name."""

    behaviour: type
    """Its class, for the code that builds it."""
    make: Callable[..., Any]
    """Builds one from the arguments."""
    arguments: tuple[str, ...]
    """Their names, in order. `inner` is a behaviour, `key` and `weight` are fields."""
    needs: int
    """How many of them must be given."""
    about: str
    field: str | None = None
    """The field of a message that is its key by default; `None` if it has no key."""
    weight: str | None = None
    """The field of a message that is its weight by default; `None` if it need not have one."""


def _merge(old: Any, new: Any) -> Any:
    """Merge two messages of one key: sizes add up, and the older arrival counts."""
    return (new[KEY], max(old[PRIORITY], new[PRIORITY]), old[SIZE] + new[SIZE], old[AT])


def _table_unique(key: Any = KEY) -> TableUnique:
    return TableUnique(key, database=":memory:")


def _coalesce(key: Any = KEY) -> Coalesce:
    return Coalesce(key, _merge)


def _bucket(key: Any = KEY, inner: Any = Queue) -> Bucket:
    return Bucket(key, inner)


def _per_key(inner: Any, key: Any = KEY, limit: int = 1) -> PerKey:
    return PerKey(inner, key, limit)


def _lanes(first: Any, follow: Any) -> Lanes:
    return Lanes(first=first, follow=follow, by=_lane)


def _lane(message: Any) -> str:
    return "first" if message[PRIORITY] > 1 else "follow"


def _window(period: float, inner: Any = Queue) -> Window:
    return Window(period, inner)


def _dedup(inner: Any, within: float, key: Any = KEY) -> Dedup:
    return Dedup(inner, within, key=key)


def powers_of_two(size: int) -> list[int]:
    """Return the powers of two that are less than a size, and that size."""
    return [*(2**each for each in range(size.bit_length()) if 2**each < size), size]


def _pad_to(inner: Any, size: int, round: str = "up") -> PadTo:  # noqa: A002 - the word for it
    """Pad with a message of size 0."""
    return PadTo(inner, powers_of_two(size), fill=(0, 0, 0, 0.0), round=round)


KINDS: dict[str, NamedBehaviour] = {
    "queue": NamedBehaviour(Queue, Queue, (), 0, "in the order of arrival"),
    "stack": NamedBehaviour(Stack, Stack, (), 0, "newest first"),
    "unique": NamedBehaviour(
        Unique, lambda key=KEY: Unique(key), ("key",), 0, "the newest of each key", "key"
    ),
    "table_unique": NamedBehaviour(
        TableUnique, _table_unique, ("key",), 0, "the newest of each key, in a table", "key"
    ),
    "coalesce": NamedBehaviour(
        Coalesce, _coalesce, ("key",), 0, "one merged message per key", "key"
    ),
    "priority": NamedBehaviour(
        Priority, lambda key=PRIORITY: Priority(key), ("key",), 0, "highest priority first",
        "priority",
    ),
    "fair": NamedBehaviour(
        Fair, lambda key=KEY, weight=None: Fair(key, weight=weight), ("key", "weight"), 0,
        "each key in turn", "key",
    ),
    "shortest": NamedBehaviour(
        Shortest, Shortest, ("weight", "ageing"), 0, "the lightest first", weight="size"
    ),
    "sample": NamedBehaviour(Sample, Sample, ("size",), 1, "a random sample of at most this many"),
    "lifo": NamedBehaviour(
        Lifo, Lifo, ("inner", "beyond"), 2, "newest first while more than this many wait"
    ),
    "lanes": NamedBehaviour(
        Lanes, _lanes, ("first", "follow"), 2, "priorities above 1 in the first lane, else second"
    ),
    "codel": NamedBehaviour(
        CoDel, CoDel, ("inner", "target", "interval"), 3, "drop some while all wait too long"
    ),
    "window": NamedBehaviour(Window, _window, ("period", "inner"), 1, "one batch per period"),
    "dedup": NamedBehaviour(Dedup, _dedup, ("inner", "within", "key"), 2, "each key once", "key"),
    "throttle": NamedBehaviour(
        Throttle, Throttle, ("inner", "every"), 2, "at most one batch per interval"
    ),
    "bounded": NamedBehaviour(
        Bounded, Bounded, ("inner", "size", "when_full"), 2,
        "at most this many wait; then reject, drop_oldest, drop_newest, drop_lowest or block",
    ),
    "chunk": NamedBehaviour(
        Chunk, Chunk, ("inner", "size", "weight"), 2, "at most this many per batch"
    ),
    "linger": NamedBehaviour(
        Linger, Linger, ("inner", "wait", "size"), 2, "wait a little for more"
    ),
    "debounce": NamedBehaviour(
        Debounce, Debounce, ("inner", "quiet", "at_most"), 2, "wait until nothing more arrives"
    ),
    "expire": NamedBehaviour(
        Expire, Expire, ("inner", "ttl"), 2, "drop messages that have waited too long"
    ),
    "adaptive": NamedBehaviour(
        Adaptive, Adaptive, ("inner", "target", "overhead"), 1,
        "the largest batches that a latency allows",
    ),
    "bucket": NamedBehaviour(Bucket, _bucket, ("key", "inner"), 0, "one key per batch", "key"),
    "deadline": NamedBehaviour(
        Deadline, Deadline, ("inner", "within"), 2, "the largest batch that is in time"
    ),
    "rate": NamedBehaviour(
        Rate, Rate, ("inner", "per_second", "burst", "key", "weight"), 2,
        "at most this many messages per second",
    ),
    "per_key": NamedBehaviour(
        PerKey, _per_key, ("inner", "key", "limit"), 1, "batches of a key one after the other",
        "key",
    ),
    "pad_to": NamedBehaviour(
        PadTo, _pad_to, ("inner", "size", "round"), 2, "batches of powers of two up to this size"
    ),
}  # fmt: skip
"""The behaviours that text can name. Add your own to make it known to the notation."""

FIELDS = {"key": KEY, "priority": PRIORITY, "size": SIZE, "at": AT}
"""The fields of a message, and where they are."""
BEHAVIOURS = ("inner", "first", "follow")
"""Arguments that are behaviours."""
_BUILT_IN_CLASSES = {kind.behaviour for kind in KINDS.values()}
_NAMED = (Rate, Adaptive, Shortest)
"""They have arguments that must be named."""
_TIMES = {"period", "interval", "within", "every", "wait", "quiet", "at_most", "ttl", "target"}


@dataclass(frozen=True, slots=True)
class Policy:
    """A name, and a factory of fresh behaviours."""

    name: str
    make: Callable[[], Any]

    def __str__(self) -> str:
        return self.name


def policy_of(given: Any, name: str | None = None) -> Policy:
    """Make a policy from text, a behaviour class or a factory.

    Raises:
        BadNotation: the text cannot be read; the message names near names.
        BadBehaviour: the combination cannot work.
        BadOption: an instance was given, which could be used only once.

    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        term = parse(given)
        _build(given, term)  # refuses bad combinations at once
        return Policy(name or given.strip(), partial(_build, given, term))
    if callable(given):
        made = given()
        adapt(made)
        return Policy(name or repr(made), given)
    msg = f"{given!r} can be used only once; give the lab a factory: lambda: {given!r}"
    raise BadOption(msg)


_GRID = re.compile(r"\{([^{}]*)\}")


def parse_policies(texts: Iterable[str]) -> list[Policy]:
    """Read policies; braces multiply, and `all` stands for one of each built-in behaviour.

    >>> [str(policy) for policy in parse_policies(["chunk(queue, {10, 100})"])]
    ['chunk(queue, 10)', 'chunk(queue, 100)']
    """
    policies: dict[str, Policy] = {}
    for text in texts:
        for single in BUILT_INS if text.strip() == "all" else _expand(text):
            policies.setdefault(single, policy_of(single))
    return list(policies.values())


def _expand(text: str) -> list[str]:
    pieces = _GRID.split(text)
    choices = [
        [piece] if at % 2 == 0 else [choice.strip() for choice in piece.split(",")]
        for at, piece in enumerate(pieces)
    ]
    return ["".join(chosen).strip() for chosen in itertools.product(*choices)]


def _build(text: str, term: Term) -> Any:
    """Build a fresh behaviour from a term."""
    kind, bound = resolve(text, term)
    at = getattr(term, "at", 0)
    given = {name: _argument(text, at, name, value) for name, value in bound.items()}
    if kind.weight is not None:
        given.setdefault("weight", itemgetter(FIELDS[kind.weight]))
    plain = kind.behaviour not in _NAMED and kind.behaviour in _BUILT_IN_CLASSES
    in_order = plain and list(given) == list(kind.arguments[: len(given)])
    return kind.make(*given.values()) if in_order else kind.make(**given)


def resolve(text: str, term: Term) -> tuple[NamedBehaviour, dict[str, Term]]:
    """Return the behaviour that a term names, and its arguments by name.

    Raises:
        BadNotation: the name is unknown, or an argument is missing.

    """
    if not isinstance(term, BareWord | NamedCall):
        raise BadNotation(text, 0, f"{text!r} is not a policy; write for example 'queue'")
    kind = _imported(text, term) if ":" in term.name else KINDS.get(term.name)
    if kind is None:
        why = f"there is no behaviour {term.name!r}{near(term.name, KINDS)}"
        raise BadNotation(text, term.at, why)
    bound = bind(text, term, kind.arguments)
    missing = [name for name in kind.arguments[: kind.needs] if name not in bound]
    if missing:
        shape = f"{term.name}({', '.join(kind.arguments)})"
        raise BadNotation(text, term.at, f"{missing[0]} is missing: {shape}")
    return kind, bound


def _imported(text: str, term: BareWord | NamedCall) -> NamedBehaviour:
    """Return a custom behaviour, named `package.module:Class`.

    Raises:
        BadNotation: it cannot be imported, or is no class or function.

    """
    module, _, attribute = term.name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        parameters = list(inspect.signature(found).parameters.values())
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        why = f"cannot import {term.name!r}: {type(error).__name__}: {error}"
        raise BadNotation(text, term.at, why) from None
    named = [
        each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    needed = [each.name for each in named if each.default is each.empty]
    in_order = [
        each.name for each in sorted(named, key=lambda each: each.default is not each.empty)
    ]
    about = (inspect.getdoc(found) or "").partition("\n")[0]
    return NamedBehaviour(found, found, tuple(in_order), len(needed), about)


def _argument(text: str, at: int, name: str, term: Term) -> Any:
    """Return the value of an argument."""
    if name in BEHAVIOURS:
        return _build(text, term)
    if name in ("key", "weight"):
        return _field(text, at, name, term)
    if isinstance(term, BareWord):
        return term.name
    if isinstance(term, NamedCall):
        raise BadNotation(text, term.at, f"{name} is not a behaviour, so not {term.name}(...)")
    check_unit(text, at, name, term, timed=name in _TIMES)
    if name == "size" and isinstance(term, float) and term.is_integer():
        return int(term)
    return float(term) if isinstance(term, float) else term


def _field(text: str, at: int, name: str, term: Term) -> Any:
    """Return what takes a field from a message: its place for a key, a function for a weight."""
    if isinstance(term, BareWord):
        if term.name not in FIELDS:
            why = f"a message has no field {term.name!r}{near(term.name, FIELDS)}"
            raise BadNotation(text, term.at, why)
        return itemgetter(FIELDS[term.name])
    if name == "key" and term not in FIELDS.values():
        why = f"a message has no field {_shown(term)}{near(term, FIELDS)}"
        raise BadNotation(text, at, why)
    return term


def _shown(term: Term) -> str:
    return f"{term.name}(...)" if isinstance(term, NamedCall) else repr(term)
