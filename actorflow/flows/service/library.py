"""The library: variables and subflows by domain, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.service.taskers import domains, qualified
from actorflow.flows.values.values import MISSING, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.flows.language.tree import Tree

__all__ = ["Library"]


class Library:
    """A loader: entries of a domain are visible there and below; the deepest one wins.

    It never changes, so a run sees the same library from its beginning to its end.
    """

    def __init__(
        self,
        variables: Mapping[str, Value] | None = None,
        subflows: Mapping[str, Tree] | None = None,
    ) -> None:
        """Start with some entries by qualified name, as in ``{"org.sales.limit": 100}``."""
        self._variables = dict(variables or {})
        self._subflows = dict(subflows or {})

    def with_variable(self, domain: str, name: str, value: Value) -> Library:
        """Return a library with one more variable."""
        return Library({**self._variables, qualified(domain, name): value}, self._subflows)

    def with_subflow(self, domain: str, name: str, tree: Tree) -> Library:
        """Return a library with one more subflow."""
        return Library(self._variables, {**self._subflows, qualified(domain, name): tree})

    def variable(self, domain: str, name: str) -> Value:
        """Return the variable of the deepest domain, or ``MISSING``."""
        if not self._variables:
            return MISSING
        for one in domains(domain):
            value = self._variables.get(qualified(one, name), MISSING)
            if value is not MISSING:
                return value
        return MISSING

    def subflow(self, domain: str, name: str) -> Tree | None:
        """Return the subflow of the deepest domain, or None."""
        for one in domains(domain):
            tree = self._subflows.get(qualified(one, name))
            if tree is not None:
                return tree
        return None
