"""The public face of a supervisor: watching it, with blocks, clear errors, and nothing kept."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import actorflow as af
from actorflow.runtime.supervision.spec import Flags
from actorflow.testing import ManualLane
from tests.runtime.supervision.kit import ref
from tests.runtime.worker.probe import PATIENCE, Caller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.runtime.supervision.kit import Stage

# Watching.


@pytest.mark.parametrize("how", ["stop", "kill", "give up"])
def test_watch_calls_back_once_after_the_children_have_ended(stage: Stage, how: str) -> None:
    supervisor = stage.up(stage.child("a"), stage.child("b"), max_restarts=0)
    children = [ref(supervisor, name) for name in "ab"]
    seen: list[Any] = []

    def ended(who: af.SupervisorRef, reason: af.ExitReason) -> None:
        seen.append((who, reason, [child.is_alive() for child in children]))

    supervisor.watch(ended)
    if how == "stop":
        supervisor.stop()
    elif how == "kill":
        supervisor.kill()
    else:
        stage.crash(supervisor, "a")
    stage.run()
    assert seen == [(supervisor, supervisor.exit_reason, [False, False])]
    supervisor.watch(ended)  # it has ended: called at once
    assert seen[1] == seen[0]


def test_unwatch_cancels_one_watch(stage: Stage) -> None:
    supervisor = stage.up()
    seen: list[Any] = []

    def ended(_who: af.SupervisorRef, reason: af.ExitReason) -> None:
        seen.append(reason)

    supervisor.watch(ended)
    supervisor.watch(ended)
    supervisor.unwatch(ended)
    supervisor.unwatch(print)  # was never there
    supervisor.stop()
    assert seen == [af.Normal()]
    supervisor.unwatch(ended)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_m20_watcher_that_raises_does_not_affect_the_others(
    stage: Stage, error: BaseException
) -> None:
    supervisor = stage.up(stage.child("a"))
    seen: list[Any] = []

    def raises(_who: af.SupervisorRef, _reason: af.ExitReason) -> None:
        raise error

    supervisor.watch(raises)
    supervisor.watch(lambda _who, reason: seen.append(reason))
    assert supervisor.stop()
    assert seen == [af.Normal()]


def test_m20_watcher_may_call_back(stage: Stage) -> None:
    supervisor = stage.up(stage.child("a"))
    seen: list[Any] = []

    def asks(who: af.SupervisorRef, _reason: af.ExitReason) -> None:
        seen.append(who.stop())
        for call in (who.which_children, who.count_children, who.tree):
            with pytest.raises(af.WorkerStopped):
                call()
        seen.append("asked")

    supervisor.watch(asks)
    supervisor.stop()
    assert seen == [False, "asked"]


# Logging.


class Handler(logging.Handler):
    """A log handler that does something else than logging."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def emit(self, record: logging.LogRecord) -> None:
        self.call(record)


@pytest.fixture
def handle() -> Iterator[Any]:
    logger = logging.getLogger("actorflow")
    added: list[logging.Handler] = []

    def add(call: Any) -> None:
        added.append(Handler(call))
        logger.addHandler(added[-1])

    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield add
    logger.setLevel(level)
    for each in added:
        logger.removeHandler(each)


def test_m21_log_handler_that_raises_stops_no_supervisor(stage: Stage, handle: Any) -> None:
    supervisor = stage.up(stage.child("a"), max_restarts=1)

    def raises(record: logging.LogRecord) -> None:
        if "child " in record.getMessage() or "restarts" in record.getMessage():
            raise RuntimeError("disk full")

    handle(raises)
    stage.crash(supervisor, "a")
    assert ref(supervisor, "a").actor.name == "a2"
    stage.crash(supervisor, "a")
    assert isinstance(supervisor.exit_reason, af.Shutdown)


