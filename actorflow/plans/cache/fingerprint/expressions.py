"""The names that decorators and annotations look up."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.plans.cache.fingerprint.syntax import FunctionNode

__all__ = ["of_annotations", "of_decorators"]


def of_decorators(node: FunctionNode | None) -> list[tuple[str, ...]]:
    """Return the names in the decorators of a function, each with its attributes."""
    return _sorted(getattr(node, "decorator_list", []))


def of_annotations(annotations: object) -> list[tuple[str, ...]]:
    """Return the names in the annotations of a class that are texts, each with its attributes."""
    if not isinstance(annotations, dict):
        return []  # a class in C may have anything there
    return _sorted([_parsed(each) for each in annotations.values() if type(each) is str])


def _sorted(nodes: list[ast.AST]) -> list[tuple[str, ...]]:
    return sorted({chain for each in nodes for chain in _chains(each)})


def _parsed(annotation: str) -> ast.AST:
    try:
        return ast.parse(annotation.strip(), mode="eval")
    except SyntaxError:
        return ast.Pass()


def _chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    nodes = list(ast.walk(node))
    inner = {id(each.value) for each in nodes if isinstance(each, ast.Attribute)}
    for each in nodes:
        chain = _chain(each)
        if chain and id(each) not in inner:
            yield chain


def _chain(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        before = _chain(node.value)
        return (*before, node.attr) if before else ()
    return ()
