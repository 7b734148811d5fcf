"""Writing plans: edges from arguments, names, and errors raised before anything starts."""

from __future__ import annotations

import functools
import threading
import types
from collections import namedtuple
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.plans.arguments import find, replace
from actorflow.plans.errors import BadPlan, UnknownJob
from actorflow.plans.plan import Plan
from actorflow.plans.sources import job
from actorflow.runtime.errors import ActorflowError
from tests.plans.jobs import double, nothing, one, plus, upto

Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - what users have


def names(plan: Plan) -> list[str]:
    return [each.name for each in plan]


def upstream(plan: Plan, name: str) -> list[str]:
    return [each.name for each in plan.upstream(name)]


def test_t1_t2_jobs_as_arguments_make_edges_also_inside_containers() -> None:
    plan = Plan()
    a, b, c, d, e = (plan.job(one, name=name) for name in "abcde")
    plan.job(print, a, [b, (c,)], {"key": d}, name="all", sep=[e], after=(a,))
    assert upstream(plan, "all") == ["a", "b", "c", "d", "e"]


def test_after_makes_an_edge_also_by_a_name_that_comes_later() -> None:
    plan = Plan()
    plan.job(one, name="last", after="first")
    plan.job(one, name="first")
    assert upstream(plan, "last") == ["first"]
    plan.check()


def test_names_are_those_of_the_functions_numbered_from_the_second_on() -> None:
    plan = Plan()
    plan.job(one, name="one-2")
    for _ in range(3):
        plan.job(one)
    plan.job(functools.partial(plus, 1))
    plan.job(lambda: 1)
    assert names(plan) == ["one-2", "one", "one-3", "one-4", "plus", "lambda"]
    assert [plan[name].index for name in names(plan)] == list(range(6))
    assert "one-3" in plan
    assert "one-5" not in plan
    assert plan["plus"] in plan


def test_a_map_over_items_names_its_jobs_by_their_place() -> None:
    plan = Plan()
    first = plan.job(one)
    plan.map(double, [1, first, 3], name="twice")
    plan.map(double, [], name="none")
    assert names(plan) == ["one", "twice", "twice[0]", "twice[1]", "twice[2]", "none"]
    assert upstream(plan, "twice") == ["twice[0]", "twice[1]", "twice[2]"]
    assert upstream(plan, "twice[1]") == ["one"]
    assert "twice[3]" not in plan
    assert "none[0]" not in plan


def test_a10_a_cycle_is_printed() -> None:
    plan = Plan.from_mapping(
        {"a": nothing, "b": nothing, "c": nothing, "d": nothing},
        [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")],
    )
    with pytest.raises(BadPlan, match="b -> c -> b"):
        plan.check()


def test_a10_an_unknown_name_is_refused_with_those_like_it() -> None:
    plan = Plan()
    plan.job(one, name="clean")
    plan.job(one, after="cleen")
    with pytest.raises(BadPlan, match=r"job 'one' waits for 'cleen'.*did you mean 'clean'"):
        plan.check()
    with pytest.raises(BadPlan, match=r"names 'b', which is not there"):
        Plan.from_mapping({"a": nothing}, [("a", "b")])
    with pytest.raises(UnknownJob, match="no job 'cleen'; did you mean 'clean'"):
        plan["cleen"]


def test_a10_jobs_without_edges_are_a_plan() -> None:
    plan = Plan.from_mapping({"a": nothing, "b": nothing})
    plan.check()
    assert len(plan) == 2


def test_a_name_is_not_given_twice() -> None:
    plan = Plan()
    plan.job(one, name="a")
    plan.job(one)
    plan.map(double, [1], name="m")
    for taken in ("a", "one", "m", "m[0]"):
        with pytest.raises(BadPlan, match="two jobs of the name"):
            plan.job(one, name=taken)


def test_an_unpicklable_function_is_refused_before_anything_starts() -> None:
    lock = threading.Lock()
    plan = Plan()
    plan.job(lambda: lock, name="locked")
    with pytest.raises(BadPlan, match="function of job 'locked' cannot be sent"):
        plan.check()


def test_lambdas_and_closures_are_fine() -> None:
    by = 2
    plan = Plan()
    plan.job(lambda: by)
    plan.check()


def test_a_job_of_another_plan_is_refused() -> None:
    with pytest.raises(BadPlan, match="belongs to another plan"):
        Plan().job(double, Plan().job(one))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"retries": -1}, "retries=-1"),
        ({"timeout": 0}, "timeout=0"),
        ({"weight": 0}, "weight=0"),
        ({"priority": "high"}, "priority='high'"),
        ({"cache": 1}, "cache=1"),
        ({"resources": 3}, "resources=3"),
        ({"resources": {"gpu": 0}}, "gpu"),
        ({"resources": {"memory": (1, "2")}}, "memory"),
        ({"name": " a"}, "name=' a'"),
        ({"after": [3]}, "must be a job, a name"),
    ],
)
def test_options_are_checked_when_the_job_is_added(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadPlan, match=complaint):
        Plan().job(one, **given)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(BadPlan, match=r"1 cannot be called: plan\.job\(fit, data\)"):
        Plan().job(one())  # type: ignore[arg-type]
    with pytest.raises(BadPlan, match="nothing to branch over"):
        Plan().map(one, "abc")


def _fit(data: Any, alpha: float = 1.0, *, seed: int = 0) -> Any:
    return data, alpha, seed


