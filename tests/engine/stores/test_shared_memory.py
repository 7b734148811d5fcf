"""`memory://name`: several engines of one process share a store."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import actorflow as af
from actorflow.cluster.ring import CheckIn
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.memory.shared import SharedMemory, SharedMemoryStore, open_shared
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage, partition_of
from actorflow.runtime.errors import BadOption
from actorflow.testing.stores import check_store

NUMBERS = itertools.count()


def new_store() -> SharedMemoryStore:
    store = open_shared(f"memory://checked-{next(NUMBERS)}?partitions=4&lease=3600")
    store.join()
    return store


def test_a_shared_store_in_memory_keeps_every_promise() -> None:
    check_store(new_store, max_examples=10)


def test_the_status_of_a_shared_store_counts_its_members_and_messages() -> None:
    with af.Engine("memory://of-status?partitions=2") as engine:
        engine.tasker("desk", lambda _task: af.HOLD)
        exid = engine.launch("desk 'sign'", id="f")
        engine.flows.wait_for(exid, "task", timeout=10)
        found = engine.parts.store.status()  # type: ignore[attr-defined]
    assert [len(each.partitions) for each in found.members] == [2]
    assert found.members[0].executions == 1
    assert [tuple(each) for each in found.tasks] == [("desk", 1)]
    assert (found.partitions, found.unowned) == (2, ())


def test_engines_share_a_store_by_its_name() -> None:
    with af.Engine("memory://orders?partitions=2") as one, af.Engine("memory://orders") as two:
        for engine in (one, two):
            engine.resume()
        workers = [engine.worker("sum", add, state=0) for engine in (one, two)]
        for worker in workers:
            worker.push_block(1)
        assert [worker.state() for worker in workers] == [2, 2]
        assert one.parts.store.traits.shared


def add(batch: list[int], state: int) -> int:
    return state + sum(batch)


def test_a_shared_store_ends_with_the_last_engine_that_has_it_open() -> None:
    url = "memory://short-lived"
    one = open_store(url)
    two = open_store(url)
    one.commit([Change(creates=[NewExecution("x", "k")])])
    one.close()
    assert two.execution("x") is not None
    two.close()
    three = open_store(url)
    assert three.execution("x") is None
    three.close()


def test_memory_without_a_name_is_not_shared() -> None:
    assert type(open_store("memory://")) is MemoryStore


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://x?colour=red", "there is no option 'colour'; there are partitions, lease"),
        ("memory://x?partitions=none", "partitions='none' must be a number above 0"),
        ("memory://x?lease=-1", "lease='-1' must be a number above 0"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadOption, match=why.replace("?", r"\?")):
        open_store(url)


def test_the_number_of_partitions_is_that_of_the_first() -> None:
    first = open_store("memory://sized?partitions=3")
    with pytest.raises(BadOption, match="the store is open with 3 partitions"):
        open_store("memory://sized?partitions=4&lease=3600")
    first.close()


# Two views of one memory, at a time that the test sets.


class Shared:
    def __init__(self, partitions: int = 4) -> None:
        self.now = 100.0
        self.memory = SharedMemory(partitions, time=lambda: self.now)

    def store(self, name: str) -> Any:
        return SharedMemoryStore(self.memory, name)


def test_c5_an_epoch_that_is_over_is_refused() -> None:
    shared = Shared()
    a, b = shared.store("a"), shared.store("b")
    a.commit([Change(creates=[NewExecution("x", "k")])])
    mine = partition_of("x", 4)
    a.check_in(CheckIn("a", 3.0, take=(mine,)))
    old = Change("x", kind="k", expected=0, state=b"old", epoch=1)
    shared.now += 3.0
    b.check_in(CheckIn("b", 3.0, take=(mine,)))
    a.commit([old])
    b.commit([new := Change("x", kind="k", expected=0, state=b"new", epoch=2)])
    assert old.refusal is not None
    assert old.refusal.reason == "fenced"
    assert new.committed
    assert a.execution("x").state == b"new"


def test_others_hear_what_concerns_them() -> None:
    shared = Shared()
    a, b = shared.store("a"), shared.store("b")
    heard: list[Any] = []
    end = b.subscribe(heard.append)
    a.subscribe(lambda names: pytest.fail(f"it hears of its own commit: {names}"))
    a.commit([Change(creates=[NewExecution("x", "k")], messages=[NewMessage("x", "m", b"")])])
    assert heard == [("x",)]
    end()
    a.commit([Change(messages=[NewMessage("x", "m", b"")])])
    assert heard == [("x",)]


def test_a_store_that_was_filled_is_seen_by_all() -> None:
    source = MemoryStore()
    source.commit([Change(creates=[NewExecution("x", "k")])])
    shared = Shared()
    a, b = shared.store("a"), shared.store("b")
    a.restore(source.snapshot())
    assert b.execution("x") is not None
    b.commit([Change(creates=[NewExecution("y", "k")])])
    assert a.execution("y") is not None
