"""Our actors are pykka's: registry, refs, ask, tell, proxies; and what we rely on inside pykka."""

from __future__ import annotations

import inspect
import queue
import re
import threading
from typing import TYPE_CHECKING, Any

import pykka
import pytest
from pykka import messages
from pykka._envelope import Envelope
from pykka._threading import ThreadingFuture

import actorflow as af
from actorflow.runtime.registry import ROSTER, Roster
from tests.runtime.worker.probe import PATIENCE, Caller, ended, until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Echo(af.Actor):
    """Answers what it is told, and notes its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []

    def on_start(self) -> None:
        self.log.append("start")

    def on_receive(self, message: Any) -> Any:
        self.log.append(message)
        if isinstance(message, BaseException):
            raise message
        return message

    def on_stop(self) -> None:
        self.log.append("stop")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.log.append(exception_value)

    def double(self, number: int) -> int:
        return 2 * number


class Theirs(pykka.ThreadingActor):
    """An actor of pykka's own."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        self.log.append(message)
        return message


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test see only its own actors, and stop what it leaves."""
    with monkeypatch.context() as patch:
        patch.setattr(ROSTER, "_members", {})
        yield
        pykka.ActorRegistry.stop_all(timeout=PATIENCE)


# The registry.


def test_both_kinds_stand_side_by_side_in_the_registry() -> None:
    theirs, ours = Theirs.start(), Echo.start()
    worker = af.spawn(lambda batch, state: None)
    everyone = pykka.ActorRegistry.get_all()
    assert {theirs, ours, worker, worker.executor} <= set(everyone)
    assert everyone.index(theirs) < everyone.index(ours) < everyone.index(worker)
    assert pykka.ActorRegistry.get_by_class(Echo) == [ours]
    assert pykka.ActorRegistry.get_by_class(Theirs) == [theirs]
    assert pykka.ActorRegistry.get_by_class(af.Executor) == [worker.executor]
    assert set(pykka.ActorRegistry.get_by_class(af.Actor)) == {ours, worker, worker.executor}
    assert pykka.ActorRegistry.get_by_class_name("Echo") == [ours]
    for ref in (theirs, ours, worker, worker.executor):
        assert pykka.ActorRegistry.get_by_urn(ref.actor_urn) == ref
    worker.stop()
    ours.stop()
    theirs.stop()
    assert not {theirs, ours, worker} & set(pykka.ActorRegistry.get_all())
    assert pykka.ActorRegistry.get_by_urn(worker.actor_urn) is None


def test_stop_all_stops_both_kinds_and_drains_workers() -> None:
    seen: list[Any] = []
    theirs, ours = Theirs.start(), Echo.start()
    worker = af.spawn(lambda batch, state: seen.extend(batch))
    worker.push_many(range(100))
    results = pykka.ActorRegistry.stop_all(timeout=PATIENCE)
    assert len(results) >= 4
    assert not any(ref.is_alive() for ref in (theirs, ours, worker, worker.executor))
    assert seen == list(range(100))
    assert pykka.ActorRegistry.get_all() == []


def test_stop_all_without_waiting() -> None:
    worker, ours = af.spawn(lambda batch, state: None), Echo.start()
    pykka.ActorRegistry.stop_all(block=False)
    assert ended(worker) == af.Normal()
    assert ours.actor_stopped.wait(PATIENCE)


def test_broadcast_reaches_both_kinds() -> None:
    theirs, ours = Theirs.start(), Echo.start()
    seen: list[Any] = []
    worker = af.spawn(lambda batch, state: seen.extend(batch))
    pykka.ActorRegistry.broadcast("hello", target_class=Echo)
    pykka.ActorRegistry.broadcast("hello", target_class=Theirs)
    pykka.ActorRegistry.broadcast("hello", target_class=type(worker.actor))
    assert ours.ask("end", timeout=PATIENCE) == "end"
    assert theirs.ask("end", timeout=PATIENCE) == "end"
    worker.push_block("end")
    assert ours.actor.log == ["start", "hello", "end"]
    assert seen == ["hello", "end"]


def test_the_roster_does_what_pykka_does_with_its_list() -> None:
    roster = Roster()
    theirs, ours = Theirs.start(), Echo.start()
    for ref in (theirs, ours):
        roster.append(ref)
        assert ref in roster
    assert list(roster) == roster[:] == [theirs, ours]
    assert len(roster) == 2
    roster.remove(theirs)
    assert theirs not in roster
    roster.remove(ours)
    assert roster[:] == []
    roster.add(ours.actor)
    assert ours in roster
    roster.discard(ours.actor)
    roster.discard(ours.actor)
    assert len(roster) == 0


# Refs.


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
    from behaviours import Unique  # noqa: PLC0415

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


def test_refs_are_equal_by_actor_and_printable() -> None:
    ours = Echo.start()
    assert ours.actor.actor_ref is ours
    assert "Echo" in repr(ours)
    assert "Echo" in str(ours.actor)


# A plain actor.


def test_actor_hooks_answers_and_proxies() -> None:
    ref = Echo.start()
    assert ref.ask("hello", timeout=PATIENCE) == "hello"
    ref.tell("note")
    proxy = ref.proxy()
    assert proxy.double(21).get(timeout=PATIENCE) == 42
    assert ref.stop(timeout=PATIENCE) is True
    assert ref.actor.log == ["start", "hello", "note", "stop"]
    assert ref.exit_reason == af.Normal()
    assert ref.stop(timeout=PATIENCE) is False
    with pytest.raises(pykka.ActorDeadError):
        ref.tell("late")
    with pytest.raises(af.WorkerStopped):
        ref.ask("late", timeout=PATIENCE)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt()])
def test_actor_start_failure_reaches_the_starter(error: BaseException) -> None:
    class Fails(Echo):
        def on_start(self) -> None:
            raise error

    with pytest.raises(af.StartFailed) as raised:
        Fails.start()
    assert raised.value.__cause__ is error
    assert pykka.ActorRegistry.get_by_class(Fails) == []


@pytest.mark.parametrize("how", ["return", "raise"])
def test_actor_stop_by_itself(how: str) -> None:
    class Quits(Echo):
        def on_receive(self, message: Any) -> Any:
            if how == "raise":
                raise af.Stop(message)
            return af.Stop(message)

    ref = Quits.start()
    assert ref.ask("enough", timeout=PATIENCE) is None
    assert ref.exit_reason == af.Shutdown("enough")

    class Refuses(Echo):
        def on_start(self) -> Any:
            return af.Stop("no")

    with pytest.raises(af.StartFailed, match="no"):
        Refuses.start()


def test_actor_failures_in_ask_are_the_callers_in_tell_a_crash() -> None:
    ref = Echo.start()
    with pytest.raises(ValueError, match="mine"):
        ref.ask(ValueError("mine"), timeout=PATIENCE)
    assert ref.is_alive()
    error = ValueError("its own")
    ref.tell(error)
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.exit_reason == af.Crash(error)
    assert ref.actor.log[-1] is error  # on_failure
    assert "stop" not in ref.actor.log


def test_actor_may_want_to_crash_of_an_ask() -> None:
    class Fragile(Echo):
        ask_failures = "crash"

    ref = Fragile.start()
    with pytest.raises(ValueError, match="both"):
        ref.ask(ValueError("both"), timeout=PATIENCE)
    assert ref.actor_stopped.wait(PATIENCE)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_system_exit_in_an_actor_ends_that_actor_only(error: BaseException) -> None:
    other, theirs = Echo.start(), Theirs.start()
    ref = Echo.start()
    asker = Caller(ref.ask, error, timeout=PATIENCE)
    assert asker.wait().error is error
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.exit_reason == af.Crash(error)
    assert other.ask("fine", timeout=PATIENCE) == "fine"
    assert theirs.ask("fine", timeout=PATIENCE) == "fine"


def test_hooks_that_fail_at_the_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Clumsy(Echo):
        def on_stop(self) -> None:
            raise ValueError("on_stop fails")

        def on_failure(self, *_arguments: Any) -> None:
            raise ValueError("on_failure fails")

    Clumsy.start().stop(timeout=PATIENCE)
    ref = Clumsy.start()
    ref.tell(KeyError("a crash"))
    assert ref.actor_stopped.wait(PATIENCE)
    assert "on_stop fails" in caplog.text
    assert "on_failure fails" in caplog.text


def test_ask_never_hangs_when_it_races_with_stop() -> None:
    for attempt in range(300):
        ref = Echo.start()
        asking = threading.Barrier(3)

        def ask(ref: Any = ref, asking: threading.Barrier = asking) -> list[Any]:
            asking.wait(PATIENCE)
            return [ref.ask(number, block=False) for number in range(10)]

        askers = [Caller(ask) for _ in range(2)]
        asking.wait(PATIENCE)
        assert ref.stop(timeout=PATIENCE) is True
        for asker in askers:
            for number, future in enumerate(asker.value()):
                try:
                    assert future.get(timeout=PATIENCE) == number
                except pykka.ActorDeadError:
                    continue
        assert not ref.lifespan.mailbox.envelopes, attempt


def test_ask_never_hangs_when_it_races_with_a_crash() -> None:
    causes: set[type] = set()
    for _ in range(100):
        ref = Echo.start()
        barrier = threading.Barrier(2)

        def ask(ref: Any = ref, barrier: threading.Barrier = barrier) -> list[Any]:
            barrier.wait(PATIENCE)
            return [ref.ask(number, block=False) for number in range(20)]

        asker = Caller(ask)
        barrier.wait(PATIENCE)
        ref.tell(ValueError("broken"))
        for future in asker.value():
            try:
                future.get(timeout=PATIENCE)
            except af.WorkerCrashed as error:
                causes.add(type(error.__cause__))
    assert causes <= {ValueError}


# Exit notices.


def test_watch_gives_exactly_one_notice() -> None:
    ref = Echo.start()
    notices: list[Any] = []
    ref.watch(lambda actor, reason: notices.append((actor, reason)))
    ref.stop(timeout=PATIENCE)
    until(lambda: bool(notices), "the notice comes")
    ref.watch(lambda actor, reason: notices.append("late"))
    assert notices == [(ref, af.Normal()), "late"]
    assert not ref.lifespan.die(af.Killed())
    assert len(notices) == 2


def test_watch_can_be_taken_back() -> None:
    ref = Echo.start()

    def notice(actor: Any, reason: Any) -> None:
        raise AssertionError("it was taken back")

    ref.unwatch(notice)
    ref.watch(notice)
    ref.unwatch(notice)
    ref.unwatch(notice)
    ref.stop(timeout=PATIENCE)


def test_watch_from_two_threads_while_the_actor_ends() -> None:
    for _ in range(200):
        ref = Echo.start()
        notices: list[int] = []
        barrier = threading.Barrier(3)

        def watch(
            number: int, ref: Any = ref, notices: Any = notices, barrier: Any = barrier
        ) -> None:
            barrier.wait(PATIENCE)
            ref.watch(lambda _actor, _reason: notices.append(number))

        watchers = [Caller(watch, number) for number in range(2)]
        barrier.wait(PATIENCE)
        ref.stop(timeout=PATIENCE)
        for watcher in watchers:
            watcher.value()
        until(lambda notices=notices: len(notices) == 2, "both are told")  # type: ignore[misc]
        assert sorted(notices) == [0, 1]


def test_a_notice_that_raises_does_not_keep_it_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ref = Echo.start()
    told = threading.Event()

    def fails(actor: Any, reason: Any) -> None:
        raise ValueError("bad notice")

    ref.watch(fails)
    ref.watch(lambda actor, reason: told.set())
    ref.stop(timeout=PATIENCE)
    assert told.wait(PATIENCE)
    assert "exit notice failed" in caplog.text


# What we rely on inside pykka. If one of these fails, pykka has changed: look at our code.


def test_pin_the_registry_is_our_roster_and_its_lock_reentrant() -> None:
    registry: Any = pykka.ActorRegistry
    assert registry._actor_refs is ROSTER
    with pykka.ActorRegistry._actor_refs_lock, pykka.ActorRegistry._actor_refs_lock:
        pass
    source = inspect.getsource(pykka.ActorRegistry)
    uses = re.findall(r"(?:in )?cls\._actor_refs(?!_lock)(?:\[:\]|\.\w+)?", source)
    assert set(uses) == {
        "cls._actor_refs[:]", "in cls._actor_refs", "cls._actor_refs.append",
        "cls._actor_refs.remove",
    }  # fmt: skip


def test_pin_the_messages() -> None:
    assert messages._ActorStop() == messages._ActorStop()
    for name in ("ProxyCall", "ProxyGetAttr", "ProxySetAttr"):
        assert inspect.isclass(getattr(messages, name))


def test_pin_the_envelope() -> None:
    envelope = Envelope("message")
    assert (envelope.message, envelope.reply_to) == ("message", None)
    future: Any = ThreadingFuture()
    assert Envelope("message", reply_to=future).reply_to is future


def test_pin_futures_refuse_a_second_answer_with_queue_full() -> None:
    future: ThreadingFuture[int] = ThreadingFuture()
    future.set(1)
    with pytest.raises(queue.Full):
        future.set_exception((ValueError, ValueError(), None))
    assert future.get(timeout=0) == 1


def test_pin_refs_find_their_actor_and_its_inbox_by_these_names() -> None:
    theirs = Theirs.start()
    assert theirs._actor_weakref() is not None
    for name in ("actor_class", "actor_urn", "actor_inbox", "actor_stopped"):
        assert hasattr(theirs, name)
    ours = Echo.start()
    assert ours._actor_weakref() is ours.actor
    assert set(inspect.signature(pykka.ActorRef.ask).parameters) == set(
        inspect.signature(type(ours).ask).parameters
    )


def test_pin_the_hooks_of_pykkas_actor() -> None:
    for name in (
        "_create_actor_inbox", "_create_future", "_start_actor_loop", "_handle_receive",
        "_handle_failure", "on_start", "on_stop", "on_failure", "on_receive", "stop",
    ):  # fmt: skip
        assert callable(getattr(pykka.Actor, name))
    assert isinstance(af.Actor._create_future(), ThreadingFuture)
    assert pykka.Actor.on_start is not Echo.on_start
