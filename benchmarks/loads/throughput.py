"""Loads that measure throughput: how many messages are carried in a second.

Each load is a function of plain arguments that returns figures by name, so that it can run in a
process of its own. Time runs from the first push until the last message is processed. Messages,
workers and queues are made before; the heap is collected and frozen before the clock starts, and
the collector stays on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow import behaviours
from benchmarks.peers.workers import (
    PATIENCE,
    PEERS,
    BareList,
    BareRunner,
    PlainPykka,
    asyncio_burst,
    asyncio_crowd,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "BEHAVIOURS",
    "Figures",
    "available",
    "burst",
    "chunks",
    "clean_heap",
    "crowd",
    "switching",
]

Figures = dict[str, float]
"""The figures of one run, by name."""

KEYS = 1_000
BOUND = 10_000


def _make(name: str, *arguments: Any, **options: Any) -> Any:
    return getattr(behaviours, name)(*arguments, **options)


BEHAVIOURS: dict[str, tuple[str, Callable[[], Any]]] = {
    "Queue": ("numbers", lambda: _make("Queue")),
    "Stack": ("numbers", lambda: _make("Stack")),
    "Unique": ("pairs", lambda: _make("Unique")),
    "TableUnique": ("pairs", lambda: _make("TableUnique")),
    "Priority 0..9": ("urgent", lambda: _make("Priority")),
    "Priority random": ("random", lambda: _make("Priority")),
    "Bounded(Queue) large": ("numbers", lambda: _make("Bounded", _make("Queue"), 10**9)),
    "Bounded(Queue) reject": ("lossy", lambda: _make("Bounded", _make("Queue"), BOUND)),
    "Bounded(Queue) drop_oldest": (
        "lossy", lambda: _make("Bounded", _make("Queue"), BOUND, when_full="drop_oldest"),
    ),
    "Chunk(Queue, 100)": ("numbers", lambda: _make("Chunk", _make("Queue"), 100)),
    "Throttle(Queue, 1 ms)": ("numbers", lambda: _make("Throttle", _make("Queue"), 0.001)),
    "Linger(Queue, 1 ms, 1,000)": (
        "numbers", lambda: _make("Linger", _make("Queue"), 0.001, 1_000),
    ),
    "Debounce(Queue, 1 ms, 5 ms)": (
        "numbers", lambda: _make("Debounce", _make("Queue"), 0.001, 0.005),
    ),
    "Expire(Queue, 60 s)": ("numbers", lambda: _make("Expire", _make("Queue"), 60.0)),
    "Coalesce": ("pairs", lambda: _make("Coalesce", 0, _newer)),
    "Fair": ("keyed", lambda: _make("Fair", 0)),
}  # fmt: skip
"""The kind of messages and the behaviour's factory, by the names used in the tables.