def test_m21_log_handler_may_call_back_into_the_supervisor(handle: Any) -> None:
    """On real threads, where a wait would really hang."""
    seen: list[Any] = []
    supervisor = af.Supervisor([af.Child("a", Fragile)], max_restarts=1).start()

    def calls_back(record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "child terminated" in text or "too many restarts" in text:
            seen.append(len(supervisor.which_children()))
            supervisor.stop(block=False)
            supervisor.stop()  # would wait for itself: raises, and is swallowed

    handle(calls_back)
    ended = threading.Event()
    supervisor.watch(lambda _who, _reason: ended.set())
    ref(supervisor, "a").tell("crash")
    assert ended.wait(PATIENCE)
    assert seen[0] == 1


class Fragile(af.Actor):
    def on_receive(self, message: Any) -> Any:
        raise ValueError(message)


# An interrupted start.


def test_m13_start_that_is_interrupted_leaves_no_supervisor_behind(stage: Stage) -> None:
    class Interrupted(ManualLane):
        def wait(self, _ticket: Any, _timeout: float | None) -> bool:
            self.run()
            raise KeyboardInterrupt

    lane = Interrupted()
    tree = af.Supervisor([stage.child("a")], name="interrupted", lane=lane, clock=stage.clock)
    with pytest.raises(KeyboardInterrupt):
        tree.start()
    assert af.whereis("interrupted") is None
    assert stage.take() == "+a1"  # and killed: the fixture checks that no actor is left


def test_a_supervisor_is_found_once_its_children_are_there() -> None:
    found: list[Any] = []

    def start() -> Any:
        found.append(af.whereis("found"))
        with pytest.raises(af.AlreadyStarted):
            af.Supervisor([], name="found").start()
        return af.spawn(lambda _batch, _state: None)

    with af.Supervisor([af.Child("w", start)], name="found") as supervisor:
        assert found == [None]
        assert af.whereis("found") is supervisor
    assert af.whereis("found") is None


# With blocks.


def test_each_with_block_stops_its_own() -> None:
    tree = af.Supervisor()
    with tree as outer:
        with tree as inner:
            assert outer is not inner
        assert (outer.is_alive(), inner.is_alive()) == (True, False)
    assert not outer.is_alive()


def test_with_blocks_of_threads_and_tasks_stop_their_own() -> None:
    tree = af.Supervisor()

    def check(own: af.SupervisorRef, others: list[af.SupervisorRef]) -> None:
        assert not own.is_alive()
        assert all(other.is_alive() for other in others)

    entered, leave = threading.Event(), threading.Event()
    theirs: list[af.SupervisorRef] = []

    def other_thread() -> None:
        with tree as own:
            theirs.append(own)
            entered.set()
            leave.wait(PATIENCE)

    async def task(first: asyncio.Event, then: asyncio.Event) -> af.SupervisorRef:
        with tree as own:
            first.set()
            await then.wait()
        return own

    async def tasks() -> None:
        entered_a, leave_a, entered_b, leave_b = (asyncio.Event() for _ in range(4))
        a = asyncio.create_task(task(entered_a, leave_a))
        await entered_a.wait()
        b = asyncio.create_task(task(entered_b, leave_b))
        await entered_b.wait()
        leave_a.set()  # the one that was entered first
        check(await a, theirs)
        leave_b.set()
        check(await b, theirs)

    thread = Caller(other_thread)
    entered.wait(PATIENCE)
    with tree as mine:
        asyncio.run(tasks())
        assert mine.is_alive()
    check(mine, theirs)
    leave.set()
    thread.wait()
    assert not theirs[0].is_alive()


def test_with_block_that_is_left_in_another_thread() -> None:
    tree = af.Supervisor()
    own = tree.__enter__()
    Caller(tree.__exit__, None, None, None).wait()
    assert not own.is_alive()


# Clear errors.


def job(batch: Any, state: Any) -> Any:
    return state


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (af.Worker("w", job), r"write Supervisor\(\[Worker\(...\)\]\) with brackets"),
        (af.Child("c", Fragile), r"write Supervisor\(\[Child\(...\)\]\) with brackets"),
        (af.Supervisor(), "with brackets"),
        (Fragile, "with brackets"),
        ("abc", "with brackets"),
        (None, "with brackets"),
        (7, "with brackets"),
    ],
)
def test_children_that_are_no_list_show_the_brackets(given: Any, words: str) -> None:
    with pytest.raises(af.BadChild, match=words):
        af.Supervisor(given)


