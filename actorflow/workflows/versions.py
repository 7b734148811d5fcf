"""Which code a workflow runs: its own `version`, or a hash of its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.workflow import Workflow, workflow_name

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UNKNOWN", "code_version"]

UNKNOWN = "unknown"
"""The version of a class whose source cannot be read, such as one that was typed at a prompt."""


def code_version(cls: type[Workflow[Any]]) -> str:
    """Return the version of the code of a class: short, and the same on every machine.

    That is its class attribute `version`, a string; else a hash of the source of the class and its
    bases, in which comments, docstrings and layout do not count. What the methods call does not
    count either: name a `version` if that matters.

    Raises:
        InvalidWorkflow: its `version` is not a string.

    """
    for base in cls.__mro__:
        given = vars(base).get("version")
        if isinstance(given, str) and given:
            return given
        if given is not None and not callable(given) and not hasattr(given, "__get__"):
            raise InvalidWorkflow(
                f"{workflow_name(cls)}.version is {given!r:.80}: the version of a workflow is a "
                "text, as in version = '2'"
            )
    try:
        parts = [_normal(inspect.getsource(base)) for base in _bases(cls)]
    except (OSError, TypeError, SyntaxError):
        return UNKNOWN
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


def _bases(cls: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and those of its bases that are the user's."""
    for base in cls.__mro__:
        if base is Workflow:
            return
        yield base


def _normal(source: str) -> str:
    """Return a source without what changes nothing."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