All `numbers`, `urgent`, `random` and `keyed` messages reach the job, so the job counts them. Only
some of the `pairs` (1,000 keys) and `lossy` messages do: a last message marks the end.
"""

_NEEDS = {"Priority 0..9": "Priority", "Priority random": "Priority"}
_LAST = (-1, "last")


def _newer(_old: Any, new: Any) -> Any:
    return new


def available(name: str) -> bool:
    """Return whether the `behaviours` package has that behaviour."""
    return hasattr(behaviours, _NEEDS.get(name, name.partition("(")[0]))


def clean_heap() -> None:
    """Hide everything older from the collector: a load pays only for what it allocates itself.

    It stays hidden until the process ends or `gc.unfreeze` is called.
    """
    gc.collect()
    gc.freeze()


def messages_for(kind: str, count: int) -> list[Any]:
    """Return the messages of a load."""
    if kind == "pairs":
        return [(number % KEYS, number) for number in range(count)]
    if kind == "urgent":
        return [(number % 10, number) for number in range(count)]
    if kind == "random":
        urgency = random.Random(2)
        return [(urgency.random(), number) for number in range(count)]
    if kind == "keyed":
        return [(number % 100, number) for number in range(count)]
    return list(range(count))


class _Finish:
    """Detects that everything is processed, by counting or by a last message."""

    def __init__(self, expected: int | None) -> None:
        self._expected = expected
        self._lock = threading.Lock()
        self._lock.acquire()
        self._count = 0

    def batch(self, batch: list[Any]) -> None:
        """Count a batch: the job of peers that batch."""
        if self._expected is None:
            if batch[-1] == _LAST:
                self._lock.release()
        else:
            self._count += len(batch)
            if self._count >= self._expected:
                self._lock.release()

    def job(self, batch: list[Any], state: Any) -> Any:
        """Count a batch: the job of a worker."""
        self.batch(batch)
        return state

    def one(self, _message: Any) -> None:
        """Count a message: the job of peers that do not batch."""
        self._count += 1
        if self._count == self._expected:
            self._lock.release()

    def wait(self) -> None:
        """Wait until the last message is processed; check that none was processed twice."""
        if not self._lock.acquire(timeout=PATIENCE):
            msg = f"after {PATIENCE} s {self._count} of {self._expected} messages are processed"
            raise TimeoutError(msg)
        if self._expected is not None:
            assert self._count == self._expected, f"{self._count} instead of {self._expected}"


def _push_all(push: Callable[[Any], None], messages: list[Any]) -> None:
    for message in messages:
        push(message)


def _produce(push: Callable[[Any], None], parts: list[list[Any]]) -> Callable[[], None]:
    """Start producers that wait for a signal; return a function that releases and joins them.

    A single producer is the calling thread itself.
    """
    if len(parts) == 1:
        return lambda: _push_all(push, parts[0])
    gate = threading.Barrier(len(parts) + 1)

    def produce(part: list[Any]) -> None:
        gate.wait()
        _push_all(push, part)

    threads = [threading.Thread(target=produce, args=(part,), daemon=True) for part in parts]
    for thread in threads:
        thread.start()

    def go() -> None:
        gate.wait()
        for thread in threads:
            thread.join(PATIENCE)

    return go


def burst(
    subject: str, *, messages: int, producers: int = 1, interval: float | None = None
) -> Figures:
    """Push all messages as fast as possible, and wait until they are processed."""
    with switching(interval):
        _once(subject, min(messages, 2_000), producers)  # start threads, warm up
        return {"rate": messages / _once(subject, messages, producers)}


def _once(subject: str, count: int, producers: int) -> float:
    kind, make = BEHAVIOURS.get(subject, ("pairs" if subject == "bare dict" else "numbers", None))
    everything = messages_for(kind, count)
    parts = [everything[start::producers] for start in range(producers)]
    lossy = kind in {"pairs", "lossy"}
    finish = _Finish(None if lossy else count)
    clean_heap()
    if subject == "asyncio queue":
        begin = time.perf_counter()
        asyncio.run(asyncio_burst(finish.one, parts))
        return time.perf_counter() - begin
    with contextlib.ExitStack() as cleanup:
        push: Callable[[Any], None]
        last: Callable[[Any], None]
        if make is not None:
            worker = cleanup.enter_context(af.spawn(finish.job, behaviour=make()))
            push, last = worker.push, worker.push_ack
        else:
            made = PEERS[subject]
            peer = made(finish.batch if made.batches else finish.one)
            cleanup.callback(peer.close)
            push = last = peer.push
        go = _produce(push, parts)
        begin = time.perf_counter()
        go()
        if lossy:
            _push_last(last)
        finish.wait()
        return time.perf_counter() - begin


def _push_last(push: Callable[[Any], None]) -> None:
    """Push the last message, again and again while it is rejected for lack of room."""
    while True:
        try:
            push(_LAST)
        except af.Full:
            time.sleep(0)
        else:
            return


def crowd(subject: str, *, workers: int, each: int) -> Figures:
    """Push round robin to many workers; wait until each has processed its share."""
    _crowd(subject, workers, min(each, 2))
    return {"rate": workers * each / _crowd(subject, workers, each)}


def _crowd(subject: str, workers: int, each: int) -> float:
    messages = list(range(each))
    if subject == "asyncio queue":
        return _asyncio_crowd(workers, messages)
    finish = _Finish(1)
    ended = itertools.count(1)  # without a lock, which would hold up threads and make pools grow

    def job(batch: list[Any], seen: int) -> int:
        seen += len(batch)
        if seen >= each and next(ended) == workers:
            finish.one(None)
        return seen

    with contextlib.ExitStack() as cleanup:
        pushes: list[Callable[[Any], None]]
        if subject == "Queue":
            refs = [af.spawn(job, state=0) for _ in range(workers)]
            pushes = [ref.push for ref in refs]
            cleanup.callback(_stop_all, refs)
        elif subject == "bare list":
            runner = BareRunner()
            cleanup.callback(runner.close)
            pushes = [BareList(_keeping(job), runner).push for _ in range(workers)]
        else:
            actors = [PlainPykka(_keeping_one(job)) for _ in range(workers)]
            pushes = [actor.push for actor in actors]
            for actor in actors:
                cleanup.callback(actor.close)
        clean_heap()
        begin = time.perf_counter()
        for message in messages:
            for push in pushes:
                push(message)
        finish.wait()
        return time.perf_counter() - begin


def _stop_all(refs: list[af.WorkerRef]) -> None:
    for ref in refs:
        ref.stop(block=False)


def _keeping(job: Callable[[list[Any], int], int]) -> Callable[[list[Any]], None]:
    """Keep the state of a job for a peer that batches."""
    state = 0

    def keep(batch: list[Any]) -> None:
        nonlocal state
        state = job(batch, state)

    return keep


def _keeping_one(job: Callable[[list[Any], int], int]) -> Callable[[Any], None]:
    """Keep the state of a job for a peer that does not."""
    keep = _keeping(job)
    return lambda message: keep([message])


def _asyncio_crowd(workers: int, messages: list[Any]) -> float:
    finish = _Finish(workers * len(messages))
    return asyncio.run(asyncio_crowd(finish.one, workers, messages, clean_heap))


def chunks(subject: str, *, messages: int, size: int) -> Figures:
    """Push lists of `size` messages with `push_many`."""
    _chunks(subject, size, size)
    return {"rate": messages / _chunks(subject, messages, size)}


def _chunks(subject: str, count: int, size: int) -> float:
    finish = _Finish(count)
    chunk = list(range(size))
    rounds = range(count // size)
    clean_heap()
    with contextlib.ExitStack() as cleanup:
        push_many: Callable[[list[Any]], None]
        if subject == "bare list":
            bare = BareList(finish.batch)
            cleanup.callback(bare.close)
            push_many = bare.push_many
        else:
            push_many = cleanup.enter_context(af.spawn(finish.job)).push_many
        begin = time.perf_counter()
        for _ in rounds:
            push_many(chunk)
        finish.wait()
        return time.perf_counter() - begin


@contextlib.contextmanager
def switching(interval: float | None) -> Iterator[None]:
    """Set the interpreter's switch interval inside a `with` block."""
    before = sys.getswitchinterval()
    if interval is not None:
        sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