BAD_NUMBERS: list[Any] = [True, False, "5", math.nan, -math.inf, None, [], 1j]


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("name", ["initial", "factor", "maximum", "jitter"])
def test_backoff_refuses_what_is_no_number_in_the_same_words(name: str, value: Any) -> None:
    with pytest.raises(
        af.BadFlags, match=rf"^{name}=.*: {name} must be a finite number, .*, as in"
    ):
        af.Backoff(**{name: value})


@pytest.mark.parametrize("value", BAD_NUMBERS)
@pytest.mark.parametrize("name", ["max_restarts", "within", "max_children"])
def test_flags_refuse_what_is_no_number_in_the_same_words(name: str, value: Any) -> None:
    if name == "max_children" and value is None:
        return
    with pytest.raises(af.BadFlags, match=rf"^{name}=.*: {name} must be a .*, as in Supervisor"):
        Flags(strategy="dynamic", **{name: value})


@pytest.mark.parametrize("value", [*BAD_NUMBERS, -1, "kill"])
def test_child_refuses_a_bad_shutdown_in_the_same_words(value: Any) -> None:
    if value is None:
        return
    with pytest.raises(af.BadChild, match=r"shutdown=.*: shutdown must be a .*, as in Child"):
        af.Child("a", Fragile, shutdown=value)


@pytest.mark.parametrize("value", [True, "5", math.nan, -1])
def test_run_refuses_a_bad_deadline_in_the_same_words(value: Any) -> None:
    with pytest.raises(af.BadOption, match=r"^deadline=.*: deadline must be a .*, as in run"):
        af.run(af.Supervisor(), deadline=value)


# Nothing is kept.


class Heavy(af.Actor):
    """A child with some state, which shows when it is freed."""

    alive: ClassVar[weakref.WeakSet[Heavy]] = weakref.WeakSet()

    def __init__(self, lane: Any) -> None:
        super().__init__(lane=lane)
        self.state = bytearray(10_000)
        Heavy.alive.add(self)


def pending(clock: Any) -> int:
    return sum(timer.callback is not None for _, _, timer in clock._timers)


def test_shutdown_timers_are_cancelled_when_the_round_is_over(stage: Stage) -> None:
    supervisor = stage.up(
        *(stage.child(name, shutdown=3_600.0) for name in "abcd"),
        strategy="one_for_all", max_restarts=9,
    )  # fmt: skip
    supervisor.terminate_child("d")
    assert pending(stage.clock) == 0
    stage.crash(supervisor, "a")
    assert pending(stage.clock) == 0
    supervisor.stop()
    assert pending(stage.clock) == 0


@pytest.mark.parametrize("how", ["terminate", "stop"])
def test_ended_children_are_freed_while_others_still_stop(stage: Stage, how: str) -> None:
    supervisor = stage.up(strategy="dynamic")
    supervisor.start_child(stage.stubborn("slow", shutdown=3_600.0))
    refs = [
        supervisor.start_child(
            af.Child("h", Heavy, stage.lane, shutdown=3_600.0, restart="temporary")
        ).ref
        for _ in range(20)
    ]
    if how == "terminate":
        for each in refs:
            supervisor.terminate_child(each)
        assert pending(stage.clock) == 0
    else:
        supervisor.stop(block=False)
    del refs[:]
    stage.run()
    each = None
    gc.collect()
    assert not Heavy.alive
    assert supervisor.is_alive()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_ended_supervisor_with_a_pending_retry_or_stop_is_freed(stage: Stage, how: str) -> None:
    supervisor = stage.up(
        stage.child("a"), stage.stubborn("slow", shutdown=3_600.0),
        backoff=af.Backoff(initial=3_600.0, maximum=3_600.0),
    )  # fmt: skip
    stage.crash(supervisor, "a")
    assert pending(stage.clock) == 1
    if how == "stop":
        supervisor.stop(block=False)
        stage.run()
        stage.slow.run()
        stage.run()
    else:
        supervisor.stop(block=False)
        stage.run()
        supervisor.kill()
    assert not supervisor.is_alive()
    assert pending(stage.clock) == 0


