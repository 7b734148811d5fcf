"""Diagrams of plans: layers, collapsing, few crossings, and text that others read."""

from __future__ import annotations

import itertools
import re
from graphlib import TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from actorflow.plans.job_record import JobRecord, JobStatus
from actorflow.plans.report.diagram import Diagram, DiagramNode, family
from actorflow.plans.report.layout import columns, crossings
from tests.plans.report.graphs import runs


@given(runs())
def test_each_layer_is_one_more_than_the_highest_before(records: list[JobRecord]) -> None:
    diagram = Diagram.of_records(records)
    graph = TopologicalSorter[int](dict.fromkeys(range(len(diagram.nodes)), ()))
    for first, second in diagram.edges:
        graph.add(second, first)
    graph.prepare()
    for layer in itertools.count():
        ready = graph.get_ready()
        if not ready:
            break
        assert {diagram.nodes[at].layer for at in ready} == {layer}
        graph.done(*ready)


@given(runs())
def test_no_job_and_no_edge_is_lost(records: list[JobRecord]) -> None:
    diagram = Diagram.of_records(records)
    assert [node.label for node in diagram.nodes] == [record.name for record in records]
    edges = {(diagram.nodes[a].label, diagram.nodes[b].label) for a, b in diagram.edges}
    assert edges == {(name, record.name) for record in records for name in record.upstream}
    assert [node.statuses for node in diagram.nodes] == [(record.status,) for record in records]


@given(runs(), st.integers(0, 8))
def test_a_collapsed_diagram_has_the_same_layers_and_counts(
    records: list[JobRecord], most: int
) -> None:
    diagram = Diagram.of_records(records)
    small = diagram.collapsed(most)
    if len(records) <= most:
        assert small is diagram
        return
    assert sum(node.jobs for node in small.nodes) == len(records)
    assert {node.layer for node in small.nodes} == {node.layer for node in diagram.nodes}
    # All jobs are of one family, so there is one node in each layer.
    assert len(small.nodes) == len({node.layer for node in diagram.nodes})
    assert all(small.nodes[a].layer < small.nodes[b].layer for a, b in small.edges)


def test_only_families_are_collapsed() -> None:
    jobs = {"load": [], "fit[0]": ["load"], "fit[1]": ["load"], "other": ["load"]}
    small = Diagram.of(jobs).collapsed(2)
    assert str(small) == "load\nfit (2 jobs) <- load\nother <- load"
    assert small.nodes[1] == DiagramNode("fit", 1, 2, ())


@given(runs(most=7))
def test_columns_hold_each_node_once_with_no_more_crossings(records: list[JobRecord]) -> None:
    diagram = Diagram.of_records(records)
    arranged = columns(diagram)
    assert sorted(itertools.chain(*arranged)) == list(range(len(records)))
    for layer, column in enumerate(arranged):
        assert {diagram.nodes[at].layer for at in column} == {layer}
    plain = [
        [at for at, node in enumerate(diagram.nodes) if node.layer == layer]
        for layer in range(len(arranged))
    ]
    assert crossings(diagram, arranged) <= crossings(diagram, plain)


@given(runs(most=6))
def test_crossings_are_counted_as_the_eye_does(records: list[JobRecord]) -> None:
    diagram = Diagram.of_records(records)
    arranged = columns(diagram)
    place = {at: number for column in arranged for number, at in enumerate(column)}
    layer = [node.layer for node in diagram.nodes]
    expected = sum(
        (place[a] - place[c]) * (place[b] - place[d]) < 0
        for (a, b), (c, d) in itertools.combinations(diagram.edges, 2)
        if (layer[a], layer[b]) == (layer[c], layer[d])
    )
    assert crossings(diagram, arranged) == expected


def test_a_simple_crossing_is_untangled() -> None:
    diagram = Diagram.of({"a": [], "b": [], "c": ["b"], "d": ["a"]})
    assert crossings(diagram, columns(diagram)) == 0


@given(runs())
def test_mermaid_and_dot_name_all_nodes_and_edges(records: list[JobRecord]) -> None:
    diagram = Diagram.of_records(records)
    for text, arrow in ((diagram.mermaid(), "-->"), (diagram.dot(), "->")):
        found = re.findall(rf"n(\d+) {arrow} n(\d+)", text)
        assert [(int(a), int(b)) for a, b in found] == list(diagram.edges)
        for record in records:
            assert f'"{record.name}"' in text


def test_odd_names_are_escaped() -> None:
    diagram = Diagram.of({'say "hi" <b> & \\': []})
    assert 'n0["say &quot;hi&quot; &lt;b> &amp; \\"]' in diagram.mermaid()
    assert r'n0 [label="say \"hi\" <b> & \\"];' in diagram.dot()


def test_a_deep_graph_needs_no_recursion() -> None:
    jobs = {f"job-{at}": [f"job-{at + 1}"] for at in range(5000)}
    jobs["job-5000"] = []
    assert Diagram.of(jobs).nodes[0].layer == 5000


def test_a_family_is_a_name_without_its_number() -> None:
    assert family("fit-by-day-12") == "fit-by-day"
    assert family("-1") == "-1"
    assert Diagram.of({}, [JobRecord(name="x", status=JobStatus.DONE)]).nodes == []
