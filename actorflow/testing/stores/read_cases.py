"""Cases of `check_store` about reading, forgetting, copying and filling a store."""

# ruff: noqa: S101 - these checks consist of assertions

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreConflict
from actorflow.engine.stores.protocol import (
    NEVER_RUN,
    Change,
    DuplicateKey,
    MessageRow,
    NewDead,
    NewExecution,
    NewMessage,
    TaskRow,
    TimerRow,
    WatchRow,
)
from actorflow.testing.stores.comparison import read_all
from actorflow.testing.stores.machine import commit, created, messages, raised, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store

__all__ = ["CASES"]


def pages_hold_everything_once(store: Store) -> None:
    count = 23
    for number in range(count):
        name = f"e{number:03}"
        full = Change(
            name, creates=[NewExecution(name, "k", "parent")],
            messages=messages(b"1", b"2", to=name),
            tasks=[TaskRow(f"t{number}", "e", "tasker", b"")],
            watches=[WatchRow(name, "w", "k", b"")],
            dead=[NewDead(None, "e", "message", b"", str(number))],
            timers=[TimerRow("e", str(number), float(number), b"")],
        )  # fmt: skip
        commit(store, full, Change("e", history=[str(number).encode()]))
    for limit in (1, 7, count, 1_000):
        listed = [row.id for row in read_all(store.listing, limit, kind="k", parent="parent")]
        assert listed == [f"e{number:03}" for number in range(count)]
        pending = read_all(store.pending, limit, kind="k")
        assert len({row.id for row in pending}) == len(pending) == 2 * count
        tasks = [row.id for row in read_all(store.open, limit, tasker="tasker")]
        assert tasks == [f"t{number}" for number in range(count)]
        assert len(read_all(store.watches, limit)) == count
        errors = [row.error for row in read_all(store.dead, limit, execution="e")]
        assert errors == [str(number) for number in range(count)]
        past = read_all(lambda **options: store.history("e", **options), limit)
        assert [row.body for row in past] == [str(number).encode() for number in range(count)]
        assert len(store.due(limit)) == min(limit, count)


def purge_forgets_some_of_what_ended(store: Store) -> None:
    for number in range(10):
        name = f"e{number}"
        commit(
            store,
            Change(name, kind="k", expected=NEVER_RUN, status="done" if number % 2 else "active",
                   at=float(number), history=[b"h"], tags={"number": "any"},
                   dead=[NewDead(None, name, "message", b"", "why")]),
        )  # fmt: skip
    counts = [store.purge(before=8.0, keys_before=0.0, limit=3) for _ in range(3)]
    assert counts == [3, 1, 0], f"purges with limit=3 forgot {counts} of 4"
    left = [row.id for row in store.listing().rows]
    assert left == ["e0", "e2", "e4", "e6", "e8", "e9"], left
    assert store.tags("e1") == {}
    assert [row.id for row in store.listing(tags={"number": "any"}).rows] == left
    assert store.history("e1").rows == []
    assert store.dead(execution="e1").rows == []
    assert len(store.history("e2").rows) == 1


def purge_forgets_only_those_that_are_named(store: Store) -> None:
    for number in range(4):
        name = f"e{number}"
        commit(
            store,
            Change(name, kind="k", expected=NEVER_RUN, status="done" if number else "active",
                   at=float(number), history=[b"h"],
                   messages=[NewMessage(name, "message", b"", "key")]),
        )  # fmt: skip
    gone = store.purge(before=3.0, keys_before=9.0, only=["e0", "e1", "e1", "e3", "none"])
    assert gone == 1, "e0 has not ended, e3 not before 3.0, and there is no other"
    assert [row.id for row in store.listing().rows] == ["e0", "e2", "e3"]
    assert store.history("e1").rows == []
    for name, type_ in (("e1", MessageRow), ("e2", DuplicateKey)):
        again = Change(messages=[NewMessage(name, "message", b"", "key")], at=9.0,
                       creates=[NewExecution(name, "k")])  # fmt: skip
        commit(store, again)
        assert isinstance(again.rows[0], type_), f"the key of {name}"