def test_overdue_timer_of_an_earlier_round_kills_nothing_in_the_next(stage: Stage) -> None:
    supervisor = stage.up(stage.stubborn("a"), stage.stubborn("b"))
    first, second = ref(supervisor, "a"), ref(supervisor, "b")
    supervisor.stop(block=False)
    stage.run()
    stage.clock.advance(4.9)
    stage.clock.advance(0.1)  # posted, but not handled yet
    stage.slow.run()  # "b" stops at the very last moment, and "a" is asked to
    stage.run()
    assert not second.is_alive()
    assert supervisor.is_alive(), "a has 5 seconds of its own"
    assert first.is_alive()
    stage.slow.run()
    stage.run()
    assert stage.take() == "-b1 -a1", "both have stopped by themselves"


# Requests against a supervisor that is being killed.


@pytest.mark.parametrize("moment", range(6))
def test_inbox_that_another_thread_refuses_at_the_same_time(stage: Stage, moment: int) -> None:
    supervisor = stage.up()
    told: list[Any] = []
    supervisor.watch(lambda _who, reason: told.append(reason))
    for _ in range(3):
        supervisor.actor._post(lambda: None)
    lines = 0

    def other_thread(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_name == "_refuse_inbox" and event == "line":
            lines += 1
            if lines == moment + 1:
                supervisor.actor._refuse_inbox()
        return other_thread

    before = sys.gettrace()
    sys.settrace(other_thread)
    try:
        supervisor.kill()
    finally:
        sys.settrace(before)
    assert told == [af.Killed()]


def test_requests_and_kills_from_many_threads_all_end() -> None:
    """Each caller gets an answer or `WorkerStopped`, each watcher its notice; nothing else."""
    wrong: list[BaseException] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(60):
            supervisor = af.Supervisor([af.Child("a", Fragile)], strategy="dynamic").start()
            told = threading.Event()
            supervisor.watch(lambda _who, _reason, told=told: told.set())  # type: ignore[misc]
            start = threading.Barrier(5)

            def hammer(
                supervisor: af.SupervisorRef = supervisor, start: threading.Barrier = start
            ) -> None:
                start.wait(PATIENCE)
                for number in range(1_000):
                    try:
                        supervisor.count_children() if number % 3 else supervisor.start_copy()
                    except af.WorkerStopped:
                        return
                    except BaseException as error:  # noqa: BLE001 - the test counts them
                        wrong.append(error)
                        return

            def kill(
                supervisor: af.SupervisorRef = supervisor, start: threading.Barrier = start
            ) -> None:
                start.wait(PATIENCE)
                try:
                    supervisor.kill()
                except BaseException as error:  # noqa: BLE001 - the test counts them
                    wrong.append(error)

            callers = [Caller(hammer) for _ in range(3)] + [Caller(kill) for _ in range(2)]
            for caller in callers:
                caller.wait()
            assert told.wait(PATIENCE), "the watcher was never told"
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("name", ["a"]), ("clock", None), ("clock", "now"), ("lane", "pool"), ("lane", 7)],
)
def test_an_option_that_cannot_work_is_refused_before_anything_starts(
    option: str, wrong: Any
) -> None:
    options: dict[str, Any] = {option: wrong}
    with pytest.raises(af.BadOption) as refused:
        af.Supervisor([], **options)
    assert f"{option}={wrong!r}" in str(refused.value)
