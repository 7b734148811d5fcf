"""The mailbox: no wake-up is lost, no turn taken twice, whatever overlaps or is interrupted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pykka._envelope import Envelope

import actorflow as af
from actorflow.runtime.actor.lifespan import Mailbox
from actorflow.testing import ManualLane
from tests.runtime.actor.actors import Echo
from tests.runtime.actor.interrupt import every_place
from tests.runtime.worker.probe import PATIENCE
from tests.runtime.worker.storms.interleave import Paused

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType


class MailboxMachine(RuleBasedStateMachine):
    """A mailbox driven one step at a time, against a list of the unread messages."""

    def __init__(self) -> None:
        super().__init__()
        self.mailbox = Mailbox()
        self.lane = ManualLane()
        self.sent: deque[int] = deque()
        self.number = 0
        self.opened = False
        self.mine = False  # the model of the token: somebody has the turn
        self.late = 0  # senders that have appended and seen the token, and go on later

    def run(self) -> None:
        """Do nothing: the machine takes turns itself."""

    @rule()
    def send(self) -> None:
        self.number += 1
        self.sent.append(self.number)
        self.mailbox.envelopes.append(Envelope(self.number))
        if self.mailbox.idle:
            self.mailbox.wake(self.lane, self)

    @rule()
    def send_interrupted(self) -> None:
        """Append, and be interrupted before the actor is submitted: the next sender does that."""
        self.number += 1
        self.sent.append(self.number)
        self.mailbox.envelopes.append(Envelope(self.number))

    @precondition(lambda self: self.mailbox.idle)
    @rule()
    def begin_to_send(self) -> None:
        """Append, see the token, and be overtaken by others."""
        self.send_interrupted()
        self.late += 1

    @precondition(lambda self: self.late)
    @rule()
    def go_on_sending(self) -> None:
        self.late -= 1
        self.mailbox.wake(self.lane, self)

    @precondition(lambda self: not self.opened)
    @rule()
    def open(self) -> None:
        self.opened = True
        self.mailbox.open()
        if self.mailbox.envelopes:
            self.mailbox.wake(self.lane, self)

    @precondition(lambda self: len(self.lane) > 0)
    @rule()
    def lane_comes_round(self) -> None:
        self.lane.step()
        taken = self.mailbox.take_turn()
        assert taken == (self.opened and not self.mine)
        self.mine = self.mine or taken

    @precondition(lambda self: self.mine)
    @rule()
    def read(self) -> None:
        envelope = self.mailbox.next()
        if envelope is None:
            assert not self.sent
            self.mine = self.mailbox.rest()
            assert not self.mine
        else:
            assert envelope.message == self.sent.popleft()

    @precondition(lambda self: self.mine)
    @rule()
    def let_others_run(self) -> None:
        self.mailbox.yield_turn(self.lane, self)
        self.mine = False
        assert len(self.lane)

    @precondition(lambda self: self.mine)
    @rule(sends=st.integers(0, 2))
    def rest_after_others_sent(self, sends: int) -> None:
        for _ in range(sends):
            self.send()
        self.mine = self.mailbox.rest()
        assert self.mine == bool(self.sent)

    @invariant()
    def the_token_is_in_place_when_nobody_has_the_turn(self) -> None:
        assert bool(self.mailbox.idle) == (self.opened and not self.mine)
        assert len(self.mailbox.idle) <= 1

    def teardown(self) -> None:
        """Whatever has happened, one more message makes everything be read."""
        if not self.opened:
            self.open()
        self.send()
        if not self.mine:
            assert len(self.lane), "nobody will come"


TestMailboxMachine = MailboxMachine.TestCase


class Calling(Echo):
    """Calls the functions that it is sent."""

    def on_receive(self, message: Any) -> Any:
        if callable(message):
            return message()
        return super().on_receive(message)


def started(lane: ManualLane) -> Any:
    """Start an actor that waits for the lane to be run by hand."""
    ref = Calling.start(lane=lane)
    lane.run()
    return ref


def without(ref: Any) -> list[Any]:
    """Return what the actor has received."""
    return [each for each in ref.actor.log if each not in {"start", "stop"}]


def pauses(lane: ManualLane, call: Callable[[], Any], meanwhile: Callable[[], Any]) -> bool:
    """Pause a call at a place, do something else, and let both end; return whether it paused."""
    paused = Paused(call, pauses.place, opcodes=True)  # type: ignore[attr-defined]
    meanwhile()
    paused.finish()
    assert paused.error is None, paused.where
    lane.run()
    return paused.where is not None


def at_every_place(scene: Callable[[], bool]) -> None:
    pauses.place = 0  # type: ignore[attr-defined]
    while scene():
        pauses.place += 1  # type: ignore[attr-defined]
    assert pauses.place > 10  # type: ignore[attr-defined]


def test_a_send_overtaken_by_another_and_by_the_lane_loses_nothing() -> None:
    def scene() -> bool:
        lane = ManualLane()
        ref = started(lane)

        def meanwhile() -> None:
            ref.tell("b")
            lane.run()

        paused = pauses(lane, lambda: ref.tell("a"), meanwhile)
        assert sorted(without(ref)) == ["a", "b"]
        return paused

    at_every_place(scene)


def test_a_turn_overtaken_by_a_send_loses_nothing() -> None:
    def scene() -> bool:
        lane = ManualLane()
        ref = started(lane)
        ref.tell("a")
        paused = pauses(lane, lane.step, lambda: ref.tell("b"))
        assert without(ref) == ["a", "b"]
        return paused

    at_every_place(scene)


def test_a_turn_overtaken_by_a_send_and_another_turn_runs_once() -> None:
    def scene() -> bool:
        lane = ManualLane()
        ref = started(lane)
        ref.tell("a")

        def meanwhile() -> None:
            ref.tell("b")
            lane.run()

        paused = pauses(lane, lane.step, meanwhile)
        assert sorted(without(ref)) == ["a", "b"]
        return paused

    at_every_place(scene)


def test_a_send_overtaken_by_a_whole_turn_leaves_the_mailbox_usable() -> None:
    def scene() -> bool:
        lane = ManualLane()
        ref = started(lane)
        paused = Paused(lambda: ref.tell("a"), pauses.place, opcodes=True)  # type: ignore[attr-defined]

        def in_the_midst_of_the_turn() -> None:
            paused.finish()
            lane.run()  # if the sender has submitted the actor for this turn, that is over now

        ref.tell(in_the_midst_of_the_turn)
        lane.run()
        ref.tell("c")
        lane.run()
        assert without(ref) == ["a", "c"], paused.where
        return paused.where is not None

    at_every_place(scene)


def careless_rest(self: Mailbox) -> bool:
    """Go idle without looking again."""
    self.idle.append(None)
    return False


def careless_wake(self: Mailbox, lane: Any, actor: Any) -> None:
    """Take the token in the sender's thread."""
    self.idle.clear()
    lane.submit(actor)


