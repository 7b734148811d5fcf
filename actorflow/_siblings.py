"""Checks, before anything else is imported, that the `behaviours` found is actorflow's own.

The name is a common one: a `behaviours.py` next to a script shadows the package, a script may be
called that itself, and another project on PyPI installs a package of that name. Without this
check a missing name is reported from somewhere deep inside.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["check_behaviours"]

_MARK = "__actorflow__"  # what behaviours/__init__.py defines
_AGAIN = "pip install --force-reinstall actorflow"


def check_behaviours() -> None:
    """Raise a helpful error unless `import behaviours` finds our package. Runs none of its code.

    Raises:
        ImportError: there is none, or it is another one; the message says which and what to do.

    """
    if "behaviours" in sys.modules:
        if hasattr(sys.modules["behaviours"], _MARK):
            return
        spec = getattr(sys.modules["behaviours"], "__spec__", None)
    else:
        spec = _find()
        if spec is not None and _is_ours(spec):
            return
    from pathlib import Path  # noqa: PLC0415 - only for the error

    expected = str(Path(__file__).parent.parent / "behaviours" / "__init__.py")
    found = _origin(spec)
    if found is None:
        text, remedy = "which is not installed", f"Install both again: {_AGAIN}"
    elif found == expected:
        text = "but another project has overwritten it"
        remedy = f"Remove that one and install both again: pip uninstall behaviours; {_AGAIN}"
    else:
        text = "but Python finds another one"
        remedy = (
            "Rename that file or folder if it is yours. If another project has installed it: "
            f"pip uninstall behaviours; {_AGAIN}"
        )
    msg = (
        f"actorflow needs its own package 'behaviours', {text}.\n"
        f"  found:    {found}\n"
        f"  expected: {expected}\n"
        f"{remedy}"
    )
    raise ImportError(msg, name="behaviours", path=found)


def _find() -> ModuleSpec | None:
    """Do what `importlib.util.find_spec` does, whose module alone takes milliseconds to import."""
    for finder in sys.meta_path:
        spec = finder.find_spec("behaviours", None)
        if spec is not None:
            return spec
    return None


def _is_ours(spec: ModuleSpec) -> bool:
    get_source = getattr(spec.loader, "get_source", None)
    source = None if get_source is None else get_source("behaviours")
    return source is None or _MARK in source  # None: compiled, so there is nothing to look at


def _origin(spec: ModuleSpec | None) -> str | None:
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    return spec.origin or (places[0] if places else "unknown")


check_behaviours()
