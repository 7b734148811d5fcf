"""The graph of a plan: order, cycles, jobs that are added later."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from actorflow.plans.graph import Graph


def edges_of(count: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    if not count:
        return st.just([])
    job = st.integers(0, count - 1)
    return st.lists(st.tuples(job, job), unique=True, max_size=3 * count)


graphs = st.integers(0, 12).flatmap(lambda count: st.tuples(st.just(count), edges_of(count)))


def graph_of(count: int, edges: list[tuple[int, int]]) -> Graph:
    return Graph(count, [first for first, _ in edges], [second for _, second in edges])


def test_an_empty_graph_has_no_jobs_and_no_cycle() -> None:
    graph = Graph(0, [], [])
    assert graph.cycle() is None
    assert list(graph.keys()) == []


@given(graphs)
def test_t10_the_key_of_a_job_is_the_number_of_jobs_before_it(
    given: tuple[int, list[tuple[int, int]]],
) -> None:
    count, edges = given
    graph = graph_of(count, edges)
    assert list(graph.keys()) == [sum(second == job for _, second in edges) for job in range(count)]
    for job in range(count):
        assert list(graph.after(job)) == [second for first, second in edges if first == job]
    assert list(graph.edges()) == edges


@given(graphs)
def test_a10_a_cycle_is_found_exactly_where_graphlib_finds_one(
    given: tuple[int, list[tuple[int, int]]],
) -> None:
    count, edges = given
    sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(count), ()))
    for first, second in edges:
        sorter.add(second, first)
    try:
        sorter.prepare()
    except CycleError:
        has_cycle = True
    else:
        has_cycle = False

    cycle = graph_of(count, edges).cycle()

    assert (cycle is not None) == has_cycle
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(pair in edges for pair in pairwise(cycle))


def test_a_job_that_waits_for_itself_is_a_cycle() -> None:
    assert Graph(2, [1], [1]).cycle() == [1, 1]


def test_jobs_that_are_added_come_before_the_one_that_gathers_them() -> None:
    graph = Graph(2, [0], [1])
    assert list(graph.add(2, before=1)) == [2, 3]
    assert list(graph.after(2)) == [1]
    assert list(graph.after(1)) == []
    assert list(graph.keys()) == [0, 3, 0, 0]
    assert graph.count == 4
    assert list(graph.edges()) == [(0, 1), (2, 1), (3, 1)]
