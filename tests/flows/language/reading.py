"""What tests of the parser read: nested texts, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.flows.language.parser import FlowSyntaxError, parse

if TYPE_CHECKING:
    from collections.abc import Callable


def error(text: str, **options: Any) -> FlowSyntaxError:
    """Return the error that a text is refused with."""
    with pytest.raises(FlowSyntaxError) as caught:
        parse(text, **options)
    return caught.value


NESTS: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "(" * n + "a" + ")" * n,
    "calls": lambda n: "(a " * n + "b" + ")" * n,
    "brackets": lambda n: "[" * n + "]" * n,
    "braces": lambda n: "{ a: " * n + "1" + " }" * n,
    "indexes": lambda n: "a[" * n + "0" + "]" * n,
    "dollars": lambda n: '"$(' * n + "a" + ')"' * n,
}
