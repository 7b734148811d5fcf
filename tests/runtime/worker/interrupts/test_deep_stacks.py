"""A producer close to the recursion limit gets RecursionError, and its worker goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Coalesce, Debounce, Linger, Priority, Queue, Unique
from actorflow.runtime.lanes import headroom
from actorflow.runtime.lanes.pool import POOL, ThreadPool
from tests.runtime.worker.probe import PATIENCE, Caller
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES = range(1, 70)


def key(message: int) -> int:
    return message


BEHAVIOURS: dict[str, Callable[[], Any]] = {
    "queue": Queue,
    "unique": lambda: Unique(key),
    "coalesce": lambda: Coalesce(key, max),
    "priority": lambda: Priority(key),
    "linger": lambda: Linger(Queue(), 0.001, size=2),
    "debounce": lambda: Debounce(Queue(), 0.001),
    "bounded": lambda: Bounded(Queue(), 1_000),
    "block": lambda: Bounded(Unique(key), 1_000, when_full="block"),
}
VERBS: dict[str, Callable[[af.WorkerRef, int], object]] = {
    "push": lambda worker, message: worker.push(message),
    "push_many": lambda worker, message: worker.push_many([message]),
    "push_ack": lambda worker, message: worker.push_ack(message),
    "push_block": lambda worker, message: worker.push_block(message, timeout=PATIENCE),
    "ask": lambda worker, message: worker.ask(message, timeout=PATIENCE),
}


def depth() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def close_to_the_limit(left: int, call: Callable[[], object]) -> None:
    """Call a function when about so many frames are left."""

    def descend(more: int) -> None:
        if more > 0:
            descend(more - 1)
        else:
            call()

    descend(sys.getrecursionlimit() - depth() - left)


def end(worker: af.WorkerRef, sent: set[int], processed: list[int]) -> None:
    """Push once more from a shallow stack; everything that was sent must be processed."""
    worker.push_block(10**6, timeout=PATIENCE)
    worker.stop(timeout=PATIENCE)
    counts = check_law(worker)
    assert worker.exit_reason == af.Normal()
    assert counts.held == counts.in_flight == 0
    assert sent <= set(processed)
    assert len(processed) == len(set(processed)) == counts.processed


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_m13_a_producer_close_to_the_recursion_limit_leaves_a_worker_that_works(
    behaviour: str, verb: str
) -> None:
    processed: list[int] = []
    sent: set[int] = set()

    def job(batch: list[int], _state: Any) -> af.Answers:
        processed.extend(batch)
        return af.Answers(None, batch)

    worker = af.spawn(job, behaviour=BEHAVIOURS[behaviour]())

    def push() -> None:
        for left in FRAMES:
            try:
                close_to_the_limit(left, lambda: VERBS[verb](worker, left))  # noqa: B023
            except RecursionError:
                continue
            sent.add(left)

    Caller(push).value()
    assert sent
    end(worker, sent, processed)


def test_a_worker_whose_lane_has_no_thread_yet_is_not_left_in_its_queue() -> None:
    """The lane starts its first thread for a push, which takes more calls than the push itself."""
    for left in FRAMES:
        pool = ThreadPool(core=1)
        processed: list[int] = []
        sent: set[int] = set()
        worker = af.spawn(lambda batch, _state: processed.extend(batch), executor=pool)  # noqa: B023

        def push() -> None:
            try:
                close_to_the_limit(left, lambda: worker.push(left))  # noqa: B023
            except RecursionError:
                return
            sent.add(left)  # noqa: B023

        Caller(push).value()
        assert worker.is_idle or pool.statistics().threads
        end(worker, sent, processed)
        pool.close()


def test_the_first_push_to_a_thread_of_its_own_loses_no_token() -> None:
    """The first push starts the thread, with the help of another thread."""
    for left in FRAMES:
        processed: list[int] = []
        sent: set[int] = set()
        worker = af.spawn(lambda batch, _state: processed.extend(batch), executor="thread")  # noqa: B023

        def push() -> None:
            try:
                close_to_the_limit(left, lambda: worker.push(left))  # noqa: B023
            except RecursionError:
                return
            sent.add(left)  # noqa: B023

        Caller(push).value()
        end(worker, sent, processed)


def test_without_headroom_the_worker_would_hang_or_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above notices a worker that is left half changed."""
    from actorflow.runtime.worker.pair import offers  # noqa: PLC0415 - for this test alone

    monkeypatch.setattr(offers, "require_headroom", lambda: None)
    ends = []
    for left in FRAMES:
        worker = af.spawn(lambda _batch, _state: None, behaviour=Unique(key))

        def push() -> None:
            try:
                close_to_the_limit(left, lambda: worker.push_ack(1))  # noqa: B023
            except (RecursionError, af.WorkerCrashed):
                return

        Caller(push).value()
        ends.append(worker.is_alive() and bool(worker.statistics().held))
        worker.kill()
    assert any(ends)


def test_m14_a_token_is_put_back_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    processed: list[int] = []
    worker = af.spawn(lambda batch, _state: processed.extend(batch))

    class FullQueue:
        def put(self, _runnable: object) -> None:
            raise MemoryError

        def empty(self) -> bool:
            return True

    with monkeypatch.context() as patch:
        patch.setattr(POOL, "_ready", FullQueue())
        with pytest.raises(MemoryError):
            Caller(worker.push, 1).value()
    assert worker.is_idle
    end(worker, {1}, processed)


def test_headroom_is_checked_by_calls() -> None:
    found = []

    def check() -> None:
        for left in (headroom.FRAMES // 2, headroom.FRAMES + 20):
            try:
                close_to_the_limit(left, headroom.require_headroom)
            except RecursionError:
                found.append(False)
            else:
                found.append(True)

    Caller(check).value()
    assert found == [False, True]