def _seeded(*, seed: int) -> int:
    return seed


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "complaint"),
    [
        (_fit, (), {}, "missing a required argument: 'data'"),
        (_fit, (1, 2, 3), {}, "too many positional arguments"),
        (_fit, (1,), {"aplha": 2}, "unexpected keyword argument 'aplha'"),
        (_fit, (1,), {"data": 2}, "multiple values for argument 'data'"),
        (_seeded, (), {}, "missing a required argument: 'seed'"),
        (functools.partial(_fit, 1, 2), (3,), {}, "too many positional arguments"),
    ],
)
def test_arguments_that_a_function_does_not_take_are_refused_when_the_job_is_added(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    plan = Plan()
    plan.job(_fit, 0)
    with pytest.raises(BadPlan, match=complaint):
        plan.job(function, *args, **kwargs)
    assert len(plan) == 1


def test_a_map_of_a_function_that_takes_no_item_is_refused() -> None:
    plan = Plan()
    items = plan.job(list)
    for over in ([1, 2], [], items):
        with pytest.raises(BadPlan, match="too many positional arguments"):
            plan.map(_seeded, over, seed=1)
    assert len(plan) == 1


def test_what_takes_any_argument_is_left_to_the_worker() -> None:
    def counted(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function(len(args), *args)

        return call

    plan = Plan()
    plan.job(counted(_fit))  # one argument comes from the decorator
    plan.job(print, 1, 2, 3)
    plan.job(max, 1, 2)
    plan.job(dict, [(1, 2)])
    plan.job(_seeded, seed=plan.job(int))
    assert len(plan) == 6


def test_from_mapping_parameters_name_the_jobs_before() -> None:
    plan = Plan.from_mapping(
        {"w": lambda y, z: y * z + 1, "y": lambda x: x + 1, "z": lambda x: x + 2, "x": (int, 2)},
        [("x", "y"), ("x", "z"), ("y", "w"), ("z", "w")],
    )
    assert upstream(plan, "w") == ["y", "z"]
    plan.check()
    with pytest.raises(BadPlan, match="parameter 'x' of job 'y' names no job directly before it"):
        Plan.from_mapping({"y": lambda x: x, "x": one})
    with pytest.raises(BadPlan, match=r"job 'x' is 3: give a function"):
        Plan.from_mapping({"x": 3})
    with pytest.raises(BadPlan, match="must be a pair"):
        Plan.from_mapping({"x": one}, ["x"])  # type: ignore[list-item]


def test_from_networkx() -> None:
    graph = nx.DiGraph()
    graph.add_node("x", job=(int, 2), retries=3)
    graph.add_node("y", job=lambda x: x + 1)
    graph.add_edge("x", "y")
    plan = Plan.from_networkx(graph)
    assert upstream(plan, "y") == ["x"]
    assert plan.blueprint.options[0].retries == 3
    with pytest.raises(BadPlan, match=r"must be a networkx\.DiGraph"):
        Plan.from_networkx(nx.Graph())
    graph.add_node("z")
    with pytest.raises(BadPlan, match="node 'z' has no job"):
        Plan.from_networkx(graph)


def module_of(**functions: Any) -> types.ModuleType:
    module = types.ModuleType("pipeline")
    vars(module).update(functions)
    return module


def test_from_module_takes_the_decorated_functions() -> None:
    @job
    def raw() -> int:
        return 3

    @job(retries=1, after="other")
    def clean(raw: int, by: int = 2) -> int:
        return raw * by

    @job()
    def other() -> None: ...

    plan = Plan.from_module(module_of(clean=clean, raw=raw, other=other, upto=upto))
    assert names(plan) == ["clean", "raw", "other"]
    assert upstream(plan, "clean") == ["raw", "other"]
    assert plan.blueprint.options[0].retries == 1
    plan.check()
    with pytest.raises(BadPlan, match="parameter 'raw' of job 'clean' names no job"):
        Plan.from_module(module_of(clean=clean))
    with pytest.raises(BadPlan, match="has no jobs: mark its functions"):
        Plan.from_module(module_of())


def test_a_job_where_nobody_looks_is_refused_when_it_is_pickled() -> None:
    import pickle  # noqa: PLC0415 - here only

    with pytest.raises(BadPlan, match="job 'one' is inside something that is sent to a worker"):
        pickle.dumps(Plan().job(one))


trees = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=1), inner, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
)


@given(trees)
def test_what_is_found_in_arguments_is_what_is_replaced(tree: Any) -> None:
    found: list[int] = []
    find(int, tree, found)
    seen: list[int] = []

    def see(number: int) -> int:
        seen.append(number)
        return number

    copy = replace(int, tree, see)
    assert seen == found
    assert copy == tree
    assert type(copy) is type(tree)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda plan: plan.job(None), "None cannot be called"),
        (lambda plan: plan.map(None, [1]), "None cannot be called"),
        (lambda plan: plan.job(len, "a", after=7), "after=7 must be a job"),
        (lambda plan: plan.map(len, ["a"], after=7), "after=7 must be a job"),
        (lambda plan: plan.map(len, ["a", Plan().job(one)]), "belongs to another plan"),
        (lambda plan: plan.map(len, ["a"], after=[7]), "after=(7,) must be a job"),
        (lambda plan: plan.job(len, "a", priority=None), "priority=None must be a whole number"),
        (lambda plan: plan.run(workers=1, resources="gpu"), "resources='gpu' must be a dict"),
        (lambda plan: plan.run(workers=1, setup=7), "setup=7"),
        (lambda plan: plan.run(workers=1, cache=7), "cache=7 is not a path"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(wrong: Any, told: str) -> None:
    plan = Plan()
    with pytest.raises(ActorflowError) as refused:
        wrong(plan)
    assert told in str(refused.value)
    assert len(plan.blueprint.functions) == 0
