"""Strings: case, trimming, splitting, matching."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from actorflow.flows.failure import FlowError
from actorflow.flows.procedures.simple import Simple, simple
from actorflow.flows.values import (
    Value,
    groups,
    is_reference,
    is_regex,
    kind_name,
    to_regex,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _each(call: Simple, change: Callable[[str], str]) -> Value:
    """Change a string, or each string of an array or object."""
    value = call.argument()
    if type(value) is str:
        return change(value)
    if type(value) is list and not is_reference(value):
        return [change(one) if type(one) is str else one for one in value]
    if type(value) is dict:
        return {key: change(one) if type(one) is str else one for key, one in value.items()}
    raise FlowError(f"{call.name} needs a string, not {kind_name(value)}")


@simple("upcase", "uppercase", "upper")
def upcase(call: Simple) -> Value:
    """Turn to upper case."""
    return _each(call, str.upper)


@simple("downcase", "lowercase", "lowcase", "lower")
def downcase(call: Simple) -> Value:
    """Turn to lower case."""
    return _each(call, str.lower)


@simple("capitalize")
def capitalize(call: Simple) -> Value:
    """Give each word a capital."""
    return _each(call, lambda text: re.sub(r"\b[a-z]", lambda m: m.group(0).upper(), text))


@simple("trim", "strip")
def trim(call: Simple) -> Value:
    """Drop white space at both ends."""
    return _each(call, str.strip)


def _snake(text: str) -> str:
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return re.sub(r"[\s-]+", "_", text).lower()


@simple("snakecase", "snake_case")
def snakecase(call: Simple) -> Value:
    """Turn to words_with_underscores."""
    return _each(call, _snake)


@simple("camelcase", "camelCase")
def camelcase(call: Simple) -> Value:
    """Turn to wordsWithCapitals."""
    return _each(call, lambda text: re.sub(r"[_\s-]+(\w)", lambda m: m.group(1).upper(), text))


@simple("split")
def split(call: Simple) -> Value:
    """Split a string by a string, an expression, or white space."""
    values = call.arguments()
    if not values or (len(values) == 1 and is_regex(values[0])):
        values = [call.ret0, *values]
    if not values or type(values[0]) is not str:
        raise FlowError("found no string to split")
    text, by = values[0], values[1] if len(values) > 1 else None
    if by is None:
        return text.split()
    if is_regex(by):
        return [part for part in to_regex(by).split(text) if part is not None]
    parts = text.split(to_text(by)) if by != "" else list(text)
    while parts and parts[-1] == "":
        parts.pop()
    return parts


def _match(call: Simple) -> re.Match[str] | None:
    values = call.arguments()
    if len(values) < 2:  # noqa: PLR2004
        values = [call.ret0, *values]
    if len(values) < 2:  # noqa: PLR2004
        raise FlowError(f"{call.name} needs a string and a regular expression")
    text, pattern = values[0], values[1]
    if is_regex(text) and not is_regex(pattern):
        text, pattern = pattern, text
    if type(text) is not str:
        raise FlowError(f"{call.name} needs a string, not {kind_name(text)}")
    return to_regex(pattern).search(text)


@simple("matchr", unatts=False, shows=True)
def matchr(call: Simple) -> Value:
    """Return the match and its groups, or an empty array."""
    match = _match(call)
    return groups(match) if match else []


@simple("match?", unatts=False, shows=True)
def match_p(call: Simple) -> Value:
    """Tell whether a string matches."""
    return _match(call) is not None


@simple("pmatch", unatts=False, shows=True)
def pmatch(call: Simple) -> Value:
    """Return the first group, or the whole match, or an empty string."""
    match = _match(call)
    if match is None:
        return ""
    return match.group(1) if match.re.groups else match.group(0)
