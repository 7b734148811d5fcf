"""What a run with a cache would do, and why, without running anything."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, NamedTuple

from actorflow.plans.arguments import find
from actorflow.plans.lookup import Input, Miss
from actorflow.plans.master import Ending, Role, State
from actorflow.plans.run.calls import split
from actorflow.plans.run.desk import Desk

if TYPE_CHECKING:
    from actorflow.plans.blueprint import Blueprint
    from actorflow.plans.cache.cache import FolderCache

__all__ = ["Verdict", "foresee"]


class Verdict(NamedTuple):
    """What would happen to a job."""

    name: str
    runs: bool
    """False: it is up to date. True: it has to run, or may have to."""
    reason: str


def foresee(blueprint: Blueprint, cache: FolderCache) -> list[Verdict]:
    """Return what a run would do with each job, in the order of the plan.

    A job behind one that has to run is judged by what is known of it. Items of maps are read
    from the cache, which unpickles them in this process.

    Raises:
        BadPlan: the plan cannot be run.

    """
    limits: dict[str, int] = {}
    for options in blueprint.options.values():
        for name, amount in options.uses.items():
            limits[name] = limits.get(name, 0) + amount
    with tempfile.TemporaryDirectory(prefix="actorflow-why-") as directory:
        weight = sum(options.weight for options in blueprint.options.values())
        desk = Desk(
            blueprint, directory, workers=len(blueprint) + weight, limits=limits, cache=cache
        )
        while (job := desk.next()) is not None:
            if desk.master.role(job) is Role.MAP:
                parts = split(desk.source(job), (f"{directory}/{job}", True))
                desk.ended(job, Ending.OK, parts)
        return [_verdict(desk, job, cache) for job in range(len(desk.master.states))]


def _verdict(desk: Desk, job: int, cache: FolderCache) -> Verdict:
    name, state = desk.name(job), desk.master.state(job)
    if job in desk.reasons:
        return Verdict(name, job not in desk.cached, desk.reasons[job])
    if desk.master.role(job) is not Role.CALL:
        if state is State.DONE:
            return Verdict(name, runs=False, reason="its jobs are up to date")
        return Verdict(name, runs=True, reason="its jobs have to run")
    spec = desk.spec(job)
    inputs: list[Input] = []
    find(Input, (spec.args, spec.kwargs), inputs)
    known: dict[str, str] = {}
    pending: list[str] = []
    for each in inputs:
        before = desk.blueprint.index(each.name)
        if desk.master.state(before) is State.DONE:
            known[each.name] = desk.value(before).digest
        else:
            pending.append(each.name)
    if pending:
        return Verdict(name, runs=True, reason=cache.foresee(spec, known, pending))
    # It only waits for its turn, behind jobs whose results it does not take.
    found = cache.lookup(spec, known)
    return Verdict(name, isinstance(found, Miss), found.reason)
