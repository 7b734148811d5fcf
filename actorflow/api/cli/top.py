"""`actorflow top`: which process or store to look at."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.api.cli.connect import reach
from actorflow.api.cli.demo import demo_workers
from actorflow.api.cli.output import lines_of
from actorflow.engine.stores.opening import without_password
from actorflow.runtime.errors import BadOption, install_hint
from actorflow.runtime.telemetry.observe import act, folder, look, snapshot, worker_named

if TYPE_CHECKING:
    from actorflow.api.screen import Source, Table

__all__ = ["COMMANDS", "EngineSource", "ProcessSource", "source_of"]

_ROWS = 500


def top(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE|PID",
            envvar="ACTORFLOW_STORE",
            help="A store or live engine; or a process that has called af.observe().",
        ),
    ] = None,
    *,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3_600, help="Seconds between two looks.")
    ] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Quit after so many seconds.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show workers that generate their own load.")
    ] = False,
) -> None:
    """Show executions, workers and supervision trees live; Enter opens a row, q quits."""
    try:
        from actorflow.api.screen import Top  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = f"the live view needs {error.name}: {install_hint('top')}"
        raise BadOption(msg) from error
    if demo and where is not None:
        msg = f"--demo shows its own workers: leave out {where!r:.80}"
        raise BadOption(msg)
    with ExitStack() as stack:
        if demo:
            stack.enter_context(demo_workers())
        source = ProcessSource(None) if demo else source_of(where)
        Top(source, interval, seconds).run()


def source_of(where: str | None) -> Source:
    """Return the source that an argument names.

    Raises:
        BadOption: no observed process has this number, or none or several are observed.
        ActorflowError: the store cannot be read.

    """
    if where is None or where.isdecimal():
        return ProcessSource(_observed(where))
    with reach(where) as verbs:  # an error now is better than one on the screen
        shared = verbs.cluster()["shared"]
    return EngineSource(where, shared=shared)


class ProcessSource:
    """The workers and supervision trees of a process.

    Args:
        path: the socket of an observed process; `None` for this one.

    """

    views = ("workers", "tree")

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rates = Rates()

    def _snapshot(self) -> dict[str, Any]:
        return snapshot() if self._path is None else look(self._path)

    def read(self, view: str) -> Table:
        """Return a table as it is now."""
        return self._rates.table(view, self._snapshot())

    def open(self, view: str, name: str) -> str:
        """Return all that is known of a worker."""
        return _opened(view, name, self._snapshot())

    def act(self, view: str, action: str, name: str) -> str:
        """Pause or resume a worker, or retry its dead letters."""
        _require_worker(view)
        if self._path is not None:
            return _told(action, name, act(self._path, action, name))
        worker = worker_named(name)
        return _told(
            action,
            name,
            worker.dead_letters.retry() if action == "retry" else getattr(worker, action)(),
        )


class EngineSource:
    """The executions of a store, and what the process of its live engine runs.

    Args:
        where: a store or the address of an engine.
        shared: whether several engines share it.

    """

    def __init__(self, where: str, *, shared: bool) -> None:
        self._where = where
        self._rates = Rates()
        self.views = ("executions", *(("cluster",) if shared else ()), "workers", "tree")

    def read(self, view: str) -> Table:
        """Return a table as it is now."""
        from actorflow.api.screen import execution_table, member_table  # noqa: PLC0415 - an extra

        with reach(self._where) as verbs:
            if view == "executions":
                rows = verbs.executions(limit=_ROWS)["executions"]
                return execution_table(rows, verbs.stats(), without_password(self._where))
            if view == "cluster":
                return member_table(verbs.cluster())
            return self._rates.table(view, self._snapshot(verbs))

    @staticmethod
    def _snapshot(verbs: Any) -> dict[str, Any]:
        if not verbs.health()["live"]:
            msg = "no engine with a control socket runs on this store, so there are no workers"
            raise BadOption(msg)
        found: dict[str, Any] = verbs.workers()
        return found

    def open(self, view: str, name: str) -> str:
        """Return all that is known of an execution or a worker."""
        with reach(self._where) as verbs:
            if view == "executions":
                return "\n".join(lines_of(verbs.execution(name)))
            if view == "cluster":
                members = verbs.cluster()["members"]
                return json.dumps([each for each in members if each["name"] == name], indent=2)
            return _opened(view, name, self._snapshot(verbs))

    def act(self, view: str, action: str, name: str) -> str:
        """Pause or resume an execution or a worker, or retry its dead letters."""
        if view != "executions":
            _require_worker(view)
        with reach(self._where, to_change=True) as verbs:
            verb = action if view == "executions" else f"{action}_worker"
            found = getattr(verbs, verb)(name)
        return _told(action, name, found.get("retried"))


class Rates:
    """Makes tables of snapshots, with rates since the last one."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, Any], float] | None = None

    def table(self, view: str, now: dict[str, Any]) -> Table:
        """Return the table of a snapshot."""
        from actorflow.api.screen import tree_table, worker_table  # noqa: PLC0415 - an extra

        at = time.monotonic()
        before, since = self._last if self._last is not None else (None, at)
        self._last = now, at
        return tree_table(now) if view == "tree" else worker_table(now, before, at - since)


def _require_worker(view: str) -> None:
    if view != "workers":
        msg = f"nothing can be done in the view {view!r}: press v for another one"
        raise BadOption(msg)


def _opened(view: str, name: str, now: dict[str, Any]) -> str:
    if view == "workers":
        return json.dumps({name: now["workers"].get(name, "has ended")}, indent=2)
    return json.dumps(now["trees"], indent=2)


def _told(action: str, name: str, count: int | None) -> str:
    done = {"pause": "paused", "resume": "resumed"}
    return f"{name}: {done.get(action) or f'{count} dead letters will be tried again'}"


def _observed(pid: str | None) -> Path:
    """Return the socket of an observed process; of the only one if none is named."""
    found = sorted(folder().glob("*.sock"))
    if pid is not None:
        path = folder() / f"{pid}.sock"
        if path in found:
            return path
    elif len(found) == 1:
        return found[0]
    known = ", ".join(each.stem for each in found) or "none"
    msg = (
        f"no process {pid} has called af.observe()"
        if pid is not None
        else "name a store or process"
    )
    raise BadOption(f"{msg}; observed processes: {known}. To see it work: actorflow top --demo")


COMMANDS = {"top": top}