def hasty_wake(self: Mailbox, lane: Any, actor: Any) -> None:
    """Say that the actor was submitted before it is."""
    if self._called != self._turns:
        self._called = self._turns
        lane.submit(actor)


def trusting_wake(self: Mailbox, lane: Any, actor: Any) -> None:
    """Rely on the token that the sender has seen before."""
    turns = self._turns
    if self._called != turns:
        lane.submit(actor)
        self._called = turns


@pytest.mark.parametrize(
    ("name", "mutant", "catches"),
    [
        ("wake", trusting_wake, test_a_send_overtaken_by_a_whole_turn_leaves_the_mailbox_usable),
        ("rest", careless_rest, test_a_turn_overtaken_by_a_send_loses_nothing),
        ("wake", careless_wake, test_a_send_overtaken_by_another_and_by_the_lane_loses_nothing),
    ],
)
def test_the_tests_above_notice_a_careless_mailbox(
    name: str, mutant: Any, catches: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mailbox, name, mutant)
    with pytest.raises(AssertionError):
        catches()


# Interrupts.


def interrupted_send(send: str, *also: CodeType) -> int:
    lane = ManualLane()

    def make() -> tuple[Callable[[], Any], Callable[[str], None]]:
        ref = started(lane)
        calls = {
            "tell": lambda: ref.tell("a"),
            "ask": lambda: ref.ask("a", block=False),
            "stop": ref.actor.stop,
        }

        def check(where: str) -> None:
            after = ref.ask("b", block=False)
            lane.run()
            try:
                assert after.get(timeout=0) == "b", where
            except pykka.ActorDeadError:
                assert send == "stop", where
            ref.stop(block=False)
            lane.run()
            assert ref.exit_reason == af.Normal(), where

        return calls[send], check

    return every_place(make, also)


@pytest.mark.parametrize("send", ["tell", "ask", "stop"])
def test_m13_an_interrupted_sender_leaves_the_mailbox_usable(send: str) -> None:
    assert interrupted_send(send) > 10


@pytest.mark.parametrize("mutant", [careless_wake, hasty_wake])
def test_m13_the_test_above_notices_a_careless_sender(
    mutant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mailbox, "wake", mutant)
    with pytest.raises((AssertionError, pykka.Timeout)):
        interrupted_send("tell", mutant.__code__)


@pytest.mark.parametrize("busy", [False, True])
def test_m13_an_interrupted_kill_kills_or_does_not(busy: bool) -> None:  # noqa: FBT001
    lane = ManualLane()

    def make() -> tuple[Callable[[], Any], Callable[[str], None]]:
        ref = started(lane)
        notices: list[Any] = []
        ref.watch(lambda *notice: notices.append(notice))
        waiting = ref.ask("a", block=False) if busy else None

        def check(where: str) -> None:
            lane.run()
            if waiting is not None:
                try:
                    assert waiting.get(timeout=0) == "a", where
                except pykka.ActorDeadError:
                    assert not ref.is_alive(), where
            assert bool(notices) == (not ref.is_alive()), where  # twice at worst, never lost
            ref.kill()
            assert len(set(notices)) == 1, where
            assert ref.actor_stopped.is_set(), where
            assert ref not in pykka.ActorRegistry.get_all(), where

        return ref.kill, check

    assert every_place(make) > 30


def test_m13_an_interrupted_start_leaves_no_actor_behind_or_one_that_can_be_found() -> None:
    def make() -> tuple[Callable[[], Any], Callable[[str], None]]:
        def check(where: str) -> None:
            for ref in pykka.ActorRegistry.get_by_class(Echo):
                assert ref.ask("there", timeout=PATIENCE) == "there", where
                assert ref.stop(timeout=PATIENCE), where

        return Echo.start, check

    assert every_place(make) > 30
