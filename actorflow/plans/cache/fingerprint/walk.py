"""Everything that a function depends on: a walk from it through the user's own modules."""

from __future__ import annotations

import builtins
import importlib
import inspect
import os
import sys
import types
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.plans.cache.fingerprint.bytecode import Import, Uses, instructions, uses
from actorflow.plans.cache.fingerprint.components import Component, ComponentKind, digest_of
from actorflow.plans.cache.fingerprint.definitions import (
    cells,
    class_label,
    defaults,
    function_label,
    is_a,
    is_made_up,
    is_own_function,
    members,
    registered,
)
from actorflow.plans.cache.fingerprint.expressions import of_annotations, of_decorators
from actorflow.plans.cache.fingerprint.indirect import indirect, is_indirect
from actorflow.plans.cache.fingerprint.ownership import home_of, is_own, module_name, own_import
from actorflow.plans.cache.fingerprint.source import find_node
from actorflow.plans.cache.fingerprint.syntax import normal_form
from actorflow.plans.cache.fingerprint.values import Unstable, Values
from actorflow.runtime.errors import kind_and_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.plans.cache.fingerprint.sharing import Sharing

__all__ = ["SHARED", "Walk"]

SHARED = "objects in several places"
"""Names the component that says which objects are one and the same."""

_NATIVE = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


