"""Batching changes nothing: generated workflows, the same messages, any way to deliver them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.testing.golden.workflows import DECIDERS, state_of
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import UNSET, StepType

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.testing.golden.workflows import BranchDecider

Json = Any

EVENTS = ("E", "F")
NAMES = st.sampled_from(["A", "B", "C"])
LITERALS: st.SearchStrategy[Json] = st.integers(0, 3)
READS: st.SearchStrategy[Json] = st.sampled_from([{"prop": "n"}, {"prop": "log"}])


def steps(inputs: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"task": NAMES, "input": inputs})


def calls(inputs: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.builds(
        lambda op, steps: {"op": op, "works": steps},
        st.sampled_from(["execute", "execute", "dispatch"]),
        st.lists(steps(inputs), min_size=1, max_size=3),
    )


SETS: st.SearchStrategy[Json] = st.one_of(
    st.builds(
        lambda by: {"op": "set", "prop": "n", "value": {"add": [{"prop": "n"}, by]}},
        st.integers(1, 3),
    ),
    st.builds(
        lambda what: {"op": "set", "prop": "log", "value": {"append": [{"prop": "log"}, what]}},
        st.sampled_from(["x", "y"]),
    ),
)
CHOICES = st.builds(
    lambda over, then, otherwise: {
        "op": "if",
        "cond": {"gt": [{"prop": "n"}, over]},
        "then": [then],
        "else": [otherwise],
    },
    st.integers(0, 3),
    calls(LITERALS),
    SETS,
)
WAITS = st.builds(
    lambda event: {"op": "execute", "works": [{"wait": {"event": event}}]},
    st.sampled_from(EVENTS),
)
MIXED_WAITS = st.builds(
    lambda event, step: {"op": "execute", "works": [{"wait": {"event": event}}, step]},
    st.sampled_from(EVENTS),
    steps(LITERALS),
)


def described(methods: dict[str, Json]) -> Json:
    return {"name": "Generated", "properties": {"n": 0, "log": []}, "methods": methods}


RETURN = {"op": "return", "value": [{"prop": "n"}, {"prop": "log"}]}
WITHOUT_WAITS = st.builds(
    lambda handle, event, success, start: described(
        {
            "handle": [*handle, RETURN],
            "onEvent": event,
            "onSuccess": success,
            "onStart": start,
        }
    ),
    st.lists(st.one_of(calls(LITERALS | READS), SETS, CHOICES), max_size=5),
    st.lists(st.one_of(calls(LITERALS | READS), SETS, CHOICES), max_size=2),
    st.lists(SETS, max_size=1),
    st.lists(SETS, max_size=1),
)
# The properties after a wait depend on when the decision was taken that began it. The steps do not,
# as long as they do not read the properties.
WITH_WAITS = st.builds(
    lambda handle, event: described({"handle": handle, "onEvent": event}),
    st.lists(st.one_of(calls(LITERALS), WAITS, MIXED_WAITS), min_size=1, max_size=5),
    st.lists(st.one_of(calls(LITERALS), SETS, WAITS), max_size=2),
)


class Run:
    """An instance of a description."""

    def __init__(self, workflow: Json, decider: str) -> None:
        self._decider: BranchDecider = DECIDERS[decider](workflow)
        properties = {"n": 0, "log": []}
        self.instance, _ = Instance.start("Generated", "Generated", properties, at=0)
        self.now = 0.0

    def deliver(self, messages: list[m.Received], now: float) -> None:
        self.now = now
        self.instance.receive(messages, now=now)

    def decide(self, times: int = 1000) -> None:
        for _ in range(times):
            if not self.instance.state.decision_ongoing:
                return
            answer, _ = self._decider.decide(self.instance, self.now)
            self.instance.receive([answer], now=self.now)

    def restart(self) -> None:
        self.instance = Instance(stored.decode(stored.encode(self.instance.state)))
        self._decider.restored()

    def named(self, step: str) -> str:
        """Return a step by what its branch is about: the keys of branches depend on batching."""
        key, _, position = step.partition("/")
        data = self.instance.state.branches[int(key)].event_input
        return f"{'handle' if data is UNSET else data}/{position}"

    def found(self, named: str) -> str | None:
        """Return the step that is named so, if it is scheduled."""
        return next((step for step in self._all_steps() if self.named(step) == named), None)

    def _all_steps(self) -> list[str]:
        return [status.step for status in self.instance.state.statuses]

    def close(self) -> None:
        self._decider.close()

    @property
    def over(self) -> bool:
        return self.instance.state.ended

    @property
    def open(self) -> list[str]:
        return [
            status.step
            for status in self.instance.state.statuses
            if status.status == "scheduled" and status.type is not StepType.WAIT
        ]

    @property
    def steps(self) -> list[tuple[Json, ...]]:
        return sorted(
            (self.named(each.step), each.name, str(each.input), each.status, str(each.output))
            for each in self.instance.state.statuses
        )

    @property
    def exact(self) -> Json:
        """All that must not depend on batching: not where the last decision began."""
        state = state_of(self.instance)
        del state["ongoing_index"]
        return state


Sent: TypeAlias = m.EventSent | m.Started | m.Succeeded


def translated(message: Sent, run: Run) -> Sent | None:
    """Return a message as it is for a run; `None` if its step is not scheduled there yet."""
    if isinstance(message, m.EventSent):
        return message
    step = run.found(message.step)
    return None if step is None else msgspec.structs.replace(message, step=step)


def one_by_one(workflow: Json, choices: list[int]) -> tuple[Run, list[Sent]]:
    """Deliver messages as chosen, each decided at once, until the end; return them."""
    run = Run(workflow, "scripted")
    run.decide()
    messages: list[Sent] = []
    while not run.over and len(messages) < 40:
        at = len(messages) + 1
        choice = choices[at - 1] if at <= len(choices) else 2
        message: Sent
        if run.open and choice >= 2:
            step = run.named(run.open[choice % len(run.open)])
            message = m.Started(at, step) if choice == 3 else m.Succeeded(at, step, at)
        else:
            message = m.EventSent(at, EVENTS[(choice + at) % 2], at)
        messages.append(message)
        run.deliver([translated(message, run) or message], at)
        run.decide()
    return run, messages


def batched(
    workflow: Json, messages: list[Sent], gaps: list[int], decider: str, *, restarts: bool
) -> Run:
    """Deliver the same messages in batches, some of them while a decision is ongoing."""
    run = Run(workflow, decider)
    batch: list[m.Received] = []
    for at, sent in enumerate(messages):
        message = translated(sent, run)
        if message is None:
            run.deliver(batch, now=at)
            batch = []
            run.decide()
            message = translated(sent, run)
            assert message is not None, sent
        batch.append(message)
        gap = gaps[at % len(gaps)]
        if gap:
            run.deliver(batch, now=at + 1)
            batch = []
            run.decide(times=gap - 1)
            if restarts and gap > 1:
                run.restart()
    run.deliver(batch, now=len(messages))
    run.decide()
    return run


CHOSEN = st.lists(st.integers(0, 7), max_size=12)
GAPS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@pytest.mark.parametrize("decider", ["scripted", "live"])
@given(workflow=WITHOUT_WAITS, choices=CHOSEN, gaps=GAPS, restarts=st.booleans())
def test_without_waits_batching_changes_nothing_at_all(
    decider: str,
    workflow: Json,
    choices: list[int],
    gaps: list[int],
    restarts: bool,  # noqa: FBT001 - drawn
) -> None:
    alone, messages = one_by_one(workflow, choices)
    together = batched(workflow, messages, gaps, decider, restarts=restarts)
    assert together.exact == alone.exact
    together.close()


@pytest.mark.parametrize("decider", ["scripted", "live"])
@given(workflow=WITH_WAITS, choices=CHOSEN, gaps=GAPS, restarts=st.booleans())
def test_with_waits_the_steps_are_the_same(
    decider: str,
    workflow: Json,
    choices: list[int],
    gaps: list[int],
    restarts: bool,  # noqa: FBT001 - drawn
) -> None:
    alone, messages = one_by_one(workflow, choices)
    together = batched(workflow, messages, gaps, decider, restarts=restarts)
    assert together.steps == alone.steps
    assert together.over == alone.over
    together.close()


def same_in_all_ways(
    strategy: st.SearchStrategy[Json],
) -> Callable[..., None]:
    @given(workflow=strategy, choices=CHOSEN, gaps=GAPS)
    def check(workflow: Json, choices: list[int], gaps: list[int]) -> None:
        _, messages = one_by_one(workflow, choices)
        runs = [batched(workflow, messages, gaps, decider, restarts=False) for decider in DECIDERS]
        assert runs[0].exact == runs[1].exact == runs[2].exact
        for run in runs:
            run.close()

    return check


test_r25_frames_do_what_replays_do = same_in_all_ways(WITHOUT_WAITS)
test_r25_frames_do_what_replays_do_with_waits = same_in_all_ways(WITH_WAITS)
