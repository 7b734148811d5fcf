"""Races that the engine once had, put back one by one: the simulation must find every one.

Each comment says what users have seen. Most are items of the changelog before version 1, the
others were found by the simulation itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.cluster.ring import Member, Sweep
from actorflow.engine.commit.writer import Writer
from actorflow.engine.executions import stored_backlog
from actorflow.engine.executions.cancellation import _Again
from actorflow.engine.executions.lost_messages import LostMessages
from actorflow.engine.executions.ownership import Ownership
from actorflow.engine.executions.run import Run
from actorflow.engine.executions.stored_backlog import StoredBacklog
from actorflow.engine.tasks.table import TaskTable
from actorflow.engine.timers import Timers
from actorflow.runtime.errors import WorkerStopped
from actorflow.testing.simulation import FaultType, SimulatedStore
from tests.cluster.simulation.mutants import Mutants, skip, storm

if TYPE_CHECKING:
    import pytest

    from actorflow.cluster.ring import RingStep
    from actorflow.engine.stores.protocol import Change

RACES = Mutants()


# Commits whose outcome is unknown, or late.


@RACES.add(33)
def messages_of_a_repeated_commit_are_handed_over(patch: pytest.MonkeyPatch) -> None:
    # A message was processed twice if the answer to its commit was lost.
    patch.setattr(Writer, "repeats", property(lambda _: False, lambda *_: None), raising=False)


@RACES.add(1)
def the_outcome_of_a_commit_is_not_found_out(patch: pytest.MonkeyPatch) -> None:
    # A commit that met a lost connection was repeated, although it was stored.
    skip(patch, SimulatedStore, "_find_out")


@RACES.add(70, storm(FaultType.LEAVE, FaultType.STORE_SLOW, store_delay=(0.001, 0.3), partitions=4))
def late_answers_hand_messages_over(patch: pytest.MonkeyPatch) -> None:
    # A message was processed twice if its partition came back before its commit was answered.
    patch.setattr(Ownership, "delivers", Ownership.runs)


@RACES.add(52, storm(FaultType.PAUSE, store_loss=0.4))
def tasks_of_a_repeated_commit_are_handed_out(patch: pytest.MonkeyPatch) -> None:
    # A task was done again after its result was stored, if the answer to a commit was lost.
    hand_out = TaskTable.hand_out

    def at_once(table: TaskTable, rows: Any) -> None:
        writer: Any = table._writer
        repeats, writer.repeats = writer.repeats, False
        hand_out(table, rows)
        writer.repeats = repeats

    patch.setattr(TaskTable, "hand_out", at_once)


# Partitions that move.


@RACES.add(1, storm(FaultType.PAUSE, FaultType.STORE_SLOW, store_delay=(0.001, 0.3)))
def what_was_read_before_a_partition_was_lost_runs(patch: pytest.MonkeyPatch) -> None:
    # An execution ran in an engine that had lost it, from a page read before.

    def keeps(ownership: Ownership, execution: str, epoch: int | None) -> bool:
        return ownership.epoch_of(execution) == epoch

    patch.setattr(Ownership, "keeps", keeps)


@RACES.add(1)
def partitions_gained_and_lost_between_two_looks_are_kept(patch: pytest.MonkeyPatch) -> None:
    # A partition that was to be released was kept, if it was gained and lost in between.
    patch.setattr(SimulatedStore, "draining", lambda _store: ())


@RACES.add(9, storm(FaultType.PAUSE, partitions=2, loss=0.4))
def engines_without_partitions_look_at_nothing(patch: pytest.MonkeyPatch) -> None:
    # A task that was handed to an engine without partitions waited for ever.
    step = Member.step

    def idle(member: Member, now: float) -> RingStep:
        found = step(member, now)
        if not member.owned:
            kept = [each for each in found.actions if not isinstance(each, Sweep)]
            return found._replace(actions=kept)
        return found

    patch.setattr(Member, "step", idle)


# Executions that end, engines that are closed or killed.


@RACES.add(52)
def unstored_messages_of_a_stopped_execution_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    # The answer of a task was lost if its execution moved before it was processed.
    skip(patch, LostMessages, "_keep")


@RACES.add(3, storm(FaultType.LEAVE, store_delay=(0.001, 0.3), store_loss=0.2))
def batches_run_again_after_the_engine_was_closed(patch: pytest.MonkeyPatch) -> None:
    # A message was processed twice if the last commit of its engine was stored without an answer.
    refused = Run._refused

    def again(one: Run, change: Change, error: Exception | None) -> None:
        if error is not None and one.runner.state.closed:
            one.live.has_state = False
            one._done(WorkerStopped("the engine was closed before the commit"))
        else:
            refused(one, change, error)

    patch.setattr(Run, "_refused", again)


@RACES.add(35)
def kills_from_outside_count(patch: pytest.MonkeyPatch) -> None:
    # Messages became dead letters because their process was killed while others ran.
    patch.setattr(stored_backlog, "CRASHES", 0)


@RACES.add(1, storm(FaultType.STORE_FULL, FaultType.STORE_DOWN))
def refused_cancels_of_children_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    # A child that its parent had cancelled went on if the store was full just then.
    skip(patch, _Again, "resolve")


# Stores that cannot be read or written just then.


@RACES.add(71, storm(FaultType.STORE_DOWN))
def tasks_that_cannot_be_read_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    # An execution that took a task back waited for ever if the store could not be read.
    skip(patch, TaskTable, "_look_again")


@RACES.add(1, storm(FaultType.STORE_DOWN))
def messages_that_cannot_be_read_are_not_read_later(patch: pytest.MonkeyPatch) -> None:
    # Messages waited until the next restart if the store could not be read just then.
    skip(patch, StoredBacklog, "read_later")


@RACES.add(2)
def timers_whose_time_has_passed_do_not_fire(patch: pytest.MonkeyPatch) -> None:
    # A timer did not fire if its time passed while it was being stored.
    expect = Timers._expect

    def future(timers: Timers, due: float) -> None:
        if due > timers._clock.now():
            expect(timers, due)

    patch.setattr(Timers, "_expect", future)
