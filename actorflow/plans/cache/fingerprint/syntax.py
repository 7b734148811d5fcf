"""The normal form of a function: a text that only a change of its code changes.

Comments, formatting, docstrings, `pass` and the names of local variables do not show in it.
Names of parameters do (callers use them), and so do names of nested functions and classes (they
show in `__qualname__`). Default values and the name of the function itself are left out: the
values are compared by what they are, and a new name shows where it is used.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["FunctionNode", "normal_form"]

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# With one of these a program can see the names of its local variables.
_REVEALING = {"locals", "vars", "dir", "eval", "exec"}
_IGNORED = {"kind", "type_comment", "type_ignores", "ctx", "lineno", "end_lineno"}


def normal_form(node: FunctionNode) -> str:
    r"""Return the normal form of a function. Costs time proportional to its size.

    >>> first = ast.parse("def f(x):\n    y = x + 1  # one more\n    return y").body[0]
    >>> second = ast.parse("def f(x):\n    '''Add.'''\n    z = (x + 1)\n    return z").body[0]
    >>> normal_form(first) == normal_form(second)
    True
    """
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    writer = _Writer(rename=not names & _REVEALING)
    writer.root(node)
    return "".join(writer.out)


class _Scope:
    """The names that one function or comprehension binds, and what each is called instead."""

    def __init__(self, kept: Iterable[str], local: Iterable[str]) -> None:
        self.names: dict[str, str | None] = dict.fromkeys(local)
        self.names.update((name, name) for name in kept)


class _Writer:
    def __init__(self, *, rename: bool) -> None:
        self.out: list[str] = []
        self.rename = rename
        self.scopes: list[_Scope] = []
        self.count = 0

    # --- names ----------------------------------------------------------------

    def name(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.names:
                found = scope.names[name]
                if found is None:
                    found = f"~{self.count}" if self.rename else name
                    scope.names[name] = found
                    self.count += 1
                return found
        return name

    # --- functions, and what else opens a scope -------------------------------

    def root(self, node: FunctionNode) -> None:
        self.text(type(node).__name__)
        if not isinstance(node, ast.Lambda):
            self.value(node.decorator_list)
            self.value(_unquoted(node.returns))
            self.value(getattr(node, "type_params", []))
        self.parameters(node.args)
        self.body(node)

    def nested_function(self, node: FunctionNode) -> None:
        """Write a function inside: its head belongs to the scope around it."""
        self.text(type(node).__name__)
        if not isinstance(node, ast.Lambda):
            self.text(node.name)
            self.value(node.decorator_list)
            self.value(_unquoted(node.returns))
            self.value(getattr(node, "type_params", []))
        self.value(node.args.defaults)
        self.value(node.args.kw_defaults)
        self.parameters(node.args)
        self.body(node)

    def parameters(self, args: ast.arguments) -> None:
        for kind in ("posonlyargs", "args", "vararg", "kwonlyargs", "kwarg"):
            self.text(kind)
            self.value(getattr(args, kind))
        self.text(f"defaults {len(args.defaults)} {[each is None for each in args.kw_defaults]}")

    def body(self, node: FunctionNode) -> None:
        self.scopes.append(_function_scope(node))
        self.value(node.body)
        self.scopes.pop()

    def comprehension(self, node: ast.expr) -> None:
        generators: list[ast.comprehension] = getattr(node, "generators")  # noqa: B009 - four classes have it
        self.text(type(node).__name__)
        self.value(generators[0].iter)
        targets = {
            each.id
            for generator in generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        self.scopes.append(_Scope((), targets))
        for at, generator in enumerate(generators):
            self.value(generator.target)
            if at:
                self.value(generator.iter)
            self.value(generator.ifs)
            self.value(generator.is_async)
        for field in ("key", "value", "elt"):
            self.value(getattr(node, field, None))
        self.scopes.pop()

    def nested_class(self, node: ast.ClassDef) -> None:
        self.text(f"ClassDef {node.name}")
        self.value(node.decorator_list)
        self.value(getattr(node, "type_params", []))
        self.value(node.bases)
        self.value(node.keywords)
        # The names of a class body are its attributes.
        self.scopes.append(_Scope(_bound(list(_inside(node.body))), ()))
        self.value(node.body)
        self.scopes.pop()

    # --- everything else ------------------------------------------------------

    def text(self, text: str) -> None:
        self.out.append(text)
        self.out.append(";")

    def value(self, value: object) -> None:
        if isinstance(value, list):
            kept = [each for each in value if not _is_idle(each)]
            self.out.append(f"[{len(kept)}:")
            for each in kept:
                self.value(each)
            self.out.append("]")
        elif isinstance(value, ast.AST):
            self.node(value)
        else:
            self.text(repr(value))

    def node(self, node: ast.AST) -> None:
        self.out.append("(")
        if isinstance(node, _FUNCTIONS):
            self.nested_function(node)
        elif isinstance(node, _COMPREHENSIONS):
            self.comprehension(node)
        elif isinstance(node, ast.ClassDef):
            self.nested_class(node)
        else:
            self.plain(node)
        self.out.append(")")

    def plain(self, node: ast.AST) -> None:
        self.text(type(node).__name__)
        for field, value in ast.iter_fields(node):
            if field in _IGNORED:
                continue
            if isinstance(node, ast.Constant):
                self.text(f"{type(value).__name__} {value!r}")
            elif isinstance(value, str) and _is_name(node, field):
                self.text(self.name(value))
            elif field == "annotation" and isinstance(node, ast.arg):
                self.value(_unquoted(value))
            elif isinstance(node, ast.Nonlocal):
                self.text(" ".join(sorted(map(self.name, node.names))))
            else:
                self.value(value)


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    """Return an annotation that may be written as a text, `'int'`, as if it were not."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value.strip(), mode="eval").body
        except SyntaxError:
            return annotation
    return annotation


def _is_idle(node: object) -> bool:
    """Return whether a statement does nothing: `pass`, a docstring, a constant."""
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _is_name(node: ast.AST, field: str) -> bool:
    """Return whether a field of a node is the name of a variable."""
    return (
        (isinstance(node, ast.Name) and field == "id")
        or (isinstance(node, ast.alias) and field == "asname")
        or (isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and field == "name")
        or (isinstance(node, ast.MatchMapping) and field == "rest")
    )


def _function_scope(node: FunctionNode) -> _Scope:
    args = node.args
    single = [each for each in (args.vararg, args.kwarg) if each is not None]
    parameters = {each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs, *single)}
    inside = list(_inside([node.body] if isinstance(node, ast.Lambda) else node.body))
    declared = {name for each in inside if isinstance(each, ast.Global) for name in each.names}
    named = {
        each.name
        for each in inside
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return _Scope(parameters | declared | named, _bound(inside))


def _bound(inside: Sequence[ast.AST]) -> set[str]:
    """Return the names that the nodes of one scope bind in it."""
    bound: set[str] = set()
    for node in inside:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.alias) and node.name != "*":
            bound.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    for node in inside:
        if isinstance(node, ast.Nonlocal):
            bound.difference_update(node.names)
    return bound


def _inside(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes of one scope: of a nested scope only the parts evaluated outside."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _FUNCTIONS):
            waiting += [*node.args.defaults, *filter(None, node.args.kw_defaults)]
            waiting += getattr(node, "decorator_list", [])
        elif isinstance(node, ast.ClassDef):
            waiting += [*node.bases, *node.keywords, *node.decorator_list]
        elif isinstance(node, _COMPREHENSIONS):
            # A walrus inside binds outside, even from here.
            waiting += [each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr)]
        else:
            waiting += ast.iter_child_nodes(node)
