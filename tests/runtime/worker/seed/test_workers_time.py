"""Timed behaviours on workers: which messages wait, and which events end the wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Debounce, Expire, Linger, Queue
from tests.runtime.worker.probe import FakeTicket

if TYPE_CHECKING:
    from actorflow.testing import ManualLane, VirtualClock


class Notes:
    """A job that notes its batches with the time."""

    def __init__(self, lane: ManualLane, clock: VirtualClock) -> None:
        self.lane, self.clock = lane, clock
        self.calls: list[tuple[float, Any]] = []

    def __call__(self, batch: Any, state: Any) -> None:
        self.calls.append((self.clock.now(), batch))

    def spawn(self, **options: Any) -> af.WorkerRef:
        return af.spawn(self, executor=self.lane, clock=self.clock, **options)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.lane.run()


@pytest.fixture
def notes(lane: ManualLane, clock: VirtualClock) -> Notes:
    return Notes(lane, clock)


def test_linger_leaves_when_its_time_is_up(notes: Notes) -> None:
    worker = notes.spawn(behaviour=Linger(Queue, 2.0))
    worker.push("a")
    notes.wait(1.5)
    worker.push("b")
    assert notes.calls == []
    notes.wait(0.5)
    assert notes.calls == [(2.0, ["a", "b"])]


def test_linger_leaves_at_once_when_it_is_large_enough(notes: Notes) -> None:
    worker = notes.spawn(behaviour=Linger(Queue, 60.0, 2))
    worker.push("a")
    notes.wait(1.0)
    worker.push_ack("b")  # ends the wait, long before its time
    notes.wait(0.0)
    assert notes.calls == [(1.0, ["a", "b"])]
    assert notes.clock.next_time() is None


def test_linger_sets_no_timer_where_enough_has_come_meanwhile(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = notes.spawn(behaviour=Linger(Queue, 60.0, 3))
    timers: list[float] = []
    plain = notes.clock.call_at

    def call_at(when: float, callback: Any) -> Any:
        timers.append(when)
        return plain(when, callback)

    monkeypatch.setattr(notes.clock, "call_at", call_at)
    worker.actor.core.raw.extend("abc")  # as by producers that found the token taken
    worker.push("d")
    notes.wait(0.0)
    assert notes.calls == [(0.0, ["a", "b", "c"]), (0.0, ["d"])]
    assert timers == []
    worker.push("e")
    assert timers == [60.0]


def test_debounce_waits_anew_with_each_message(notes: Notes) -> None:
    worker = notes.spawn(behaviour=Debounce(Queue, 1.0, at_most=10.0))
    for message in "abc":
        worker.push(message)
        notes.wait(0.75)
    assert notes.calls == []
    notes.wait(0.25)
    assert notes.calls == [(2.5, ["a", "b", "c"])]


def test_a_drain_does_not_wait_for_more(notes: Notes) -> None:
    for behaviour in (Linger(Queue, 60.0), Debounce(Queue, 60.0)):
        notes.calls.clear()
        worker = notes.spawn(behaviour=behaviour)
        worker.push("a")
        assert worker.stop(block=False)
        notes.wait(0.0)
        assert [batch for _, batch in notes.calls] == [["a"]]
        assert worker.exit_reason == af.Normal()


def test_who_waits_for_an_expired_message_is_told(notes: Notes) -> None:
    worker = notes.spawn(behaviour=Expire(Queue, 5.0))
    worker.push("first")  # taken at once, but the lane has not run yet
    ticket = FakeTicket()
    worker.actor.offers.offer("old", ticket)
    notes.clock.advance(10.0)
    worker.push("young")
    notes.wait(0.0)
    assert isinstance(ticket.answer, af.Expired)
    assert [batch for _, batch in notes.calls] == [["first"], ["young"]]
    assert worker.statistics().expired == 1


def test_mail_is_served_while_a_batch_waits_for_its_time(notes: Notes) -> None:
    worker = notes.spawn(throttle=10.0)
    worker.push("a")
    notes.wait(0.0)
    worker.push("b")
    answer = worker.executor.proxy().state
    notes.wait(0.0)
    assert answer.get(timeout=0) is None
    assert notes.calls == [(0.0, ["a"])]
    notes.wait(10.0)
    assert notes.calls == [(0.0, ["a"]), (10.0, ["b"])]


def test_an_idle_timeout_does_not_fire_while_a_batch_waits(notes: Notes) -> None:
    worker = notes.spawn(throttle=10.0, idle_timeout=1.0)
    worker.push("a")
    notes.lane.run()
    worker.push("b")
    notes.wait(9.0)
    assert worker.is_alive()
    notes.wait(1.0)
    assert notes.calls == [(0.0, ["a"]), (10.0, ["b"])]
    notes.wait(1.0)
    assert worker.exit_reason == af.Normal()
