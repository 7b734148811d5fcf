"""Service models: how long the job takes for a batch, and whether it fails.

In text: `2ms + 10us*n`, `exp(2ms)`, `lognormal(2ms, 0.5) + 5us*n`, `uniform(1ms, 3ms)`,
`2ms + fail(1%)`; `n` is the number of messages of the batch, `size` the sum of their sizes, and
`over(64)` the number of messages beyond 64, for a job whose slope changes there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from actorflow.lab.models.notation import (
    BadNotation,
    BareWord,
    NamedCall,
    Product,
    Sum,
    Term,
    TimeNumber,
    check_unit,
    parse,
    seconds_text,
)
from actorflow.lab.models.traffic import SIZE
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    _Draw: TypeAlias = Callable[[int, float, Random], float]

__all__ = ["Cost", "Service", "ServiceFailure", "cost_of", "parse_service"]


class ServiceFailure(Exception):
    """The modelled job fails on this batch, after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the modelled job failed after {seconds} s")
        self.seconds = seconds


class Service(Protocol):
    """How long a job takes."""

    def seconds(self, batch: Any, random: Random) -> float:
        """Return the time for one batch; raise `ServiceFailure` if it fails."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A service model read from text; see the module.

    >>> from random import Random
    >>> round(parse_service("2ms + 10us*n").seconds([0] * 100, Random(1)), 6)
    0.003
    """

    text: str
    parts: tuple[_Draw, ...]
    failure: float = 0.0
    sized: bool = False

    def seconds(self, batch: Any, random: Random) -> float:
        """Return the time for one batch; raise `ServiceFailure` if it fails. O(parts)."""
        count = len(batch) if isinstance(batch, list) else 1
        size = 0.0
        if self.sized:
            messages = batch if isinstance(batch, list) else [batch]
            size = math.fsum(message[SIZE] for message in messages)
        total = 0.0
        for part in self.parts:
            total += part(count, size, random)
        if self.failure and random.random() < self.failure:
            raise ServiceFailure(total)
        return total

    def __str__(self) -> str:
        return self.text


def parse_service(text: str) -> Cost:
    """Read a service model.

    Raises:
        BadNotation: it cannot be read, or a part of it is not a time.

    """
    return cost_of(text, parse(text))


def cost_of(text: str, term: Term) -> Cost:
    """Read a service model, or any time that may be random, from a term of a text."""
    parts: list[_Draw] = []
    failure = 0.0
    for piece in term.terms if isinstance(term, Sum) else (term,):
        if isinstance(piece, NamedCall) and piece.name == "fail":
            (failure,) = _numbers(text, piece, (False,))
            if not 0 <= failure < 1:
                why = f"fail({failure:g}) must be a share below 1, as in fail(1%)"
                raise BadNotation(text, piece.at, why)
        else:
            parts.append(_time(text, piece))
    return Cost(text, tuple(parts), failure, sized=_names_size(term))


def _names_size(term: Term) -> bool:
    if isinstance(term, Sum | Product):
        return any(map(_names_size, term.terms))
    return isinstance(term, BareWord) and term.name == "size"


def _time(text: str, term: Term) -> _Draw:
    """Read one summand: exactly one of its factors is a time."""
    factors = term.terms if isinstance(term, Product) else (term,)
    draws = [_factor(text, factor) for factor in factors]
    times = sum(map(_is_time, factors))
    if times == 0:
        shown = "*".join(map(_shown, factors))
        why = f"{shown} has no unit of time; write for example {_with_unit(factors)}"
        raise BadNotation(text, getattr(factors[0], "at", 0), why)
    if times > 1 and 0 not in factors:
        why = f"{'*'.join(map(_shown, factors))} multiplies two times; one factor may have a unit"
        raise BadNotation(text, getattr(factors[0], "at", 0), why)
    return draws[0] if len(draws) == 1 else _product(draws)


def _is_time(term: Term) -> bool:
    if isinstance(term, NamedCall):
        return term.name != _OVER
    return isinstance(term, TimeNumber) or term == 0


def _shown(term: Term) -> str:
    if isinstance(term, TimeNumber):
        return seconds_text(term)
    return term.name if isinstance(term, BareWord | NamedCall) else str(term)


def _with_unit(factors: Sequence[Term]) -> str:
    """Return the factors with a unit at the first number."""
    number = next((each for each in factors if isinstance(each, int | float)), 10)
    rest = [each for each in factors if each is not number]
    return "*".join([f"{number:g}ms", *map(_shown, rest)])


def _factor(text: str, term: Term) -> _Draw:
    if isinstance(term, int | float):
        if not 0 <= term < math.inf:
            msg = f"{_shown(term)} in {text!r} must be a duration, zero or more, as in 2ms"
            raise BadOption(msg)
        number = float(term)
        return lambda _count, _size, _random: number
    if isinstance(term, BareWord) and term.name in _VARIABLES:
        return _VARIABLES[term.name]
    if isinstance(term, NamedCall) and term.name == _OVER:
        (beyond,) = _numbers(text, term, (False,))
        return lambda count, _size, _random: max(count - beyond, 0.0)
    if isinstance(term, NamedCall) and term.name in _DISTRIBUTIONS:
        timed, make = _DISTRIBUTIONS[term.name]
        numbers = _numbers(text, term, timed)
        if term.name == "lognormal" and not numbers[0]:
            raise BadNotation(text, term.at, "lognormal(0, ...): the median must be positive")
        return make(*numbers)
    name = term.name if isinstance(term, BareWord | NamedCall) else str(term)
    known = [*_VARIABLES, *_DISTRIBUTIONS, _OVER, "fail"]
    at = term.at if isinstance(term, BareWord | NamedCall) else 0
    raise BadNotation(text, at, f"{name!r} is not part of a service time{near(name, known)}")


def _product(factors: list[_Draw]) -> _Draw:
    def product(count: int, size: float, random: Random) -> float:
        result = 1.0
        for factor in factors:
            result *= factor(count, size, random)
        return result

    return product


def _numbers(text: str, call: NamedCall, timed: Sequence[bool]) -> list[float]:
    """Return the arguments of a call; `timed` says for each whether it is a time."""
    count = len(timed)
    numbers = [arg for arg in call.args if isinstance(arg, int | float)]
    if len(numbers) != count or len(call.args) != count or call.options:
        raise BadNotation(text, call.at, f"{call.name} takes {count} number{'s' * (count > 1)}")
    for number, is_time in zip(numbers, timed, strict=True):
        check_unit(text, call.at, f"{call.name}'s argument", number, timed=is_time)
        if not 0 <= number < math.inf:
            raise BadNotation(text, call.at, f"{call.name}: {number:g} must be zero or more")
    return [float(number) for number in numbers]


_OVER = "over"
_VARIABLES: dict[str, _Draw] = {
    "n": lambda count, _size, _random: count,
    "size": lambda _count, size, _random: size,
}


def _exponential(mean: float) -> _Draw:
    return lambda _count, _size, random: -mean * math.log(1.0 - random.random())


def _uniform(low: float, high: float) -> _Draw:
    return lambda _count, _size, random: low + (high - low) * random.random()


def _lognormal(median: float, sigma: float) -> _Draw:
    mu = math.log(median)

    def draw(_count: int, _size: float, random: Random) -> float:
        return math.exp(random.gauss(mu, sigma))

    return draw


# For each argument of a distribution, whether it is a time.
_DISTRIBUTIONS: dict[str, tuple[tuple[bool, ...], Callable[..., _Draw]]] = {
    "exp": ((True,), _exponential),
    "uniform": ((True, True), _uniform),
    "lognormal": ((True, False), _lognormal),
}
