"""Traffic: when messages arrive, and what they are.

A message of the lab is a plain tuple `(key, priority, size, at)`, so that the default key of
`Unique` is its key; `KEY`, `PRIORITY`, `SIZE` and `AT` are the indexes. Everything is drawn from
one seed with the standard library's generator: same seed, same traffic, on every machine.
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass, field
from itertools import accumulate, islice, repeat
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "AT",
    "CHUNK",
    "KEY",
    "PRIORITY",
    "SIZE",
    "Bursty",
    "Constant",
    "Diurnal",
    "Draw",
    "Fixed",
    "Given",
    "Message",
    "Poisson",
    "Ramp",
    "RateStep",
    "Traffic",
    "Uniform",
    "Zipf",
]

KEY, PRIORITY, SIZE, AT = range(4)
Message: TypeAlias = tuple[Any, Any, float, float]

CHUNK = 16_384
"""Messages made at a time."""
_DAY = 86_400.0


@runtime_checkable
class Draw(Protocol):
    """A distribution over 0, 1, 2, ...: keys, priorities or sizes."""

    def sampler(self, random: Random) -> Callable[[int], Iterable[float]]:
        """Return a function that draws a number of values."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    value: float = 1.0

    def __post_init__(self) -> None:
        """Validate `value`."""
        _number(self.value, "value", "fixed(1)", zero=True)

    def sampler(self, random: Random) -> Callable[[int], Iterable[float]]:
        """Return a function that draws a number of values."""
        return lambda count: repeat(self.value, count)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each of `count` equally likely."""

    count: int

    def __post_init__(self) -> None:
        """Validate the number of choices."""
        _whole(self.count, "count", "uniform(1000)")

    def sampler(self, random: Random) -> Callable[[int], Iterable[float]]:
        """Return a function that draws a number of values; O(1) each."""
        choices, draw = self.count, random.random
        return lambda count: [int(draw() * choices) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Zipf:
    """The n-th of `count` with a likelihood proportional to 1 / n ** `exponent`."""

    count: int
    exponent: float = 1.1

    def __post_init__(self) -> None:
        """Validate the number of choices."""
        _whole(self.count, "count", "zipf(1000, 1.1)")
        _number(self.exponent, "exponent", "zipf(1000, 1.1)")

    def sampler(self, random: Random) -> Callable[[int], Iterable[float]]:
        """Return a function that draws a number of values; O(log count) each."""
        weights = list(accumulate(1.0 / n**self.exponent for n in range(1, self.count + 1)))
        total, draw, last = weights[-1], random.random, self.count - 1
        return lambda count: [bisect(weights, draw() * total, 0, last) for _ in range(count)]


def _number(value: object, name: str, example: str, *, zero: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    least = "a number, zero or more" if zero else "a positive number"
    if not number or not (0 < value < math.inf or (zero and value == 0)):  # type: ignore[operator]
        msg = f"{name}={value!r} must be {least}, as in {example}"
        raise BadOption(msg)


def _whole(value: object, name: str, example: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"{name}={value!r} must be a whole number, 1 or more, as in {example}"
        raise BadOption(msg)


class Traffic(Protocol):
    """A source of messages in the order of their arrival."""

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        """Yield the messages, some thousands at a time; the same for the same seed."""


@dataclass(frozen=True, slots=True)
class Given:
    """Traffic from a list of messages."""

    messages: Sequence[Message]

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        """Yield the messages, some thousands at a time."""
        for start in range(0, len(self.messages), CHUNK):
            yield list(self.messages[start : start + CHUNK])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What all arrival models share: the duration, and what the messages are."""

    duration: float = 60.0
    keys: Draw = field(default_factory=lambda: Uniform(1_000))
    priorities: Draw = field(default_factory=lambda: Fixed(0))
    sizes: Draw = field(default_factory=Fixed)

    def __post_init__(self) -> None:
        """Validate the duration and the distributions."""
        example = "poisson(5000, duration=60s, keys=zipf(1000), priorities=uniform(10))"
        _number(self.duration, "duration", example)
        for name in ("keys", "priorities", "sizes"):
            if not isinstance(getattr(self, name), Draw):
                msg = f"{name}={getattr(self, name)!r} must be a distribution, as in {example}"
                raise BadOption(msg)

    def _times(self, random: Random) -> Iterator[float]:
        raise NotImplementedError

    def chunks(self, seed: int) -> Iterator[list[Message]]:
        """Yield the messages, some thousands at a time; the same for the same seed."""
        # One generator each, so that another choice of keys does not change the arrivals.
        keys, priorities, sizes = (
            draw.sampler(Random(f"{seed}/{name}"))  # noqa: S311 - no secret
            for name, draw in (
                ("keys", self.keys),
                ("priorities", self.priorities),
                ("sizes", self.sizes),
            )
        )
        times = self._times(Random(f"{seed}/arrivals"))  # noqa: S311 - no secret
        while some := list(islice(times, CHUNK)):
            count = len(some)
            yield list(zip(keys(count), priorities(count), sizes(count), some, strict=True))


