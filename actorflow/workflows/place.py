"""Where workers of another language look for jobs: by their language and their environment."""

from __future__ import annotations

from typing import Any

from actorflow.runtime.errors import BadOption
from behaviours.errors import brief

__all__ = ["ENVIRONMENT", "LONGEST", "check_place"]

ENVIRONMENT = "default"
"""Where workers look for jobs, unless told otherwise."""
LONGEST = 200
"""Characters of the name of a language or an environment: it is a part of a path."""


def check_place(value: Any, name: str, example: str, *, error: type[Exception] = BadOption) -> str:
    """Return a language or an environment that workers can ask for.

    >>> check_place("a/b", "lang", "javascript")
    Traceback (most recent call last):
    ...
    actorflow.runtime.errors.BadOption: lang='a/b': lang must be a printable text of 1 to 200
    characters without '/', as in lang='javascript'

    """
    if (
        type(value) is str
        and 1 <= len(value) <= LONGEST
        and "/" not in value
        and value.isprintable()
    ):
        return value
    raise error(
        f"{name}={brief(value)}: {name} must be a printable text of 1 to {LONGEST} characters "
        f"without '/', as in {name}={example!r}"
    )
