"""One message followed through the code, and how large the rooms are that it goes through."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow import behaviours, runtime
from actorflow.runtime.lanes.pool import ThreadPool
from tests.runtime.worker.probe import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType
    from typing import Self


class Trace:
    """Notes which modules of the package are entered, in all threads that start meanwhile."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.recording = False

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> None:
        name = str(frame.f_globals.get("__name__"))
        if self.recording and name.startswith("actorflow."):
            self.steps.append(f"{name}.{frame.f_code.co_qualname}")

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        threading.settrace(self._before)

    @property
    def modules(self) -> list[str]:
        """The modules in the order of their first entry."""
        known = [name for name in sys.modules if name.startswith("actorflow")]
        found = [
            max((m for m in known if step.startswith(m + ".")), key=len) for step in self.steps
        ]
        return list(dict.fromkeys(found))


def test_an_idle_push_reaches_the_job_through_at_most_five_modules() -> None:
    with Trace() as path:
        seen = threading.Event()

        def job(_batch: Any, _state: Any) -> None:
            path.recording = False
            seen.set()

        pool = ThreadPool(core=1, name="traced")
        worker = af.spawn(job, executor=pool)
        worker.push("warm")
        assert seen.wait(PATIENCE)
        until(lambda: bool(pool._idle) and bool(worker.actor.idle), "it should be idle again")
        seen.clear()
        path.recording = True
        worker.push("followed")
        assert seen.wait(PATIENCE)
        worker.stop()
        pool.close()
    assert len(path.modules) <= 5, path.modules


CRASH_TO_RESTART = 16
"""Modules from a crash to the next batch.

Six are the pair: `runner` catches the error, `lifecycle` ends the executor and starts another,
`states` and `transitions` decide, `interface` holds what they decide, `accumulator` hands over the
next batch. `port` is how supervision sees the pair. Three are supervision: `family` and `children`
decide, `actor` does, and `restarts` counts. `lifespan` and `pool` give the supervisor its turn.
`exits` is the reason, `errors` puts it into words, and `log` writes it down.
"""


def test_a_crash_leads_to_the_restarted_executors_first_batch_through_few_modules() -> None:
    with Trace() as path:
        seen = threading.Event()

        def job(batch: list[str], _state: Any) -> None:
            if "crash" in batch:
                path.recording = True
                raise ValueError(batch)
            path.recording = False
            seen.set()

        pool = ThreadPool(core=1, name="traced")
        with af.Supervisor([af.Child("a", af.Worker("a", job, executor=pool))]) as tree:
            worker = tree.which_children()[0].ref
            worker.push("warm")
            assert seen.wait(PATIENCE)
            seen.clear()
            worker.push("crash")
            worker.push("followed")
            assert seen.wait(PATIENCE)
        pool.close()
    assert len(path.modules) <= CRASH_TO_RESTART, "\n".join(path.modules)
    page = (Path(__file__).parents[2] / "docs" / "pair.md").read_text(encoding="utf-8")
    shown = page.split("## From a crash to the restart")[1].split("\n## ")[0]
    assert [each for each in path.modules if f"{each.rpartition('.')[2]}.py" not in shown] == []


# --- rooms ---------------------------------------------------------------------------------------

LIMIT = 40
"""Public attributes that a class may have."""


def modules() -> Iterator[ModuleType]:
    """Yield all modules of the packages that can be imported here."""
    for package in (af, behaviours):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if found.name.endswith("__main__"):
                continue
            try:
                yield importlib.import_module(found.name)
            except ImportError:  # an extra that is not installed
                continue


@cache
def classes() -> dict[type, None]:
    return {
        kind: None
        for module in modules()
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }


@cache
def own_names(kind: type) -> set[str]:
    """Return what a class itself defines: methods, slots, and what its methods assign to self."""
    names = set(vars(kind)) | set(getattr(kind, "__annotations__", ()))
    slots = vars(kind).get("__slots__", ())
    names |= {slots} if isinstance(slots, str) else set(slots)
    for node in ast.walk(tree_of(kind)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node):
            names.add(node.attr)
    return names


def tree_of(kind: type) -> ast.AST:
    return trees(kind.__module__).get(kind.__qualname__) or ast.Module(body=[], type_ignores=[])


@cache
def trees(module: str) -> dict[str, ast.AST]:
    """Return the classes of a module by their names."""
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    return {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def ours(kind: type) -> bool:
    return kind.__module__.startswith("actorflow")


TOO_LARGE: dict[str, int] = {
    "actorflow.application.Engine": 46,  # the verbs of all kinds, and their twins for asyncio
    "actorflow.engine.stores.memory.shared.SharedMemoryStore": 42,  # the protocol of stores
    "actorflow.engine.stores.postgres.store.PostgresStore": 42,  # the same
    "actorflow.lab.run.result.Result": 52,  # a figure each
    "actorflow.runtime.worker.pair.accumulation.Accumulation": 45,  # all that the pair holds
    "actorflow.runtime.worker.pair.accumulator.Accumulator": 75,  # its room shares them
    "actorflow.runtime.worker.pair.interface.Pair": 63,  # what the room sees of it
    "actorflow.testing.simulation.store.SimulatedStore": 45,  # the protocol of stores
}
"""Classes, or all of a package, that are larger, each with the reason."""


def limit_of(name: str) -> int:
    return next((limit for start, limit in TOO_LARGE.items() if name.startswith(start)), LIMIT)


def test_no_class_has_more_than_forty_public_attributes_of_its_own() -> None:
    """Count what the package defines: pykka's refs and the standard library's enums bring more."""
    large = {}
    for kind in classes():
        names = set(dir(kind)).union(*(own_names(base) for base in kind.__mro__ if ours(base)))
        inherited = {name for base in kind.__mro__ if not ours(base) for name in dir(base)}
        public = {name for name in names - inherited if not name.startswith("_")}
        name = f"{kind.__module__}.{kind.__qualname__}"
        if len(public) > limit_of(name):
            large[name] = len(public)
    assert not large


DOZEN = 12
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_no_room_has_more_than_a_dozen_modules() -> None:
    large = {}
    here = Path(__file__).parent
    rooms = (Path(runtime.__path__[0]), Path(behaviours.__path__[0]), here, BENCHMARKS)
    for room in rooms:
        for folder in (room, *room.rglob("*/")):
            modules = [each for each in folder.glob("*.py") if each.stem != "__init__"]
            if len(modules) > DOZEN:
                large[str(folder)] = len(modules)
    assert not large


ABSTRACT: dict[str, set[str]] = {}
"""Hooks that a base class names for its subclasses to define, by class."""


def test_no_base_class_refers_to_what_only_a_subclass_defines() -> None:
    everything = classes()
    wrong = {}
    for kind in everything:
        known = set(dir(kind)).union(*(own_names(base) for base in kind.__mro__ if ours(base)))
        used = {
            node.attr
            for node in ast.walk(tree_of(kind))
            if isinstance(node, ast.Attribute) and is_self(node)
        }
        below: set[str] = set()
        for other in everything:
            if other is not kind and kind in other.__mro__:
                below |= own_names(other)
        name = f"{kind.__module__}.{kind.__qualname__}"
        missing = ((used - known) & below) - ABSTRACT.get(name, set())
        if missing:
            wrong[name] = missing
    assert not wrong