class Walk:
    """The components of one function, or of one value. Not thread-safe; used once.

    Only objects that live in this process are looked at: what a name stands for now, not what
    its module says about it. Modules that the function imports when it runs are imported.
    """

    def __init__(self, sharing: Sharing | None = None, *, pickled: bool = False) -> None:
        self.components: dict[Component, str] = {}
        self.unstable: dict[Component, str] = {}
        """Components without a stable digest, with the reasons."""
        self.values = Values(self.refer, sharing, pickled=pickled)
        self._labels: dict[int, tuple[str, Any]] = {}
        self._taken: dict[str, int] = {}
        # Visits that are still to be made: a queue, since helpers call helpers of helpers.
        self._waiting: deque[tuple[Component, Callable[[], None]]] = deque()
        self._kinds: list[tuple[Any, Callable[[Any], str]]] = [
            (types.FunctionType, self._refer_function),
            (type, self._refer_class),
            (types.ModuleType, self._refer_module),
            (types.MethodType, self._refer_method),
            (_NATIVE, self._refer_native),
        ]

    def root(self, function: Any) -> None:
        """Add the components of the function of a job."""
        code = Component(ComponentKind.CODE, "")
        if is_a(function, types.FunctionType) and is_own_function(function):
            label = self._label(function, function_label(function))
            self._waiting.append((code, partial(self._function, function, label, root=True)))
        else:
            self._value(code, function)
        self._visit()
        repeats = self.values.sharing.repeats
        if repeats:
            shared = Component(ComponentKind.GLOBAL, SHARED)
            self.components[shared] = digest_of(repr(repeats).encode())

    def value(self, component: Component, value: Any) -> None:
        """Add a value as a component, with the code that it brings along."""
        self._value(component, value)
        self._visit()

    def named(self, name: str, thing: Any) -> None:
        """Add the components of what a name stands for: a function, a class, or a variable."""
        if self._reference(thing) is None:
            self._value(Component(ComponentKind.GLOBAL, name), thing)
        self._visit()

    def _visit(self) -> None:
        while self._waiting:
            component, visit = self._waiting.popleft()
            try:
                visit()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - of a metaclass of the user
                self.unstable[component] = f"looking at it raised {kind_and_text(error)}"

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
            if issubclass(type(thing), kind):
                return label(thing)
        wrapped = inspect.getattr_static(thing, "__wrapped__", None)
        if wrapped is None or is_own(home_of(type(thing))):
            return None
        return f"{class_label(type(thing))} around {self.values.part(wrapped)}"

    def _label(self, thing: Any, wanted: str) -> str:
        """Name a thing; another one of the same name gets a number."""
        count = self._taken[wanted] = self._taken.get(wanted, 0) + 1
        label = wanted if count == 1 else f"{wanted}#{count}"
        self._labels[id(thing)] = (label, thing)
        return label

    def _refer_method(self, method: types.MethodType) -> str:
        if _is_public(method):
            return f"{home_of(type(method.__self__))}.{method.__name__}"
        return f"{self.refer(method.__func__)} of {self.values.part(method.__self__)}"

    def _refer_native(self, thing: Any) -> str:
        owner = getattr(thing, "__self__", None)
        name = f"{getattr(thing, '__module__', None)}.{thing.__qualname__}"
        if owner is None or is_a(owner, types.ModuleType) or _is_public(thing):
            return name
        return f"{name} of {self.values.part(owner)}"

    def _refer_function(self, function: types.FunctionType) -> str:
        label = self._label(function, function_label(function))
        if is_own_function(function):
            visit = partial(self._function, function, label, root=False)
            self._waiting.append((Component(ComponentKind.HELPER, label), visit))
        elif "__wrapped__" in vars(function) or function.__closure__:
            visit = partial(self._wrapper, function, label)
            self._waiting.append((Component(ComponentKind.HELPER, label), visit))
        return label

    def _refer_class(self, cls: type) -> str:
        if not is_own(home_of(cls)) and not is_made_up(cls):
            return class_label(cls)
        label = self._label(cls, class_label(cls))
        visit = partial(self._class, cls, label)
        self._waiting.append((Component(ComponentKind.CLASS, label), visit))
        return label

    def _refer_module(self, module: types.ModuleType) -> str:
        name = module_name(module.__name__)
        label = self._label(module, f"module {name}")
        if is_own(module.__name__):
            visit = partial(self._module, module, name)
            self._waiting.append((Component(ComponentKind.MODULE, name), visit))
        return label

    # --- visits ---------------------------------------------------------------

    def _wrapper(self, function: types.FunctionType, label: str) -> None:
        """Look into a function of an installed package that holds functions of the user."""
        if "__wrapped__" in vars(function):
            self._value(Component(ComponentKind.HELPER, label), vars(function)["__wrapped__"])
        for name, content in cells(function):
            try:
                digest = self.values.digest(content)
            except Unstable:
                continue  # the package's own bookkeeping, such as a table of weak references
            self.components[Component(ComponentKind.CLOSURE, f"{name} of {label}")] = digest

    def _class(self, cls: type, label: str) -> None:
        parts = [type(cls), cls.__bases__, members(cls), registered(cls), self._annotated(cls)]
        self._value(Component(ComponentKind.CLASS, label), parts)

    def _annotated(self, cls: type) -> list[str]:
        """Return what the annotations of a class stand for that are texts.

        Libraries that build objects from annotations look them up in the module.
        """
        module = sys.modules.get(home_of(cls))
        if module is None:
            return []
        chains = of_annotations(vars(cls).get("__annotations__"))
        return [self._resolve(vars(module), chain, ()) for chain in chains]

    def _module(self, module: types.ModuleType, name: str) -> None:
        """Visit a whole module: it is handed around, so anything in it may be used."""
        names, modules = [], []
        for each, found in list(vars(module).items()):
            if each.startswith("__") and each != "__getattr__":
                continue
            if not is_a(found, types.ModuleType):
                names.append(each)  # in the order of the definition: a job can see it
            elif _is_inside(found, module):
                modules.append(each)  # in the order of the first import anywhere
        bindings = [
            self._resolve(module.__dict__, (each,), ()) for each in (*names, *sorted(modules))
        ]
        self.components[Component(ComponentKind.MODULE, name)] = digest_of(repr(bindings).encode())

    def _function(self, function: types.FunctionType, label: str, *, root: bool) -> None:
        code = function.__code__
        node = find_node(code)
        form = normal_form(node) if node else self.values.digest(instructions(code))
        owner = "" if root else f" of {label}"
        for name, default in defaults(function):
            self._value(Component(ComponentKind.DEFAULT, f"{name}{owner}"), default)
        part = Component(ComponentKind.CODE, "") if root else Component(ComponentKind.HELPER, label)
        names = uses(code)
        hidden = indirect(function.__globals__, code, names)
        if hidden is not None:
            self.unstable[part] = hidden
            return
        bindings = [self._resolve(function.__globals__, each, ()) for each in names.globals]
        bindings += [self._resolve(function.__globals__, each, ()) for each in of_decorators(node)]
        bindings += self._imported(function.__globals__, names)
        for name, content in cells(function):
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
        if is_a(found, types.ModuleType) and rest:
            if is_own(found.__name__):
                return self._resolve(found.__dict__, tuple(rest), (*above, name))
            return f"{shown} is {self._refer_module(found)}{self._patched(found, rest[0])}"
        reference = self._reference(found)
        if reference is not None:
            return f"{shown} is {reference}"
        home = module_name(str(names.get("__name__", "")))
        self._value(Component(ComponentKind.GLOBAL, f"{home}:{name}"), found)
        return f"{shown} is data of {home}"

    def _absent(self, names: dict[str, Any], name: str, *, is_global: bool) -> str:
        """Return how a name is looked up that a module does not define."""
        if is_global:
            if hasattr(builtins, name):
                return f"built in{self._patched(builtins, name)}"
            return "missing"
        if "__getattr__" in names:
            return f"looked up by {self._reference(names['__getattr__'])}"
        module = sys.modules.get(str(names.get("__name__")))
        if name == "__dict__" and module is not None:
            return f"the names of {self._refer_known(module)}"
        return "missing"

    def _patched(self, module: types.ModuleType, name: str) -> str:
        """Return what user code has put into a module that is not the user's, if anything."""
        found = vars(module).get(name)
        ours = is_a(found, types.FunctionType) and is_own_function(found)
        ours = ours or (is_a(found, type) and is_own(home_of(found)))
        return f" with {name} that is {self._reference(found)}" if ours else ""

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
            if is_a(found, types.ModuleType):
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
            if is_a(found, types.ModuleType):
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
    home = home_of(type(method.__self__))
    return not is_own(home) and getattr(sys.modules.get(home), method.__name__, None) == method
