"""The table of the pair: searched completely on paper, and compared with a model of the rules."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow
from actorflow.runtime.worker.pair.states import (
    TABLE,
    Facts,
    PairAction,
    PairEvent,
    PairState,
    Row,
    StopMode,
    Unexpected,
    advance,
    table_as_markdown,
)
from tests.runtime.worker.pair.paper_pair import NONE, Applied, Desk, Paper

S, E = PairState, PairEvent
WORKER = Path(actorflow.__file__).parent / "runtime" / "worker"
LIVE = {S.IDLE, S.RUNNING, S.WAITING}


def beginnings(*limits: int) -> list[Paper]:
    return [
        Paper(limit=limit, supervised=supervised, hooked=hooked)
        for limit, supervised, hooked in product(limits, (False, True), (False, True))
    ]


@cache
def everything() -> tuple[frozenset[Paper], tuple[Applied, ...]]:
    """Return every situation that there is, and every use of the table on the way."""
    todo = beginnings(1, 3)
    seen = set(todo)
    used: dict[tuple[PairState, PairEvent, Facts], Applied] = {}
    desk = Desk()
    while todo:
        for _, after in desk.successors(todo.pop()):
            if after not in seen:
                seen.add(after)
                todo.append(after)
        used.update(((one.before.state, one.event, one.facts), one) for one in desk.applied)
        desk.applied.clear()
    return frozenset(seen), tuple(used.values())


def row_of(state: PairState, event: PairEvent, facts: Facts) -> Row:
    return next(
        row
        for row in TABLE
        if row.event is event and state in row.sources and row.guard(facts)
    )  # fmt: skip


# --- the model: the rules of the pair in prose, as one function ----------------------------------


def state_after(state: PairState, event: PairEvent, facts: Facts) -> PairState:  # noqa: C901, PLR0911, PLR0912
    """Return the state that the rules ask for, written without looking at the table."""
    busy = facts.running > 0
    if state is S.DEAD:
        return S.DEAD
    if event is E.STOP:
        return stopped(state, facts)
    if event in (E.CRASHED, E.ABANDON):
        if state in (S.ALONE, S.PARKED):
            return S.ALONE
        stays = state is not S.STOPPING and (facts.supervised or event is E.ABANDON)
        return S.ALONE if stays else S.DEAD
    if event is E.START_FAILED:
        alone = state is S.SUSPENDING or (state is S.STARTING and not facts.first)
        return S.ALONE if alone else S.DEAD
    if event is E.ENDED:
        return S.ALONE if state is S.SUSPENDING else S.DEAD
    if event is E.SUSPEND:
        leaving = state in LIVE or state is S.STARTING
        return S.SUSPENDING if leaving else S.ALONE if state is S.PARKED else state
    if event in (E.REVIVED, E.TRIPPED, E.RESUMED):
        return {E.REVIVED: S.STARTING, E.TRIPPED: S.PARKED, E.RESUMED: S.ALONE}[event]
    if event is E.IDLE_LONG:
        return S.RUNNING
    if event is E.BROKEN:
        return S.RUNNING if state in LIVE or state is S.STARTING else state
    expected = {
        E.STARTED: {S.STARTING},
        E.PUSHED: {S.IDLE, S.RUNNING},
        E.DUE: {S.WAITING},
        E.MAIL: {S.WAITING},
        E.DONE: {S.RUNNING, S.WAITING},
    }[event]
    if state not in expected or facts.running >= facts.limit:
        return state
    if facts.mail or facts.ready:
        return S.RUNNING
    if facts.held:
        return S.WAITING
    return S.RUNNING if busy else S.IDLE


def stopped(state: PairState, facts: Facts) -> PairState:
    if facts.mode is StopMode.NOW or state in (S.ALONE, S.PARKED):
        return S.DEAD
    if facts.running or state is S.STARTING:
        return S.STOPPING
    left = facts.hooked or (facts.mode is StopMode.DRAIN and facts.held)
    if state is S.STOPPING:  # it waited for the held messages
        return S.STOPPING if left or facts.mode is StopMode.DRAIN else S.DEAD
    return S.STOPPING if left or facts.mail else S.DEAD


def check_use(one: Applied) -> None:
    """Check one use of the table against the rules."""
    before, steps = one.before, one.steps
    assert one.target is state_after(before.state, one.event, one.facts), one
    if before.state is S.DEAD:
        assert not steps, f"M6: nothing changes after the end: {one}"
    if PairAction.TOKEN_IN in steps and one.target in (S.IDLE, S.RUNNING):
        after = steps[steps.index(PairAction.TOKEN_IN) + 1 :]
        assert PairAction.LOOK_AGAIN in after, f"M4: the inbox is looked at afterwards: {one}"
    if PairAction.TAKE in steps:
        assert one.facts.running < one.facts.limit, f"M8: there is room: {one}"
        assert one.facts.ready, one
        assert not one.facts.mail, f"M9: mail comes before the next batch: {one}"
    if PairAction.SERVE in steps:
        assert one.facts.running == 0, f"M9: mail is served between batches: {one}"
    if before.state is S.WAITING and one.target is not S.WAITING:
        assert PairAction.CANCEL_TIMER in steps, (
            f"M11: the timer is cancelled on every way out: {one}"
        )
    if PairAction.SET_TIMER in steps:
        assert one.target in (S.WAITING, S.STOPPING), f"M11: {one}"
    if one.target is S.DEAD and before.state is not S.DEAD:
        assert steps[-1] is PairAction.TELL_ALL, one


def check_paper(paper: Paper) -> None:
    """Check a situation that events have led to."""
    may_start = paper.state in (S.IDLE, S.RUNNING) and not paper.alone and not paper.mail
    room = may_start and paper.running < paper.limit and paper.held == NONE
    announced = paper.state is S.IDLE or room or (paper.mail and paper.token)
    closed = paper.mode is not None or paper.state is S.DEAD
    assert paper.token == (announced or closed) or paper.broken, f"M3: {paper}"
    assert paper.running <= paper.limit, f"M8: {paper}"
    assert not (paper.alone and paper.running > 1), f"M9: {paper}"
    assert not paper.timer or paper.state in (S.WAITING, S.STOPPING), f"M11: {paper}"
    assert paper.timer or paper.state is not S.WAITING, f"M11: {paper}"
    assert paper.told == (paper.state is S.DEAD), paper
    busy = paper.state in (S.RUNNING, S.SUSPENDING) or (
        paper.state is S.STOPPING and not paper.timer
    )
    assert not busy or paper.running, f"somebody must go on: {paper}"
    if paper.state in (S.IDLE, S.ALONE, S.PARKED, S.DEAD):
        assert paper.running == 0, paper


# --- the rules -----------------------------------------------------------------------------------


UNEXPECTED = {
    E.STARTED: {S.IDLE, S.RUNNING, S.WAITING, S.ALONE, S.PARKED, S.DEAD},
    E.START_FAILED: {S.IDLE, S.RUNNING, S.WAITING, S.ALONE, S.PARKED, S.DEAD},
    E.PUSHED: set(),
    E.DUE: set(),
    E.MAIL: set(),
    E.IDLE_LONG: set(S) - {S.IDLE},
    E.DONE: {S.STARTING, S.IDLE, S.ALONE, S.PARKED, S.DEAD},
    E.BROKEN: set(),
    E.CRASHED: {S.STARTING, S.ALONE, S.PARKED, S.DEAD},
    E.ENDED: set(S) - {S.SUSPENDING, S.STOPPING},
    E.REVIVED: set(S) - {S.ALONE, S.DEAD},
    E.TRIPPED: set(S) - {S.ALONE, S.DEAD},
    E.RESUMED: set(S) - {S.PARKED},
    E.SUSPEND: set(),
    E.ABANDON: set(),
    E.STOP: {S.DEAD},
}
"""The events that a state never sees. Whatever an executor that was cut off comes to is ignored by
the shell, because its generation is over; a pair that has ended is not asked to stop."""


@pytest.mark.parametrize("event", PairEvent)
def test_m2_an_event_has_a_row_for_all_facts_or_is_unexpected(event: PairEvent) -> None:
    for state in PairState:
        for facts in all_facts():
            if state in UNEXPECTED[event]:
                with pytest.raises(Unexpected, match=f"{event.name} came in state {state.name}"):
                    advance(state, event, facts)
                break
            advance(state, event, facts)


def all_facts() -> list[Facts]:
    yes_or_no = (False, True)
    return [
        Facts(
            running=running, limit=limit, held=held, ready=ready, mail=mail,
            supervised=supervised, first=first, hooked=hooked, mode=mode,
        )
        for running, limit, (held, ready), mail, supervised, first, hooked, mode in product(
            range(3), (1, 2), ((False, False), (True, False), (True, True)),
            yes_or_no, yes_or_no, yes_or_no, yes_or_no, (None, *StopMode),
        )
        if running <= limit
    ]  # fmt: skip


IMPOSSIBLE = {
    (E.PUSHED, S.RUNNING, "mail"),  # that RUNNING means that something is under way
    (E.PUSHED, S.RUNNING, "nothing held"),
    (E.SUSPEND, S.RUNNING, ""),
    (E.PUSHED, S.IDLE, "mail, under way"),  # and IDLE that nothing is
    (E.PUSHED, S.IDLE, "nothing held, under way"),
    (E.SUSPEND, S.IDLE, "under way"),
    (E.CRASHED, S.SUSPENDING, "not supervised"),  # only supervisors suspend
}
"""Sources that share a row with another one, without the situation that it is for."""


def test_m2_every_row_can_happen_from_every_state_that_it_names() -> None:
    _, uses = everything()
    used = {(id(row_of(u.before.state, u.event, u.facts)), u.before.state) for u in uses}
    unused = {
        (row.event, state, row.when)
        for row in TABLE
        for state in row.sources
        if (id(row), state) not in used
    }
    assert unused == IMPOSSIBLE
    assert {row for row, _ in used} == {id(row) for row in TABLE}


def test_m2_no_row_is_hidden_by_earlier_ones() -> None:
    facts = all_facts()
    for row in TABLE:
        assert any(row_of(row.sources[0], row.event, f) is row for f in facts if row.guard(f)), row


def test_m3_m4_m6_m8_m9_m11_every_use_of_the_table_holds_the_rules() -> None:
    papers, uses = everything()
    for one in uses:
        check_use(one)
    for paper in papers:
        check_paper(paper)
    assert {paper.state for paper in papers} == set(S)


@given(st.sampled_from(beginnings(1, 2, 4)), st.lists(st.integers(0, 1_000), max_size=40))
def test_m3_m4_m6_m8_m9_m11_hold_on_random_walks(paper: Paper, choices: list[int]) -> None:
    desk = Desk()
    for choice in choices:
        options = list(desk.successors(paper))
        paper = options[choice % len(options)][1]
        check_paper(paper)
    for one in desk.applied:
        check_use(one)


def test_m6_a_pair_that_has_ended_stays_as_it_is() -> None:
    papers, _ = everything()
    desk = Desk()
    for paper in papers:
        if paper.state is S.DEAD:
            for _, after in desk.successors(paper):
                assert after.state is S.DEAD
                assert after.token


def test_every_stop_ends_if_what_is_under_way_ends() -> None:
    papers, _ = everything()
    desk = Desk()
    progress = {"started", "ended", "done", "timer"}
    for paper in papers:
        steps = 0
        while paper.state is S.STOPPING:
            options = dict(desk.successors(paper))
            paper = options[next(name for name in options if name in progress)]  # noqa: PLW2901
            steps += 1
            assert steps < 20, paper


def test_the_page_prints_the_table() -> None:
    page = Path(actorflow.__file__).parent.parent / "docs" / "pair.md"
    assert table_as_markdown() in page.read_text(encoding="utf-8"), (
        "docs/pair.md is out of date; print states.table_as_markdown() into it"
    )


def test_a_stronger_stop_replaces_a_weaker_one_never_the_reverse() -> None:
    drain, finish, now = StopMode.DRAIN, StopMode.FINISH, StopMode.NOW
    assert [m.stronger_than(None) for m in (drain, finish, now)] == [True] * 3
    assert now.stronger_than(finish)
    assert finish.stronger_than(drain)
    assert not any(m.stronger_than(m) for m in StopMode)
    assert not drain.stronger_than(now)
