"""Loads that measure how long one message takes. All times are in microseconds."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka

import actorflow as af
from benchmarks.loads.throughput import clean_heap, switching
from benchmarks.peers.workers import PATIENCE, PEERS, BareList, HandOff, QueueThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.loads.throughput import Figures

__all__ = ["ack", "paced", "percentiles", "round_trip"]

_PAUSE = 1e-4  # seconds before each call to an idle subject, so that it really is idle
_FLOOD_PAUSE = 1e-3  # seconds between two calls under flood, so that calls hit any moment of it
_FLOOD_START = 10_000  # messages after which a flood is under way
_WARM = 20  # calls that do not count


def percentiles(seconds: list[float]) -> Figures:
    """Return the median and the 99th percentile, in microseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {"p50": ordered[last // 2] * 1e6, "p99": ordered[round(last * 0.99)] * 1e6}


def _ignore(_batch: Any, state: Any) -> Any:
    return state


class _Answering(pykka.ThreadingActor):
    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


def _answer(batch: list[Any], state: Any) -> af.Answers:
    return af.Answers(state, batch)


def _subject(name: str, cleanup: contextlib.ExitStack) -> tuple[Callable[[], Any], Any]:
    """Return a function that makes one round trip, and one that a flood can call with messages."""
    if name == "bare hand-off":
        hand_off = HandOff()
        cleanup.callback(hand_off.close)
        bare = BareList(lambda _batch: None)
        cleanup.callback(bare.close)
        return hand_off.round_trip, bare.push
    if name == "pykka ask":
        ref = _Answering.start()
        cleanup.callback(ref.stop, timeout=PATIENCE)
        return partial(ref.ask, None), None
    if name == "ask":
        asked = cleanup.enter_context(af.spawn(_answer))
        return partial(asked.ask, None), asked.push
    worker = cleanup.enter_context(af.spawn(_ignore, help=name in _HELPED))
    return partial(worker.push_block, None), worker.push


_HELPED = {"push_block, help, main thread": True, "push_block, help, other thread": False}
"""Subjects whose caller runs the job itself where it can, and whether it is the main thread."""


def round_trip(
    subject: str, *, samples: int, flood: bool = False, interval: float | None = None
) -> Figures:
    """Make round trips, one after another; with `flood`, while another thread floods the subject.

    The flood of a worker goes to that very worker. The bare hand-off carries no messages, so its
    flood goes to a bare list: both compete for the interpreter lock in the same way.
    """
    if _HELPED.get(subject, True):
        return _round_trip(subject, samples=samples, flood=flood, interval=interval)
    figures: Figures = {}

    def other() -> None:
        figures.update(_round_trip(subject, samples=samples, flood=flood, interval=interval))

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return figures


def _round_trip(subject: str, *, samples: int, flood: bool, interval: float | None) -> Figures:
    with switching(interval), contextlib.ExitStack() as cleanup:
        go, push = _subject(subject, cleanup)
        flooder = _Flood(push) if flood else None
        if flooder is not None:
            cleanup.callback(flooder.stop)
            flooder.wait()
        times: list[float] = []
        clean_heap()
        hot = subject in _HELPED  # no other thread has to come to rest
        pause = _FLOOD_PAUSE if flooder else 0.0 if hot else _PAUSE
        for number in range(-_WARM, samples):
            if pause:
                time.sleep(pause)
            if flooder is not None and number == 0:
                flooder.mark()
            begin = time.perf_counter()
            go()
            times.append(time.perf_counter() - begin)
        figures = percentiles(times[_WARM:])
        if flooder is not None:
            figures["flood rate"] = flooder.rate()
        return figures


class _Flood:
    """A thread that pushes without pause."""

    def __init__(self, push: Callable[[Any], None]) -> None:
        self._push = push
        self._pushed = 0
        self._stopped = False
        self._since = (0, time.perf_counter())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        push = self._push
        while not self._stopped:
            for number in range(100):
                push(number)
            self._pushed += 100

    def wait(self) -> None:
        """Wait until the flood is under way."""
        while self._pushed < _FLOOD_START:
            time.sleep(_FLOOD_PAUSE)

    def mark(self) -> None:
        """Begin to count."""
        self._since = (self._pushed, time.perf_counter())

    def rate(self) -> float:
        """Return the messages pushed per second since the mark."""
        pushed, begin = self._since
        return (self._pushed - pushed) / (time.perf_counter() - begin)

    def stop(self) -> None:
        """End the flood."""
        self._stopped = True
        self._thread.join(PATIENCE)


def ack(subject: str, *, samples: int) -> Figures:
    """Time `push_ack` on a worker that is idle each time, or on one that is busy all the time.

    The reference is the least that waking a thread costs the thread that does it.
    """
    if subject == "bare put, idle thread":
        return _bare_put(samples)
    times: list[float] = []
    hold = threading.Lock()
    ran = threading.Semaphore(0)

    def job(_batch: Any, state: Any) -> Any:
        ran.release()
        with hold:
            return state

    busy = subject == "push_ack, busy"
    with af.spawn(job) as worker, hold if busy else contextlib.nullcontext():
        if busy:
            worker.push(None)
            assert ran.acquire(timeout=PATIENCE)
        clean_heap()
        push_ack = worker.push_ack
        for _ in range(-_WARM, samples):
            begin = time.perf_counter()
            push_ack(None)
            times.append(time.perf_counter() - begin)
            if not busy:
                assert ran.acquire(timeout=PATIENCE)
                time.sleep(_PAUSE)
    return percentiles(times[_WARM:])


def _bare_put(samples: int) -> Figures:
    times: list[float] = []
    ran = threading.Semaphore(0)
    thread = QueueThread(lambda _message: ran.release())
    push = thread.push
    clean_heap()
    for _ in range(-_WARM, samples):
        begin = time.perf_counter()
        push(1)
        times.append(time.perf_counter() - begin)
        assert ran.acquire(timeout=PATIENCE)
        time.sleep(_PAUSE)
    thread.close()
    return percentiles(times[_WARM:])


def paced(subject: str, *, messages: int, every: float) -> Figures:
    """Push at a steady pace; time how long each message takes to reach the job."""
    times: list[float] = []

    def one(pushed: float) -> None:
        times.append(time.perf_counter() - pushed)

    def batch(pushed: list[float]) -> None:
        now = time.perf_counter()
        times.extend(now - each for each in pushed)

    def job(pushed: list[float], state: Any) -> Any:
        now = time.perf_counter()
        times.extend(now - each for each in pushed)
        return state

    with contextlib.ExitStack() as cleanup:
        if subject == "Queue":
            push: Callable[[float], None] = cleanup.enter_context(af.spawn(job)).push
        else:
            made = PEERS[subject]
            peer = made(batch if made.batches else one)
            cleanup.callback(peer.close)
            push = peer.push
        clean_heap()
        start = time.perf_counter()
        for number in range(messages):
            left = start + number * every - time.perf_counter()
            if left > 0:
                time.sleep(left)
            push(time.perf_counter())
    assert len(times) == messages
    return percentiles(times)
