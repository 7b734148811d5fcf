"""`actorflow top`: which process or store to look at."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actorflow.api.cli.connect import reach
from actorflow.api.cli.demo import demo_workers
from actorflow.engine.stores.opening import without_password
from actorflow.runtime.errors import BadOption, install_hint
from actorflow.runtime.observe import folder, look, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COMMANDS"]

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
    """Show workers or executions live; q quits, s sorts, / filters."""
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
            read = _workers(snapshot)
        else:
            read = _reader(where)
        Top(read, interval, seconds).run()


def _reader(where: str | None) -> Callable[[], Any]:
    if where is None or where.isdecimal():
        path = _observed(where)
        return _workers(lambda: look(path))
    with reach(where):  # an error now is better than one on the screen
        pass

    def read() -> Any:
        from actorflow.api.screen import execution_table  # noqa: PLC0415 - an extra

        with reach(where) as verbs:
            rows = verbs.executions(limit=_ROWS)["executions"]
            return execution_table(rows, verbs.stats(), without_password(where))

    return read


def _workers(take: Callable[[], dict[str, Any]]) -> Callable[[], Any]:
    """Return a function that reads the table, with rates since its last call."""
    last: tuple[dict[str, Any], float] | None = None

    def read() -> Any:
        from actorflow.api.screen import worker_table  # noqa: PLC0415 - an extra

        nonlocal last
        now, at = take(), time.monotonic()
        before, since = last if last is not None else (None, at)
        last = now, at
        return worker_table(now, before, at - since)

    return read


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