def executions_are_found_by_all_of_their_tags(store: Store) -> None:
    revision = created(store, "a")
    created(store, "b")
    tagged = Change("a", expected=revision, state=b"1", tags={"customer": "c-7", "vip": "true"})
    commit(store, tagged)
    assert store.tags("a") == {"customer": "c-7", "vip": "true"}
    assert store.tags("b") == store.tags("nobody") == {}
    for search in ({"customer": "c-7"}, {"customer": "c-7", "vip": "true"}):
        assert [row.id for row in store.listing(tags=search).rows] == ["a"], search
    for search in ({"customer": "c-8"}, {"customer": "c-7", "vip": "false"}, {"c-7": "customer"}):
        assert store.listing(tags=search).rows == [], search
    assert store.listing(tags={"customer": "c-7"}, kind="other").rows == []
    kept = Change("a", expected=tagged.revision, state=b"2", status="done", clear=True)
    commit(store, kept)
    assert store.tags("a"), "`None` leaves the tags, and so does the end of an execution"
    late = Change("a", expected=tagged.revision, state=b"3", tags={"customer": "c-9"})
    commit(store, late, Change("a", tags={"customer": "c-10"}))
    assert store.tags("a")["customer"] == "c-7", "tags are set with the state, or not at all"
    commit(store, Change("a", expected=kept.revision, state=b"4", tags={"vip": "false"}))
    assert store.tags("a") == {"vip": "false"}, "new tags replace all that there were"
    assert store.listing(tags={"customer": "c-7"}).rows == []


def a_snapshot_is_of_one_moment(store: Store) -> None:
    count = 50
    for number in range(count):
        commit(store, Change(f"e{number:02}", kind="k", expected=NEVER_RUN, state=b"before",
                             messages=messages(b"before", to=f"e{number:02}")))  # fmt: skip
    rows = iter(store.snapshot())
    seen = [next(rows)]
    pages = read_all(store.listing, 100)
    commit(store, *(Change(row.id, expected=row.revision, state=b"after",
                           messages=messages(b"after", to=row.id)) for row in pages))  # fmt: skip
    seen += rows
    found = [row for table, row in seen if table == "executions"]
    assert len(found) == count
    assert {row[4] for row in found} == {b"before"}, "a snapshot saw a later commit"
    assert {row[3] for table, row in seen if table == "messages"} == {b"before"}


def only_an_empty_store_is_filled(store: Store) -> None:
    created(store)
    rows = list(store.snapshot())
    error = raised(StoreConflict, lambda: store.restore(iter(rows)))
    assert error is not None, "restore has filled a store that is not empty"
    assert len(store.listing().rows) == 1


def ids_must_be_text(store: Store) -> None:
    number: Any = 7
    for change in (
        Change(number, kind="k", expected=NEVER_RUN, state=b""),
        Change("a", messages=[NewMessage(number, "message", b"")]),
        Change("a", messages=[NewMessage("a", "message", b"", number)]),
        Change("a", creates=[NewExecution(number, "k")]),
        Change("a", timers=[TimerRow("a", number, 1.0, b"")]),
        Change("a", tasks=[TaskRow(number, "a", "tasker", b"")]),
        Change("a", watches=[WatchRow("a", number, "k", b"")]),
        Change("a", kind="k", expected=NEVER_RUN, tags={"customer": number}),
    ):
        error = raised(TypeError, partial(commit, store, change))
        assert error is not None, f"an id that is not text was taken: {change}"
        assert "7" in str(error), "the error names the value"
    assert [each for each in store.snapshot() if each[0] != "meta"] == []


def readers_see_whole_commits(store: Store) -> None:
    revision = created(store)
    done = threading.Event()
    faults: list[Any] = []

    def read() -> None:
        try:
            while not done.is_set():
                first = state_of(store)
                count = len(read_all(store.pending, 1_000, execution="a"))
                last = state_of(store)
                if not int(first) <= count <= int(last):
                    faults.append((first, count, last))
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits
            faults.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 100):
            change = Change("a", expected=revision, state=b"%d" % number, messages=messages(b"m"))
            commit(store, change)
            revision = change.revision
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not faults, f"a reader saw half of a commit, or failed: {faults[0]!r}"


CASES: tuple[Callable[[Store], None], ...] = (
    pages_hold_everything_once,
    purge_forgets_some_of_what_ended,
    purge_forgets_only_those_that_are_named,
    executions_are_found_by_all_of_their_tags,
    a_snapshot_is_of_one_moment,
    only_an_empty_store_is_filled,
    ids_must_be_text,
    readers_see_whole_commits,
)
