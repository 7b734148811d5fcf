"""What a run with a cache would do, and why, without running anything."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, NamedTuple

from actorflow.plans.arguments import find
from actorflow.plans.cache_protocol import Input, Miss
from actorflow.plans.run.dispatcher import Dispatcher
from actorflow.plans.run.job_calls import split
from actorflow.plans.scheduler import Ending, Role, State

if TYPE_CHECKING:
    from actorflow.plans.blueprint import Blueprint
    from actorflow.plans.cache.cache import FolderCache
    from actorflow.plans.results import Value

__all__ = ["Prediction", "preview"]


class Prediction(NamedTuple):
    """The predicted outcome of a job."""

    name: str
    runs: bool
    """False: it is up to date. True: it has to run, or may have to."""
    reason: str


def preview(blueprint: Blueprint, cache: FolderCache) -> list[Prediction]:
    """Return what a run would do with each job, in the order of the plan.

    A job behind one that has to run is judged by its last record. Items of maps are read
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
        dispatcher = Dispatcher(
            blueprint, directory, workers=len(blueprint) + weight, limits=limits, cache=cache
        )
        while (job := dispatcher.next()) is not None:
            if dispatcher.scheduler.role(job) is Role.MAP:
                parts = split(dispatcher.source(job), (f"{directory}/{job}", True))
                dispatcher.ended(job, Ending.OK, parts)
        return [
            _prediction(dispatcher, job, cache) for job in range(len(dispatcher.scheduler.states))
        ]


def _prediction(dispatcher: Dispatcher, job: int, cache: FolderCache) -> Prediction:
    name, state = dispatcher.name(job), dispatcher.scheduler.state(job)
    if job in dispatcher.reasons:
        return Prediction(name, job not in dispatcher.cached, dispatcher.reasons[job])
    if dispatcher.scheduler.role(job) is not Role.CALL:
        if state is State.DONE:
            return Prediction(name, runs=False, reason="its jobs are up to date")
        return Prediction(name, runs=True, reason="its jobs have to run")
    spec = dispatcher.spec(job)
    inputs: list[Input] = []
    find(Input, (spec.args, spec.kwargs), inputs)
    known: dict[str, Value] = {}
    pending: list[str] = []
    for each in inputs:
        before = dispatcher.blueprint.index(each.name)
        if dispatcher.scheduler.state(before) is State.DONE:
            known[each.name] = dispatcher.value(before)
        else:
            pending.append(each.name)
    if pending:
        return Prediction(name, runs=True, reason=cache.predict(spec, known, pending))
    # It only waits for its turn, behind jobs whose results it does not take.
    found = cache.lookup(spec, known)
    return Prediction(name, isinstance(found, Miss), found.reason)
