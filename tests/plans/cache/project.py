"""A user project on disk, loaded anew for each version of its modules."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from textwrap import dedent
from typing import TYPE_CHECKING

from actorflow.plans.cache.fingerprint.walk import Walk

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator
    from pathlib import Path

    from actorflow.plans.cache.fingerprint.components import Component


@contextmanager
def loaded(home: Path, **modules: str) -> Iterator[types.ModuleType]:
    """Write modules and import `pipeline` of them, as a new process would."""
    names = set()
    for name, text in modules.items():
        package = name.removesuffix("____init__")
        path = home / package.replace("__", "/")
        path = path.with_suffix(".py") if package == name else path / "__init__.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(dedent(text), encoding="utf-8")
        names.add(name.partition("__")[0])
    old, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(home))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("pipeline")
    finally:
        sys.path.remove(str(home))
        sys.dont_write_bytecode = old
        for name in [each for each in sys.modules if each.partition(".")[0] in names]:
            del sys.modules[name]


def components(home: Path, **modules: str) -> dict[Component, str]:
    """Return the components of `pipeline.job`."""
    with loaded(home, **modules) as module:
        walk = Walk()
        walk.root(module.job)
    assert walk.unstable == {}
    return walk.components


def changes(before: dict[Component, str], after: dict[Component, str]) -> list[str]:
    """Return what differs, as a user reads it."""
    return sorted(
        str(each) for each in before.keys() | after.keys() if before.get(each) != after.get(each)
    )
