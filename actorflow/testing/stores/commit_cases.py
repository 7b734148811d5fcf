"""Cases of `check_store`: what commits promise."""

# ruff: noqa: S101 - these checks consist of assertions

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    DuplicateKey,
    MessageRow,
    NewDead,
    NewExecution,
    NewMessage,
    Refusal,
    TaskResult,
    TaskRow,
    TimerRow,
    WatchRow,
    partition_of,
)
from actorflow.testing.stores.machine import (
    bodies,
    commit,
    created,
    messages,
    raised,
    settle,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store

__all__ = ["CASES"]


def a_race_has_one_winner(store: Store) -> None:
    revision = created(store)
    one = Change("a", expected=revision, state=b"one", messages=messages(b"1"), at=2.0)
    two = Change("a", expected=revision, state=b"two", messages=messages(b"2"), at=2.0)
    commit(store, one, two)
    assert one.committed
    assert not two.committed, "two changes with the same `expected` were committed"
    assert two.refusal == Refusal("raced", "a"), two.refusal
    assert not two.rows, "a change that was refused has no rows"
    assert state_of(store) == b"one"
    assert bodies(store) == [b"1"], "a refused change left its messages"
    third = Change("a", expected=one.revision, state=b"three", at=3.0)
    commit(store, third)
    assert third.committed, "the new revision is not the one that the state has"


def revisions_are_never_the_same(store: Store) -> None:
    revision = created(store)
    seen = [NEVER_RUN, revision]
    for number in range(5):
        change = Change("a", expected=seen[-1], state=b"same", at=float(number))
        commit(store, change)
        assert change.committed
        assert change.revision not in seen, "another revision after each commit of a state"
        seen.append(change.revision)


def a_state_can_be_added_to(store: Store) -> None:
    revision = created(store)
    wanted = b"0"
    for number in range(1, 8):
        more = Change("a", expected=revision, state=b"%d" % number, appends=True, at=2.0)
        late = Change("a", expected=revision, state=b"late", appends=True, at=2.0)
        commit(store, more, late)
        assert more.committed
        assert late.refusal == Refusal("raced", "a"), late.refusal
        wanted += b"%d" % number
        revision = more.revision
        assert state_of(store) == wanted, "additions follow the old state"
    assert store.executions(["a"])["a"].state == wanted
    assert [row.state for row in store.listing().rows] == [wanted]
    assert [row[4] for table, row in store.snapshot() if table == "executions"] == [wanted]
    whole = Change("a", expected=revision, state=b"new", at=3.0)
    commit(store, whole)
    assert state_of(store) == b"new", "without `appends` the whole state is replaced"
    twice = [Change("a", state=text, appends=True, at=4.0) for text in (b"er", b"est")]
    twice[0].expected, twice[1].status = whole.revision, "done"
    commit(store, twice[0])
    twice[1].expected = twice[0].revision
    commit(store, twice[1])
    assert state_of(store) == b"newerest"
    assert store.purge(before=5.0, keys_before=0.0) == 1
    first = Change("a", kind="k", expected=NEVER_RUN, state=b"first", appends=True, at=6.0)
    commit(store, first)
    assert state_of(store) == b"first", "of a state that was purged nothing is left"


def an_epoch_that_is_over_is_fenced(store: Store) -> None:
    epoch = store.owned()[partition_of("a", store.traits.partitions)]
    good = Change("a", kind="k", expected=NEVER_RUN, state=b"1", epoch=epoch)
    late = Change("a", epoch=epoch - 1, messages=messages(b"late"))
    commit(store, good, late)
    assert good.committed
    assert not late.committed
    assert late.refusal == Refusal("fenced", "a"), late.refusal
    assert bodies(store) == []


def kinds_must_not_clash(store: Store) -> None:
    created(store, kind="k")
    clash = Change("b", creates=[NewExecution("b", "k"), NewExecution("a", "other")])
    clash.messages = messages(b"1", to="b")
    same = Change("c", creates=[NewExecution("a", "k"), NewExecution("c", "k")])
    commit(store, clash, same)
    assert clash.refusal == Refusal("clash", "a"), clash.refusal
    assert store.execution("b") is None, "a refused change left an execution"
    assert bodies(store, "b") == []
    assert same.committed
    assert state_of(store) == b"0", "one that exists keeps its state"


def new_only_refuses_what_exists(store: Store) -> None:
    first = Change("a", creates=[NewExecution("a", "k", "p")], new_only=True, at=1.0)
    again = Change("a", creates=[NewExecution("a", "k", "q")], new_only=True, at=2.0)
    again.messages = messages(b"1")
    commit(store, first, again)
    assert first.committed
    assert again.refusal == Refusal("exists", "a"), again.refusal
    row = store.execution("a")
    assert row is not None
    assert (row.parent, row.created, row.revision) == ("p", 1.0, NEVER_RUN)
    assert bodies(store) == []


def a_key_is_used_once(store: Store) -> None:
    first = Change("a", at=1.0, messages=[NewMessage("a", "message", b"1", "key")])
    again = Change("a", at=2.0, messages=[NewMessage("a", "message", b"2", "key"),
                                          NewMessage("b", "message", b"3", "key")])  # fmt: skip
    commit(store, first, again)
    (row,) = first.rows
    assert isinstance(row, MessageRow)
    assert again.rows[0] == DuplicateKey(row.id, 1.0), again.rows[0]
    assert store.keyed("a", "key") == DuplicateKey(row.id, 1.0), store.keyed("a", "key")
    assert store.keyed("a", "another") is None
    assert isinstance(again.rows[1], MessageRow), "a key belongs to one execution"
    commit(store, Change("a", consumed=[row.id]))
    later = Change("a", at=3.0, messages=[NewMessage("a", "message", b"4", "key")])
    commit(store, later)
    assert later.rows[0] == DuplicateKey(row.id, 1.0), "a key outlives its message"
    assert bodies(store) == []
    store.purge(before=0.0, keys_before=2.0)
    commit(store, later)
    assert isinstance(later.rows[0], MessageRow), "purge has left an old key"


def rows_are_removed_before_others_are_added(store: Store) -> None:
    timer, task = TimerRow("a", "t", 5.0, b"old"), TaskRow("x", "a", "tasker", b"old")
    watch = WatchRow("a", "w", "k", b"old")
    commit(store, Change("a", timers=[timer], tasks=[task], watches=[watch]))
    new = (timer._replace(body=b"new"), task._replace(body=b"new"), watch._replace(body=b"new"))
    change = Change(
        "a", cancelled_timers=[("a", "t")], timers=[new[0]], finished_tasks=["x"], tasks=[new[1]],
        cancelled_watches=[("a", "w")], watches=[new[2]],
    )  # fmt: skip
    commit(store, change)
    assert (store.due(), store.open().rows, store.watches().rows) == ([new[0]], [new[1]], [new[2]])


def changes_are_applied_in_their_order(store: Store) -> None:
    timer, task = TimerRow("a", "t", 5.0, b""), TaskRow("x", "a", "tasker", b"")
    commit(
        store,
        Change("a", timers=[timer], tasks=[task], messages=messages(b"1")),
        Change("a", cancelled_timers=[("a", "t")], finished_tasks=["x"]),
        Change("a", tasks=[task], messages=messages(b"2")),
        Change("b", fired_timers=[(timer, NewMessage("a", "timer", b"never"))]),
    )
    assert store.due() == []
    assert store.open().rows == [task]
    assert bodies(store) == [b"1", b"2"]
    commit(store, Change("a", clear=True), Change("a", timers=[timer]))
    assert store.due() == [timer]
    later = TimerRow("a", "u", 6.0, b"")
    commit(store, Change("a", timers=[later]), Change("a", clear=True))
    assert store.due() == [], "what an earlier change of the commit added is cleared, too"


def clear_removes_all_but_what_is_kept(store: Store) -> None:
    full = Change(
        "a", messages=messages(b"1"), timers=[TimerRow("a", "t", 5.0, b"")],
        tasks=[TaskRow("x", "a", "tasker", b"")], watches=[WatchRow("a", "w", "k", b"")],
        history=[b"past"], dead=[NewDead(None, "a", "message", b"d", "why")],
    )  # fmt: skip
    other = Change("b", messages=messages(b"2", to="b"), timers=[TimerRow("b", "t", 5.0, b"")])
    commit(store, full, other)
    commit(store, Change("a", clear=True, messages=messages(b"new")))
    assert bodies(store) == [b"1", b"new"], "messages stay"
    assert [row.execution for row in store.due()] == ["b"]
    assert store.open().rows == []
    assert store.watches().rows == [], "clear removes watches, too"
    assert len(store.history("a").rows) == 1, "the history stays"
    assert len(store.dead(execution="a").rows) == 1, "dead letters stay"
    assert bodies(store, "b") == [b"2"]


def consumed_messages_are_gone_and_only_those(store: Store) -> None:
    first = Change("a", messages=[*messages(b"1", b"2", b"3"), *messages(b"4", to="b")])
    commit(store, first)
    ids = [row.id for row in first.rows]
    commit(store, Change("a", consumed=[ids[0], ids[2], ids[3]]))
    assert bodies(store) == [b"2"]
    assert bodies(store, "b") == [b"4"], "a message of another execution was consumed"


def attempts_are_counted(store: Store) -> None:
    first = Change("a", messages=messages(b"1", b"2"))
    commit(store, first)
    for _ in range(2):
        commit(store, Change("a", attempted=[first.rows[0].id]))
    assert [row.attempts for row in store.pending(execution="a").rows] == [2, 0]
    assert bodies(store) == [b"1", b"2"], "they keep their order"


def a_timer_fires_once(store: Store) -> None:
    timer, late = TimerRow("a", "t", 5.0, b""), TimerRow("a", "t", 9.0, b"")
    message = NewMessage("a", "timer", b"f")
    commit(store, Change("a", timers=[timer]))
    changes = [Change("a", fired_timers=[(timer, message), (timer, message)]),
               Change("a", fired_timers=[(timer, message)])]  # fmt: skip
    commit(store, *changes)
    assert [len(change.resulting_messages) for change in changes] == [1, 0]
    assert all(change.committed for change in changes)
    commit(store, Change("a", timers=[late]))
    moved = Change("a", fired_timers=[(timer, message)])
    commit(store, moved)
    assert not moved.resulting_messages, "a timer with another `due` has been set anew"
    assert store.due() == [late]
    assert bodies(store) == [b"f"]


def a_task_is_answered_once(store: Store) -> None:
    commit(store, Change("a", tasks=[TaskRow("x", "a", "tasker", b"")]))
    answer = TaskResult("x", NewMessage("a", "ended", b"done"))
    changes = [Change("a", task_results=[answer]), Change("a", task_results=[answer])]
    commit(store, *changes)
    assert [len(change.resulting_messages) for change in changes] == [1, 0]
    assert bodies(store) == [b"done"]
    assert store.task("x") is None


def a_task_is_retried_if_it_is_there(store: Store) -> None:
    task = TaskRow("x", "a", "tasker", b"body", 0, 1.0, 2.0, 3, 4, tell_start=True)
    commit(store, Change("a", tasks=[task]))
    again = TaskRow("x", "a", "another", b"progress", 2, 7.0, worker="w")
    commit(store, Change("a", retried=[again, again._replace(id="gone")]))
    changed = task._replace(body=b"progress", attempts=2, due=7.0, worker="w")
    assert store.open().rows == [changed], store.open().rows
    commit(store, Change("a", retried=[task]))
    assert store.task("x") == task, store.task("x")


def a_task_id_in_use_is_a_conflict_and_nothing_is_committed(store: Store) -> None:
    revision = created(store)
    commit(store, Change("a", tasks=[TaskRow("x", "a", "tasker", b"")]))
    changes = [
        Change("a", expected=revision, state=b"new", messages=messages(b"1"),
               timers=[TimerRow("a", "t", 5.0, b"")], history=[b"h"],
               watches=[WatchRow("a", "w", "k", b"")],
               dead=[NewDead(None, "a", "message", b"d", "why")],
               creates=[NewExecution("b", "k")]),
        Change("a", messages=[NewMessage("a", "message", b"2", "key")]),
        Change("b", tasks=[TaskRow("x", "b", "tasker", b"")]),
    ]  # fmt: skip
    before = list(store.snapshot())
    error = raised(StoreConflict, lambda: commit(store, *changes))
    assert error is not None, "the id of a task was taken twice"
    assert "x" in str(error), "the error names the id"
    assert not any(change.committed for change in changes)
    after = [each for each in store.snapshot() if each[0] != "meta"]
    assert after == [each for each in before if each[0] != "meta"], "half of a commit is left"
    keyed = Change("a", messages=[NewMessage("a", "message", b"2", "key")])
    commit(store, keyed)
    assert isinstance(keyed.rows[0], MessageRow), "a key of a commit that failed was kept"


def dead_letters_are_revived_or_buried_once(store: Store) -> None:
    first = Change("a", messages=messages(b"1", b"2"), at=1.0)
    commit(store, first)
    one, two = (row.id for row in first.rows)
    letters = [NewDead(one, "a", "message", b"1", "why"), NewDead(two, "a", "message", b"2", "so")]
    commit(store, Change("a", dead=letters, at=2.0))
    assert bodies(store) == [], "a dead letter is no longer a message"
    assert [(row.id, row.error, row.at) for row in store.dead().rows] == [
        (one, "why", 2.0),
        (two, "so", 2.0),
    ]
    revived = [
        Change(requeued_letters=[one], at=3.0),
        Change(requeued_letters=[one, two], purged_letters=[two], at=3.0),
    ]
    commit(store, *revived)
    assert [len(change.resulting_messages) for change in revived] == [1, 0]
    assert revived[0].resulting_messages[0].id not in (one, two), "ids are never used twice"
    assert bodies(store) == [b"1"]
    assert store.dead().rows == []
    assert store.dead_letter(two) is None


def ids_are_ordered_and_new(store: Store) -> None:
    seen = []
    for number in range(30):
        change = Change("a", messages=messages(b"x", b"y"), history=[b"h"])
        commit(store, change)
        seen += [row.id for row in change.rows]
        commit(store, Change("a", consumed=[change.rows[number % 2].id]))
    assert seen == sorted(set(seen)), "ids of one execution grow"


def commits_in_flight_are_decided_in_order(store: Store) -> None:
    revision = created(store)
    batches = [
        [Change("a", expected=revision, state=b"%d" % number, messages=messages(b"%d" % number))]
        for number in range(max(store.traits.in_flight, 2))
    ]
    for result in [store.commit(batch) for batch in batches]:
        assert result is None or store.traits.in_flight > 1, "`traits.in_flight` is 1"
        settle(result)
    assert [batch[0].committed for batch in batches] == [True] + [False] * (len(batches) - 1)
    assert state_of(store) == b"0"
    assert bodies(store) == [b"0"]
    lines = [store.commit([Change("b", messages=messages(b"%d" % n, to="b"))]) for n in range(20)]
    for line in lines:
        settle(line)
    assert bodies(store, "b") == [b"%d" % number for number in range(20)]


CASES: tuple[Callable[[Store], None], ...] = (
    a_race_has_one_winner,
    revisions_are_never_the_same,
    a_state_can_be_added_to,
    an_epoch_that_is_over_is_fenced,
    kinds_must_not_clash,
    new_only_refuses_what_exists,
    a_key_is_used_once,
    rows_are_removed_before_others_are_added,
    changes_are_applied_in_their_order,
    clear_removes_all_but_what_is_kept,
    consumed_messages_are_gone_and_only_those,
    attempts_are_counted,
    a_timer_fires_once,
    a_task_is_answered_once,
    a_task_is_retried_if_it_is_there,
    a_task_id_in_use_is_a_conflict_and_nothing_is_committed,
    dead_letters_are_revived_or_buried_once,
    ids_are_ordered_and_new,
    commits_in_flight_are_decided_in_order,
)
