"""The small notation of the lab: `bounded(unique(key=0), 1000, drop_oldest)`, `2ms + 10us*n`.

Calls with positional and named arguments, numbers with units, words, sums and products. An error
shows the place of the mistake and the known names. Every time has a unit: a bare `50` could mean
milliseconds to one reader and seconds to another.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from actorflow.runtime.errors import ActorflowError, near

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BadNotation",
    "BareWord",
    "NamedCall",
    "Product",
    "Share",
    "Sum",
    "Term",
    "TimeNumber",
    "bind",
    "check_unit",
    "parse",
    "seconds_text",
]  # fmt: skip

_TIMES = {"s": 1, "min": 60, "h": 3600}
_COUNTS = {"k": 1_000, "M": 1_000_000}
_PARTS = {"us": 1_000_000, "ms": 1_000, "%": 100}  # divided by: 7ms is 0.007 to the last digit
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?)(?P<unit>us|ms|min|s|h|k|M|%)?(?![\w])"
    r"|(?P<word>[A-Za-z_][\w.:]*)|(?P<string>'[^']*'|\"[^\"]*\")|(?P<sign>[(),=+*-]))"
)


class BadNotation(ActorflowError, ValueError):
    """A text in the lab's notation cannot be read; the message shows where."""

    def __init__(self, text: str, at: int, why: str) -> None:
        super().__init__(f"{why}\n  {text}\n  {' ' * at}^")


class TimeNumber(float):
    """A number that was written with a unit of time, in seconds."""


class Share(float):
    """A number that was written with a percent sign, as a fraction of 1."""


@dataclass(frozen=True, slots=True)
class BareWord:
    """A bare word: an option, or a call without arguments."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A name with arguments."""

    name: str
    args: tuple[Term, ...]
    options: dict[str, Term]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms that are added."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Terms that are multiplied."""

    terms: tuple[Term, ...]


Term: TypeAlias = float | int | str | BareWord | NamedCall | Sum | Product


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, float | int | None, int]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                place = len(text) - len(text[at:].lstrip())
                raise BadNotation(text, place, f"cannot read {text[place]!r} here")
            kind = found.lastgroup or ""
            kind = "number" if kind == "unit" else kind
            value = _value(found["number"], found["unit"]) if kind == "number" else None
            self.tokens.append((kind, found[kind], value, found.start(kind)))
            at = found.end()
        self.tokens.append(("end", "", None, len(text)))
        self.next = 0

    def peek(self, *signs: str) -> bool:
        kind, text, _, _ = self.tokens[self.next]
        return kind == "sign" and text in signs

    def take(self) -> tuple[str, str, float | int | None, int]:
        token = self.tokens[self.next]
        self.next += 1
        return token

    def expect(self, sign: str) -> None:
        kind, text, _, at = self.take()
        if kind != "sign" or text != sign:
            found = repr(text) if text else "the end"
            raise BadNotation(self.text, at, f"expected {sign!r}, not {found}")

    def term(self) -> Term:
        terms = [self.product()]
        while self.peek("+"):
            self.take()
            terms.append(self.product())
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def product(self) -> Term:
        terms = [self.atom()]
        while self.peek("*"):
            self.take()
            terms.append(self.atom())
        return terms[0] if len(terms) == 1 else Product(tuple(terms))

    def atom(self) -> Term:
        kind, text, value, at = self.take()
        if kind == "number" and value is not None:
            return value
        if kind == "string":
            return text[1:-1]
        if kind == "word":
            return self.call(text, at) if self.peek("(") else BareWord(text, at)
        if kind == "sign" and text == "-":
            inner = self.atom()
            if isinstance(inner, int | float):
                return type(inner)(-inner)
        found = repr(text) if text else "the end"
        raise BadNotation(self.text, at, f"expected a name or a number, not {found}")

    def call(self, name: str, at: int) -> NamedCall:
        self.expect("(")
        args: list[Term] = []
        options: dict[str, Term] = {}
        while not self.peek(")"):
            term = self.term()
            if isinstance(term, BareWord) and self.peek("="):
                self.take()
                if term.name in options:
                    raise BadNotation(self.text, term.at, f"{term.name} is given twice")
                options[term.name] = self.term()
            elif options:
                where = getattr(term, "at", self.tokens[self.next - 1][3])
                raise BadNotation(self.text, where, "a plain argument comes after a named one")
            else:
                args.append(term)
            if not self.peek(")"):
                self.expect(",")
        self.expect(")")
        return NamedCall(name, tuple(args), options, at)


def _value(number: str, unit: str | None) -> float | int:
    plain = number.replace("_", "")
    value: float | int = float(plain) if any(sign in plain for sign in ".e") else int(plain)
    if unit == "%":
        return Share(value / _PARTS[unit])
    if unit in _PARTS:
        return TimeNumber(value / _PARTS[unit])
    if unit in _TIMES:
        return TimeNumber(value * _TIMES[unit])
    scaled = value * _COUNTS.get(unit or "", 1)
    return int(scaled) if unit is not None and scaled == int(scaled) else scaled


def parse(text: str) -> Term:
    """Read one term.

    Raises:
        BadNotation: it cannot be read.

    >>> parse("chunk(queue, 2k)").args
    (BareWord(name='queue', at=6), 2000)
    >>> parse("2ms")
    0.002
    """
    reader = _Reader(text)
    term = reader.term()
    kind, rest, _, at = reader.take()
    if kind != "end":
        raise BadNotation(text, at, f"did not expect {rest!r} here")
    return term


def bind(text: str, term: BareWord | NamedCall, names: Sequence[str]) -> dict[str, Term]:
    """Return the arguments of a call by name; `names` are those it has, in order.

    Raises:
        BadNotation: there are too many, one is unknown, or given twice.

    """
    if isinstance(term, BareWord):
        return {}
    shape = f"{term.name}({', '.join(names)})"
    if len(term.args) > len(names):
        raise BadNotation(text, term.at, f"too many arguments for {shape}")
    bound = dict(zip(names, term.args, strict=False))
    for name, value in term.options.items():
        if name not in names:
            why = f"{term.name} has no option {name!r}{near(name, names)}"
            raise BadNotation(text, getattr(value, "at", term.at), why)
        if name in bound:
            raise BadNotation(text, term.at, f"{name} is given twice, in {shape}")
        bound[name] = value
    return bound


def check_unit(text: str, at: int, name: str, value: Term, *, timed: bool) -> None:
    """Validate units: times need one, other numbers must not have one. Zero needs none.

    Raises:
        BadNotation: the message shows how to write it.

    """
    if not isinstance(value, int | float):
        return
    if timed and not isinstance(value, TimeNumber) and value != 0:
        raise BadNotation(
            text, at, f"{name} {value:g} has no unit of time; write {value:g}ms or {value:g}s"
        )
    if not timed and isinstance(value, TimeNumber):
        raise BadNotation(
            text, at, f"{name} is not a time, so it cannot be {seconds_text(value)}; drop the unit"
        )


def seconds_text(seconds: float) -> str:
    """Return a time in a fitting unit.

    >>> [seconds_text(each) for each in (0.0, 12.3e-6, 0.05, 1.234, 250.0)]
    ['0s', '12.3us', '50ms', '1.23s', '250s']
    """
    if not math.isfinite(seconds):
        return "never"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale * 0.9995:
            return f"{seconds / scale:.3g}{unit}" if seconds < 1000 * scale else f"{seconds:,.0f}s"
    return "0s" if seconds == 0 else f"{seconds / 1e-6:.2g}us"
