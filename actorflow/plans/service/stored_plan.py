"""A plan as it is stored: everything a restart needs to go on.

Functions are kept as the workers get them, so that only workers load them.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from actorflow.plans.arguments import replace
from actorflow.plans.blueprint import Blueprint, PickledFunction
from actorflow.plans.errors import BadPlan
from actorflow.plans.job import Job
from actorflow.runtime.errors import kind_and_text
from actorflow.runtime.processes.packed import pack_value

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["pack_plan", "unpack_plan"]


class _JobReference:
    """Stands in stored arguments for a job."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[type[_JobReference], tuple[int]]:
        return _JobReference, (self.index,)


def pack_plan(blueprint: Blueprint) -> bytes:
    """Return a plan as bytes.

    Raises:
        BadPlan: it cannot be run, or an argument cannot be pickled.

    """
    blueprint.graph()
    codes = blueprint.codes()
    kept: dict[int, PickledFunction] = {}
    for each in blueprint.functions:
        if each is not None and id(each) not in kept:
            kept[id(each)] = PickledFunction(codes[id(each)], blueprint.base_name(each))
    parts: dict[str, Any] = dict(vars(blueprint))
    parts["functions"] = [kept.get(id(each)) for each in blueprint.functions]
    takes = blueprint.takes
    parts["args"] = [
        _referring(each) if takes[job] else each for job, each in enumerate(blueprint.args)
    ]
    parts["kwargs"] = {job: _referring(each) for job, each in blueprint.kwargs.items()}
    try:
        packed = pack_value(parts)
        return packed.data if not packed.buffers else pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        msg = (
            f"an argument of the plan cannot be stored ({kind_and_text(error)}); give "
            "arguments that can be pickled"
        )
        raise BadPlan(msg) from error


def unpack_plan(data: bytes) -> Blueprint:
    """Return a plan that was stored. Imports the modules of the classes of its arguments."""
    blueprint = Blueprint()
    parts: Mapping[str, Any] = pickle.loads(data)  # noqa: S301 - written by `pack_plan`
    vars(blueprint).update(parts)
    takes = blueprint.takes
    back = lambda each: Job(blueprint, each.index)  # noqa: E731 - used twice
    for job, args in enumerate(blueprint.args):
        if takes[job]:
            blueprint.args[job] = replace(_JobReference, args, back)
    for job, kwargs in blueprint.kwargs.items():
        blueprint.kwargs[job] = replace(_JobReference, kwargs, back)
    return blueprint


def _referring(value: Any) -> Any:
    return replace(Job, value, lambda job: _JobReference(job.index))
