"""The register on Postgres: check-ins that renew, that take, and what they find waiting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from actorflow.cluster.ring import CheckIn
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.postgres.connections import PostgresAddress
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.engine.stores.postgres.store import PostgresStore
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage, TimerRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.servers import Postgres

ALL = tuple(range(64))


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.empty_url("register")


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


def renewal(store: PostgresStore) -> CheckIn:
    """Return what a member asks that owns everything."""
    hold = tuple((number, 1) for number in ALL)
    return CheckIn("a", 60.0, hold=hold)


def owner_of_all(store: PostgresStore) -> list[Sequence[str] | None]:
    """Take everything; return the list of wake-ups that follow."""
    store.check_in(CheckIn("a", 60.0, take=ALL))
    woken: list[Sequence[str] | None] = []
    store._wakes.append(woken.append)
    return woken


def test_c12_a_message_without_a_wake_up_is_found_by_the_second_check_in(
    store: PostgresStore,
) -> None:
    woken = owner_of_all(store)
    store.check_in(renewal(store))
    message = NewMessage("x", "message", b"\x01")
    store.commit([Change("x", creates=(NewExecution("x", "sum"),), messages=(message,))])
    store.check_in(renewal(store))
    assert woken == [], "its wake-up may be on its way"
    store.check_in(renewal(store))
    assert woken == [None]
    for _ in range(3):
        store.check_in(renewal(store))
    assert woken == [None], "it may wait: an inbox holds it back, or its kind is unknown"


def test_c18_an_overdue_timer_is_found_by_the_second_check_in(store: PostgresStore) -> None:
    woken = owner_of_all(store)
    timers = [TimerRow("x", "past", 5.0, b"\xc0"), TimerRow("x", "future", 1e12, b"\xc0")]
    store.commit([Change("x", creates=(NewExecution("x", "sum"),), timers=timers)])
    store.check_in(renewal(store))
    assert woken == []
    store.check_in(renewal(store))
    assert woken == [None]
    store.commit([Change("x", timers=[TimerRow("x", "past", 6.0, b"\xc0")])])
    store.check_in(renewal(store))
    store.check_in(renewal(store))
    assert woken == [None, None], "set again"


def test_c18_what_others_own_is_not_looked_at(store: PostgresStore) -> None:
    woken = owner_of_all(store)
    message = NewMessage("x", "message", b"\x01")
    store.commit([Change("x", creates=(NewExecution("x", "sum"),), messages=(message,))])
    for _ in range(3):
        store.check_in(CheckIn("b", 60.0))
    assert woken == []


def test_c3_many_members_that_renew_at_the_same_time_all_stay_members(url: str) -> None:
    names = [f"m{number}" for number in range(6)]
    stores = {name: PostgresStore(url) for name in names}

    def renew(name: str) -> None:
        for number in range(20):
            stores[name].check_in(CheckIn(name, 60.0, number=number + 1, busy=number))

    try:
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(renew, names))
        view = stores["m0"].check_in(CheckIn("m0", 60.0))
        assert list(view.ring) == names
        assert [member.busy for member in view.members[1:]] == [19] * 5, "none was overwritten"
    finally:
        for store in stores.values():
            store.close()


def test_c3_a_renewal_waits_for_no_transaction_that_reads_the_register(
    url: str, store: PostgresStore
) -> None:
    store.check_in(CheckIn("a", 60.0, take=ALL))
    with psycopg.connect(url.partition("?")[0]) as other:
        other.execute("SELECT * FROM register.register FOR KEY SHARE")
        other.execute("SELECT * FROM register.epochs FOR SHARE")
        view = store.check_in(renewal(store))
    assert {holding.owner for holding in view.holdings} == {"a"}


def test_c10_a_process_that_stands_still_in_a_pipeline_keeps_no_partition(
    store: PostgresStore, url: str
) -> None:
    """For the server it is active, so that no timeout ends its transaction and its locks."""
    with (
        suppress(psycopg.OperationalError),  # its connection is closed at the end
        PostgresAddress(url).connect() as stopped,
        stopped.pipeline(),
    ):
        read = qualified("SELECT epoch FROM {s}.epochs FOR SHARE", store.address.schema)
        locked = stopped.execute(read)
        stopped.pgconn.send_flush_request()
        assert len(locked.fetchall()) == len(ALL)  # it has its locks, and the pipeline goes on
        stopped.pgconn.send_query_params(b"SELECT 1", None)
        stopped.pgconn.send_flush_request()
        stopped.pgconn.flush()
        for _ in range(20):
            try:
                store.check_in(CheckIn("a", 60.0, take=ALL))
                break
            except StoreRefused:  # the rows are locked
                continue
    view = store.check_in(renewal(store))
    assert {holding.owner for holding in view.holdings} == {"a"}
