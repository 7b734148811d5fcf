"""Strings: case, trimming, splitting, matching."""

from __future__ import annotations

import re
from itertools import islice
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError, LimitExceeded
from actorflow.flows.limits import LIMITS, Limits
from actorflow.flows.procedures.simple import Simple, simple
from actorflow.flows.values.regexes import Match, Regex, groups, to_regex
from actorflow.flows.values.values import Value, is_regex, kind_name, same, truthy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WHITE = " \t\n\v\f\r\0"
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_SPACES = re.compile(r"[ \t\r\n\f\v]+")


def _changed(value: Value, change: Callable[[str], str], *, capital: bool) -> Value:
    if type(value) is str:
        text = change(value)
        return text.capitalize() if capital else text
    if capital:
        raise FlowError(f"cannot capitalize {kind_name(value)}")
    if type(value) is list:
        return [_changed(one, change, capital=False) for one in value]
    if type(value) is dict:
        return {key: _changed(one, change, capital=False) for key, one in value.items()}
    return value


def _each(call: Simple, change: Callable[[str], str]) -> Value:
    """Change a string, or each string inside an array or object; other values are unchanged.

    With ``cap: true`` the string is capitalised, and other values are refused.
    """
    value = call.argument()
    capital = truthy(call.att("cap", "capitalize"))
    return _changed(value if truthy(value) else call.ret0, change, capital=capital)


@simple("upcase", "uppercase", "upper")
def upcase(call: Simple) -> Value:
    """Return a string in upper case."""
    return _each(call, str.upper)


@simple("downcase", "lowercase", "lowcase", "lower")
def downcase(call: Simple) -> Value:
    """Return a string in lower case."""
    return _each(call, str.lower)


@simple("capitalize")
def capitalize(call: Simple) -> Value:
    """Return a string with each word capitalised."""
    return _each(call, lambda text: re.sub(r"\b[a-z]", lambda m: m.group(0).upper(), text))


@simple("trim", "strip")
def trim(call: Simple) -> Value:
    """Return a string without white space at both ends."""
    return _each(call, lambda text: text.strip(_WHITE))


def _snake(text: str) -> str:
    return _HUMP.sub("_", text).translate(_LOWER)


@simple("snakecase", "snake_case")
def snakecase(call: Simple) -> Value:
    """Return a string as words_with_underscores."""
    return _each(call, _snake)


@simple("camelcase", "camelCase")
def camelcase(call: Simple) -> Value:
    """Return a string as wordsWithCapitals."""
    return _each(call, lambda text: re.sub(r"_(.)", lambda m: m.group(1).upper(), text))


def _pieces(text: str, separator: Regex) -> Iterator[str]:
    """Yield the text between the matches, and their groups.

    An empty match separates two characters.
    """
    start = 0
    for match in separator.find_all(text):
        if match.end() == match.start() and match.start() in (start, len(text)):
            continue
        yield text[start : match.start()]
        yield from (group for group in match.groups() if group is not None)
        start = match.end()
    yield text[start:]


def split_text(text: str, by: str | Regex | None, limits: Limits = LIMITS) -> list[str]:
    """Split a text, without empty parts at the end. A single space means any white space.

    Without ``by`` it is split at white space, too, and what is empty in front is kept.

    >>> split_text("a,b,,", ","), split_text(" a  b", " "), split_text("ab", "")
    (['a', 'b'], ['a', 'b'], ['a', 'b'])
    >>> split_text(" a  b ", None)
    ['', 'a', 'b']

    Raises LimitExceeded when there are more pieces than an array may have elements.
    """
    most = limits.elements
    if by is None:
        pieces = _SPACES.split(text, most)
    elif by == " ":
        pieces = text.split(None, most)
    elif by == "":
        pieces = list(text[: most + 1])
    elif isinstance(by, str):
        pieces = text.split(by, most)
    else:
        pieces = list(islice(_pieces(text, by), most + 1))
    if len(pieces) > most:
        raise LimitExceeded(f"split would make an array of more than {most:,} elements")
    while pieces and pieces[-1] == "":
        pieces.pop()
    return pieces


@simple("split")
def split(call: Simple) -> Value:
    """Split the first string given, or ret, by the next string, an expression, or white space."""
    text: str | None = None
    by: str | Regex | None = None
    limits = call.run.sizes.limits
    for value in [*call.arguments(), call.ret0]:
        if text is not None and by is not None:
            break
        if is_regex(value):
            by = to_regex(value, limits)
        elif type(value) is str:
            if text is None:
                text = value
            elif by is None:
                by = value
    if text is None:
        raise FlowError("found no string to split")
    return split_text(text, by, limits)


def _match(call: Simple) -> Match | None:
    """Match the other argument, or ret, against the expression, or the last argument."""
    values = call.arguments()
    if len(values) == 1:
        values = [call.ret0, *values]
    if not values:
        raise FlowError(f"'{call.tree[0]}' needs 1 or 2 arguments")
    pattern = next((value for value in values if is_regex(value)), values[-1])
    text = next((value for value in values if not same(value, pattern)), None)
    if text is None:
        return None
    if type(text) is not str:
        raise FlowError(f"{call.name} needs a string, not {kind_name(text)}")
    return to_regex(pattern, call.run.sizes.limits).search(text)


@simple("matchr", unatts=False, shows=True)
def matchr(call: Simple) -> Value:
    """Return the match and its groups, or an empty array."""
    match = _match(call)
    return groups(match) if match else []


@simple("match?", unatts=False, shows=True)
def match_p(call: Simple) -> Value:
    """Return whether a string matches."""
    return _match(call) is not None


@simple("pmatch", unatts=False, shows=True)
def pmatch(call: Simple) -> Value:
    """Return the first group, or the whole match, or an empty string."""
    match = _match(call)
    if match is None:
        return ""
    whole, first, *_ = [*groups(match), None]
    return whole if first is None else first
