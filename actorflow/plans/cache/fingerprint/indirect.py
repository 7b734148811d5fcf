"""Lookups that cannot be followed: a job that makes one has no key, and so runs every time.

`importlib.import_module(name).f()` may run any code. The cache would have to run the job to know
which, so it runs the job. The same holds for ways from text or bytes to code (`pickle.loads`), and
for attributes that show a program what a key leaves out: docstrings and line numbers.
"""

from __future__ import annotations

import builtins
import os.path
import sys
import types
from typing import TYPE_CHECKING, Any

from actorflow.plans.cache.fingerprint.definitions import is_a

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.plans.cache.fingerprint.bytecode import Import, Uses

__all__ = ["indirect", "is_indirect"]

_NAMES: dict[str, frozenset[str]] = {
    home: frozenset(names.split())
    for home, names in {
        "builtins": "__import__ eval exec globals",
        "dill": "load loads load_session load_module Unpickler",
        "gc": "get_objects get_referents get_referrers",
        "importlib": "__import__ import_module reload",
        "importlib.machinery": "ExtensionFileLoader FileFinder PathFinder SourceFileLoader "
        "SourcelessFileLoader",
        "importlib.metadata": "entry_points",
        "importlib.util": "LazyLoader find_spec module_from_spec spec_from_file_location "
        "spec_from_loader",
        "inspect": "currentframe get_annotations getcomments getdoc getmodule getsource "
        "getsourcelines stack trace",
        "joblib": "load",
        "logging.config": "BaseConfigurator",
        "pandas": "read_pickle",
        "pickle": "Unpickler load loads",
        "pkgutil": "find_loader get_loader resolve_name",
        "pydoc": "locate resolve safeimport",
        "runpy": "run_module run_path",
        "shelve": "Shelf open",
        "sys": "_current_frames _getframe modules",
        "timeit": "Timer repeat timeit",
        "torch": "load",
        "typing": "get_type_hints",
        "unittest.mock": "patch",
    }.items()
}
# Modules that say so of what they offer under one of the names above.
_HOMES = {
    "_frozen_importlib": "importlib importlib.util",
    "_frozen_importlib_external": "importlib.machinery importlib.util",
    "_pickle": "pickle",
    "cloudpickle": "pickle",
    "dill._dill": "dill",
    "joblib.numpy_pickle": "joblib",
    "pandas.io.pickle": "pandas",
    "torch.serialization": "torch",
}
_BY_HOME = {home: frozenset().union(*map(_NAMES.get, of.split())) for home, of in _HOMES.items()}  # type: ignore[arg-type]
_KNOWN = _NAMES | _BY_HOME
# Handed around, these may give anything: `getattr(builtins, name)`.
_WHOLE = {"builtins", "gc", "importlib", "importlib.util", "pickle", "runpy", "sys"}
_ATTRIBUTES = {
    "__annotations__", "__builtins__", "__doc__", "__globals__", "__loader__", "__spec__",
    "__subclasses__", "annotation", "co_firstlineno", "co_lines", "co_positions", "f_builtins",
    "f_globals", "f_lineno", "return_annotation", "tb_lineno",
}  # fmt: skip
_GLOBALS = {"__builtins__", "__loader__", "__spec__"}
_SPECIAL = tuple(sorted(each for each in _ATTRIBUTES if each.startswith("__")))
_CALLABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    type,
)


def is_indirect(thing: Any) -> bool:
    """Return whether a thing of Python leads to code by names made at run time."""
    if thing is sys.modules:
        return True
    if is_a(thing, types.ModuleType):
        return thing.__name__ in _WHOLE
    if not issubclass(type(thing), _CALLABLE):
        return False
    name = thing.__name__
    home = getattr(thing, "__module__", None)
    return name == "__subclasses__" or (
        isinstance(home, str) and name in _KNOWN.get(home, ()) and thing.__qualname__ == name
    )


def indirect(names: dict[str, Any], code: types.CodeType, used: Uses) -> str | None:
    """Return where a function looks up code that cannot be followed; None if nowhere.

    `names` are the global names of the function.
    """
    for name in _found(names, used):
        line = used.lines.get(name, code.co_firstlineno)
        where = f"line {line} of {os.path.basename(code.co_filename)}"  # noqa: PTH119 - may be no path
        return f"{where} uses `{name}`, which cannot be followed"
    return None


def _found(names: dict[str, Any], used: Uses) -> Iterator[str]:
    for chain in used.globals:
        yield from _in_chain(names, chain)
    for each in used.imports:
        yield from _in_import(each, used)
    yield from sorted(_ATTRIBUTES & used.attributes)
    # In a text they may be looked up, too: `attrgetter("__globals__")`, `"{0.__globals__}"`.
    for text in used.texts:
        yield from (each for each in _SPECIAL if each in text)


def _in_chain(names: dict[str, Any], chain: tuple[str, ...]) -> Iterator[str]:
    """Yield the name in `name.attribute...` that leads to something that cannot be followed."""
    first, *rest = chain
    if first in _GLOBALS:
        yield first
    thing: Any = names[first] if first in names else getattr(builtins, first, None)
    shown = first
    for attribute in rest:
        if not is_a(thing, types.ModuleType):
            break
        if attribute in _NAMES.get(thing.__name__, ()):
            yield attribute
        shown, thing = attribute, vars(thing).get(attribute)
    if is_indirect(thing):
        yield shown


def _in_import(used: Import, uses: Uses) -> Iterator[str]:
    """Yield the names that a function may use of what it imports."""
    home = used.module
    while home:
        yield from sorted(_NAMES.get(home, frozenset()).intersection(used.names or uses.attributes))
        home = home.rpartition(".")[0]
    for name in used.names:
        whole = f"{used.module}.{name}"
        yield from sorted(_NAMES.get(whole, frozenset()) & uses.attributes)
    modules = [f"{used.module}.{name}" for name in used.names] or [used.module]
    for module, variable in zip(modules, used.variables, strict=False):
        if module in _WHOLE and variable in uses.loose:
            yield variable
