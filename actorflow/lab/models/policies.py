"""Policies: compositions of behaviours, from text or from Python, one by one or as a grid.

In text a policy is written as it is built, in lower case, for the messages of the lab:
`unique` is the newest per key, `priority` the highest priority first, `chunk(queue, 1000,
weight=size)` weighs by size. A list in braces makes a grid: `linger(queue, {1ms, 5ms, 20ms})`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.notation import BadNotation, Call, Term, Word, bind, check_unit, parse
from actorflow.lab.models.traffic import AT, KEY, PRIORITY, SIZE
from actorflow.runtime.errors import BadOption, near
from behaviours import (
    Adaptive,
    Bounded,
    Chunk,
    Coalesce,
    Debounce,
    Expire,
    Fair,
    Linger,
    Priority,
    Queue,
    Stack,
    TableUnique,
    Throttle,
    Unique,
)
from behaviours.base import adapt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "BUILT_INS",
    "FIELDS",
    "KINDS",
    "Kind",
    "Policy",
    "parse_policies",
    "policy_of",
    "resolve",
]

BUILT_INS = (
    "queue", "stack", "unique", "table_unique", "coalesce", "priority", "fair",
    "chunk(queue, 100)", "bounded(queue, 1000, drop_oldest)", "linger(queue, 10ms)",
    "throttle(queue, 10ms)", "debounce(queue, 5ms, 50ms)", "expire(queue, 1s)",
    "adaptive(queue, 50ms)",
)  # fmt: skip
"""One of each behaviour, for a first look; `all` in text."""


@dataclass(frozen=True, slots=True)
class Kind:
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


def _merge(old: Any, new: Any) -> Any:
    """Merge two messages of one key: sizes add up, and the older arrival counts."""
    return (new[KEY], max(old[PRIORITY], new[PRIORITY]), old[SIZE] + new[SIZE], old[AT])


def _table_unique(key: Any = KEY) -> TableUnique:
    return TableUnique(key, database=":memory:")


def _coalesce(key: Any = KEY) -> Coalesce:
    return Coalesce(key, _merge)


KINDS: dict[str, Kind] = {
    "queue": Kind(Queue, Queue, (), 0, "in the order of arrival"),
    "stack": Kind(Stack, Stack, (), 0, "newest first"),
    "unique": Kind(
        Unique, lambda key=KEY: Unique(key), ("key",), 0, "the newest of each key", "key"
    ),
    "table_unique": Kind(
        TableUnique, _table_unique, ("key",), 0, "the newest of each key, in a table", "key"
    ),
    "coalesce": Kind(Coalesce, _coalesce, ("key",), 0, "one merged message per key", "key"),
    "priority": Kind(
        Priority, lambda key=PRIORITY: Priority(key), ("key",), 0, "highest priority first",
        "priority",
    ),
    "fair": Kind(Fair, lambda key=KEY: Fair(key), ("key",), 0, "each key in turn", "key"),
    "throttle": Kind(Throttle, Throttle, ("inner", "every"), 2, "at most one batch per interval"),
    "bounded": Kind(
        Bounded, Bounded, ("inner", "size", "when_full"), 2,
        "at most this many wait; then reject, drop_oldest, drop_newest or block",
    ),
    "chunk": Kind(Chunk, Chunk, ("inner", "size", "weight"), 2, "at most this many per batch"),
    "linger": Kind(Linger, Linger, ("inner", "wait", "size"), 2, "wait a little for more"),
    "debounce": Kind(
        Debounce, Debounce, ("inner", "quiet", "at_most"), 2, "wait until nothing more arrives"
    ),
    "expire": Kind(Expire, Expire, ("inner", "ttl"), 2, "drop what has waited too long"),
    "adaptive": Kind(
        Adaptive, Adaptive, ("inner", "target"), 1, "the largest batches that a latency allows"
    ),
}  # fmt: skip
"""The behaviours that text can name. Add your own to make it known to the notation."""

FIELDS = {"key": KEY, "priority": PRIORITY, "size": SIZE, "at": AT}
"""The fields of a message, and where they are."""
_TIMES = {"every", "wait", "quiet", "at_most", "ttl", "target"}


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
        _build(given, term)  # refuses what cannot work, here and now
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
    in_order = list(given) == list(kind.arguments[: len(given)])
    return kind.make(*given.values()) if in_order else kind.make(**given)


def resolve(text: str, term: Term) -> tuple[Kind, dict[str, Term]]:
    """Return the behaviour that a term names, and its arguments by name.

    Raises:
        BadNotation: there is none of that name, or an argument is missing.

    """
    if not isinstance(term, Word | Call):
        raise BadNotation(text, 0, f"{text!r} is not a policy; write for example 'queue'")
    kind = KINDS.get(term.name)
    if kind is None:
        why = f"there is no behaviour {term.name!r}{near(term.name, KINDS)}"
        raise BadNotation(text, term.at, why)
    bound = bind(text, term, kind.arguments)
    missing = [name for name in kind.arguments[: kind.needs] if name not in bound]
    if missing:
        shape = f"{term.name}({', '.join(kind.arguments)})"
        raise BadNotation(text, term.at, f"{missing[0]} is missing: {shape}")
    return kind, bound


def _argument(text: str, at: int, name: str, term: Term) -> Any:
    """Return the value of an argument."""
    if name == "inner":
        return _build(text, term)
    if name in ("key", "weight"):
        return _field(text, at, name, term)
    if isinstance(term, Word):
        return term.name
    if isinstance(term, Call):
        raise BadNotation(text, term.at, f"{name} is not a behaviour, so not {term.name}(...)")
    check_unit(text, at, name, term, timed=name in _TIMES)
    if name == "size" and isinstance(term, float) and term.is_integer():
        return int(term)
    return float(term) if isinstance(term, float) else term


def _field(text: str, at: int, name: str, term: Term) -> Any:
    """Return what takes a field from a message: its place for a key, a function for a weight."""
    if isinstance(term, Word):
        if term.name not in FIELDS:
            why = f"a message has no field {term.name!r}{near(term.name, FIELDS)}"
            raise BadNotation(text, term.at, why)
        return itemgetter(FIELDS[term.name])
    if name == "key" and term not in FIELDS.values():
        why = f"a message has no field {_shown(term)}{near(term, FIELDS)}"
        raise BadNotation(text, at, why)
    return term


def _shown(term: Term) -> str:
    return f"{term.name}(...)" if isinstance(term, Call) else repr(term)
