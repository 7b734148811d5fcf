"""A store on a real NATS server: what every store promises, and what this one can get wrong."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from nats.js import JetStreamContext

import actorflow as af
from actorflow.cluster.ring import CheckIn
from actorflow.cluster.server import free_port
from actorflow.engine.errors import OutcomeUnknown, StoreBroken, StoreRefused
from actorflow.engine.stores.nats import connection
from actorflow.engine.stores.nats import store as store_module
from actorflow.engine.stores.nats.log import VERSION
from actorflow.engine.stores.nats.records import Checked, Commit, Fill, Purge, decode, encode
from actorflow.engine.stores.nats.server import NatsServer
from actorflow.engine.stores.nats.store import NatsStore
from actorflow.engine.stores.protocol import (
    Change,
    NewDead,
    NewExecution,
    NewMessage,
    TaskResult,
    TaskRow,
    TimerRow,
    WatchRow,
    partition_of,
)
from actorflow.runtime.errors import BadOption
from actorflow.testing.stores import check_store
from tests.servers import start_nats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 20.0


@pytest.fixture
def opened() -> Iterator[Callable[..., NatsStore]]:
    """Return what opens stores, which are closed at the end."""
    made: list[NatsStore] = []

    def open_store(url: str, **options: Any) -> NatsStore:
        made.append(NatsStore(url, **options))
        return made[-1]

    yield open_store
    for store in made:
        store.close()


def message(execution: str, body: bytes = b"x") -> Change:
    new = NewExecution(execution, "k")
    return Change(creates=[new], messages=[NewMessage(execution, "m", body)], at=1.0)


def until(holds: Callable[[], bool], what: str) -> None:
    waiting = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if holds():
            return
        waiting.wait(0.02)
    pytest.fail(f"after {PATIENCE} s: {what}")


# --- promises of every store ---------------------------------------------------------------------


def alone(url: str) -> NatsStore:
    """Open a store, and own all of it."""
    store = NatsStore(url)
    store.join()
    until(lambda: len(store.owned()) == store.traits.partitions, "it owns everything")
    return store


def test_it_keeps_every_promise_of_a_store(new_url: Callable[..., str]) -> None:
    def reopen(store: Any) -> NatsStore:
        return alone(f"{store.address.servers[0]}/{store.address.name}")

    check_store(lambda: alone(new_url()), reopen=reopen, max_examples=3)


def test_a_record_is_the_same_after_it_was_written_and_read() -> None:
    task = TaskRow("t", "x", "tasker", b"b", 1, 2.0, 3.0, 4, 5, tell_start=True)
    timer = TimerRow("x", "timer", 5.0, b"t")
    change = Change(
        "x", "k", expected=3, state=b"s", appends=True, version=2, status="done", result=b"r",
        error=b"e", at=7.0, epoch=2, creates=[NewExecution("c", "k", "x")], new_only=True,
        clear=True, consumed=[1], attempted=[2], messages=[NewMessage("y", "m", b"b", "key")],
        timers=[timer], cancelled_timers=[("x", "old")],
        fired_timers=[(timer, NewMessage("x", "f", b""))],
        tasks=[task], retried=[task], finished_tasks=["z"],
        task_results=[TaskResult("t", NewMessage("x", "a", b"1"))],
        watches=[WatchRow("x", "w", "k", b"")],
        cancelled_watches=[("x", "v")], tags={"a": "b"}, history=[b"h"],
        dead=[NewDead(1, "x", "m", b"b", "no")], requeued_letters=[3], purged_letters=[4],
    )  # fmt: skip
    request = CheckIn("a-1", 6.0, ((1, 2),), (3,), ((4, 5),), taskers=("t",), busy=2)
    for record in (
        Commit([change, Change()]),
        Checked(request),
        Purge(1.0, 2.0, 3),
        Fill([("tags", ("x", "a", "b"))]),
    ):
        assert decode(encode("id", record)) == ("id", record)
    with pytest.raises(ValueError, match="cannot be read"):
        decode(b"nonsense")


# --- several engines -----------------------------------------------------------------------------


def test_c7_of_two_who_replace_a_state_one_is_refused(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    url = new_url()
    one, two = opened(url), opened(url)
    one.commit([message("x")])
    until(lambda: two.execution("x") is not None, "the other one reads it")
    first = Change("x", "k", expected=0, state=b"1")
    second = Change("x", "k", expected=0, state=b"2")
    barrier = threading.Barrier(2)

    def commit(store: NatsStore, change: Change) -> None:
        barrier.wait(PATIENCE)
        store.commit([change])

    other = threading.Thread(target=commit, args=(two, second))
    other.start()
    commit(one, first)
    other.join(PATIENCE)
    assert sorted((first.committed, second.committed)) == [False, True]
    loser = second if first.committed else first
    assert loser.refusal is not None
    assert loser.refusal.reason == "raced"


def test_c5_a_commit_under_an_epoch_that_is_over_is_refused_whole(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    url = new_url()
    one, two = opened(url), opened(url)
    one.commit([message("x")])
    partition = partition_of("x", one.traits.partitions)
    lease = 0.001  # over as soon as another record comes
    view = one.check_in(CheckIn("one", lease, take=(partition,)))
    assert view.holdings[partition].epoch == 1
    until(
        lambda: (
            two.check_in(CheckIn("two", 60.0, take=(partition,))).holdings[partition].epoch == 2
        ),
        "the other one takes it",
    )
    late = Change(
        "x", "k", expected=0, state=b"late", epoch=1, messages=[NewMessage("x", "m", b"")]
    )
    one.commit([late])
    assert (late.committed, late.refusal and late.refusal.reason) == (False, "fenced")
    row = two.execution("x")
    assert row is not None
    assert row.state is None


def test_c11_who_is_not_the_owner_is_woken_by_what_others_store(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    url = new_url()
    one, two = opened(url), opened(url)
    woken: list[Any] = []
    end = two.subscribe(woken.append)
    one.commit([message("x")])
    until(lambda: ("x",) in woken, "it is notified of the message")
    end()
    one.commit([message("y")])
    until(lambda: two.execution("y") is not None, "the other one reads it")
    assert ("y",) not in woken


@af.task
def double(number: int) -> int:
    return 2 * number


class Twice(af.Workflow[int]):
    def __init__(self, number: int) -> None:
        self.number = number

    def handle(self) -> int:
        return self.execute(double(self.execute(double(self.number))))


def test_workflows_are_run_by_whoever_owns_them_and_awaited_by_anybody(
    new_url: Callable[..., str],
) -> None:
    url = new_url(lease=2)
    with af.Engine(NatsStore(url, name="a")) as a, af.Engine(NatsStore(url, name="b")) as b:
        for engine in (a, b):
            engine.workflows.register(Twice)
            engine.resume()
        handles = [(a, b)[n % 2].start(Twice(n), id=f"w{n}") for n in range(20)]
        assert [each.result(timeout=PATIENCE) for each in handles] == [4 * n for n in range(20)]
    with af.Engine(NatsStore(url, name="c")) as c:
        c.workflows.register(Twice)
        assert c.result("w7", timeout=PATIENCE) == 28


# --- snapshots -----------------------------------------------------------------------------------


def test_a_store_is_read_from_its_snapshot_and_the_log_is_shortened(
    new_url: Callable[..., str],
    opened: Callable[..., NatsStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "_SNAPSHOT_EVERY", 50)
    url = new_url()
    first = opened(url)
    first.join()
    until(lambda: 0 in first.owned(), "it owns what it is alone with")
    task = TaskRow("t", "x", "tasker", b"b")
    first.commit([Change("x", "k", expected=0, state=b"s", tasks=[task], tags={"a": "b"})])
    first.commit([Change("x", dead=[NewDead(None, "x", "m", b"b", "no")])])
    for number in range(200):
        first.commit([message(f"m{number % 7}", b"%d" % number)])

    def length() -> int:
        log = first._log
        info = log.connection.call(log.js.stream_info(first.address.stream))
        return int(info.state.first_seq)

    until(lambda: length() > 50, "what the last but one snapshot has is removed from the log")
    again = opened(url)
    assert again._tables.dump() == first._tables.dump()
    # Both go on in the same way: each reads the same ids that the other assigns.
    change = message("new")
    again.commit([change])
    until(lambda: first.execution("new") is not None, "the first one reads it")
    assert again._tables.dump() == first._tables.dump()
    assert first.task("t") == task


# --- faults --------------------------------------------------------------------------------------


def test_c25_a_commit_that_is_larger_than_a_message_is_all_there(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    url = new_url()
    store = opened(url)
    large = bytes(range(256)) * 14_000  # 3.5 MB, where a message holds 1 MB
    store.commit([message("x", large), message("y")])
    again = opened(url)
    assert [row.body for row in again.pending(execution="x").rows] == [large]
    assert [row.body for row in again.pending(execution="y").rows] == [b"x"]


def test_c25_a_record_that_is_published_twice_counts_once(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    url = new_url()
    store = opened(url)
    data = encode("same", Commit([message("x")]))
    for _ in range(2):
        store._log.connection.call(store._log.append(data))
    store.commit([message("y")])  # comes after both
    assert len(store.pending(execution="x").rows) == 1
    assert len(opened(url).pending(execution="x").rows) == 1


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_c26_c27_a_server_that_dies_is_waited_for_and_nothing_is_lost(
    own_server: NatsServer, opened: Callable[..., NatsStore], how: str
) -> None:
    url = f"{own_server.url}/x"
    store = opened(url)
    store.commit([message("before")])
    getattr(own_server, how)()
    done = threading.Event()

    def commit() -> None:
        store.commit([message("while it is away")])
        done.set()

    thread = threading.Thread(target=commit)
    thread.start()
    own_server.start()
    assert done.wait(PATIENCE)
    thread.join(PATIENCE)
    store.commit([message("after")])
    for each in (store, opened(url)):
        names = [row.id for row in each.listing().rows]
        assert names == ["after", "before", "while it is away"]
        assert [len(each.pending(execution=name).rows) for name in names] == [1, 1, 1]


def test_c26_a_server_that_stays_away_makes_a_commit_fail_as_unknown(
    own_server: NatsServer, opened: Callable[..., NatsStore]
) -> None:
    store = opened(f"{own_server.url}/x?timeout=0.5")
    own_server.kill()
    with pytest.raises(OutcomeUnknown, match="is not known"):
        store.commit([message("x")])
    own_server.start()


def test_a_server_makes_the_directory_of_its_data(
    tmp_path: Path, opened: Callable[..., NatsStore]
) -> None:
    with NatsServer(tmp_path / "new" / "nats") as server:
        store = opened(f"{server.url}/x")
        store.commit([message("x")])
        store.close()
    assert (tmp_path / "new" / "nats" / "data").is_dir()


@pytest.mark.timeout(60)
def test_c26_an_engine_can_be_closed_whose_servers_are_away(
    own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_CLOSING", 0.3)
    engine = af.Engine(f"{own_server.url}/x?timeout=600")
    engine.launch("stall _")
    own_server.kill()
    engine.close()
    own_server.start()


def test_a_stream_that_is_deleted_is_an_error_that_says_so(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    store = opened(new_url(timeout=20))
    store.commit([message("x")])
    store._log.connection.call(store._log.js.delete_stream(store.address.stream))
    with pytest.raises(StoreBroken, match="is gone"):
        store.commit([message("y")])


def test_c28_a_stream_of_another_version_or_of_others_is_refused(
    new_url: Callable[..., str], opened: Callable[..., NatsStore]
) -> None:
    store = opened(new_url())
    js = store._log.js

    async def add(name: str, metadata: dict[str, str] | None) -> None:
        await js.add_stream(
            name=f"actorflow-{name}", subjects=[f"actorflow.{name}.log"], metadata=metadata
        )

    base = store.address.servers[0]
    store._log.connection.call(add("newer", {"actorflow": "99", "partitions": "64"}))
    store._log.connection.call(add("strange", None))
    with pytest.raises(StoreBroken, match=f"of version 99; this release reads version {VERSION}"):
        NatsStore(f"{base}/newer")
    with pytest.raises(StoreBroken, match="not one of actorflow's"):
        NatsStore(f"{base}/strange")


def test_no_server_is_an_error_that_says_where(own_server: NatsServer) -> None:
    own_server.stop()
    with pytest.raises(StoreRefused, match=rf"127\.0\.0\.1:{own_server.port}/x cannot be reached"):
        NatsStore(f"{own_server.url}/x")
    own_server.start()


def test_a_server_without_jetstream_is_refused() -> None:
    with start_nats(jetstream=False) as server, pytest.raises(StoreBroken, match="no JetStream"):
        NatsStore(f"{server.url}/x")


def test_servers_that_have_no_leader_yet_are_not_taken_for_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of three, which cannot be the majority alone."""
    monkeypatch.setattr(connection, "_OPENING", 3.0)
    start_nats(jetstream=False).close()  # skips the test without a server
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    cluster = f"cluster {{ name: trio, listen: 127.0.0.1:{ports[0]}, routes: [{routes}] }}"
    with (
        NatsServer(settings=["server_name: n1", cluster]) as server,
        pytest.raises(StoreRefused, match="have no leader for"),
    ):
        NatsStore(f"{server.url}/x?replicas=3")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("nats://localhost:4222", "names the store and either servers"),
        ("nats://localhost:4222/a.b", "names the store and either servers"),
        ("nats:///orders", "names the store and either servers"),
        ("nats://localhost/orders?colour=red", "'colour' in the URL is unknown"),
        ("nats://localhost/orders?lease=soon", "lease='soon' in the URL"),
        ("nats://localhost/orders?replicas=0", "replicas='0' in the URL"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused(url: str, text: str) -> None:
    with pytest.raises(BadOption, match=text):
        NatsStore(url)


def test_the_password_is_in_no_message() -> None:
    with pytest.raises(StoreRefused) as refused:
        NatsStore("nats://me:secret@127.0.0.1:1/orders")
    assert "secret" not in str(refused.value)


def test_a_closed_store_leaves_no_thread(new_url: Callable[..., str]) -> None:
    before = {thread.name for thread in threading.enumerate()}
    store = NatsStore(new_url())
    store.join()
    store.close()
    store.close()
    assert {thread.name for thread in threading.enumerate()} <= before
    with pytest.raises(StoreRefused):
        store.commit([message("x")])


def test_a_reader_that_misses_its_cancellation_does_not_keep_the_store_open(
    new_url: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, reached, missed = threading.Event(), threading.Event(), threading.Event()
    add = JetStreamContext.add_consumer

    async def misses(js: JetStreamContext, *args: Any, **options: Any) -> Any:
        made = await add(js, *args, **options)
        if not begun.is_set():
            begun.set()
            return made
        reached.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:  # as `asyncio.wait_for` before Python 3.12 may do
            missed.set()
        return made

    monkeypatch.setattr(JetStreamContext, "add_consumer", misses)
    store = NatsStore(new_url())
    assert begun.wait(PATIENCE)
    store._log.hurry()
    assert reached.wait(PATIENCE)
    store.close()
    assert missed.is_set()
