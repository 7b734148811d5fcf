"""Urgent messages, messages put aside, and messages that are sent later."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pykka._envelope import Envelope

import actorflow as af
from actorflow.runtime.actor.lifespan import Mailbox
from actorflow.testing import ManualLane, VirtualClock
from tests.runtime.actor.actors import Echo
from tests.runtime.worker.probe import PATIENCE


@given(st.lists(st.sampled_from(["send", "urgent", "interrupted", "read"]), max_size=40))
def test_urgent_messages_come_first_in_their_own_order(steps: list[str]) -> None:
    mailbox = Mailbox()
    plain: deque[int] = deque()
    urgent: deque[int] = deque()
    for number, step in enumerate(steps):
        if step == "send":
            plain.append(number)
            mailbox.envelopes.append(Envelope(number))
        elif step == "urgent":
            urgent.append(number)
            mailbox.put_urgent(Envelope(number))
        elif step == "interrupted" and urgent:  # by Ctrl-C, before the mark
            urgent.append(number)
            mailbox.urgent.append(Envelope(number))  # type: ignore[union-attr]
        elif step == "read":
            expected = urgent.popleft() if urgent else plain.popleft() if plain else None
            envelope = mailbox.next()
            assert (None if envelope is None else envelope.message) == expected
    while (envelope := mailbox.next()) is not None:
        assert envelope.message == (urgent or plain).popleft()
    assert not urgent
    assert not plain


def test_an_urgent_ref_overtakes_what_waits() -> None:
    lane = ManualLane()
    ref = Echo.start(lane=lane)
    urgent = ref.urgent()
    ref.tell("a")
    ref.tell("b")
    urgent.tell("first")
    answer = urgent.ask("second", block=False)
    doubled = urgent.proxy().double(4)
    lane.run()
    assert ref.actor.log == ["start", "first", "second", "a", "b"]
    assert (answer.get(timeout=0), doubled.get(timeout=0)) == ("second", 8)


def test_urgent_callers_are_refused_when_the_actor_ends() -> None:
    lane = ManualLane()
    ref = Echo.start(lane=lane)
    answer = ref.urgent().ask("never", block=False)
    ref.kill()
    with pytest.raises(af.WorkerStopped):
        answer.get(timeout=0)
    with pytest.raises(af.WorkerStopped):
        ref.urgent().ask("late", timeout=0)
    with pytest.raises(af.WorkerStopped):
        ref.urgent().tell("late")


def test_a_worker_has_no_urgent_messages() -> None:
    with af.spawn(lambda batch, state: None) as worker:
        with pytest.raises(af.BadOption, match="Lanes"):
            worker.urgent()
        worker.executor.urgent().tell("mail")


class Opened(af.Actor):
    """Answers only after it was opened."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.is_open = False
        self.seen: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if message == "open":
            self.is_open = True
            return af.unstash_all()
        if not self.is_open:
            af.stash()
            return "ignored"
        self.seen.append(message)
        return f"answer to {message}"


def test_stashed_messages_are_handled_next_and_in_order() -> None:
    lane = ManualLane()
    ref = Opened.start(lane=lane)
    first = ref.ask("a", block=False)
    ref.tell("b")
    lane.run()
    opened = ref.ask("open", block=False)
    ref.tell("c")
    lane.run()
    assert opened.get(timeout=0) == 2
    assert first.get(timeout=0) == "answer to a"
    assert ref.actor.seen == ["a", "b", "c"]
    assert ref.ask("open", block=False) is not None
    lane.run()


@given(st.lists(st.sampled_from(["open", "close", "message"]), max_size=30))
def test_nothing_is_lost_or_reordered(steps: list[str]) -> None:
    class Door(Opened):
        def on_receive(self, message: Any) -> Any:
            if message == "close":
                self.is_open = False
                return None
            return super().on_receive(message)

    lane = ManualLane()
    ref = Door.start(lane=lane)
    asked = []
    for number, step in enumerate([*steps, "open"]):
        if step == "message":
            asked.append((number, ref.ask(number, block=False)))
        else:
            ref.tell(step)
        if number % 3 == 0:
            lane.run()
    lane.run()
    assert ref.actor.seen == [number for number, _ in asked]
    assert [future.get(timeout=0) for _, future in asked] == [
        f"answer to {number}" for number, _ in asked
    ]


def test_callers_of_stashed_messages_are_refused_when_the_actor_ends() -> None:
    lane = ManualLane()
    ref = Opened.start(lane=lane)
    first = ref.ask("a", block=False)
    lane.run()
    ref.stop(block=False)
    lane.run()
    with pytest.raises(af.WorkerStopped):
        first.get(timeout=0)


def test_a_handler_that_raises_after_it_has_stashed_crashes() -> None:
    class Wrong(af.Actor):
        def on_receive(self, message: Any) -> None:
            af.stash()
            raise ValueError(message)

    lane = ManualLane()
    ref = Wrong.start(lane=lane)
    answer = ref.ask("a", block=False)
    lane.run()
    assert isinstance(ref.exit_reason, af.Crash)
    with pytest.raises(af.WorkerCrashed):
        answer.get(timeout=0)


def test_stash_is_refused_where_no_actor_handles_a_message() -> None:
    class Twice(af.Actor):
        def on_receive(self, message: Any) -> None:
            af.stash()
            with pytest.raises(af.NotHandling, match="already"):
                af.stash()

    for function in (af.stash, af.unstash_all):
        with pytest.raises(af.NotHandling, match=r"handler of an af\.Actor"):
            function()
    lane = ManualLane()
    ref = Twice.start(lane=lane)
    ref.tell("a")
    lane.run()
    assert ref.is_alive()
    ref.kill()


class Awaited(Echo):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.received = threading.Event()

    def on_receive(self, message: Any) -> Any:
        answer = super().on_receive(message)
        self.received.set()
        return answer


def test_a_message_is_sent_later_unless_that_is_cancelled() -> None:
    clock = VirtualClock()
    ref = Awaited.start()
    cancelled = ref.send_after(1.0, "cancelled", clock=clock)
    ref.send_after(2.0, "sent", clock=clock)
    cancelled.cancel()
    clock.advance(1.5)
    assert not ref.actor.received.is_set()
    clock.advance(1.0)
    assert ref.actor.received.wait(PATIENCE)
    assert ref.actor.log == ["start", "sent"]
    ref.stop()


def test_a_message_for_an_actor_that_has_ended_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, lane = VirtualClock(), ManualLane()
    ref = Echo.start(lane=lane)
    timer = ref.send_after(1.0, "late", clock=clock)
    ref.kill()
    late: Any = timer.callback
    late.args[0].run()  # as the pool does
    assert "late message not sent" in caplog.text


@pytest.mark.parametrize("delay", [-1.0, "soon", float("nan")])
def test_a_delay_that_is_none_is_refused(delay: Any) -> None:
    ref = Echo.start(lane=ManualLane())
    with pytest.raises(af.BadOption, match="delay"):
        ref.send_after(delay, "never")
    ref.kill()
