"""`actorflow doctor`: check the machine and a store, and name the fixes."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
import time
from enum import StrEnum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from actorflow import __version__
from actorflow.api.cli.arguments import AsJson  # noqa: TC001 - typer reads it
from actorflow.api.cli.output import say, say_json
from actorflow.engine.errors import StoreBusy
from actorflow.engine.stores.opening import open_store, scheme_of, without_password
from actorflow.runtime.errors import ActorflowError, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COMMANDS"]

_EXTRAS = {
    "cli": ("rich", "typer"),
    "web": ("fastapi", "prometheus_client", "uvicorn"),
    "flows": ("re2",),
    "lab": ("matplotlib",),
    "top": ("textual",),
    "plans": ("cloudpickle",),
    "fast": ("greenlet",),
    "postgres": ("psycopg",),
    "nats": ("nats",),
}
_FILES = 1_024
_ROOM = 100 << 20  # bytes
_SLOW_SYNC = 0.02  # seconds
_SYNCS = 5
_SKEW = 1.0  # seconds between this clock and that of a shared store


class Level(StrEnum):
    """How a check went."""

    OK = "ok"
    NOTE = "note"
    """Works, with a limit that may matter."""
    FAILED = "failed"


class Finding(NamedTuple):
    """The outcome of one check."""

    check: str
    verdict: Level
    found: str
    fix: str = ""


def doctor(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE", envvar="ACTORFLOW_STORE", help="A file or URL to check as well."
        ),
    ] = None,
    *,
    json: AsJson = False,
) -> None:
    """Check versions, extras, limits, the clock and a store; name the fixes."""
    findings = [*_python(), *_extras(), *_limits()]
    if store is not None:
        findings += _store(store)
    failed = [each for each in findings if each.verdict is Level.FAILED]
    if json:
        say_json({"ok": not failed, "checks": [each._asdict() for each in findings]})
    else:
        for each in findings:
            say(f"{each.verdict:<7} {each.check:<12} {each.found}")
            if each.fix:
                say(f"        {'':<12} fix: {each.fix}")
    if failed:
        raise typer.Exit(1)


def _python() -> Iterator[Finding]:
    yield Finding("actorflow", Level.OK, f"{__version__} in {Path(__file__).parents[2]}")
    yield Finding("python", Level.OK, f"{platform.python_version()} ({sys.executable})")
    yield Finding("sqlite", Level.OK, sqlite3.sqlite_version)
    try:
        version("behaviours")
    except PackageNotFoundError:
        return
    yield Finding(
        "behaviours",
        Level.NOTE,
        "another package named behaviours is installed",
        "import from actorflow.behaviours; `from behaviours import ...` may find the other one",
    )


def _extras() -> Iterator[Finding]:
    for extra, modules in _EXTRAS.items():
        missing = [name for name in modules if not _imports(name)]
        if missing:
            found = f"not installed: {', '.join(missing)}"
            yield Finding(f"extra {extra}", Level.NOTE, found, install_hint(extra))
        else:
            yield Finding(f"extra {extra}", Level.OK, "installed")


def _imports(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def _limits() -> Iterator[Finding]:
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    low = files != resource.RLIM_INFINITY and files < _FILES
    yield Finding(
        "open files",
        Level.NOTE if low else Level.OK,
        "no limit" if files == resource.RLIM_INFINITY else f"at most {files:,}",
        f"ulimit -n {_FILES}: each worker process takes about six files" if low else "",
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processors", Level.OK, str(cores))


def _store(where: str) -> Iterator[Finding]:
    shown = without_password(where)
    if scheme_of(where) is None and where != ":memory:":
        yield from _folder(Path(where).absolute().parent)
    if scheme_of(where) is None and not Path(where).exists():
        yield Finding("store", Level.NOTE, f"{shown} does not exist yet; an engine will make it")
        return
    try:
        store = open_store(where, read_only=True)
    except StoreBusy as error:
        yield Finding("store", Level.NOTE, str(error))
        return
    except (ActorflowError, OSError) as error:
        yield Finding("store", Level.FAILED, str(error), "see docs/operating.md")
        return
    try:
        yield Finding("store", Level.OK, f"{shown} can be read")
        if store.traits.shared:
            skew = store.time() - time.time()  # type: ignore[attr-defined]
            yield Finding(
                "clock",
                Level.NOTE if abs(skew) > _SKEW else Level.OK,
                f"differs from the clock of the store by {skew:+.2f} s",
                "synchronise the clocks (chrony, NTP)" if abs(skew) > _SKEW else "",
            )
    finally:
        store.close()


def _folder(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield Finding("folder", Level.FAILED, f"{folder} does not exist", f"mkdir -p {folder}")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = f"run as its owner, or: chmod u+wx {folder}"
        yield Finding("folder", Level.FAILED, f"{folder} cannot be written", fix)
        return
    free = shutil.disk_usage(folder).free
    low = free < _ROOM
    fix = "make room: a store on a full disk refuses messages" if low else ""
    found = f"{folder} has {free >> 20:,} MB free"
    yield Finding("disk", Level.NOTE if low else Level.OK, found, fix)
    took = _sync_time(folder)
    slow = took > _SLOW_SYNC
    yield Finding(
        "sync",
        Level.NOTE if slow else Level.OK,
        f"{took * 1000:.1f} ms for each commit to reach the disk",
        "a local SSD, or durability='normal' if a power failure may cost the last commits"
        if slow
        else "",
    )


def _sync_time(folder: Path) -> float:
    """Return the seconds that the fastest of some syncs of a small file takes."""
    path = folder / f".actorflow-doctor-{os.getpid()}"
    times = []
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(_SYNCS):
                file.write(b"x" * 4096)
                started = time.perf_counter()
                os.fsync(file.fileno())
                times.append(time.perf_counter() - started)
    finally:
        path.unlink(missing_ok=True)
    return min(times)


COMMANDS = {"doctor": doctor}
