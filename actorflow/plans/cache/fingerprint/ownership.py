"""Which modules are the user's own: their code counts, that of installed packages does not."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

__all__ = ["home_of", "is_own", "module_name", "own_import"]

_INSTALLED = ("site-packages", "dist-packages")


def home_of(cls: type) -> str:
    """Return the name of the module of a class; a class in C may say something else there."""
    module: object = cls.__module__
    return module if isinstance(module, str) else "unknown"


def is_own(module: str) -> bool:
    """Return whether a module is the user's own.

    It is not if it belongs to Python, to an installed package, or to actorflow. A package that
    is installed in place (`pip install -e`) is the user's own.
    """
    if module.partition(".")[0] == "actorflow":
        return False
    if module == "__main__":
        return True
    found = sys.modules.get(module)
    if found is None:
        return module.partition(".")[0] not in sys.stdlib_module_names
    file = getattr(found, "__file__", None)
    if file is None:
        return _has_no_home(module)
    return _is_own_file(file)


def _has_no_home(module: str) -> bool:
    """Return whether a module without a file was made by the user: not built in, not frozen."""
    spec = getattr(sys.modules[module], "__spec__", None)
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    if spec is None or spec.submodule_search_locations is None:
        return True
    return all(map(_is_own_file, spec.submodule_search_locations))


@functools.lru_cache(maxsize=1024)
def _is_own_file(file: str) -> bool:
    path = Path(os.path.realpath(file))
    if any(part in _INSTALLED for part in path.parts):
        return False
    return not any(path.is_relative_to(home) for home in _homes())


@functools.lru_cache(maxsize=1)
def _homes() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[each]) for each in ("stdlib", "platstdlib"))


def module_name(module: str) -> str:
    """Return the name of a module; a script has the same one, however it was started."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


def own_import(module: str, level: int, package: str) -> str | None:
    """Return the full name of a module that is imported inside a function, if it is the user's own.

    A package that is not is never loaded for this question.
    """
    try:
        name = importlib.util.resolve_name("." * level + module, package or None)
    except ImportError:
        return None
    top = name.partition(".")[0]
    if top == "actorflow" or top in sys.stdlib_module_names:
        return None
    if name in sys.modules:
        return name if is_own(name) else None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    return name if all(place and _is_own_file(place) for place in places) else None
