"""How much a flow may ask for.

No flow must be able to stop the process that runs it. Exceeding a limit is an error of the flow,
which names the limit and the requested amount, and which `on_error` may catch.

Limits hold where one message can make much out of little. What grows by a little with each message
is caught by `state`, which is compared once for each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one execution."""

    elements: int = 250_000
    """Elements and entries of an array or object, those nested in it included."""
    characters: int = 10_000_000
    """Characters of a string, or of all strings in an array or object."""
    depth: int = 200
    """How deep arrays and objects nest."""
    nodes: int = 50_000
    """Nodes of an execution at the same time: branches, calls that have not returned."""
    tree_depth: int = 200
    """How deep the nodes of a flow text nest, including grafted trees."""
    text: int = 1_000_000
    """Characters of a flow text."""
    payload: int = 16 * 2**20
    """Bytes, as JSON, of a payload that comes from outside: of a launch, a tasker, a signal."""
    state: int = 64 * 2**20
    """Bytes of a stored execution; one that is larger starts no new nodes."""
    pattern_size: int = 10_000
    """Instructions of a compiled regular expression."""
    pattern_steps: int = 100_000_000
    """Instructions of a regular expression times the characters of the text it is matched with."""
    split_seconds: float = 2.0
    """CPU seconds for finding all matches of a regular expression in one text."""
    period: float = 0.1
    """Seconds between two firings of a timer that repeats, at least."""


LIMITS: Final = Limits()
"""The limits that hold where none are given."""
