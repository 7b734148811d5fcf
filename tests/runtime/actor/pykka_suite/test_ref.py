"""pykka's own tests of refs, case by case against the refs of `af.Actor`.

What differs: the text of the error for a dead actor says why it ended ("... has ended: normal")
where pykka says "... not found".
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pykka
import pytest

import actorflow as af
from tests.runtime.actor.actors import Echo, Gate
from tests.runtime.worker.probe import PATIENCE


def test_repr_and_str_name_the_actor() -> None:
    ref = Echo.start()
    assert repr(ref) == f"<ActorRef for Echo ({ref.actor_urn})>"
    assert str(ref) == f"Echo ({ref.actor_urn})"


def test_is_alive_until_stopped() -> None:
    ref = Echo.start()
    assert ref.is_alive()
    assert ref.stop(timeout=PATIENCE) is True
    assert not ref.is_alive()
    assert ref.stop(timeout=PATIENCE) is False


def test_stop_may_return_a_future() -> None:
    ref = Echo.start()
    assert ref.stop(block=False).get(timeout=PATIENCE) is True
    assert ref.stop(block=False).get(timeout=PATIENCE) is False


@pytest.mark.parametrize(
    "message", [123, 123.456, {"a": "dict"}, ("a", "tuple"), ["a", "list"], None]
)
def test_tell_takes_any_message(message: Any) -> None:
    ref = Echo.start()
    ref.tell(message)
    ref.stop(timeout=PATIENCE)
    assert ref.actor.log == ["start", message, "stop"]


def test_ask_blocks_for_the_answer_or_returns_a_future() -> None:
    ref = Echo.start()
    assert ref.ask("ping", timeout=PATIENCE) == "ping"
    future = ref.ask("ping", block=False)
    assert isinstance(future, pykka.Future)
    assert future.get(timeout=PATIENCE) == "ping"


def test_ask_raises_timeout_and_the_actor_goes_on() -> None:
    ref = Gate.start()
    with pytest.raises(pykka.Timeout):
        ref.ask(ref.actor.hold, timeout=0)
    ref.actor.opened.set()
    assert ref.ask(lambda: "there", timeout=PATIENCE) == "there"


@pytest.mark.parametrize("block", [True, False])
def test_what_is_sent_to_a_dead_actor_raises(block: bool) -> None:  # noqa: FBT001
    ref = Echo.start()
    ref.stop(timeout=PATIENCE)
    with pytest.raises(pykka.ActorDeadError, match="has ended: normal"):
        ref.tell("late")
    future = None if block else ref.ask("late", block=False)
    with pytest.raises(af.WorkerStopped, match=r"Echo .* has ended: normal"):
        ref.ask("late", timeout=PATIENCE) if future is None else future.get(timeout=PATIENCE)


def test_the_error_after_a_crash_has_the_crash_as_its_cause() -> None:
    ref = Echo.start()
    error = ValueError("broken")
    ref.tell(error)
    assert ref.actor_stopped.wait(PATIENCE)
    with pytest.raises(af.WorkerCrashed, match="broken") as raised:
        ref.tell("late")
    assert raised.value.__cause__ is error


def test_refs_are_equal_by_identity_and_hashable() -> None:
    one, other = Echo.start(), Echo.start()
    found: Any = pykka.ActorRegistry.get_by_urn(one.actor_urn)
    assert one.actor.actor_ref is found is one
    assert one != other
    assert len({one, other, one.actor.actor_ref}) == 2
    assert one.actor_class is Echo


def test_copies_of_a_ref_are_the_ref() -> None:
    ref = Echo.start()
    assert copy.copy(ref) is ref
    assert copy.deepcopy({"friend": ref})["friend"] is ref


def test_a_ref_cannot_be_pickled_and_says_why() -> None:
    ref = Echo.start()
    with pytest.raises(TypeError, match=r"Echo .* cannot be pickled: its actor lives in this"):
        pickle.dumps(ref)


def test_the_actor_can_tell_itself_but_not_wait_for_itself() -> None:
    class Narcissus(Gate):
        def ask_myself(self) -> Any:
            return self.actor_ref.ask(lambda: "me")

        def get_from_myself(self) -> Any:
            return self.actor_ref.ask(lambda: "me", block=False).get()

        def call_myself(self) -> Any:
            return self.actor_ref.proxy().ask_myself().get()

        def get_all_of_myself(self) -> Any:
            return pykka.get_all([self.actor_ref.ask(lambda: "me", block=False)])

        def stop_myself(self) -> Any:
            return self.actor_ref.stop()

    ref = Narcissus.start()
    proxy = ref.proxy()
    for method in ("ask_myself", "get_from_myself", "call_myself", "get_all_of_myself"):
        with pytest.raises(af.WouldDeadlock, match="would wait for its own answer"):
            getattr(proxy, method)().get(timeout=PATIENCE)
    assert ref.is_alive()
    with pytest.raises(af.WouldDeadlock, match=r"self\.stop\(\)"):
        proxy.stop_myself().get(timeout=PATIENCE)
    assert ref.actor_stopped.wait(PATIENCE)  # it was asked to stop nevertheless


def test_waiting_for_oneself_with_a_timeout_times_out() -> None:
    class Patient(Gate):
        def wait(self) -> Any:
            return self.actor_ref.ask(lambda: "me", timeout=0)

    with pytest.raises(pykka.Timeout):
        Patient.start().proxy().wait().get(timeout=PATIENCE)


def test_an_answer_of_ones_own_that_is_there_may_be_taken() -> None:
    class Later(Gate):
        def begin(self) -> None:
            self.future = self.actor_ref.ask(lambda: "me", block=False)

        def end(self) -> Any:
            return self.future.get()

    proxy = Later.start().proxy()
    proxy.begin().get(timeout=PATIENCE)
    assert proxy.end().get(timeout=PATIENCE) == "me"


def test_two_actors_may_ask_each_other_in_turn() -> None:
    class Asks(Gate):
        def relay(self, other: Any) -> Any:
            return other.ask(lambda: "from the other", timeout=PATIENCE)

    one, other = Asks.start(), Asks.start()
    assert one.proxy().relay(other).get(timeout=PATIENCE) == "from the other"
