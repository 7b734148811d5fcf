"""Engines with one safeguard removed each: the simulation must notice every one.

Each function changes the real code for the time of a test.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.cluster import store_clock
from actorflow.cluster.membership import Membership
from actorflow.cluster.ring import Member
from actorflow.engine.commit.writer import Writer
from actorflow.engine.executions.admission_lane import InboxAdmission
from actorflow.engine.executions.cancellation import Cancellation
from actorflow.engine.executions.ownership import Ownership
from actorflow.engine.executions.run import Run
from actorflow.engine.executions.stored_backlog import StoredBacklog
from actorflow.engine.executions.table import ExecutionTable
from actorflow.engine.shared_store import Sharing
from actorflow.engine.stores.protocol import NEVER_RUN, Change
from actorflow.engine.tasks.remote import RemoteTasks
from actorflow.engine.tasks.table import TaskTable
from actorflow.engine.timers import Timers
from actorflow.testing.simulation import Fault, Faults, FaultType, SimulatedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from actorflow.cluster.ring import CheckIn
    from actorflow.engine.executions.loaded import LoadedExecution

    Mutant = Callable[[pytest.MonkeyPatch], None]


class Found(NamedTuple):
    """What notices a mutant."""

    seed: int
    faults: Callable[[int], Faults]


class Mutants(dict[str, "Mutant"]):
    """Changes of the real code by their names, each with the history that has noticed it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Found] = {}

    def add(
        self, seed: int, faults: Callable[[int], Faults] = Faults.drawn
    ) -> Callable[[Mutant], Mutant]:
        """Add a function; `seed` has noticed it, but any change of the engine may change that."""

        def add(change: Mutant) -> Mutant:
            name = change.__name__.replace("_", " ")
            self[name], self.found[name] = change, Found(seed, faults)
            return change

        return add


def storm(*types: FaultType, **rates: Any) -> Callable[[int], Faults]:
    """Return what draws a plan in which only such short faults happen, one after the other."""

    def drawn(seed: int) -> Faults:
        plan = replace(Faults.drawn(seed), **rates)
        faults = tuple(
            Fault(1.0 + 0.8 * number, types[number % len(types)], 0.6, (name,))
            for number, name in zip(range(13), cycle(plan.workers), strict=False)
        )
        return replace(plan, faults=faults)

    return drawn


MUTANTS = Mutants()


def skip(patch: pytest.MonkeyPatch, cls: type, name: str, result: Any = None) -> None:
    """Make a method do nothing."""
    patch.setattr(cls, name, lambda *_args, **_options: result)


# What the store checks.


def changed_commit(
    patch: pytest.MonkeyPatch, before: Callable[[SimulatedStore, Sequence[Change]], None]
) -> None:
    apply = SimulatedStore.apply

    def applied(store: SimulatedStore, changes: Sequence[Change]) -> None:
        before(store, changes)
        apply(store, changes)

    patch.setattr(SimulatedStore, "apply", applied)


@MUTANTS.add(29)
def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    refusal = SimulatedStore._refusal

    def unfenced(store: SimulatedStore, change: Change) -> Any:
        found = refusal(store, change)
        return None if found is not None and found.reason == "fenced" else found

    patch.setattr(SimulatedStore, "_refusal", unfenced)


@MUTANTS.add(8)
def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def forget(store: SimulatedStore, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.expected is not None:
                row = store.execution(change.execution)
                change.expected = NEVER_RUN if row is None else row.revision

    changed_commit(patch, forget)


@MUTANTS.add(0)
def no_idempotency_keys(patch: pytest.MonkeyPatch) -> None:
    def forget(_store: SimulatedStore, changes: Sequence[Change]) -> None:
        for change in changes:
            change.messages = [each._replace(key=None) for each in change.messages]

    changed_commit(patch, forget)


@MUTANTS.add(1)
def leases_are_taken_before_they_end(patch: pytest.MonkeyPatch) -> None:
    check_in = SimulatedStore.check_in

    def steal(store: SimulatedStore, request: CheckIn) -> Any:
        holdings = store._memory.roll.holdings
        for number in request.take:
            holdings[number] = holdings[number]._replace(until=0.0)
        return check_in(store, request)

    patch.setattr(SimulatedStore, "check_in", steal)


@MUTANTS.add(6)
def what_an_end_should_clear_stays(patch: pytest.MonkeyPatch) -> None:
    def forget(_store: SimulatedStore, changes: Sequence[Change]) -> None:
        for change in changes:
            change.clear = False

    changed_commit(patch, forget)


# Ownership.


@MUTANTS.add(19)
def runs_go_on_after_a_partition_is_lost(patch: pytest.MonkeyPatch) -> None:
    skip(patch, Ownership, "keeps", result=True)


@MUTANTS.add(34)
def leases_do_not_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "usable", lambda member, _now: (dict(member.owned), inf))


@MUTANTS.add(1)
def partitions_are_released_before_they_are_drained(patch: pytest.MonkeyPatch) -> None:
    release = Sharing._release_partitions

    def at_once(sharing: Sharing) -> None:
        for lives in sharing._leaving.values():
            lives.clear()
        release(sharing)

    patch.setattr(Sharing, "_release_partitions", at_once)
    skip(patch, ExecutionTable, "evict")


@MUTANTS.add(1)
def what_is_drained_is_not_released(patch: pytest.MonkeyPatch) -> None:
    skip(patch, Membership, "drained")