def _check(model: _Model, example: str, positive: Sequence[str], zero: Sequence[str] = ()) -> None:
    _Model.__post_init__(model)
    for name in positive:
        _number(getattr(model, name), name, example)
    for name in zero:
        _number(getattr(model, name), name, example, zero=True)


@dataclass(frozen=True, slots=True)
class Constant(_Model):
    """`rate` messages per second, evenly spaced."""

    rate: float

    def __post_init__(self) -> None:
        """Validate the rates and times."""
        _check(self, "constant(5000, duration=60s)", ["rate"])

    def _times(self, random: Random) -> Iterator[float]:
        for number in range(int(self.rate * self.duration)):
            yield number / self.rate


@dataclass(frozen=True, slots=True)
class Poisson(_Model):
    """`rate` messages per second on average, independent of each other."""

    rate: float

    def __post_init__(self) -> None:
        """Validate the rates and times."""
        _check(self, "poisson(5000, duration=60s)", ["rate"])

    def _times(self, random: Random) -> Iterator[float]:
        return _poisson(random, self.rate, 0.0, self.duration)


def _poisson(random: Random, rate: float, begin: float, end: float) -> Iterator[float]:
    if rate <= 0:
        return
    draw, log = random.random, math.log
    at = begin - log(1.0 - draw()) / rate
    while at < end:
        yield at
        at -= log(1.0 - draw()) / rate


@dataclass(frozen=True, slots=True)
class Bursty(_Model):
    """Poisson at `rate` for `on` seconds, then at `quiet_rate` for `off` seconds, and again."""

    rate: float
    on: float = 1.0
    off: float = 1.0
    quiet_rate: float = 0.0

    def __post_init__(self) -> None:
        """Validate the rates and times."""
        _check(
            self, "bursty(20000, on=1s, off=4s, duration=60s)", ["rate", "on", "off"],
            ["quiet_rate"],
        )  # fmt: skip

    def _times(self, random: Random) -> Iterator[float]:
        begin = 0.0
        while begin < self.duration:
            middle = min(begin + self.on, self.duration)
            yield from _poisson(random, self.rate, begin, middle)
            begin = min(middle + self.off, self.duration)
            yield from _poisson(random, self.quiet_rate, middle, begin)


@dataclass(frozen=True, slots=True)
class RateStep(_Model):
    """Poisson at the rate `before`, and from the second `at` on at the rate `after`."""

    before: float
    after: float
    at: float = 30.0

    def __post_init__(self) -> None:
        """Validate the rates and times."""
        _check(self, "step(500, 20000, at=30s, duration=60s)", ["at"], ["before", "after"])

    def _times(self, random: Random) -> Iterator[float]:
        middle = min(self.at, self.duration)
        yield from _poisson(random, self.before, 0.0, middle)
        yield from _poisson(random, self.after, middle, self.duration)


@dataclass(frozen=True, slots=True)
class Ramp(_Model):
    """Poisson with a rate that goes from `start` to `end` over the duration."""

    start: float
    end: float

    def __post_init__(self) -> None:
        """Validate the rates and times."""
        _check(self, "ramp(500, 20000, duration=60s)", [], ["start", "end"])

    def _times(self, random: Random) -> Iterator[float]:
        start, slope = self.start, (self.end - self.start) / self.duration
        peak = max(self.start, self.end)
        return _thinned(random, peak, self.duration, lambda at: start + slope * at)


@dataclass(frozen=True, slots=True)
class Diurnal(_Model):
    """Poisson with a rate that swings like a day: from `low` at night to `high` at noon."""

    low: float
    high: float
    period: float = _DAY

    def __post_init__(self) -> None:
        """Validate the rates and times."""
        _check(self, "diurnal(100, 5000, period=1h, duration=1h)", ["high", "period"], ["low"])

    def _times(self, random: Random) -> Iterator[float]:
        middle, swing = (self.high + self.low) / 2, (self.high - self.low) / 2
        turn, cos = 2 * math.pi / self.period, math.cos
        peak = max(self.low, self.high)
        return _thinned(random, peak, self.duration, lambda at: middle - swing * cos(turn * at))


def _thinned(
    random: Random, peak: float, duration: float, rate: Callable[[float], float]
) -> Iterator[float]:
    """Draw a Poisson process of a varying rate: draw at the peak rate, keep the right share."""
    draw = random.random
    for at in _poisson(random, peak, 0.0, duration):
        if draw() * peak < rate(at):
            yield at
