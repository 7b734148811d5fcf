"""Other ways to write a plan: a mapping and edges, a graph of networkx, a module of functions.

In all three, a parameter of a function that names a job directly before it gets its result.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar, overload

from actorflow.behaviours.errors import brief
from actorflow.plans.errors import BadPlan
from actorflow.plans.job import DEFAULT, Job, JobOptions, OptionsGiven, options_of
from actorflow.runtime.errors import near

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from types import ModuleType

    from actorflow.plans.blueprint import Blueprint

__all__ = ["add_graph", "add_mapping", "add_module", "job"]

F = TypeVar("F", bound="Callable[..., Any]")

_MARK = "__actorflow_job__"
_OPTIONS = frozenset(OptionsGiven.__annotations__)


@overload
def job(function: F, /) -> F: ...
@overload
def job(*, after: str | Iterable[str] = (), **options: Any) -> Callable[[F], F]: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    after: str | Iterable[str] = (),
    **options: Any,
) -> Any:
    """Mark a function as a job of the plan that `Plan.from_module` makes of its module.

    Its parameters name the jobs whose results it takes. The function itself stays as it is.

    Args:
        function: the decorated function.
        after: names of jobs that come before it, whose results it does not take.
        **options: those of `Plan.job`.

    >>> @job(retries=2)
    ... def clean(raw): ...
    """
    checked = options_of(OptionsGiven(**options)) if options else DEFAULT  # type: ignore[typeddict-item]
    names = (after,) if isinstance(after, str) else tuple(after)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _MARK, (names, checked))
        return function

    return mark if function is None else mark(function)


def add_module(blueprint: Blueprint, module: ModuleType) -> None:
    """Add the functions of a module that are marked with `@job`."""
    found = {
        name: each for name, each in vars(module).items() if getattr(each, _MARK, None) is not None
    }
    if not found:
        msg = f"module {module.__name__!r} has no jobs: mark its functions with @af.job"
        raise BadPlan(msg)
    places = {name: place for place, name in enumerate(found, start=len(blueprint))}
    for name, function in found.items():
        after, options = getattr(function, _MARK)
        kwargs = {}
        for each in _parameters(function):
            if each.name in places and each.name != name:
                kwargs[each.name] = Job(blueprint, places[each.name])
            elif each.default is inspect.Parameter.empty:
                known = near(each.name, places)
                msg = f"parameter {each.name!r} of job {name!r} names no job{known}"
                raise BadPlan(msg)
        blueprint.add(function, (), kwargs, name=name, after=after, options=options)


def add_mapping(
    blueprint: Blueprint,
    jobs: Mapping[Hashable, Any],
    edges: Iterable[Any],
    options: Mapping[Hashable, JobOptions] | None = None,
) -> None:
    """Add jobs by name, and the edges between them: (job, job after it)."""
    places = {id_: place for place, id_ in enumerate(jobs, start=len(blueprint))}
    before: dict[Hashable, dict[Hashable, None]] = {}
    for edge in edges:
        if not isinstance(edge, tuple) or len(edge) != 2:  # noqa: PLR2004 - a pair
            msg = f"edge {brief(edge)} must be a pair: (job, job after it)"
            raise BadPlan(msg)
        for end in edge:
            if end not in places:
                msg = f"edge {edge!r} names {end!r}, which is not there{near(end, places)}"
                raise BadPlan(msg)
        before.setdefault(edge[1], {})[edge[0]] = None
    for id_, given in jobs.items():
        upstream = {str(each): Job(blueprint, places[each]) for each in before.get(id_, ())}
        function, args, kwargs = _call(str(id_), given, upstream)
        blueprint.add(
            function,
            args,
            kwargs,
            name=str(id_),
            after=tuple(upstream.values()),
            options=(options or {}).get(id_, DEFAULT),
        )


def add_graph(blueprint: Blueprint, graph: Any) -> None:
    """Add the nodes of a directed graph of networkx; the attribute `job` has the function."""
    if not getattr(graph, "is_directed", bool)() or graph.is_multigraph():
        msg = f"{brief(graph)} must be a networkx.DiGraph: an edge a -> b means a before b"
        raise BadPlan(msg)
    jobs: dict[Hashable, Any] = {}
    options: dict[Hashable, JobOptions] = {}
    for node, attributes in graph.nodes(data=True):
        if "job" not in attributes:
            msg = f"node {node!r} has no job: graph.add_node({node!r}, job=function)"
            raise BadPlan(msg)
        jobs[node] = attributes["job"]
        given = {name: each for name, each in attributes.items() if name in _OPTIONS}
        if given:
            options[node] = options_of(OptionsGiven(**given))  # type: ignore[typeddict-item]
    add_mapping(blueprint, jobs, graph.edges(), options)


def _call(
    name: str, given: Any, upstream: Mapping[str, Job]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, tuple):
        if not given or not callable(given[0]):
            msg = f"job {name!r} is {brief(given)}: give a function, or (function, argument, ...)"
            raise BadPlan(msg)
        return given[0], given[1:], {}
    if not callable(given):
        msg = f"job {name!r} is {brief(given)}: give a function, or (function, argument, ...)"
        raise BadPlan(msg)
    kwargs = {}
    for each in _parameters(given):
        if each.name in upstream:
            kwargs[each.name] = upstream[each.name]
        elif each.default is inspect.Parameter.empty:
            known = near(each.name, upstream)
            msg = f"parameter {each.name!r} of job {name!r} names no job directly before it{known}"
            raise BadPlan(msg)
    return given, (), kwargs


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that can be given by name; none where Python cannot tell."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C
        return []
    return [each for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
