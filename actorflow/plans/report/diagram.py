"""The graph of a plan as a diagram: nodes in layers, and as text for other programs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.plans.job_record import JobRecord, JobStatus

__all__ = ["Diagram", "DiagramNode", "family", "title"]

_MEMBER = re.compile(r"(?P<family>.+?)(?:-\d+|\[\d+\])+")


def family(name: str) -> str:
    """Return what a job is called without its number.

    >>> [family(name) for name in ("fit", "fit-2", "fit[10]", "a-1[2]")]
    ['fit', 'fit', 'fit', 'a']
    """
    found = _MEMBER.fullmatch(name)
    return found["family"] if found else name


class DiagramNode(NamedTuple):
    """A job, or several of one family in the same layer."""

    label: str
    layer: int
    jobs: int = 1
    statuses: tuple[JobStatus, ...] = ()
    """Those of its jobs, without repetition, if they have been run."""


@dataclass(frozen=True)
class Diagram:
    """Nodes in layers, and edges between their places in the list.

    An edge goes from a lower layer to a higher one.
    """

    nodes: Sequence[DiagramNode]
    edges: Sequence[tuple[int, int]] = field(default_factory=tuple)

    @classmethod
    def of(
        cls, upstream: Mapping[str, Sequence[str]], records: Sequence[JobRecord] = ()
    ) -> Diagram:
        """Return the diagram of jobs, each with the names of those directly before it."""
        places = {name: at for at, name in enumerate(upstream)}
        before = [[places[each] for each in names if each in places] for names in upstream.values()]
        known = {record.name: (record.status,) for record in records}
        layers = _layers(before)
        nodes = [
            DiagramNode(name, layers[at], 1, known.get(name, ())) for name, at in places.items()
        ]
        edges = [(each, at) for at, earlier in enumerate(before) for each in dict.fromkeys(earlier)]
        return cls(nodes, edges)

    @classmethod
    def of_records(cls, records: Sequence[JobRecord]) -> Diagram:
        """Return the diagram of jobs that were run."""
        return cls.of({record.name: record.upstream for record in records}, records)

    def collapsed(self, most: int) -> Diagram:
        """Return a diagram of few nodes: if there are more, families become one node each.

        Jobs of a family are one node if they are in the same layer.
        """
        if len(self.nodes) <= most:
            return self
        groups: dict[tuple[str, int], list[int]] = {}
        for at, node in enumerate(self.nodes):
            groups.setdefault((family(node.label), node.layer), []).append(at)
        home: dict[int, int] = {}
        nodes = []
        for place, ((name, layer), members) in enumerate(groups.items()):
            statuses = dict.fromkeys(
                status for member in members for status in self.nodes[member].statuses
            )
            count = sum(self.nodes[member].jobs for member in members)
            label = self.nodes[members[0]].label if len(members) == 1 else name
            nodes.append(DiagramNode(label, layer, count, tuple(statuses)))
            home.update(dict.fromkeys(members, place))
        edges = dict.fromkeys((home[first], home[second]) for first, second in self.edges)
        return Diagram(nodes, tuple(edges))

    # --- text -----------------------------------------------------------------

    def __str__(self) -> str:
        """Return one line for each node: its label, and the nodes directly before it."""
        before: dict[int, list[str]] = {}
        for first, second in self.edges:
            before.setdefault(second, []).append(title(self.nodes[first]))
        order = sorted(range(len(self.nodes)), key=lambda at: self.nodes[at].layer)
        return "\n".join(
            title(self.nodes[at]) + (f" <- {', '.join(before[at])}" if at in before else "")
            for at in order
        )

    def mermaid(self) -> str:
        """Return the diagram in Mermaid's language, which GitHub and many editors draw."""
        lines = ["flowchart LR"]
        for at, node in enumerate(self.nodes):
            text = title(node).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
            lines.append(f'    n{at}["{text}"]')
        lines += [f"    n{first} --> n{second}" for first, second in self.edges]
        return "\n".join(lines) + "\n"

    def dot(self) -> str:
        """Return the diagram in the language of Graphviz."""
        lines = ["digraph plan {", "    rankdir=LR;", "    node [shape=box];"]
        for at, node in enumerate(self.nodes):
            lines.append(f"    n{at} [label={json.dumps(title(node), ensure_ascii=False)}];")
        lines += [f"    n{first} -> n{second};" for first, second in self.edges]
        return "\n".join([*lines, "}"]) + "\n"


def title(node: DiagramNode) -> str:
    """Return the text in the box of a node."""
    return node.label if node.jobs == 1 else f"{node.label} ({node.jobs:,} jobs)"


def _layers(before: Sequence[Sequence[int]]) -> list[int]:
    """Return the layer of each node: one more than the highest of those directly before it."""
    layers = [-1] * len(before)
    for start in range(len(before)):
        waiting = [start]
        while waiting:
            at = waiting[-1]
            missing = [each for each in before[at] if layers[each] < 0]
            if missing and layers[at] < 0:
                waiting += missing
                continue
            waiting.pop()
            if layers[at] < 0:
                layers[at] = max((layers[each] for each in before[at]), default=-1) + 1
    return layers
