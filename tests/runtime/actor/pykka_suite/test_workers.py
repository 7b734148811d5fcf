"""Workers answer to pykka's ways: tell, ask, proxies, stop."""

from __future__ import annotations

from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Unique
from tests.runtime.worker.probe import PATIENCE


def test_workers_answer_to_pykkas_ways() -> None:
    seen: list[Any] = []
    with af.spawn(lambda batch, state: seen.extend(batch), state=3) as worker:
        worker.tell(1)
        assert worker.ask(2, timeout=PATIENCE) is None  # it is accumulated
        assert worker.is_alive()
        assert worker.actor_class is type(worker.actor)
        assert worker.actor_urn.startswith("urn:uuid:")
        proxy: Any = worker.proxy()
        assert proxy.name.get(timeout=PATIENCE) is None
        inner: Any = worker.executor.proxy()
        worker.push_block(3)
        assert inner.state.get(timeout=PATIENCE) is None
    assert seen == [1, 2, 3]
    assert not worker.is_alive()
    assert worker.actor_stopped.is_set()


def test_a_refused_ask_raises_and_the_worker_lives() -> None:
    with af.spawn(lambda batch, state: None, behaviour=Unique) as worker:
        with pytest.raises(af.Malformed):
            worker.ask(5, timeout=PATIENCE)
        worker.tell(5)
        assert worker.ask(("a", 1), timeout=PATIENCE) is None
        assert worker.statistics().rejected == 2


def test_stopping_through_the_executors_ref_drains_the_worker() -> None:
    seen: list[Any] = []
    worker = af.spawn(lambda batch, state: seen.extend(batch))
    worker.push_many([1, 2, 3])
    assert worker.executor.stop(timeout=PATIENCE) is True
    assert seen == [1, 2, 3]
    assert not worker.is_alive()
    assert worker.executor.stop(timeout=PATIENCE) is False
