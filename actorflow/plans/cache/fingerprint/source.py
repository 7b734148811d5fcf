"""From a code object back to its syntax tree, if the source has not changed since."""

from __future__ import annotations

import ast
import linecache
import types
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.plans.cache.fingerprint.syntax import FunctionNode

__all__ = ["find_node"]


class _CompiledFile(NamedTuple):
    """A file, compiled: its code objects, and its functions by name and first line."""

    codes: frozenset[types.CodeType]
    nodes: dict[tuple[str, int], list[FunctionNode]]


def find_node(code: types.CodeType) -> FunctionNode | None:
    """Return the syntax tree of a function.

    Return `None` if no tree can be trusted: no source, or a file that was edited after it
    was imported. The file is compiled again and must hold this very code.
    """
    source = _source(code.co_filename)
    if source is None or code not in source.codes:
        return None
    candidates = source.nodes.get((code.co_name, code.co_firstlineno), [])
    if len(candidates) > 1:
        candidates = _innermost(candidates, code)
    return candidates[0] if len(candidates) == 1 else None


_KNOWN: dict[str, tuple[list[str], _CompiledFile | None]] = {}


def _source(filename: str) -> _CompiledFile | None:
    linecache.checkcache(filename)
    lines = linecache.getlines(filename)
    known = _KNOWN.get(filename)
    if known is None or known[0] is not lines:  # linecache has read it anew
        known = _KNOWN[filename] = (lines, _compiled("".join(lines), filename) if lines else None)
    return known[1]


def _compiled(text: str, filename: str) -> _CompiledFile | None:
    try:
        tree = ast.parse(text, filename)
        code = compile(text, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None  # a page of documentation, a template: not a module
    nodes: dict[tuple[str, int], list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            nodes.setdefault(("<lambda>", node.lineno), []).append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            nodes.setdefault((node.name, first), []).append(node)
    return _CompiledFile(frozenset(_all_codes(code)), nodes)


def _all_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _all_codes(each)


def _innermost(nodes: list[FunctionNode], code: types.CodeType) -> list[FunctionNode]:
    """Return the node, of several lambdas on one line, that the code was compiled from."""
    places = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line and end_line and end_column and column is not None
    ]
    if not places:
        return []
    first, last = min(start for start, _ in places), max(end for _, end in places)
    around: list[FunctionNode] = [
        each
        for each in nodes
        if isinstance(each.body, ast.expr)
        and _start(each.body) <= first
        and last <= _end(each.body)
    ]
    # All lambdas around the place are nested: the innermost starts last.
    return sorted(around, key=lambda each: (each.lineno, each.col_offset))[-1:]


def _start(node: ast.expr) -> tuple[int, int]:
    return (node.lineno, node.col_offset)


def _end(node: ast.expr) -> tuple[int, int]:
    return (node.end_lineno or 0, node.end_col_offset or 0)
