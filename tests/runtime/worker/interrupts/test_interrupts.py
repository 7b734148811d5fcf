"""M13: KeyboardInterrupt at any moment of the main thread leaves a worker that works."""

from __future__ import annotations

import asyncio
import itertools
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Debounce, Expire, Linger, Queue, Throttle, Unique
from actorflow.runtime.lanes.pool import ThreadPool
from actorflow.runtime.worker.pair import accumulator as accumulator_module
from actorflow.runtime.worker.pair import offers, transitions
from tests.runtime.worker.interrupts.interrupted import BEHAVIOURS
from tests.runtime.worker.interrupts.strike import Strike
from tests.runtime.worker.probe import PATIENCE, Caller
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[4]


def interrupted(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run rounds of interrupts in a process of their own."""
    command = [
        sys.executable,
        "-m",
        "tests.runtime.worker.interrupts.interrupted",
        *map(str, arguments),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_m13_signals_at_random_moments_leave_nothing_half_done(behaviour: str) -> None:
    done = interrupted(behaviour, 200, 1)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_m13_signals_at_random_moments_for_long(behaviour: str) -> None:
    done = interrupted(behaviour, 2_000, "soak")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mutation", "behaviour"),
    [
        ("split hand-over", "queue"),
        ("fold in the main thread", "unique"),
        ("fold in the main thread", "nested"),
    ],
)
def test_the_rounds_notice_a_missing_safeguard(mutation: str, behaviour: str) -> None:
    # Each round has its chance to notice, and the first that does ends them. Usually some hundred
    # are enough; on a machine that is busy with other work signals come at fewer moments.
    done = interrupted(behaviour, 5_000, 1, mutation)
    # A hang ends in the watchdog's stacks, and printing those of threads that run may crash it.
    noticed = (1, -signal.SIGSEGV)
    assert done.returncode in noticed, f"5,000 rounds have not noticed: {done.returncode}"


# An interrupt at each line, and at each opcode, of each call.


def named(message: tuple[str, int]) -> str:
    return message[0]


KINDS: dict[str, Callable[[], Any]] = {
    "queue": Queue,
    "unique": lambda: Unique(named),
    "reject": lambda: Bounded(Queue(), 3),
    "drop_oldest": lambda: Bounded(Unique(named), 3, when_full="drop_oldest"),
    "drop_newest": lambda: Bounded(Queue(), 3, when_full="drop_newest"),
    "block": lambda: Bounded(Queue(), 3, when_full="block"),
    "linger": lambda: Linger(Queue(), 0.0005, size=3),
}
TIMED: dict[str, Callable[[], Any]] = {
    "linger": KINDS["linger"],
    "debounce": lambda: Debounce(Queue(), 0.0002, at_most=0.001),
    "throttle": lambda: Throttle(Queue(), 0.0005),
    "expire": lambda: Expire(Queue(), 60.0),
    "nested": lambda: Bounded(Linger(Unique(named), 0.0005), 3, when_full="drop_oldest"),
}


class Bench:
    """A worker in the hand of the test, and one call that is interrupted."""

    def __init__(
        self,
        kind: str,
        *,
        busy: bool,
        help: bool = False,  # noqa: A002 - as spawn has it
        lane: str = "used pool",
    ) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.processed: list[Any] = []
        self.release: Callable[[], bool] = bool
        """Whether the batch that keeps the worker busy may end before the gate is open."""
        self.pool = ThreadPool(core=1, name="actorflow-interrupted") if lane == "new pool" else None
        options: Any = {"executor": self.pool or "pool", "help": help}
        if lane == "thread":
            options = {"executor": "thread"}
        behaviour = (KINDS | TIMED)[kind]()
        if lane == "loop":
            self.worker = af.spawn(self._ajob, behaviour=behaviour)
        else:
            self.worker = af.spawn(self._job, behaviour=behaviour, **options)
        if busy:
            Caller(self.worker.push, ("busy", -1))
            assert self.begun.wait(PATIENCE)
        else:
            self.gate.set()

    def _job(self, batch: list[Any], _state: Any) -> af.Answers:
        self.begun.set()
        self.processed += batch
        if batch[0][0] == "busy":
            while not (self.release() or self.gate.is_set()):
                self.gate.wait(0.0002)
        return af.Answers(None, [message[1] for message in batch])

    async def _ajob(self, batch: list[Any], _state: Any) -> af.Answers:
        self.begun.set()
        self.processed += batch
        while batch[0][0] == "busy" and not (self.release() or self.gate.is_set()):  # noqa: ASYNC110 - the gate is opened without a loop
            await asyncio.sleep(0.0002)
        return af.Answers(None, [message[1] for message in batch])

    def waits(self) -> None:
        """Let the busy batch end as soon as another message is there."""
        actor = self.worker.actor
        self.release = lambda: len(actor.core) > 0 or bool(actor.offers._blocked)

    def _push_more(self) -> None:
        if self.worker.actor.core.behaviour.traits.blocks:
            return
        for number in range(20):
            self.worker.push(("more", number))

    def check(self) -> None:
        """Assert that the worker works, or has ended, and that its counts add up."""
        worker = self.worker
        if not self.gate.is_set() and worker.is_alive() and not worker.actor.mode:
            more = Caller(self._push_more)  # others can go on while the job is at work
            more.wait()
        self.gate.set()
        deadline = time.monotonic() + PATIENCE
        while worker.actor.mode is None and worker.is_alive():
            try:
                worker.push_block(("last", 99), timeout=PATIENCE)
            except (af.Rejected, af.Displaced):  # full for a moment
                assert time.monotonic() < deadline, "it stays full"
            except af.WorkerStopped:
                break
            else:
                assert ("last", 99) in self.processed
                break
        check_law(worker)
        worker.stop(timeout=PATIENCE)
        assert not worker.is_alive()
        counts = check_law(worker)
        assert counts.held == counts.in_flight == 0
        with pytest.raises(af.WorkerStopped):
            worker.push(("late", 0))
        if self.pool is not None:
            self.pool.close()


@dataclass(frozen=True)
class Scene:
    """A call that is interrupted, on a worker that is idle or busy."""

    call: Callable[[Bench], Any]
    busy: bool = False
    help: bool = False


def fresh(count: int) -> list[tuple[str, int]]:
    return [(f"m{number}", number) for number in range(count)]


def push_all(bench: Bench, count: int = 2) -> None:
    for message in fresh(count):
        bench.worker.push(message)


def push_with(method: str, *, waits: bool = False) -> Callable[[Bench], None]:
    def call(bench: Bench) -> None:
        if waits:
            bench.waits()
        try:
            getattr(bench.worker, method)(("x", 7), timeout=PATIENCE)
        except af.Rejected:
            return

    return call


def push_more_than_fits(bench: Bench) -> None:
    bench.waits()
    push_all(bench, 6)


def fold_early(bench: Bench) -> None:
    if bench.worker.actor.core.behaviour.traits.blocks:
        bench.waits()
    push_all(bench, 12)


def help_out(bench: Bench) -> None:
    bench.worker.push_block(("x", 7))


def leave_with(bench: Bench) -> None:
    with bench.worker:
        pass


def stop_watched(bench: Bench) -> None:
    bench.worker.statistics()  # has the pair keep what it needs to be watched
    bench.worker.stop()


def stop_after_push(bench: Bench) -> None:
    bench.waits()
    bench.worker.push(("x", 7))
    bench.worker.stop()


def stop_twice(bench: Bench) -> None:
    bench.worker.stop()
    bench.worker.stop()


SCENES: dict[str, Scene] = {
    "push idle": Scene(push_all),
    "push busy": Scene(push_more_than_fits, busy=True),
    "fold": Scene(fold_early, busy=True),
    "push_many idle": Scene(lambda bench: bench.worker.push_many(fresh(2))),
    "push_many busy": Scene(lambda bench: bench.worker.push_many(fresh(3)), busy=True),
    "push_ack idle": Scene(push_with("push_ack")),
    "push_block idle": Scene(push_with("push_block")),
    "push_block busy": Scene(push_with("push_block", waits=True), busy=True),
    "ask idle": Scene(push_with("ask")),
    "help": Scene(help_out, help=True),
    "len": Scene(lambda bench: len(bench.worker)),
    "statistics": Scene(lambda bench: bench.worker.statistics()),
    "exit": Scene(leave_with),
    "stop idle": Scene(stop_watched),
    "stop busy": Scene(stop_after_push, busy=True),
    "stop twice": Scene(stop_twice),
}


@pytest.fixture
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make producers fold after a few messages."""
    for module in (accumulator_module, offers, transitions):
        monkeypatch.setattr(module, "fold_at", lambda _shape: 2)


def places(scene: Scene, kind: str, *, opcodes: bool, lane: str = "used pool") -> int:
    """Interrupt the scene at each of its places in turn; return how many there are."""
    for place in itertools.count():
        bench = Bench(kind, busy=scene.busy, help=scene.help, lane=lane)
        strike = Strike(place, opcodes=opcodes)
        try:
            came = strike.call(lambda bench=bench: scene.call(bench))  # type: ignore[misc]
            bench.check()
        except BaseException as error:
            error.add_note(f"after an interrupt at {strike.where}, place {place}")
            bench.gate.set()
            raise
        if strike.where is None:
            return place
        assert came, f"an interrupt at {strike.where} was swallowed"
    raise AssertionError


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scene", SCENES)
def test_m13_an_interrupt_at_any_line(scene: str, kind: str) -> None:
    assert places(SCENES[scene], kind, opcodes=False) > 0


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scene", SCENES)
def test_m13_an_interrupt_at_any_opcode(scene: str, kind: str) -> None:
    assert places(SCENES[scene], kind, opcodes=True) > 3


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("scene", ["push idle", "push busy", "push_block idle", "ask idle", "exit"])
@pytest.mark.parametrize("lane", ["new pool", "thread", "loop"])
@pytest.mark.parametrize("kind", ["queue", *TIMED])
def test_m13_an_interrupt_at_any_opcode_on_a_lane_that_has_to_start(
    kind: str, lane: str, scene: str
) -> None:
    """The token then goes through the helper thread, which starts a thread or wakes the loop."""
    assert places(SCENES[scene], kind, opcodes=True, lane=lane) > 3


@pytest.mark.parametrize("verb", ["push", "push_ack", "push_block", "ask", "push_many"])
def test_m13_what_is_sent_from_the_main_thread_takes_no_lock_there(verb: str) -> None:
    """So an interpreter that looks for signals in more places cannot leave one locked."""
    message: Any = [1] if verb == "push_many" else 1
    for place in itertools.count():
        worker = af.spawn(lambda _batch, _state: None)
        strike = Strike(place, opcodes=False, anywhere=True)
        strike.call(lambda worker=worker: getattr(worker, verb)(message))  # type: ignore[misc]
        worker.push_block(2, timeout=PATIENCE)
        with af.spawn(lambda _batch, _state: None) as other:
            other.push_block(1, timeout=PATIENCE)
        worker.stop()
        if strike.where is None:
            break


def test_m13_an_interrupt_leaves_a_lingering_batch_that_leaves_when_it_is_full() -> None:
    seen: queue.SimpleQueue[int] = queue.SimpleQueue()

    def job(batch: list[Any], _state: Any) -> None:
        seen.put(len(batch))

    for place in itertools.count():
        worker = af.spawn(job, behaviour=Linger(Queue(), 3_600, size=3))
        worker.push(("first", 0))
        strike = Strike(place, opcodes=True)
        strike.call(lambda worker=worker: worker.push_many(fresh(2)))  # type: ignore[misc]
        for message in fresh(3):
            worker.push(message)
        try:
            assert seen.get(timeout=PATIENCE) >= 3
        except queue.Empty:
            pytest.fail(f"it waits for its time after an interrupt at {strike.where}")
        worker.stop()
        while not seen.empty():
            seen.get()
        if strike.where is None:
            break
