"""Service models: how long the job takes for a batch, and whether it fails.

In text: `2ms + 10us*n`, `exp(2ms)`, `lognormal(2ms, 0.5) + 5us*n`, `uniform(1ms, 3ms)`,
`2ms + fail(1%)`; `n` is the number of messages of the batch, `size` the sum of their sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.lab.models.notation import BadNotation, Call, Product, Sum, Term, Word, parse
from actorflow.lab.models.traffic import SIZE
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["Cost", "Service", "ServiceFailure", "parse_service"]


class ServiceFailure(Exception):
    """The modelled job fails on this batch, after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the modelled job failed after {seconds} s")
        self.seconds = seconds


class Service(Protocol):
    """How long a job takes."""

    def seconds(self, batch: Any, random: Random) -> float:
        """Give the time for one batch; raise `ServiceFailure` if it fails."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A service model read from text; see the module.

    >>> from random import Random
    >>> round(parse_service("2ms + 10us*n").seconds([0] * 100, Random(1)), 6)
    0.003
    """

    text: str
    parts: tuple[Callable[[int, float, Random], float], ...]
    failure: float = 0.0
    sized: bool = False

    def seconds(self, batch: Any, random: Random) -> float:
        """Give the time for one batch; raise `ServiceFailure` if it fails. O(parts)."""
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
        BadNotation: it cannot be read, or holds something that is no duration.

    """
    term = parse(text)
    parts: list[Callable[[int, float, Random], float]] = []
    failure = 0.0
    for piece in term.terms if isinstance(term, Sum) else (term,):
        if isinstance(piece, Call) and piece.name == "fail":
            (failure,) = _numbers(text, piece, 1)
            if not 0 <= failure < 1:
                raise BadNotation(text, piece.at, f"fail({failure}) must be a share below 1")
        else:
            parts.append(_part(text, piece))
    return Cost(text, tuple(parts), failure, sized="size" in text)


def _part(text: str, term: Term) -> Callable[[int, float, Random], float]:
    if isinstance(term, int | float):
        seconds = _duration(text, term)
        return lambda _count, _size, _random: seconds
    if isinstance(term, Product):
        return _product([_part(text, factor) for factor in term.terms])
    if isinstance(term, Word) and term.name in _VARIABLES:
        return _VARIABLES[term.name]
    if isinstance(term, Call) and term.name in _DISTRIBUTIONS:
        arity, make = _DISTRIBUTIONS[term.name]
        numbers = _numbers(text, term, arity)
        if term.name == "lognormal" and not numbers[0]:
            raise BadNotation(text, term.at, "lognormal(0, ...): the median must be positive")
        return make(*numbers)
    name = term.name if isinstance(term, Word | Call) else str(term)
    known = [*_VARIABLES, *_DISTRIBUTIONS, "fail"]
    at = term.at if isinstance(term, Word | Call) else 0
    raise BadNotation(text, at, f"{name!r} is no part of a service time{near(name, known)}")


def _product(
    factors: list[Callable[[int, float, Random], float]],
) -> Callable[[int, float, Random], float]:
    def product(count: int, size: float, random: Random) -> float:
        result = 1.0
        for factor in factors:
            result *= factor(count, size, random)
        return result

    return product


def _duration(text: str, value: float) -> float:
    if not 0 <= value < math.inf:
        msg = f"{value!r} in {text!r} must be a duration, zero or more, as in 2ms"
        raise BadOption(msg)
    return value


def _numbers(text: str, call: Call, count: int) -> list[float]:
    numbers = [arg for arg in call.args if isinstance(arg, int | float)]
    if len(numbers) != count or len(call.args) != count or call.options:
        raise BadNotation(text, call.at, f"{call.name} takes {count} number{'s' * (count > 1)}")
    return [_duration(text, number) for number in numbers]


_VARIABLES: dict[str, Callable[[int, float, Random], float]] = {
    "n": lambda count, _size, _random: count,
    "size": lambda _count, size, _random: size,
}


def _exponential(mean: float) -> Callable[[int, float, Random], float]:
    return lambda _count, _size, random: -mean * math.log(1.0 - random.random())


def _uniform(low: float, high: float) -> Callable[[int, float, Random], float]:
    return lambda _count, _size, random: low + (high - low) * random.random()


def _lognormal(median: float, sigma: float) -> Callable[[int, float, Random], float]:
    mu = math.log(median)

    def draw(_count: int, _size: float, random: Random) -> float:
        return math.exp(random.gauss(mu, sigma))

    return draw


_DISTRIBUTIONS: dict[str, tuple[int, Callable[..., Callable[[int, float, Random], float]]]] = {
    "exp": (1, _exponential),
    "uniform": (2, _uniform),
    "lognormal": (2, _lognormal),
}
