"""Validation of arguments: each refusal names the value and shows a call that works.

These are the only validators of numbers and words in the project. Each takes the `error` to
raise, so that an option of a worker and an argument of a behaviour are refused in the same words.
Booleans, NaN and strings are never numbers.
"""

from __future__ import annotations

from math import inf, isinf
from numbers import Integral, Real
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import BadBehaviour, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def seconds(
    value: Any,
    name: str,
    example: str,
    *,
    zero: bool = True,
    infinite: bool = False,
    error: type[Exception] = BadBehaviour,
) -> float:
    """Return a span of time as a float.

    Args:
        value: the argument to validate.
        name: how the argument is called.
        example: a call that works.
        zero: whether 0 is allowed.
        infinite: whether `inf` is allowed.
        error: the class of the exception for any other value.

    >>> seconds(2, "every", "Throttle(Queue(), 0.5)")
    2.0
    >>> seconds("2", "every", "Throttle(Queue(), 0.5)")
    Traceback (most recent call last):
    ...
    actorflow.behaviours.errors.BadBehaviour: every='2': every must be a finite number of seconds,
    zero or more, as in Throttle(Queue(), 0.5)

    """
    span = _real(value)
    if span is not None and (span > 0 or (zero and span == 0)) and (infinite or span < inf):
        return span
    kind = "number" if infinite else "finite number"
    least = "zero or more" if zero else "positive"
    raise _refusal(value, name, f"a {kind} of seconds, {least}", example, error)


def count(
    value: Any,
    name: str,
    example: str,
    *,
    least: int = 1,
    most: int | None = None,
    error: type[Exception] = BadBehaviour,
) -> int:
    """Return a whole number from `least` to `most`.

    >>> count(3, "size", "Chunk(Queue(), 100)")
    3
    >>> count(True, "size", "Chunk(Queue(), 100)")
    Traceback (most recent call last):
    ...
    actorflow.behaviours.errors.BadBehaviour: size=True: size must be a whole number, 1 or more,
    as in Chunk(Queue(), 100)
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and value >= least and (most is None or value <= most):
        return int(value)
    limits = f"{least} or more" if most is None else f"from {least} to {most}"
    raise _refusal(value, name, f"a whole number, {limits}", example, error)


def number(
    value: Any,
    name: str,
    example: str,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    error: type[Exception] = BadBehaviour,
) -> float:
    """Return a finite number greater than `above`, at least `least` and at most `most`.

    >>> number(1.5, "size", "Chunk(Queue(), 1_000_000, weight=len)", above=0)
    1.5
    >>> number(-1, "factor", "Backoff(factor=2)", least=1)
    Traceback (most recent call last):
    ...
    actorflow.behaviours.errors.BadBehaviour: factor=-1: factor must be a finite number, 1 or more,
    as in Backoff(factor=2)
    """
    real = _real(value)
    if (
        real is not None
        and not isinf(real)
        and (above is None or real > above)
        and (least is None or real >= least)
        and (most is None or real <= most)
    ):
        return value  # type: ignore[no-any-return]
    limits = [
        words
        for limit, words in (
            (above, "positive" if above == 0 else f"more than {above}"),
            (least, f"{least} or more"),
            (most, f"at most {most}"),
        )
        if limit is not None
    ]
    raise _refusal(value, name, ", ".join(["a finite number", *limits]), example, error)


def function(
    value: Any, name: str, example: str, *, error: type[Exception] = BadBehaviour
) -> Callable[..., Any]:
    """Return `value` if it is a function that can be called.

    >>> function(len, "weight", "Chunk(Queue(), 1_000_000, weight=len)")(b"abc")
    3
    """
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise _refusal(value, name, "a function", example, error)


def flag(value: Any, name: str, example: str, *, error: type[Exception] = BadBehaviour) -> bool:
    """Return True or False; nothing else counts as either.

    >>> flag(True, "daemon", "Worker(daemon=True)")
    True
    """
    if isinstance(value, bool):
        return value
    raise _refusal(value, name, "True or False", example, error)


def key_function(
    key: Any, example: str, *, error: type[Exception] = BadBehaviour
) -> Callable[[Any], Any]:
    """Return the function that a key stands for: itself, or, for an index, that element.

    >>> key_function(0, "Unique(key=0)")(("a", 1))
    'a'
    """
    if isinstance(key, int) and not isinstance(key, bool):
        return itemgetter(key)
    if callable(key):
        return key  # type: ignore[no-any-return]
    if isinstance(key, str):
        # Item or attribute: a string does not say which of the two is meant.
        example += f"; for a field write key=itemgetter({key!r}) or key=attrgetter({key!r})"
    what = "a function of the message or the index of an element"
    raise _refusal(key, "key", what, example, error)


def choice(
    value: Any, name: str, choices: Sequence[str], *, error: type[Exception] = BadBehaviour
) -> str:
    """Return one of a few words; the refusal of another names the nearest.

    >>> choice("reject", "when_full", ("reject", "block"))
    'reject'
    """
    if isinstance(value, str) and value in choices:
        return value
    from difflib import get_close_matches  # noqa: PLC0415 - only to word a refusal

    near: list[str] = []
    if isinstance(value, str):
        near = get_close_matches(value.lower().replace("-", "_"), choices, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    words = ", ".join(map(repr, choices))
    msg = f"{name}={brief(value)}: {name} must be one of {words}{hint}"
    raise error(msg)


def shown(value: Any) -> str:
    """Return the name of a key or function for a `repr`.

    >>> shown(0), shown(len)
    ('0', 'len')
    """
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else brief(value)


def _real(value: Any) -> float | None:
    """Return a real number as a float; None for a boolean, NaN, or a number that is too large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        real = float(value)
    except (OverflowError, ValueError, TypeError):
        return None
    return real if real == real else None  # noqa: PLR0124 - NaN is not itself


def _refusal(value: Any, name: str, what: str, example: str, error: type[Exception]) -> Exception:
    return error(f"{name}={brief(value)}: {name} must be {what}, as in {example}")
