"""Random graphs of jobs under random changes: as if all had run, but only what changed runs."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from actorflow.plans.cache.cache import FolderCache
from actorflow.plans.cache_protocol import Hit, Input, JobSpec
from actorflow.plans.results import InlineResult, Value, load
from tests.plans.cache.project import loaded

COUNT = 5
JOB = """
{note}
def job_{at}(argument, inputs, default={default}):
    {note}
    {local} = [argument, CONSTANT_{at}, default, helper_{at}({local}=inputs)]
    return sum({local}) % 3

CONSTANT_{at} = {constant}

def helper_{at}(**named):
    '''{note}'''
    return sum(deeper_{at}(each) for each in list(named.values())[0])

def deeper_{at}(x):
    return x * {factor}
"""
numbers = st.integers(0, COUNT - 1)
small = st.integers(0, 2)


class Changes(RuleBasedStateMachine):
    """The user edits jobs, arguments and edges; each run is compared with a naive one."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.constants = [0] * COUNT
        self.factors = [1] * COUNT
        self.defaults = [0] * COUNT
        self.arguments = [1] * COUNT
        self.local, self.note = "total", "# a note"
        self.edges: set[tuple[int, int]] = set()
        self.known: set[Any] = set()  # the naive cache: all that a result depends on

    def teardown(self) -> None:
        self.home.cleanup()

    @initialize(edges=st.sets(st.tuples(numbers, numbers)))
    def build(self, edges: set[tuple[int, int]]) -> None:
        self.edges = {(first, second) for first, second in edges if first < second}

    @rule(at=numbers, value=small)
    def change_constant(self, at: int, value: int) -> None:
        self.constants[at] = value

    @rule(at=numbers, value=small)
    def change_helper(self, at: int, value: int) -> None:
        self.factors[at] = value

    @rule(at=numbers, value=small)
    def change_default(self, at: int, value: int) -> None:
        self.defaults[at] = value

    @rule(at=numbers, value=small)
    def change_argument(self, at: int, value: int) -> None:
        self.arguments[at] = value

    @rule(first=numbers, second=numbers)
    def change_edge(self, first: int, second: int) -> None:
        if first < second:
            self.edges ^= {(first, second)}

    @rule(local=st.sampled_from(["total", "summe", "a"]), note=st.sampled_from(["# b", "# c"]))
    def rewrite(self, local: str, note: str) -> None:
        """Rename a local variable, and write another comment: nothing runs again."""
        self.local, self.note = local, note

    @invariant()
    def a_run_runs_what_depends_on_the_change(self) -> None:
        results, ran, reasons = self.run_with_cache()
        expected: list[int] = []
        for at in range(COUNT):
            before = [expected[each] for each in self.upstream(at)]
            parts = (
                self.arguments[at],
                self.constants[at],
                self.defaults[at],
                sum(each * self.factors[at] for each in before),
            )
            expected.append(sum(parts) % 3)
            names = tuple(self.upstream(at))
            depends = (at, *parts[:3], self.factors[at], names, tuple(before))
            assert (at in ran) == (depends not in self.known), (at, reasons[at])
            self.known.add(depends)
        assert results == expected

    def upstream(self, at: int) -> list[int]:
        return sorted(first for first, second in self.edges if second == at)

    def run_with_cache(self) -> tuple[list[int], set[int], list[str]]:
        """Run the plan in order, in this process."""
        text = "".join(
            JOB.format(
                at=at,
                constant=self.constants[at],
                factor=self.factors[at],
                default=self.defaults[at],
                local=self.local,
                note=self.note,
            )
            for at in range(COUNT)
        )
        # The keyword is the helper's to see, so only the list is renamed.
        text = text.replace(f"({self.local}=inputs)", "(data=inputs)")
        folder = Path(self.home.name)
        results: list[int] = []
        values: dict[str, Value] = {}
        ran, reasons = set(), []
        with loaded(folder / "code", pipeline=text) as module, FolderCache(folder / "c") as cache:
            for at in range(COUNT):
                inputs = [f"job_{each}" for each in self.upstream(at)]
                job = JobSpec(
                    name=f"job_{at}",
                    function=getattr(module, f"job_{at}"),
                    args=(self.arguments[at], [Input(each) for each in inputs]),
                    kwargs={},
                )
                found = cache.lookup(job, {each: values[each] for each in inputs})
                reasons.append(found.reason)
                if isinstance(found, Hit):
                    value = found.value
                else:
                    ran.add(at)
                    data = [results[each] for each in self.upstream(at)]
                    done = pickle.dumps(job.function(self.arguments[at], data))
                    value = InlineResult(done, done.hex())
                    assert found.key
                    cache.store(job, found.key, value)
                results.append(load(value))
                values[job.name] = value
        return results, ran, reasons


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
