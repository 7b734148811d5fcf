"""`Plan.run(on=...)`: start a plan on a store, wait while other machines run its jobs.

This process runs no job and owns no execution. If it dies, the plan goes on without it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from actorflow.engine.engine import BareEngine
from actorflow.engine.stores.opening import open_store, scheme_of
from actorflow.plans.result_files import remove_files
from actorflow.plans.service.plans import Plans
from actorflow.runtime.errors import BadOption
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actorflow.plans.plan import Plan
    from actorflow.plans.run.result import PlanResult

__all__ = ["WORKERS", "run_on"]

WORKERS = 100
"""Jobs of a plan that run at the same time, on all machines together, unless told otherwise."""


def run_on(
    plan: Plan,
    on: str | BareEngine,
    *,
    id: str | None,  # noqa: A002 - as for the other kinds
    workers: int | None,
    directory: str | Path | None,
    **options: Any,
) -> PlanResult:
    """Run a plan on the workers of a store; return its result when all is done. See `Plan.run`."""
    with _plans_on(on) as plans:
        handle = plans.start(
            plan,
            id=id,
            workers=WORKERS if workers is None else workers,
            directory=directory,
            **options,
        )
        handle.keeps_files = id is not None
        if not plans.workers_alive():
            log.warning("no worker is alive: the plan waits for one", plan=handle.id)
        try:
            return handle.result()
        except KeyboardInterrupt:
            handle.cancel()
            if sys.stderr is not None:
                sys.stderr.write(f"\ninterrupted: plan {handle.id!r} was cancelled\n")
            if handle.directory:
                remove_files(handle.directory)
            raise


@contextmanager
def _plans_on(on: str | BareEngine) -> Iterator[Plans]:
    """Yield the plans of a store.

    Raises:
        BadOption: one engine alone uses it.

    """
    if isinstance(on, BareEngine):
        plans = getattr(on, "plans", None)
        yield Plans(on) if plans is None else plans
        return
    if scheme_of(on) is None:
        raise _is_for_one(on)
    store = open_store(on)
    if not store.traits.shared:
        store.close()
        raise _is_for_one(on)
    with BareEngine(store, worker=False) as engine:
        yield Plans(engine)


def _is_for_one(on: str) -> BadOption:
    msg = (
        f"on={on!r}: that store is for one engine, which runs the jobs itself: "
        f"af.Engine({on!r}).start(plan). Workers on other machines need a server: "
        "on='postgresql://host/db'"
    )
    return BadOption(msg)
