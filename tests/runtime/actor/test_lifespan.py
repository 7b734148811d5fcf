"""How actors start and end: once, for all watchers to see, and no caller can hang."""

from __future__ import annotations

import contextlib
import logging
import threading
from functools import partial
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.testing import ManualLane
from tests.runtime.actor.actors import Echo, Gate
from tests.runtime.worker.probe import PATIENCE, Caller, until
from tests.runtime.worker.storms.interleave import Paused

# Races.


def test_an_ask_that_races_with_a_stop_is_answered_or_refused() -> None:
    for attempt in range(300):
        ref = Echo.start()
        barrier = threading.Barrier(3)

        def ask(ref: Any = ref, barrier: threading.Barrier = barrier) -> list[Any]:
            barrier.wait(PATIENCE)
            return [ref.ask(number, block=False) for number in range(10)]

        askers = [Caller(ask) for _ in range(2)]
        barrier.wait(PATIENCE)
        assert ref.stop(timeout=PATIENCE) is True
        for asker in askers:
            for number, future in enumerate(asker.value()):
                try:
                    assert future.get(timeout=PATIENCE) == number
                except pykka.ActorDeadError:
                    continue
        assert not ref.lifespan.mailbox.envelopes, attempt


def test_an_ask_that_races_with_a_crash_is_answered_or_refused() -> None:
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


def test_a_kill_that_races_with_itself_ends_the_actor_once() -> None:
    for _ in range(100):
        ref = Echo.start()
        notices: list[Any] = []
        ref.watch(lambda *notice, notices=notices: notices.append(notice))
        barrier = threading.Barrier(4)

        def end(call: Any, barrier: threading.Barrier = barrier) -> Any:
            barrier.wait(PATIENCE)
            return call()

        killers = [Caller(end, partial(ref.lifespan.die, af.Killed())) for _ in range(3)]
        barrier.wait(PATIENCE)
        assert sum(killer.value() for killer in killers) == 1
        until(lambda notices=notices: bool(notices), "the notice comes")  # type: ignore[misc]
        assert notices == [(ref, af.Killed())]


# Killing.


def test_kill_refuses_the_caller_who_is_being_served_and_those_who_wait() -> None:
    ref = Gate.start()
    served = ref.ask(ref.actor.hold, block=False)
    assert ref.actor.entered.wait(PATIENCE)
    waiting, stopping = ref.ask(lambda: 1, block=False), ref.stop(block=False)
    ref.kill()
    assert ref.exit_reason == af.Killed(abandoned=True)
    for future in (served, waiting):
        with pytest.raises(af.WorkerStopped, match="killed"):
            future.get(timeout=PATIENCE)
    assert stopping.get(timeout=PATIENCE) is True
    ref.actor.opened.set()
    assert not ref.actor.stopped.is_set()
    ref.kill()
    assert ref.exit_reason == af.Killed(abandoned=True)


def test_kill_of_an_idle_actor_abandons_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    ref = Echo.start()
    until(lambda: ref.lifespan.mailbox.is_idle, "it is idle")
    ref.kill()
    assert ref.exit_reason == af.Killed()
    assert caplog.text == ""


def test_kill_while_on_start_hangs_lets_the_starter_go_on() -> None:
    opened, entered = threading.Event(), threading.Event()

    class Hangs(af.Actor):
        def on_start(self) -> None:
            entered.set()
            assert opened.wait(PATIENCE)

    starter = Caller(Hangs.start)
    assert entered.wait(PATIENCE)
    (ref,) = pykka.ActorRegistry.get_by_class(Hangs)
    asked = ref.ask("too early", block=False)
    ref.kill()  # type: ignore[attr-defined]
    assert starter.value() is ref
    with pytest.raises(af.WorkerStopped):
        asked.get(timeout=PATIENCE)
    opened.set()


def test_an_actor_that_is_killed_before_its_lane_starts_it_runs_no_hook() -> None:
    lane = ManualLane()
    waited = lane.wait
    killed: list[Any] = []

    def kill_first(ticket: Any, timeout: float | None) -> bool:
        killed.extend(pykka.ActorRegistry.get_by_class(Echo))
        killed[0].kill()
        return waited(ticket, timeout)

    lane.wait = kill_first  # type: ignore[method-assign]
    ref = Echo.start(lane=lane)
    lane.run()
    assert killed == [ref]
    assert ref.actor.log == []


def test_an_interrupted_start_kills_what_it_started() -> None:
    class Impatient(ManualLane):
        def wait(self, ticket: Any, timeout: float | None) -> bool:
            raise KeyboardInterrupt

    lane = Impatient()
    with pytest.raises(KeyboardInterrupt):
        Echo.start(lane=lane)
    assert pykka.ActorRegistry.get_by_class(Echo) == []
    lane.run()


# Watching.


def test_m20_a_watcher_is_called_once_even_if_it_comes_late() -> None:
    ref = Echo.start()
    notices: list[Any] = []
    ref.watch(lambda *notice: notices.append((notice, ref.is_alive())))
    ref.stop(timeout=PATIENCE)
    until(lambda: bool(notices), "the notice comes")
    ref.watch(lambda *notice: notices.append("late"))
    assert notices == [((ref, af.Normal()), False), "late"]
    assert not ref.lifespan.die(af.Killed())
    assert len(notices) == 2


