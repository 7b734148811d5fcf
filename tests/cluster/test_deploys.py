"""Workers are replaced by others that have newer code, while work goes on."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.stores.opening import open_store
from actorflow.engine.stores.protocol import partition_of
from actorflow.workflows.versions import code_version
from tests.cluster.deploys import new, old
from tests.cluster.processes import PATIENCE, until, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.cluster.status import ClusterStatus

FLOW = """
sequence
  task 'alice'
  sleep '0.3s'
  task 'alice'
"""
AGE = 20  # orders that are not paid at any moment
PATHS = {code_version(old.Order): "old", code_version(new.Order): "new"}


def store_of(engine: af.Engine) -> Any:
    return engine.parts.store


def versions_of(handle: Any) -> list[str]:
    """Return which code has run an instance."""
    view = handle.query()
    return [] if view is None else [each.version for each in view.versions]


def error_of(handle: Any) -> str | None:
    """Return what a decision has failed with."""
    error = handle.query().state.error
    return None if error is None else str(error["name"])


def kinds_waiting(client: af.Engine) -> dict[str, int]:
    status: ClusterStatus = store_of(client).status()
    return status.kinds


@pytest.mark.timeout(180)
@pytest.mark.parametrize("leaves", ["old", "new"])
def test_c16_an_instance_waits_for_the_code_that_has_begun_it(
    store_url: Callable[..., str], leaves: str
) -> None:
    url = store_url(lease=6)
    with ExitStack() as stack:
        client = stack.enter_context(af.Engine(url, worker=False))
        engines = {
            name: stack.enter_context(af.Engine(open_store(url, name=name)))
            for name in ("old", "new")
        }
        new.setup(engines["new"])
        engines["new"].resume()
        orders = [client.start(old.Order(f"o{n}"), id=f"o{n}") for n in range(12)]
        until(lambda: all(map(versions_of, orders)), "the orders do not begin")
        old.setup(engines["old"])
        engines["old"].resume()
        until(lambda: len(store_of(engines["old"]).owned()) == 32, "they do not share")
        for order in orders:
            order.send("paid")
        owned = store_of(engines["old"]).owned()
        stay = {each.id for each in orders if partition_of(each.id, 64) in owned}
        until(
            lambda: kinds_waiting(client) == {"workflow:Order": len(stay)},
            "instances that wait for other code are not seen",
        )
        for order in orders:
            if order.id not in stay:
                assert order.result(timeout=PATIENCE) == "new"
        engines[leaves].close()
        for order in orders:
            if leaves == "old" or order.id not in stay:
                assert order.result(timeout=PATIENCE) == "new"
            else:  # nobody has the code any more, and everybody sees it
                until(lambda: error_of(order) == "WorkflowModified", "it waits forever")  # noqa: B023 - now


@pytest.mark.timeout(240)
def test_c08_c16_workers_are_replaced_by_newer_ones_and_no_execution_is_stranded(
    store_url: Callable[..., str], tmp_path: Path
) -> None:
    """The lease is longer than the test may take: nothing waits for its end."""
    url = store_url(lease=30)
    flows: list[str] = []
    orders: list[Any] = []
    unpaid: list[Any] = []
    gifts: list[Any] = []
    over = threading.Event()
    with ExitStack() as stack:
        client = stack.enter_context(af.Engine(url, worker=False))
        before = stack.enter_context(workers(url, tmp_path, "a", "b", "c", app=old.__name__))
        first = [client.start(old.Order(f"first{n}"), id=f"first{n}") for n in range(12)]
        until(lambda: all(map(versions_of, first)), "the first orders do not begin")

        def load() -> None:
            while not over.wait(0.05):
                flows.append(client.launch(FLOW, payload={"n": 0}))
                name = f"order{len(orders)}"
                orders.append(client.start(old.Order(name), id=name))
                unpaid.append(orders[-1])
                if len(unpaid) > AGE:
                    unpaid.pop(0).send("paid")

        loading = threading.Thread(target=load)
        loading.start()
        try:
            for number, worker in enumerate(before):
                stack.enter_context(workers(url, tmp_path, f"new{number}", app=new.__name__))
                begun = len(orders)
                gifts.append(client.start(new.Gift(), id=f"gift{number}"))
                worker.leave()
                until(lambda: len(orders) > begun, "nothing can be started")  # noqa: B023 - now
        finally:
            over.set()
            loading.join()
        for each in (*first, *unpaid, *gifts):
            each.send("paid")
        assert [each.result(timeout=PATIENCE) for each in gifts] == ["given"] * 3
        assert [order.result(timeout=PATIENCE) for order in first] == ["old"] * len(first)
        for order in orders:
            assert order.result(timeout=PATIENCE) == PATHS[versions_of(order)[0]], order.id
        assert [client.result(flow, timeout=PATIENCE)["n"] for flow in flows] == [2] * len(flows)
