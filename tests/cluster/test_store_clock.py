"""C19: the store's clock decides when timers are due, however wrong the workers' clocks are."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import actorflow as af
from actorflow.cluster.store_clock import StoreTime
from tests.cluster.processes import PATIENCE, until, workers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


FLOW = """
sequence
  task 'alice'
  sleep '2s'
  task 'alice'
"""


@example(0.0, [(0.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 2.0, 0.0)])
@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 2.0), st.floats(0.0, 1.0)), min_size=1),
)
def test_c19_the_time_is_known_as_well_as_the_quickest_answer_says_it(
    ahead: float, answers: list[tuple[float, float, float]]
) -> None:
    clock, now = StoreTime(), 0.0
    for pause, took, part in answers:
        now += pause
        clock.note(asked=now, said=now + took * part + ahead, heard=now + took)
        now += took
    best = min(took for _, took, _ in answers)
    late = now + ahead - clock.at(now)
    assert -1e-6 <= late <= best + 0.05 * now + 1e-6, "it is never ahead of the store's clock"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("skew", [3_600, -3_600])
def test_c19_a_timer_of_a_worker_whose_clock_is_wrong_fires_in_time(
    store_url: Callable[..., str], tmp_path: Path, skew: int
) -> None:
    url = store_url(lease=3)
    with (
        workers(url, tmp_path, "wrong", skew=skew) as (wrong,),
        af.Engine(url, worker=False) as client,
    ):
        exid = client.launch(FLOW, payload={"n": 0})
        due: list[float] = []

        def is_set_or_over() -> bool:
            due.extend(timer.due for timer in client.parts.store.due())
            return bool(due) or client.execution(exid).status == "done"

        until(is_set_or_over, "the timer was not set")
        with workers(url, tmp_path, "right"):
            wrong.leave()
            assert client.result(exid, timeout=PATIENCE)["n"] == 2
        row = client.parts.store.execution(exid)
        assert row is not None
        for each in (row.updated, *due):
            assert abs(each - time()) < PATIENCE, "it is off by an hour"
