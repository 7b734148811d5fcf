"""Finds calls in the code of workflows that give something else in each replay.

The source of the methods that replays call is read, and that of the functions of the same package
that they call. Nothing is executed. A call that is reached in another way is not found.
"""

from __future__ import annotations

import ast
import builtins
import datetime as dt
import importlib
import inspect
import sys
import textwrap
import types
from collections import ChainMap
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actorflow.workflows.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Impurity", "impurities"]

_ENTRIES = ("handle", "on_event", "on_start", "on_success", "on_failure", "on_timeout")
_MOST = 500  # functions that are read for one class

_NOW = "use self.now()"
_WAIT = "use self.wait(seconds=...)"
_RANDOM = "use self.random()"
_UUID = "use self.uuid()"
_TASK = "do it in a @af.task"
_ARGUMENT = "give it to __init__ as an argument"

_CLOCKS = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
    "localtime", "gmtime", "ctime",
)  # fmt: skip
_NAMED: dict[tuple[str, str], str] = {
    **{("time", name): _NOW for name in _CLOCKS},
    ("time", "sleep"): _WAIT,
    ("uuid", "uuid1"): _UUID,
    ("uuid", "uuid4"): _UUID,
    ("os", "urandom"): _RANDOM,
    ("os", "getenv"): _ARGUMENT,
    ("builtins", "open"): _TASK,
    ("builtins", "input"): "wait for an event: self.wait('answer')",
}
_MODULES = {
    "random": _RANDOM,
    "secrets": _RANDOM,
    "socket": _TASK,
    "subprocess": _TASK,
    "urllib.request": _TASK,
    "http.client": _TASK,
    "requests": _TASK,
    "httpx": _TASK,
    "sqlite3": _TASK,
}
"""Modules of which every function and class counts."""
_METHODS: dict[tuple[type[Any], str], str] = {
    (dt.datetime, "now"): _NOW,
    (dt.datetime, "utcnow"): _NOW,
    (dt.datetime, "today"): _NOW,
    (dt.date, "today"): _NOW,
}


class Impurity(Struct, frozen=True):
    """A call that gives something else in each replay."""

    file: str
    line: int
    call: str
    """Such as `time.time`."""
    remedy: str

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line}: {self.call}() gives something else in each replay: "
            f"{self.remedy}"
        )


def impurities(cls: type[Workflow[Any]]) -> list[Impurity]:
    """Return the calls in the code of a class that are not the same in a replay.

    Code whose source cannot be read is left out.
    """
    found: list[Impurity] = []
    waiting = [method for name in _ENTRIES if (method := _method(cls, name)) is not None]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST:
        function = waiting.pop()
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        read = _SourceReader.of(function)
        if read is None:
            continue
        for call in read.calls():
            impurity = read.impurity(call)
            if impurity is not None:
                found.append(impurity)
                continue
            called = read.called(cls, call)
            if called is not None:
                waiting.append(called)
    return sorted(found, key=lambda each: (each.file, each.line))


def _method(cls: type[Any], name: str) -> types.FunctionType | None:
    """Return a method that the user has defined."""
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    if not isinstance(found, types.FunctionType):
        return None
    return None if found is inspect.getattr_static(Workflow, name, None) else found


class _SourceReader:
    """The source of one function, and what its names stand for."""

    def __init__(self, function: types.FunctionType, tree: ast.AST, first: int) -> None:
        self._function = function
        self._tree = tree
        self._first = first
        code = function.__code__
        self._self = code.co_varnames[0] if code.co_argcount else ""
        self._names: ChainMap[str, Any] = ChainMap(
            {},  # imports inside the function
            dict.fromkeys(code.co_varnames),
            dict(inspect.getclosurevars(function).nonlocals),
            function.__globals__,
            vars(builtins),
        )
        for node in self._walk():
            self._note_import(node)

    @classmethod
    def of(cls, function: types.FunctionType) -> _SourceReader | None:
        """Read a function; return `None` if there is no source."""
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
            return cls(function, tree, first)
        except (OSError, TypeError, SyntaxError, ValueError):
            return None

    def _walk(self) -> Iterator[ast.AST]:
        """Yield the nodes of the function, without functions inside that are tasks."""
        waiting: list[ast.AST] = [self._tree]
        while waiting:
            node = waiting.pop()
            yield node
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and node is not (
                    self._tree
                ):
                    decorators = {ast.unparse(each) for each in child.decorator_list}
                    if any("task" in each for each in decorators):
                        continue
                waiting.append(child)

    def _note_import(self, node: ast.AST) -> None:
        """Note what an import inside the function binds."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                self._names[alias.asname or name] = _module(name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = _module(node.module or "")
            for alias in node.names:
                self._names[alias.asname or alias.name] = getattr(module, alias.name, None)

    def calls(self) -> Iterator[ast.Call]:
        """Yield the calls in the function."""
        for node in self._walk():
            if isinstance(node, ast.Call):
                yield node

    def impurity(self, call: ast.Call) -> Impurity | None:
        """Return the problem of a call, if it has one."""
        target = call.func
        if isinstance(target, ast.Attribute):
            owner = self._value(target.value)
            for (cls, name), remedy in _METHODS.items():
                if name == target.attr and isinstance(owner, type) and issubclass(owner, cls):
                    return self._impurity(call, remedy)
        found = self._value(target)
        if found is None:
            return None
        for (module, name), remedy in _NAMED.items():
            if found is getattr(_module(module), name, _MISSING):
                return self._impurity(call, remedy)
        home = getattr(found, "__module__", None) or _home(found)
        if home == "random" and isinstance(found, type) and (call.args or call.keywords):
            return None  # seeded
        remedy = next(
            (remedy for name, remedy in _MODULES.items() if home in (name, f"_{name}")), ""
        )
        return self._impurity(call, remedy) if remedy else None

    def _impurity(self, call: ast.Call, remedy: str) -> Impurity:
        line = self._first + call.lineno - 1
        return Impurity(self._function.__code__.co_filename, line, ast.unparse(call.func), remedy)

    def called(self, cls: type[Any], call: ast.Call) -> types.FunctionType | None:
        """Return a function of the user that a call reaches."""
        target = call.func
        owner = target.value if isinstance(target, ast.Attribute) else None
        if (
            isinstance(target, ast.Attribute)
            and isinstance(owner, ast.Name)
            and (owner.id == self._self)
        ):
            return _method(cls, target.attr)
        found = self._value(target)
        if not isinstance(found, types.FunctionType):  # a task is not one
            return None
        same = found.__module__.partition(".")[0] == cls.__module__.partition(".")[0]
        return found if same else None

    def _value(self, node: ast.AST) -> Any:
        """Return what a dotted name stands for: only modules and classes are looked into."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if isinstance(owner, (types.ModuleType, type)):
                return getattr(owner, node.attr, None)
        return None


_MISSING = object()


def _home(found: Any) -> str | None:
    """Return the module of a bound method, such as `random.choice`."""
    owner = getattr(found, "__self__", None)
    return type(owner).__module__ if owner is not None else None


def _module(name: str) -> Any:
    """Return a module if it is imported or one of the checked ones."""
    if name == "builtins":
        return builtins
    found = sys.modules.get(name)
    if found is None and (name in _MODULES or name in {each for each, _ in _NAMED}):
        try:
            found = importlib.import_module(name)
        except ImportError:
            return None
    return found
