"""Traffic from text: `poisson(5000, duration=60s, keys=zipf(1000, 1.1))`, or a file of it."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.lab.models.clients import ClientTraffic
from actorflow.lab.models.notation import (
    BadNotation,
    BareWord,
    NamedCall,
    Term,
    bind,
    check_unit,
    parse,
)
from actorflow.lab.models.service import cost_of
from actorflow.lab.models.trace import Trace
from actorflow.lab.models.traffic import (
    Bursty,
    Constant,
    Diurnal,
    Draw,
    Fixed,
    Poisson,
    Ramp,
    RateStep,
    Uniform,
    Zipf,
)
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.lab.models.traffic import Traffic

__all__ = ["MODELS", "parse_traffic"]

_COMMON = ("duration", "keys", "priorities", "sizes")
MODELS: dict[str, tuple[Callable[..., Traffic], tuple[str, ...]]] = {
    "constant": (Constant, ("rate", *_COMMON)),
    "poisson": (Poisson, ("rate", *_COMMON)),
    "bursty": (Bursty, ("rate", "on", "off", "quiet_rate", *_COMMON)),
    "step": (RateStep, ("before", "after", "at", *_COMMON)),
    "ramp": (Ramp, ("start", "end", *_COMMON)),
    "diurnal": (Diurnal, ("low", "high", "period", *_COMMON)),
    "trace": (Trace, ("path", "speed")),
    "clients": (ClientTraffic, ("count", "think", "timeout", "retries", "backoff", *_COMMON)),
}
"""The arrival models that text can name, with the names of their arguments, in order."""

_DRAWS: dict[str, tuple[Callable[..., Draw], tuple[str, ...]]] = {
    "uniform": (Uniform, ("count",)),
    "zipf": (Zipf, ("count", "exponent")),
    "fixed": (Fixed, ("value",)),
}
_DRAWN = ("keys", "priorities", "sizes")
_TIMES = {"duration", "on", "off", "at", "period", "timeout", "backoff"}
_SUFFIXES = {".csv", ".json", ".jsonl", ".ndjson"}


def parse_traffic(text: str) -> Traffic:
    """Read traffic: the call of a model, or the path of a trace.

    Raises:
        BadNotation: it cannot be read, or names no model; the message shows where.
        BadOption: the file of the trace does not exist.

    >>> parse_traffic("constant(100, duration=2s)").rate
    100
    """
    path = Path(text)
    if path.suffix.lower() in _SUFFIXES or ("(" not in text and path.is_file()):
        return Trace(path)
    return _made(text, parse(text), MODELS, "arrival model")  # type: ignore[no-any-return]


def _made(text: str, term: Term, known: Any, what: str) -> Any:
    if not isinstance(term, BareWord | NamedCall):
        raise BadNotation(text, 0, f"expected an {what}{near(text, known)}")
    if term.name not in known:
        raise BadNotation(
            text, term.at, f"there is no {what} {term.name!r}{near(term.name, known)}"
        )
    make, names = known[term.name]
    given = {
        name: _argument(text, term.at, name, value)
        for name, value in bind(text, term, names).items()
    }
    needed = [
        name for name, each in signature(make).parameters.items() if each.default is each.empty
    ]
    if any(name not in given for name in needed):
        raise BadNotation(text, term.at, f"{term.name} needs more: {term.name}({', '.join(names)})")
    try:
        return make(**given)
    except BadOption as error:
        raise BadNotation(text, term.at, f"{term.name}: {error}") from None


def _argument(text: str, at: int, name: str, value: Term) -> Any:
    if name == "think":
        return cost_of(text, value)
    if name in _DRAWN:
        check_unit(text, at, name, value, timed=False)
        if isinstance(value, int | float):
            return _checked(text, at, Fixed if name == "sizes" else Uniform, value)
        return _made(text, value, _DRAWS, "distribution")
    if isinstance(value, BareWord | NamedCall):
        raise BadNotation(text, value.at, f"{name} is a number, not {value.name!r}")
    check_unit(text, at, name, value, timed=name in _TIMES)
    return float(value) if isinstance(value, float) else value


def _checked(text: str, at: int, make: Callable[[Any], Draw], value: float) -> Draw:
    try:
        return make(value)
    except BadOption as error:
        raise BadNotation(text, at, str(error)) from None
