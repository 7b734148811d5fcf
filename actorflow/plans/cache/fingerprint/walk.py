"""Everything that a function depends on: a walk from it through the user's own modules."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import os
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any

from actorflow.plans.cache.fingerprint.bytecode import Import, Uses, instructions, uses
from actorflow.plans.cache.fingerprint.components import Component, ComponentKind, digest_of
from actorflow.plans.cache.fingerprint.indirect import indirect, is_indirect
from actorflow.plans.cache.fingerprint.ownership import is_own, module_name, own_import
from actorflow.plans.cache.fingerprint.source import find_node
from actorflow.plans.cache.fingerprint.syntax import FunctionNode, normal_form
from actorflow.plans.cache.fingerprint.values import Unstable, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Walk"]

_NATIVE = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
# Of a class: what the interpreter keeps there, and what does not change what the class does.
_UNTOLD = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__abstractmethods__",
    "_abc_impl", "__firstlineno__", "__static_attributes__",
}  # fmt: skip


class Walk:
    """The components of one function, or of one value. Not thread-safe; used once.

    Only objects that live in this process are looked at: what a name stands for now, not what
    its module says about it. Modules that the function imports when it runs are imported.
    """

    def __init__(self) -> None:
        self.components: dict[Component, str] = {}
        self.unstable: dict[Component, str] = {}
        """Components without a stable digest, with the reasons."""
        self.values = Values(self.refer)
        self._labels: dict[int, tuple[str, Any]] = {}
        self._taken: dict[str, int] = {}
        # Visits that are still to be made: a queue, since helpers call helpers of helpers.
        self._waiting: deque[Callable[[], None]] = deque()
        self._kinds: list[tuple[Any, Callable[[Any], str]]] = [
            (types.FunctionType, self._refer_function),
            (type, self._refer_class),
            (types.ModuleType, self._refer_module),
            (types.MethodType, self._refer_method),
            (_NATIVE, self._refer_native),
        ]

    def root(self, function: Any) -> None:
        """Add the components of the function of a job."""
        if isinstance(function, types.FunctionType) and _is_own_function(function):
            self._function(function, self._label(function, _label_of(function)), root=True)
        else:
            self._value(Component(ComponentKind.CODE, ""), function)
        self._visit()

    def value(self, component: Component, value: Any) -> None:
        """Add a value as a component, with the code that it brings along."""
        self._value(component, value)
        self._visit()

    def refer_to(self, thing: Any) -> None:
        """Add the components of a function, class or module."""
        self._reference(thing)
        self._visit()

    def _visit(self) -> None:
        while self._waiting:
            self._waiting.popleft()()

    def _value(self, component: Component, value: Any) -> None:
        """Add a value as a component, stable or unstable."""
        if component in self.components or component in self.unstable:
            return
        try:
            self.components[component] = self.values.digest(value)
        except Unstable as error:
            self.unstable[component] = str(error)

    # --- references: functions, classes, modules ------------------------------

    def refer(self, thing: Any) -> str | None:
        """Return a label for a function, class or module, and visit it later; else None."""
        if id(thing) in self._labels:
            return self._labels[id(thing)][0]
        if is_indirect(thing):
            name = getattr(thing, "__name__", "sys.modules")
            raise Unstable(f"`{name}` looks up code by names made at run time")
        if thing is os.environ:
            return "os.environ"  # what a job reads by itself does not count
        for kind, label in self._kinds:
            if isinstance(thing, kind):
                return label(thing)
        wrapped = inspect.getattr_static(thing, "__wrapped__", None)
        if wrapped is None or is_own(type(thing).__module__):
            return None
        return f"{_class_label(type(thing))} around {self.values.part(wrapped)}"

    def _label(self, thing: Any, wanted: str) -> str:
        """Name a thing; another one of the same name gets a number."""
        count = self._taken[wanted] = self._taken.get(wanted, 0) + 1
        label = wanted if count == 1 else f"{wanted}#{count}"
        self._labels[id(thing)] = (label, thing)
        return label

    def _refer_method(self, method: types.MethodType) -> str:
        if _is_public(method):
            return f"{type(method.__self__).__module__}.{method.__name__}"
        return f"{self.refer(method.__func__)} of {self.values.part(method.__self__)}"

    def _refer_native(self, thing: Any) -> str:
        owner = getattr(thing, "__self__", None)
        name = f"{getattr(thing, '__module__', None)}.{thing.__qualname__}"
        if owner is None or isinstance(owner, types.ModuleType) or _is_public(thing):
            return name
        return f"{name} of {self.values.part(owner)}"

    def _refer_function(self, function: types.FunctionType) -> str:
        label = self._label(function, _label_of(function))
        if _is_own_function(function):
            self._waiting.append(lambda: self._function(function, label, root=False))
        elif "__wrapped__" in vars(function) or function.__closure__:
            self._waiting.append(lambda: self._wrapper(function, label))
        return label

    def _refer_class(self, cls: type) -> str:
        if not is_own(cls.__module__):
            return _class_label(cls)
        label = self._label(cls, _class_label(cls))
        self._waiting.append(lambda: self._class(cls, label))
        return label

    def _refer_module(self, module: types.ModuleType) -> str:
        name = module_name(module.__name__)
        label = self._label(module, f"module {name}")
        if is_own(module.__name__):
            self._waiting.append(lambda: self._module(module, name))
        return label

    # --- visits ---------------------------------------------------------------

    def _wrapper(self, function: types.FunctionType, label: str) -> None:
        """Look into a function of an installed package that holds functions of the user."""
        if "__wrapped__" in vars(function):
            self._value(Component(ComponentKind.HELPER, label), vars(function)["__wrapped__"])
        for name, content in _cells(function):
            try:
                digest = self.values.digest(content)
            except Unstable:
                continue  # the package's own bookkeeping, such as a table of weak references
            self.components[Component(ComponentKind.CLOSURE, f"{name} of {label}")] = digest

    def _class(self, cls: type, label: str) -> None:
        members = {name: each for name, each in vars(cls).items() if _is_told(name)}
        names = sorted(members)
        parts = [type(cls), cls.__bases__, names, [members[name] for name in names]]
        self._value(Component(ComponentKind.CLASS, label), parts)

    def _module(self, module: types.ModuleType, name: str) -> None:
        """Visit a whole module: it is handed around, so anything in it may be used."""
        bindings = [
            self._resolve(module.__dict__, (each,), ())
            for each, found in sorted(vars(module).items())
            if (not each.startswith("__") or each == "__getattr__")
            and (not isinstance(found, types.ModuleType) or _is_inside(found, module))
        ]
        self.components[Component(ComponentKind.MODULE, name)] = digest_of(repr(bindings).encode())

    def _function(self, function: types.FunctionType, label: str, *, root: bool) -> None:
        code = function.__code__
        node = find_node(code)
        form = normal_form(node) if node else self.values.digest(instructions(code))
        owner = "" if root else f" of {label}"
        for name, default in _defaults(function):
            self._value(Component(ComponentKind.DEFAULT, f"{name}{owner}"), default)
        part = Component(ComponentKind.CODE, "") if root else Component(ComponentKind.HELPER, label)
        names = uses(code)
        hidden = indirect(function.__globals__, code, names)
        if hidden is not None:
            self.unstable[part] = hidden
            return
        bindings = [self._resolve(function.__globals__, each, ()) for each in names.globals]
        bindings += [self._resolve(function.__globals__, each, ()) for each in _decorators(node)]
        bindings += self._imported(function.__globals__, names)
        for name, content in _cells(function):
            reference = self._reference(content)
            if reference is None:
                self._value(Component(ComponentKind.CLOSURE, f"{name}{owner}"), content)
            else:
                bindings.append(f"{name} is {reference}")
        for name, attribute in sorted(vars(function).items()):
            if not name.startswith("__"):
                self._value(Component(ComponentKind.GLOBAL, f"{label}.{name}"), attribute)
        self.components[part] = digest_of(f"{form} {sorted(bindings)}".encode())

    def _reference(self, thing: Any) -> str | None:
        try:
            return self.refer(thing)
        except (Unstable, RecursionError):
            return None  # a bound method of something unstable: told as a value
        finally:
            self.values.leave()

    def _resolve(
        self, names: dict[str, Any], chain: tuple[str, ...], above: tuple[str, ...]
    ) -> str:
        """Follow `name.attribute...` from a module's names; return what it is bound to.

        Own modules on the way are passed through. Data becomes a component of its own.
        """
        name, *rest = chain
        shown = ".".join((*above, name))
        if name not in names:
            return f"{shown} is {self._absent(names, name, is_global=not above)}"
        found = names[name]
        if isinstance(found, types.ModuleType) and rest and is_own(found.__name__):
            return self._resolve(found.__dict__, tuple(rest), (*above, name))
        reference = self._reference(found)
        if reference is not None:
            return f"{shown} is {reference}"
        home = module_name(str(names.get("__name__", "")))
        self._value(Component(ComponentKind.GLOBAL, f"{home}:{name}"), found)
        return f"{shown} is data of {home}"

    def _absent(self, names: dict[str, Any], name: str, *, is_global: bool) -> str:
        """Return how a name is looked up that a module does not define."""
        if is_global:
            return "built in" if hasattr(builtins, name) else "missing"
        if "__getattr__" in names:
            return f"looked up by {self._reference(names['__getattr__'])}"
        module = sys.modules.get(str(names.get("__name__")))
        if name == "__dict__" and module is not None:
            return f"the names of {self._refer_known(module)}"
        return "missing"

    def _refer_known(self, thing: Any) -> str:
        return str(self.refer(thing))

    # --- imports inside functions ---------------------------------------------

    def _imported(self, names: dict[str, Any], used: Uses) -> Iterator[str]:
        package = str(names.get("__package__") or "")
        for each in used.imports:
            full = own_import(each.module, each.level, package)
            if full is not None:
                yield from self._import(full, each, used)

    def _import(self, full: str, each: Import, used: Uses) -> Iterator[str]:
        module = _module(full)
        if module is None:
            yield f"{full} cannot be imported"
            return
        if not each.names:
            top = sys.modules[full.partition(".")[0]]
            for start in dict.fromkeys((top, module)):
                yield from self._import_module(start, used, *each.variables)
        variables = dict(zip(each.names, each.variables, strict=False))
        for name in sorted(vars(module)) if "*" in each.names else each.names:
            found = vars(module).get(name) if name in vars(module) else _module(f"{full}.{name}")
            if isinstance(found, types.ModuleType):
                yield from self._import_module(found, used, variables.get(name, name))
            elif not name.startswith("__"):
                yield self._resolve(vars(module), (name,), (full,))

    def _import_module(
        self, module: types.ModuleType, used: Uses, *variables: str
    ) -> Iterator[str]:
        """Yield what a function may use of a module that it imports into a variable."""
        if used.loose.issuperset(variables):
            yield self._refer_known(module)
        else:
            yield from self._looked_up(module, used.attributes, set())

    def _looked_up(
        self, module: types.ModuleType, attributes: frozenset[str], seen: set[str]
    ) -> Iterator[str]:
        """Yield what the function may look up on a module that a local variable holds."""
        if module.__name__ in seen or not is_own(module.__name__):
            return
        seen.add(module.__name__)
        for name in sorted(attributes & vars(module).keys()):
            found = vars(module)[name]
            if isinstance(found, types.ModuleType):
                yield from self._looked_up(found, attributes, seen)
            else:
                yield self._resolve(vars(module), (name,), (module.__name__,))


def _is_inside(module: types.ModuleType, package: types.ModuleType) -> bool:
    return module.__name__.startswith(f"{package.__name__}.")


def _module(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except Exception:  # noqa: BLE001 - the user's module runs here; the job will meet the error itself
        return None


def _is_public(method: Any) -> bool:
    """Return whether a library offers a bound method as a function: `random.choice`.

    It belongs to an object of the library, whose state does not count.
    """
    home = type(method.__self__).__module__
    return not is_own(home) and getattr(sys.modules.get(home), method.__name__, None) == method


def _is_told(name: str) -> bool:
    """Return whether an attribute counts for what a class is."""
    if name.startswith("__pydantic_"):
        return name == "__pydantic_fields__"  # the others are made of these, and hold addresses
    return name not in _UNTOLD


def _is_own_function(function: types.FunctionType) -> bool:
    # Not `__module__`, which functools.wraps copies: where its names are looked up is its home.
    return is_own(str(function.__globals__.get("__name__") or function.__module__))


def _label_of(function: types.FunctionType) -> str:
    home = str(function.__globals__.get("__name__") or function.__module__)
    # functools.wraps copies `__qualname__` as well.
    wraps = "__wrapped__" in vars(function)
    name = function.__code__.co_qualname if wraps else function.__qualname__
    return f"{module_name(home)}:{name}"


def _class_label(cls: type) -> str:
    return f"{module_name(cls.__module__)}:{cls.__qualname__}"


def _cells(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, "not bound yet"


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    # A decorator may have copied the defaults of another function: then there are too many.
    spare = [str(at) for at in range(len(values) - len(names))]
    yield from zip((*spare, *names)[-len(values) :], values, strict=bool(values))
    yield from (function.__kwdefaults__ or {}).items()


def _decorators(node: FunctionNode | None) -> list[tuple[str, ...]]:
    """Return the names in the decorators of a function, with their attributes."""
    found = []
    for decorator in getattr(node, "decorator_list", []):
        inner = {id(each.value) for each in ast.walk(decorator) if isinstance(each, ast.Attribute)}
        for each in ast.walk(decorator):
            chain = _chain(each)
            if chain and id(each) not in inner:
                found.append(chain)
    return sorted(set(found))


def _chain(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        before = _chain(node.value)
        return (*before, node.attr) if before else ()
    return ()
