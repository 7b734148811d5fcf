"""Partitions go from one engine to another while the engines are busy with something else."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest

import actorflow as af
from actorflow.engine.stores.opening import open_store
from tests.cluster.processes import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.stores.protocol import SharedStore

PATIENCE = 60.0


@pytest.fixture
def store_url(store_url: Callable[..., str]) -> str:
    """Return what names a store that is empty, with leases of 6 s."""
    return store_url(lease=6)


def store_of(engine: af.Engine) -> SharedStore:
    return cast("SharedStore", engine.parts.store)


def shares(engines: Sequence[af.Engine]) -> list[int]:
    return [len(store_of(engine).owned()) for engine in engines]


@pytest.mark.timeout(180)
def test_a_partition_is_handed_on_that_was_gained_and_lost_between_two_looks(
    store_url: str,
) -> None:
    gate = threading.Event()
    with ExitStack() as stack:
        first, second, third = engines = [
            stack.enter_context(af.Engine(open_store(store_url, name=name))) for name in "abc"
        ]
        stack.callback(gate.set)
        first.resume()
        until(lambda: shares(engines)[0] > 0, "the first engine got nothing")
        total = shares(engines)[0]
        second.resume()
        second.parts.writer.call(lambda: cast("None", gate.wait(PATIENCE)))
        until(lambda: shares(engines)[:2] == [total // 2, total // 2], "they do not share")
        third.resume()
        until(lambda: len(store_of(second).draining()) > 0, "the second gives nothing away")
        gate.set()
        until(
            lambda: min(found := shares(engines)) >= total // 3 and sum(found) == total,
            "something is given to nobody",
        )
