"""Policies: compositions of behaviours, from text or from Python, one by one or as a grid.

In text a policy is written as it is built, in lower case, with the lab's messages in mind:
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

from actorflow.lab.models.notation import BadNotation, Call, Term, Word, bind, parse
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

__all__ = ["BUILT_INS", "KINDS", "Kind", "Policy", "as_code", "parse_policies", "policy"]

BUILT_INS = (
    "queue", "stack", "unique", "table_unique", "coalesce", "priority", "fair",
    "chunk(queue, 100)", "bounded(queue, 1000, drop_oldest)", "linger(queue, 10ms)",
    "throttle(queue, 10ms)", "debounce(queue, 5ms, 50ms)", "expire(queue, 1s)",
    "adaptive(queue, 50ms)",
)  # fmt: skip
"""One of each, for a first look; `all` in text."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A behaviour that text can name."""

    make: Callable[..., Any]
    arguments: tuple[str, ...]
    """Their names, in order. `inner` is a behaviour, `key` and `weight` are fields."""
    needs: int
    """So many of them must be given."""
    about: str


def _merge(old: Any, new: Any) -> Any:
    """Merge two messages of one key: sizes add up, and it has waited since the older one."""
    return (new[KEY], max(old[PRIORITY], new[PRIORITY]), old[SIZE] + new[SIZE], old[AT])


KINDS: dict[str, Kind] = {
    "queue": Kind(Queue, (), 0, "as received"),
    "stack": Kind(Stack, (), 0, "newest first"),
    "unique": Kind(lambda key=KEY: Unique(key), ("key",), 0, "the newest of each key"),
    "table_unique": Kind(
        lambda key=KEY: TableUnique(key, database=":memory:"), ("key",), 0,
        "the newest of each key, in a table",
    ),
    "coalesce": Kind(
        lambda key=KEY: Coalesce(key, _merge), ("key",), 0, "one merged message per key"
    ),
    "priority": Kind(lambda key=PRIORITY: Priority(key), ("key",), 0, "highest priority first"),
    "fair": Kind(lambda key=KEY: Fair(key), ("key",), 0, "one of each key in turn"),
    "throttle": Kind(Throttle, ("inner", "every"), 2, "not more often than"),
    "bounded": Kind(
        Bounded, ("inner", "size", "when_full"), 2,
        "at most so many wait: reject, drop_oldest, drop_newest or block",
    ),
    "chunk": Kind(Chunk, ("inner", "size", "weight"), 2, "at most so many per batch"),
    "linger": Kind(Linger, ("inner", "wait", "size"), 2, "wait a little for company"),
    "debounce": Kind(Debounce, ("inner", "quiet", "at_most"), 2, "when it has gone quiet"),
    "expire": Kind(Expire, ("inner", "ttl"), 2, "too late is never"),
    "adaptive": Kind(Adaptive, ("inner", "target"), 1, "as large as it can be, in time"),
}  # fmt: skip
"""The behaviours that text can name. Add your own to make it known to the notation."""

_FIELDS = {"key": KEY, "priority": PRIORITY, "size": SIZE, "at": AT}


@dataclass(frozen=True, slots=True)
class Policy:
    """A name and what makes a fresh behaviour."""

    name: str
    make: Callable[[], Any]

    def __str__(self) -> str:
        return self.name


def policy(given: Any, name: str | None = None) -> Policy:
    """Make a policy of text, a behaviour class or a factory.

    Raises:
        BadNotation: the text cannot be read; the message names near names.
        BadBehaviour: the combination cannot work.
        BadOption: an instance was given, which could be used once only.

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
    msg = f"{given!r} can be used once only; give the lab a factory: lambda: {given!r}"
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
            policies.setdefault(single, policy(single))
    return list(policies.values())


def _expand(text: str) -> list[str]:
    pieces = _GRID.split(text)
    choices = [
        [piece] if at % 2 == 0 else [choice.strip() for choice in piece.split(",")]
        for at, piece in enumerate(pieces)
    ]
    return ["".join(chosen).strip() for chosen in itertools.product(*choices)]


def _build(text: str, term: Term) -> Any:
    """Build a fresh behaviour of a term."""
    kind, bound = _kind(text, term)
    given = {name: _argument(text, name, value) for name, value in bound.items()}
    return (
        kind.make(*given.values())
        if list(given) == [*kind.arguments[: len(given)]]
        else (kind.make(**given))
    )


def _kind(text: str, term: Term) -> tuple[Kind, dict[str, Term]]:
    """Find what a term names, and its arguments."""
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


def _argument(text: str, name: str, term: Term) -> Any:
    """Give the value of an argument."""
    if name == "inner":
        return _build(text, term)
    if name in ("key", "weight"):
        if isinstance(term, Word):
            if term.name not in _FIELDS:
                why = f"a message has no field {term.name!r}{near(term.name, _FIELDS)}"
                raise BadNotation(text, term.at, why)
            return itemgetter(_FIELDS[term.name])
        return term
    if isinstance(term, Word):
        return term.name
    if isinstance(term, Call):
        raise BadNotation(text, term.at, f"{name} is not a behaviour, so not {term.name}(...)")
    if name == "size" and isinstance(term, float) and term.is_integer():
        return int(term)
    return term


def as_code(given: str) -> str:
    """Give the Python that builds a policy, with the fields of a message as functions.

    >>> as_code("chunk(priority, 50)")
    'Chunk(Priority(key=priority), 50)'
    >>> as_code("bounded(linger(unique, 20ms), 1000, drop_oldest)")
    "Bounded(Linger(Unique(key=key), 0.02), 1000, when_full='drop_oldest')"
    """
    return _code(given, parse(given))


_NAMES = {"table_unique": "TableUnique"}
_MINE = {"unique": "key", "table_unique": "key", "coalesce": "key", "fair": "key"}
_POSITIONAL = 2  # further arguments are named, so that the code can be read


def _code(text: str, term: Term) -> str:
    kind, bound = _kind(text, term)
    word = term.name if isinstance(term, Word | Call) else ""
    parts = []
    for at, name in enumerate(kind.arguments):
        value = bound.get(name)
        if name == "inner" and value is not None:
            parts.append(_code(text, value))
        elif name == "key":
            field = value.name if isinstance(value, Word) else _MINE.get(word, "priority")
            parts.append(f"key={field if value is None or isinstance(value, Word) else value}")
        elif value is not None:
            shown = value.name if isinstance(value, Word) else value
            plain = shown if name == "weight" or isinstance(shown, float) else repr(shown)
            plain = f"{shown:g}" if isinstance(shown, float) else plain
            parts.append(f"{plain}" if at < _POSITIONAL else f"{name}={plain}")
    if word == "coalesce":
        parts.append("merge=merge")
    return f"{_NAMES.get(word, word.capitalize())}({', '.join(parts)})"