@MUTANTS.add(1)
def executions_of_lost_partitions_stay(patch: pytest.MonkeyPatch) -> None:
    skip(patch, Sharing, "evict")


@MUTANTS.add(0)
def gained_partitions_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    skip(patch, SimulatedStore, "look")


@MUTANTS.add(0)
def time_is_the_upper_bound(patch: pytest.MonkeyPatch) -> None:
    def note(clock: Any, *, asked: float, said: float, heard: float) -> None:
        del heard
        clock._ahead = said - asked

    patch.setattr(store_clock.StoreTime, "note", note)


# Messages.


@MUTANTS.add(0)
def the_backlog_is_not_recovered(patch: pytest.MonkeyPatch) -> None:
    skip(patch, StoredBacklog, "recover")


@MUTANTS.add(0)
def messages_of_others_are_not_read_while_one_is_live(patch: pytest.MonkeyPatch) -> None:
    skip(patch, StoredBacklog, "look_at")


@MUTANTS.add(2)
def what_was_handed_over_is_not_known(patch: pytest.MonkeyPatch) -> None:
    accumulate = InboxAdmission.accumulate

    def forgetful(
        admission: InboxAdmission, live: LoadedExecution, *args: Any, **options: Any
    ) -> Any:
        told = accumulate(admission, live, *args, **options)
        if live.seen_ids is not None:
            live.seen_ids.clear()
        return told

    patch.setattr(InboxAdmission, "accumulate", forgetful)


@MUTANTS.add(2)
def refused_commits_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    refuse = Writer._refuse

    def give_up(writer: Writer, groups: Any, error: Exception) -> None:
        refuse(writer, groups, error)
        writer._again.clear()

    patch.setattr(Writer, "_refuse", give_up)


@MUTANTS.add(3)
def runs_that_lose_a_race_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    refused = Run._refused

    def drop(one: Run, change: Change, error: Exception | None) -> None:
        if error is None and change.refusal is not None and change.refusal.reason == "raced":
            one._done()
        else:
            refused(one, change, error)

    patch.setattr(Run, "_refused", drop)


@MUTANTS.add(52)
def fenced_runs_keep_their_messages(patch: pytest.MonkeyPatch) -> None:
    def keep(one: Run) -> None:
        one._done()

    patch.setattr(Run, "_leave_to_owner", keep)


# Tasks and timers.


@MUTANTS.add(1)
def tasks_are_dispatched_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    submit = Run._submit

    def early(one: Run, change: Change, **options: Any) -> None:
        tasks: Any = one.live._owner.listeners.tasks  # type: ignore[attr-defined]
        tasks.hand_out(change.tasks)
        tasks._queue()
        submit(one, change, **options)

    patch.setattr(Run, "_submit", early)


@MUTANTS.add(1)
def tasks_are_not_dispatched(patch: pytest.MonkeyPatch) -> None:
    skip(patch, TaskTable, "hand_out")
    skip(patch, TaskTable, "resume")


@MUTANTS.add(1)
def stored_tasks_are_not_handed_out(patch: pytest.MonkeyPatch) -> None:
    skip(patch, TaskTable, "_read_on")


@MUTANTS.add(0)
def answered_tasks_stay(patch: pytest.MonkeyPatch) -> None:
    def forget(_store: SimulatedStore, changes: Sequence[Change]) -> None:
        for change in changes:
            change.finished_tasks = ()

    changed_commit(patch, forget)


@MUTANTS.add(197)
def the_second_answer_counts_too(patch: pytest.MonkeyPatch) -> None:
    end = TaskTable._end

    def hasty(table: TaskTable, row: Any, ended: Any, done: Any = None) -> None:
        table._contested.discard(row.id)
        end(table, row._replace(attempts=0), ended, done)

    patch.setattr(TaskTable, "_end", hasty)


@MUTANTS.add(0)
def lent_tasks_are_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    skip(patch, RemoteTasks, "_take_back")


@MUTANTS.add(0)
def lent_tasks_are_not_begun(patch: pytest.MonkeyPatch) -> None:
    skip(patch, RemoteTasks, "borrow")


@MUTANTS.add(0)
def tasks_for_others_are_not_lent(patch: pytest.MonkeyPatch) -> None:
    skip(patch, RemoteTasks, "lend", result=False)


@MUTANTS.add(0)
def timers_are_not_removed_when_they_fire(patch: pytest.MonkeyPatch) -> None:
    changes = Timers._changes

    def twice(timers: Timers, due: Any, now: float) -> list[Change]:
        made = changes(timers, due, now)
        for change in made:
            change.messages = [message for _, message in change.fired_timers]
            change.fired_timers = ()
        return made

    patch.setattr(Timers, "_changes", twice)


@MUTANTS.add(0)
def timers_fire_early(patch: pytest.MonkeyPatch) -> None:
    now = store_clock.StoreTime.now
    patch.setattr(store_clock.StoreTime, "now", lambda clock: now(clock) + 0.2)


@MUTANTS.add(1)
def timers_of_others_are_not_found(patch: pytest.MonkeyPatch) -> None:
    skip(patch, Timers, "start")


@MUTANTS.add(4)
def cancelling_ends_nothing(patch: pytest.MonkeyPatch) -> None:
    def lie(_cancellation: Cancellation, _execution: str, _target: Any, done: Any) -> None:
        done.resolve(None, True)  # noqa: FBT003 - an answer

    patch.setattr(Cancellation, "cancel", lie)
