"""Directed cases: each is one promise that random steps may miss, and is reported by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.protocol import (
    Change,
    DuplicateKey,
    NewMessage,
)
from actorflow.testing.stores import commit_cases, read_cases
from actorflow.testing.stores.machine import commit, created, messages, raised, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store

__all__ = ["CASES", "DURABLE_CASES"]


def a_subscription_can_be_ended(store: Store) -> None:
    end = store.subscribe(lambda _executions: None)
    created(store)
    end()
    partitions = store.owned()
    assert set(partitions) <= set(range(store.traits.partitions))  # noqa: S101 - a failed check


def a_closed_store_refuses_everything(store: Store) -> None:
    created(store)
    store.close()
    store.close()
    calls: dict[str, Callable[[], Any]] = {
        "commit": lambda: settle(store.commit([Change("a", messages=messages(b"1"))])),
        "execution": lambda: store.execution("a"),
        "executions": lambda: store.executions(["a"]),
        "listing": store.listing,
        "tags": lambda: store.tags("a"),
        "pending": store.pending,
        "due": store.due,
        "open": store.open,
        "task": lambda: store.task("x"),
        "watches": store.watches,
        "history": lambda: store.history("a"),
        "dead": store.dead,
        "dead_letter": lambda: store.dead_letter(1),
        "keyed": lambda: store.keyed("a", "x"),
        "counts": lambda: store.counts(["a"]),
        "purge": lambda: store.purge(before=0.0, keys_before=0.0),
        "snapshot": lambda: list(store.snapshot()),
    }
    for name, call in calls.items():
        assert raised(StoreRefused, call) is not None, f"{name}() worked on a closed store"  # noqa: S101 - a failed check


CASES: tuple[Callable[[Store], None], ...] = (
    *commit_cases.CASES,
    *read_cases.CASES,
    a_subscription_can_be_ended,
    a_closed_store_refuses_everything,
)


def what_was_committed_is_there_again(store: Store, reopen: Callable[[Store], Store]) -> Store:
    """Return the store after it was closed and opened."""
    created(store)
    first = Change("a", messages=[NewMessage("a", "message", b"1", "key")], history=[b"h"])
    commit(store, first)
    before = [each for each in store.snapshot() if each[0] != "meta"]
    store.close()
    store = reopen(store)
    assert [each for each in store.snapshot() if each[0] != "meta"] == before  # noqa: S101 - a failed check
    again = Change("a", messages=[NewMessage("a", "message", b"2", "key")])
    commit(store, again)
    assert isinstance(again.rows[0], DuplicateKey), "a key was forgotten"  # noqa: S101 - a failed check
    return store


def ids_are_never_used_again(store: Store, reopen: Callable[[Store], Store]) -> Store:
    """Return the store after it was closed and opened."""
    seen: set[Any] = set()
    for _ in range(3):
        change = Change("a", messages=messages(b"1", b"2"))
        commit(store, change)
        ids = {row.id for row in change.rows}
        assert seen.isdisjoint(ids), "an id was used again after the store was reopened"  # noqa: S101 - a failed check
        assert not seen or min(ids) > max(seen), "ids grow, also after the store was reopened"  # noqa: S101 - a failed check
        seen |= ids
        commit(store, Change("a", consumed=sorted(ids)))
        store.close()
        store = reopen(store)
    return store


DURABLE_CASES: tuple[Callable[[Store, Callable[[Store], Store]], Store], ...] = (
    what_was_committed_is_there_again,
    ids_are_never_used_again,
)