def test_a_watch_can_be_withdrawn() -> None:
    ref = Echo.start()

    def notice(ref: Any, reason: Any) -> None:
        raise AssertionError("it was withdrawn")

    ref.unwatch(notice)
    ref.watch(notice)
    ref.unwatch(notice)
    ref.unwatch(notice)
    ref.stop(timeout=PATIENCE)


def test_watchers_that_come_while_the_actor_ends_are_called_once() -> None:
    for _ in range(200):
        ref = Echo.start()
        notices: list[int] = []
        barrier = threading.Barrier(3)

        def watch(
            number: int, ref: Any = ref, notices: Any = notices, barrier: Any = barrier
        ) -> None:
            barrier.wait(PATIENCE)
            ref.watch(lambda _ref, _reason: notices.append(number))

        watchers = [Caller(watch, number) for number in range(2)]
        barrier.wait(PATIENCE)
        ref.stop(timeout=PATIENCE)
        for watcher in watchers:
            watcher.value()
        until(lambda notices=notices: len(notices) == 2, "both are called")  # type: ignore[misc]
        assert sorted(notices) == [0, 1]


@pytest.mark.parametrize(
    "error", [ValueError("bad notice"), SystemExit(1), KeyboardInterrupt(), BaseException("odd")]
)
@pytest.mark.parametrize("end", ["stop", "kill", "crash", "Stop"])
def test_a_watcher_that_raises_keeps_nothing_from_the_others(
    error: BaseException, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    ref = Echo.start()
    called = threading.Event()

    def fails(ref: Any, reason: Any) -> None:
        raise error

    ref.watch(fails)
    ref.watch(lambda ref, reason: called.set())
    if end == "stop":
        assert ref.stop(timeout=PATIENCE) is True
    elif end == "kill":
        assert Caller(ref.kill).wait().error in {None, error}
    elif end == "crash":
        ref.tell(ValueError("a crash"))
    else:
        assert ref.ask(af.Stop(), timeout=PATIENCE) is None
    assert called.wait(PATIENCE)
    assert ref.actor_stopped.is_set()
    assert pykka.ActorRegistry.get_by_class(Echo) == []
    assert Echo.start().ask("the lane goes on", timeout=PATIENCE) == "the lane goes on"
    if end != "kill":  # the thread that has called it logs what it has raised
        until(lambda: ref.actor_urn in caplog.text, "it is logged")


# Hostile objects.


class Unprintable(Exception):
    """M22: an error that cannot be shown."""

    def __init__(self, kind: type[BaseException] = ValueError) -> None:
        super().__init__()
        self.kind = kind

    def __str__(self) -> str:
        raise self.kind("no str")

    __repr__ = __str__


@pytest.mark.parametrize("kind", [ValueError, SystemExit, RecursionError])
def test_m22_errors_that_cannot_be_printed_end_the_actor_all_the_same(
    kind: type[BaseException],
) -> None:
    error = Unprintable(kind)
    ref = Gate.start()
    called: list[Any] = []
    ref.watch(lambda _ref, reason: called.append(reason))

    def fail() -> None:
        raise error

    ref.tell(ref.actor.hold)
    assert ref.actor.entered.wait(PATIENCE)
    ref.tell(fail)
    waiting = ref.ask(lambda: 1, block=False)
    ref.actor.opened.set()
    assert ref.actor_stopped.wait(PATIENCE)
    with pytest.raises(af.WorkerCrashed) as raised:
        waiting.get(timeout=PATIENCE)
    assert raised.value.__cause__ is error
    assert "Gate" in str(raised.value)
    until(lambda: bool(called), "the watcher is called")
    with pytest.raises(af.WorkerCrashed):
        ref.tell("late")


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_m22_actors_and_reasons_that_cannot_be_printed(kind: type[BaseException]) -> None:
    class Shy(Echo):
        def __repr__(self) -> str:
            raise kind("no repr")

    ref = Shy.start()
    assert "Shy" in repr(ref)
    assert ref.ask(af.Stop(Unprintable(kind)), timeout=PATIENCE) is None
    with pytest.raises(af.WorkerStopped, match=r"Shy .* has ended: shutdown"):
        ref.tell("late")

    class FailsToStart(Shy):
        def on_start(self) -> None:
            raise Unprintable(kind)

    with pytest.raises(af.StartFailed, match="FailsToStart"):
        FailsToStart.start()


@pytest.mark.parametrize(
    "error",
    [
        af.WorkerStopped("mine"),
        af.WorkerCrashed("mine"),
        af.StartFailed("somebody", "whatever"),
        af.WouldDeadlock("mine"),
        af.Dropped("mine"),
        pykka.ActorDeadError("mine"),
        pykka.Timeout("mine"),
        StopIteration("mine"),
        IndexError("mine"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_m23_our_own_errors_raised_by_a_hook_are_the_users(error: Exception) -> None:
    ref = Echo.start()
    with pytest.raises(type(error)) as raised:
        ref.ask(error, timeout=PATIENCE)
    assert raised.value is error
    assert ref.is_alive()
    ref.tell(error)
    assert ref.actor_stopped.wait(PATIENCE)
    assert ref.exit_reason == af.Crash(error)

    class Fails(Echo):
        def on_start(self) -> None:
            raise error

    with pytest.raises(af.StartFailed, match="Fails") as failed:
        Fails.start()
    assert failed.value.__cause__ is error


def test_m23_a_stop_without_a_reason_of_its_own_is_normal() -> None:
    class Mine(af.Stop):
        def __init__(self, word: str) -> None:
            self.word = word

    ref = Echo.start()
    assert ref.ask(Mine("enough"), timeout=PATIENCE) is None
    assert ref.exit_reason == af.Normal()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("hook", ["on_stop", "on_failure"])
def test_last_hooks_that_raise_anything_end_the_actor(error: BaseException, hook: str) -> None:
    def fails(self: Any, *arguments: Any) -> None:
        raise error

    ref = type("Fails", (Echo,), {hook: fails}).start()  # type: ignore[attr-defined]
    if hook == "on_stop":
        assert ref.stop(timeout=PATIENCE) is True
    else:
        ref.tell(ValueError("a crash"))
    assert ref.actor_stopped.wait(PATIENCE)


def test_messages_with_a_hostile_class_crash_nothing() -> None:
    class Hostile:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise RuntimeError("do not look at my class")

    ref = Echo.start()
    with pytest.raises(RuntimeError, match="do not look"):
        ref.ask(Hostile(), timeout=PATIENCE)
    assert ref.ask("fine", timeout=PATIENCE) == "fine"


class Handler(logging.Handler):
    """A log handler that does something unusual."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def emit(self, record: logging.LogRecord) -> None:
        self.act()


@pytest.fixture
def handle(request: pytest.FixtureRequest) -> Any:
    """Return a function that installs a log handler for this test."""
    logger = logging.getLogger("actorflow")

    def install(act: Any) -> None:
        handler = Handler(act)
        logger.addHandler(handler)
        request.addfinalizer(lambda: logger.removeHandler(handler))

    return install


def test_m21_a_log_handler_may_talk_to_the_actor_that_is_ending(handle: Any) -> None:
    ref = Echo.start()
    answers: list[Any] = []
    handle(lambda: answers.append(ref.ask("from the log", block=False)))
    ref.tell(ValueError("a crash"))
    assert ref.actor_stopped.wait(PATIENCE)
    for answer in answers:
        with pytest.raises(af.WorkerCrashed):
            answer.get(timeout=PATIENCE)
    assert answers


def test_a_log_handler_that_raises_does_not_keep_the_actor_from_ending(handle: Any) -> None:
    def fails() -> None:
        raise OSError("disk full")

    handle(fails)
    ref = Gate.start()
    ref.tell(ref.actor.hold)
    assert ref.actor.entered.wait(PATIENCE)
    ref.tell("not callable")
    waiting = ref.ask(lambda: 1, block=False)
    ref.actor.opened.set()
    assert ref.actor_stopped.wait(PATIENCE)
    with pytest.raises(af.WorkerCrashed):
        waiting.get(timeout=PATIENCE)
    assert isinstance(ref.exit_reason, af.Crash)


# Turns.


def test_a_busy_actor_lets_others_run() -> None:
    lane = ManualLane()
    busy, other = Echo.start(lane=lane), Echo.start(lane=lane)
    for number in range(100):
        busy.tell(number)
    other.tell("in between")
    lane.step()
    lane.step()
    assert other.actor.log == ["start", "in between"]
    assert len(busy.actor.log) < 100
    lane.run()
    assert busy.actor.log == ["start", *range(100)]


def test_an_actor_without_on_start_handles_what_was_sent_before_it_started() -> None:
    lane = ManualLane()
    actor: Any = Gate(lane=lane)
    early = actor.actor_ref.ask(lambda: "early", block=False)
    assert len(lane) == 0
    actor._start_actor_loop()
    lane.run()
    assert early.get(timeout=0) == "early"


def test_a_kill_refuses_the_caller_or_keeps_the_handler_from_running() -> None:
    place = 0
    while True:
        lane = ManualLane()
        ref = Echo.start(lane=lane)
        lane.run()
        asked = ref.ask("a", block=False)
        paused = Paused(lane.step, place, opcodes=True)
        before = list(ref.actor.log)
        ref.kill()
        refused_at_once = asked._result is not None
        paused.finish()
        assert refused_at_once or ref.actor.log == before, paused.where
        with contextlib.suppress(af.WorkerStopped):
            assert asked.get(timeout=0) == "a", paused.where
        if paused.where is None:
            break
        place += 1
    assert place > 30


def test_a_kill_while_on_stop_hangs_releases_the_caller_of_stop() -> None:
    class Hangs(Gate):
        def on_stop(self) -> None:
            self.hold()

    ref = Hangs.start()
    stopping = Caller(ref.stop)
    assert ref.actor.entered.wait(PATIENCE)
    ref.kill()
    assert stopping.value() is True
    ref.actor.opened.set()
