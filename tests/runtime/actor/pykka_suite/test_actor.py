"""pykka's own tests of actors and of what they log, case by case against `af.Actor`.

What does not apply:

* "all actors are stopped on a base exception": here `SystemExit` ends the actor that raised it;
  the opposite is tested.
* "a failing `on_start` stops the actor": `start` raises `StartFailed` instead of returning a ref.
* `become` and `unbecome`: pykka 4 has removed them.
* Threads named after the actor, daemon threads: actors share the threads of their lane.
* The texts of pykka's log ("Unhandled exception in ..."): failures are logged as structured events
  of the logger `actorflow`. Unexpected messages still go to the logger `pykka`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from typing import Any

import pykka
import pytest

import actorflow as af
from tests.runtime.actor.actors import Echo, Gate, Theirs
from tests.runtime.worker.probe import PATIENCE, Caller


def test_messages_left_when_the_actor_stops_get_an_error() -> None:
    ref = Gate.start()
    ref.tell(ref.actor.hold)
    ref.stop(block=False)
    late = ref.ask(lambda: "late", block=False)
    ref.actor.opened.set()
    with pytest.raises(pykka.ActorDeadError):
        late.get(timeout=PATIENCE)


def test_stop_requests_left_when_the_actor_stops_are_granted() -> None:
    ref = Gate.start()
    ref.tell(ref.actor.hold)
    first, second = ref.stop(block=False), ref.stop(block=False)
    ref.actor.opened.set()
    assert first.get(timeout=PATIENCE) is True
    assert second.get(timeout=PATIENCE) is True


def test_the_urn_is_a_unique_uuid4() -> None:
    urns = [Echo.start().actor_urn for _ in range(3)]
    assert [uuid.UUID(urn).version for urn in urns] == [4, 4, 4]
    assert len(set(urns)) == 3


def test_str_of_an_actor_names_its_class_and_urn() -> None:
    actor = Echo()
    assert "Echo" in str(actor)
    assert actor.actor_urn in str(actor)
    assert repr(actor) == str(actor)


def test_init_takes_any_arguments() -> None:
    af.Actor(1, 2, 3, foo="bar")


def test_init_need_not_call_supers() -> None:
    class Forgets(af.Actor):
        def __init__(self) -> None:
            self.word = "fine"

    assert Forgets.start().proxy().word.get(timeout=PATIENCE) == "fine"


def test_a_mixin_may_come_before_the_actor() -> None:
    class Mixin:
        def __init__(self) -> None:
            super().__init__()
            self.messages: list[Any] = []

        def on_receive(self, message: Any) -> Any:
            self.messages.append(message)
            return len(self.messages)

    class Mixed(Mixin, af.Actor):
        pass

    assert Mixed.start().ask("one", timeout=PATIENCE) == 1


def test_on_start_runs_before_the_first_message_and_after_registration() -> None:
    class Looks(Echo):
        def on_start(self) -> None:
            self.log.append(pykka.ActorRegistry.get_by_urn(self.actor_urn))
            self.actor_ref.tell("to myself")

    ref = Looks.start()
    assert ref.ask("first", timeout=PATIENCE) == "first"
    assert ref.actor.log == [ref, "to myself", "first"]


def test_on_start_may_stop_the_actor() -> None:
    class Early(Gate):
        def on_start(self) -> None:
            self.stop()

    ref = Early.start()
    assert ref.actor.stopped.wait(PATIENCE)
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.exit_reason == af.Normal()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_a_failing_on_start_reaches_the_starter(error: BaseException) -> None:
    class Fails(Echo):
        def on_start(self) -> None:
            raise error

    with pytest.raises(af.StartFailed) as raised:
        Fails.start()
    assert raised.value.__cause__ is error
    assert pykka.ActorRegistry.get_by_class(Fails) == []


def test_on_stop_runs_when_the_actor_is_stopped() -> None:
    ref = Echo.start()
    assert ref.stop(timeout=PATIENCE) is True
    assert ref.actor.log == ["start", "stop"]


def test_failing_last_hooks_are_logged_and_the_actor_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Clumsy(Echo):
        def on_stop(self) -> None:
            raise ValueError("on_stop fails")

        def on_failure(self, *_arguments: Any) -> None:
            raise ValueError("on_failure fails")

    stopped, crashed = Clumsy.start(), Clumsy.start()
    stopped.stop(timeout=PATIENCE)
    assert stopped.exit_reason == af.Normal()
    crashed.tell(KeyError("a crash"))
    assert crashed.actor_stopped.wait(PATIENCE)
    assert isinstance(crashed.exit_reason, af.Crash)
    for text in ("on_stop fails", "on_failure fails", "a crash"):
        assert text in caplog.text


def test_on_failure_is_called_when_nobody_gets_the_exception() -> None:
    ref = Echo.start()
    error = ValueError("its own")
    ref.tell(error)
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.exit_reason == af.Crash(error)
    assert ref.actor.log == ["start", error, error]
    assert pykka.ActorRegistry.get_all() == []


def test_an_exception_of_an_ask_is_the_callers() -> None:
    ref = Echo.start()
    with pytest.raises(ValueError, match="mine"):
        ref.ask(ValueError("mine"), timeout=PATIENCE)
    assert ref.ask("still there", timeout=PATIENCE) == "still there"


def test_ask_failures_may_crash_the_actor() -> None:
    class Fragile(Echo):
        ask_failures = "crash"

    ref = Fragile.start()
    with pytest.raises(ValueError, match="both"):
        ref.ask(ValueError("both"), timeout=PATIENCE)
    assert ref.actor_stopped.wait(PATIENCE)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), BaseException("base")])
@pytest.mark.parametrize("send", ["ask", "tell"])
def test_a_base_exception_ends_that_actor_only(error: BaseException, send: str) -> None:
    other, theirs, ref = Echo.start(), Theirs.start(), Echo.start()
    if send == "ask":
        assert Caller(ref.ask, error, timeout=PATIENCE).wait().error is error
    else:
        ref.tell(error)
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.exit_reason == af.Crash(error)
    assert other.ask("fine", timeout=PATIENCE) == "fine"
    assert theirs.ask("fine", timeout=PATIENCE) == "fine"


def test_an_actor_may_stop_itself_several_times() -> None:
    class Twice(Gate):
        def twice(self) -> str:
            self.stop()
            self.stop()
            return "stopping"

    ref = Twice.start()
    assert ref.proxy().twice().get(timeout=PATIENCE) == "stopping"
    assert ref.actor_stopped.wait(PATIENCE)
    ref.actor.stop()
    assert ref.exit_reason == af.Normal()


def test_what_an_actor_sends_itself_before_its_stop_is_handled() -> None:
    class Sends(Echo):
        def go(self) -> None:
            self.actor_ref.tell("greetings")
            self.stop()

    ref = Sends.start()
    ref.proxy().go().get(timeout=PATIENCE)
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.actor.log == ["start", "greetings", "stop"]


@pytest.mark.parametrize("how", ["return", "raise"])
def test_stop_ends_the_actor_with_its_reason(how: str) -> None:
    class Quits(Echo):
        def on_receive(self, message: Any) -> Any:
            if how == "raise":
                raise af.Stop(message)
            return af.Stop(message)

    ref = Quits.start()
    assert ref.ask("enough", timeout=PATIENCE) is None
    assert ref.exit_reason == af.Shutdown("enough")
    assert ref.actor.log == ["start", "stop"]

    class Refuses(Echo):
        def on_start(self) -> Any:
            return af.Stop("no")

    with pytest.raises(af.StartFailed, match="no"):
        Refuses.start()


def test_the_inbox_can_be_looked_into_from_within() -> None:
    class Looks(af.Actor):
        def __init__(self) -> None:
            self.entered, self.opened = threading.Event(), threading.Event()

        def look(self) -> tuple[bool, Any, bool]:
            self.entered.set()
            assert self.opened.wait(PATIENCE)
            full = not self.actor_inbox.empty()
            return full, self.actor_inbox.get().message, self.actor_inbox.empty()

    ref = Looks.start()
    looked = ref.proxy().look()
    assert ref.actor.entered.wait(PATIENCE)
    ref.tell("next")
    ref.actor.opened.set()
    assert looked.get(timeout=PATIENCE) == (True, "next", True)


def test_an_empty_inbox_raises_instead_of_blocking_the_lane() -> None:
    import queue  # noqa: PLC0415

    ref = Echo.start()
    assert ref.actor_inbox.empty()
    with pytest.raises(queue.Empty):
        ref.actor_inbox.get()


def test_envelopes_may_be_put_into_the_inbox_directly() -> None:
    from pykka._envelope import Envelope  # noqa: PLC0415

    ref = Echo.start()
    answer: Any = af.Actor._create_future()
    ref.actor_inbox.put(Envelope("direct", reply_to=answer))
    assert answer.get(timeout=PATIENCE) == "direct"
    ref.stop(timeout=PATIENCE)
    late: Any = af.Actor._create_future()
    ref.actor_inbox.put(Envelope("late", reply_to=late))
    with pytest.raises(af.WorkerStopped):
        late.get(timeout=PATIENCE)
    with pytest.raises(af.WorkerStopped):
        ref.actor_inbox.put(Envelope("late"))


def test_actor_stopped_is_set_once_the_actor_has_ended() -> None:
    early, late = Echo.start(), Echo.start()
    event = early.actor_stopped
    assert not event.is_set()
    assert early.actor.actor_stopped is event
    early.stop(timeout=PATIENCE)
    late.stop(timeout=PATIENCE)
    assert event.is_set()
    assert late.actor_stopped.is_set()


# Log records.


def test_unexpected_messages_are_logged_by_pykka(caplog: pytest.LogCaptureFixture) -> None:
    ref = af.Actor.start()
    assert ref.ask({"unhandled": "message"}, timeout=PATIENCE) is None
    (record,) = [each for each in caplog.records if each.name == "pykka"]
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"Unexpected message received by {ref}: ")


def test_an_exception_that_the_caller_gets_is_logged_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "actorflow")
    ref = Echo.start()
    with pytest.raises(ValueError, match="mine"):
        ref.ask(ValueError("mine"), timeout=PATIENCE)
    ref.ask("it has been logged by now", timeout=PATIENCE)
    assert "exception returned to caller" in caplog.text
    assert [each for each in caplog.records if each.levelno > logging.DEBUG] == []


def test_a_crash_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    ref = Echo.start()
    ref.tell(ValueError("its own"))
    assert ref.actor_stopped.wait(PATIENCE)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    for text in ("actor crashed", "Echo", "its own", "on_receive"):
        assert text in caplog.text
