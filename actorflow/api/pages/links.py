"""Links between pages. All are relative, so that the dashboard can be mounted anywhere."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

__all__ = ["link"]


def link(path: str, **query: Any) -> str:
    """Return a relative link; empty values are left out.

    >>> link("execution", id="a b", after=None), link(".")
    ('execution?id=a+b', '.')
    """
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
