"""Lookups that cannot be followed: a job that makes one has no key, and so runs every time.

`importlib.import_module(name).f()` may run any code. The cache would have to run the job to know
which, so it runs the job.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import inspect
import os.path
import pkgutil
import runpy
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator

    from actorflow.plans.cache.fingerprint.bytecode import Uses

__all__ = ["indirect", "is_indirect"]

_THINGS: tuple[tuple[Any, str], ...] = (
    (builtins, "__import__"),
    (builtins, "eval"),
    (builtins, "exec"),
    (builtins, "globals"),
    (gc, "get_objects"),
    (gc, "get_referents"),
    (gc, "get_referrers"),
    (importlib, "__import__"),
    (importlib, "import_module"),
    (importlib, "reload"),
    (inspect, "currentframe"),
    (inspect, "stack"),
    (pkgutil, "resolve_name"),
    (runpy, "run_module"),
    (runpy, "run_path"),
    (sys, "_getframe"),
    (sys, "modules"),
)
_KNOWN = {id(getattr(module, name)): name for module, name in _THINGS}
_NAMES: dict[str, set[str]] = {}
for _home, _name in _THINGS:
    _NAMES.setdefault(_home.__name__, set()).add(_name)
_ATTRIBUTES = {"__subclasses__", "__globals__", "__builtins__", "f_globals", "f_builtins"}


def is_indirect(thing: Any) -> bool:
    """Return whether a function or table of Python leads to code by names made at run time."""
    return id(thing) in _KNOWN


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
    for first, *rest in used.globals:
        thing = names[first] if first in names else getattr(builtins, first, None)
        if is_indirect(thing) or (first not in names and first in ("__builtins__", "__loader__")):
            yield first
        module = getattr(thing, "__name__", None)
        if rest and module in _NAMES and sys.modules.get(module) is thing:
            yield from _NAMES[module].intersection(rest[:1])
    for each in used.imports:
        if each.module in _NAMES:
            yield from _NAMES[each.module].intersection(each.names or used.attributes)
    yield from sorted(_ATTRIBUTES & used.attributes)
