"""Storms: many producers against one worker, and invariants that hold whatever they do.

`run_storm` lets producer threads push in every way there is, while the job is slow at random and
other threads stop the worker and read its statistics. It returns the list of problems: lost,
repeated or reordered messages, callers answered wrongly or not at all, too many runs of the job at
once, counts that do not add up. The list is empty unless there is a bug, which is shown by taking
single safeguards away.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest import MonkeyPatch  # noqa: PT013 - the class alone

import actorflow as af
from actorflow.runtime.lanes.pool import ThreadPool
from actorflow.runtime.tickets import ThreadTicket
from actorflow.runtime.worker import shape
from tests.runtime.worker.storms.weather import (
    BEHAVIOURS,
    BOUND,
    BURST,
    COMPLETE,
    FATES,
    IN_ORDER,
    KEYED,
    KEYS,
    PATIENCE,
    RUSH,
    Crashed,
    Producer,
    Weather,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Storm:
    """One storm over one worker."""

    def __init__(self, weather: Weather, lane: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.weather = weather
        self.wrong: list[str] = []
        self.processed: list[Any] = []
        self.seen: set[Any] = set()
        self.largest = 0
        self.raw = 0
        self.progress = threading.Condition()
        self.loop = loop
        self.pool = lane
        self._over = threading.Event()
        self._places = threading.Semaphore(weather.concurrency)
        self._dice = random.Random(weather.seed)
        self._crash_at = self._dice.randrange(1, 6) if weather.crash else 0
        self._batches = 0
        self._burst = RUSH if weather.reset_threshold else BURST if weather.lulls else 0
        self._early = {"drain", "finish", "now"} if weather.stop else set()
        self.worker = af.spawn(
            self._job,
            behaviour=BEHAVIOURS[weather.behaviour],
            executor=lane,
            help=weather.help,
            concurrency=weather.concurrency,
        )
        weather.change(self.worker)
        self.producers = [Producer(number) for number in range(weather.producers)]
        total = weather.messages * weather.producers
        self._stop_at = self._dice.randrange(1, total) if weather.stop else -1
        self._stops = threading.Event()
        self._patience = threading.Event()
        self._lull = threading.Barrier(weather.producers, self._await_calm)

    # The job.

    def _job(self, batch: list[Any], _state: Any) -> Any:
        if not self._places.acquire(blocking=False):
            self.wrong.append("the job runs too often at once")
            return None
        try:
            self._batches += 1
            self.largest = max(self.largest, len(batch))
            for _ in range(0 if self.weather.reset_threshold else self._dice.randrange(400)):
                pass
            if self._batches == self._crash_at:
                raise Crashed
            self.processed += batch
            if self._burst:  # only plain pushes
                return None
            self.seen.update(batch)
            return None if self._dice.random() < 0.7 else af.Answers(None, list(batch))
        finally:
            self._places.release()
            with self.progress:
                self.progress.notify_all()

    # The producers.

    def _message(self, producer: int, number: int) -> Any:
        if self.weather.behaviour in KEYED:
            return ((producer, number % KEYS), number)
        return (number % 5, producer, number)

    def _produce(self, producer: Producer) -> None:
        dice = random.Random(f"{self.weather.seed}/{producer.number}")
        plain = self.weather.reset_threshold or self.weather.lulls
        number = 0
        try:
            while number < self.weather.messages:
                count = self._burst or dice.randrange(1, 6)
                fresh = [
                    self._message(producer.number, number + more)
                    for more in range(min(count, self.weather.messages - number))
                ]
                number += len(fresh)
                producer.sent += fresh
                self._push(producer, fresh, 0.0 if plain else dice.random())
                producer.done = number
                if self.weather.lulls:
                    self._lull.wait(self.weather.patience)
                if 0 <= self._stop_at <= sum(one.done for one in self.producers):
                    self._stops.set()
        except threading.BrokenBarrierError:
            self.wrong.append("a producer was left alone")
        except BaseException as error:  # noqa: BLE001 - a bug, whatever it is
            self.wrong.append(f"a push raised {error!r}")
            self._lull.abort()
        finally:
            self._stops.set()

    def _push(self, producer: Producer, fresh: list[Any], way: float) -> None:
        worker = self.worker
        if way < 0.5:
            for message in fresh:
                self._try(producer, message, worker.push)
                self.raw = max(self.raw, worker.actor.core.raw_count())
        elif way < 0.7:
            try:
                if self.weather.behaviour == "block":
                    self._stand_in_line(fresh)
                else:
                    worker.push_many(fresh)
            except af.WorkerStopped:
                if self.weather.behaviour == "block":  # they go in one by one
                    producer.unsure.update(fresh)
                    fresh = []
                self._ended(producer, fresh)
        else:
            at = next(at for at, limit in enumerate((0.78, 0.87, 0.92, 0.96, 1.0)) if way < limit)
            for message in fresh:
                self._try(producer, message, (self._ack, *self._waits)[at])

    @property
    def _waits(self) -> tuple[Callable[[Any], None], ...]:
        """The ways to push that end when the message was processed."""
        return self._block, self._block_async, self._ask, self._ask_async

    def _stand_in_line(self, messages: list[Any]) -> None:
        """Push several messages of which each has to wait until there is room."""
        offer = self.worker.actor.offers.try_offer
        for waiter in [offer(message, None, ThreadTicket) for message in messages]:
            if waiter is not None:
                if not waiter.wait(self.weather.patience):
                    self.wrong.append("a producer waits for room forever")
                if waiter.error is not None:
                    raise waiter.error

    def _try(self, producer: Producer, message: Any, push: Callable[[Any], None]) -> None:
        try:
            push(message)
        except af.Rejected:
            producer.refused.add(message)
        except af.Displaced:
            return
        except Crashed:
            if not self.weather.crash:
                self.wrong.append("a crash that nobody ordered")
            producer.unsure.add(message)
        except af.WorkerStopped:
            if push in self._waits:
                producer.unsure.add(message)
                self._ended(producer, [])
            else:
                self._ended(producer, [message])
        else:
            if push in self._waits and message not in self.seen:
                self.wrong.append(f"{message} was answered before it was processed")

    def _ended(self, producer: Producer, refused: list[Any]) -> None:
        producer.refused.update(refused)
        if not self._early and not self.weather.crash:
            self.wrong.append("a worker that nobody stopped refused a message")

    def _ack(self, message: Any) -> None:
        self.worker.push_ack(message, self.weather.patience)

    def _block(self, message: Any) -> None:
        if self.weather.help:
            self.worker.push_block(message)
        else:
            self.worker.push_block(message, self.weather.patience)

    def _block_async(self, message: Any) -> None:
        task = self.worker.apush_block(message, self.weather.patience)
        asyncio.run_coroutine_threadsafe(task, self.loop).result(2 * self.weather.patience)

    def _ask(self, message: Any) -> None:
        self._check_answer(message, self.worker.ask(message, timeout=self.weather.patience))

    def _ask_async(self, message: Any) -> None:
        task = self.worker.aask(message, timeout=self.weather.patience)
        future = asyncio.run_coroutine_threadsafe(task, self.loop)
        self._check_answer(message, future.result(2 * self.weather.patience))

    def _check_answer(self, message: Any, answer: Any) -> None:
        if answer is not None and answer != message:
            self.wrong.append(f"{message} was answered with {answer}")

    # The storm.

    def run(self) -> list[str]:
        """Run the storm; return the problems found."""
        threads = [
            threading.Thread(target=self._produce, args=(one,), daemon=True)
            for one in self.producers
        ]
        if self.weather.stop:
            threads += [threading.Thread(target=self._stop, daemon=True) for _ in range(2)]
        watcher = threading.Thread(target=self._watch, daemon=True)
        for thread in (watcher, *threads):
            thread.start()
        deadline = time.monotonic() + 2 * self.weather.patience
        for thread in threads:
            while thread.is_alive() and not self.wrong and time.monotonic() < deadline:
                thread.join(0.05)
            if thread.is_alive() and not self.wrong:
                self.wrong.append("a producer hangs")
        if not self.wrong and not self.weather.stop and not self.weather.crash:
            self._await_calm()
        if self.wrong:
            self._lull.abort()
            self.worker.stop(now=True)
            self._over.set()
            for thread in threads:
                thread.join(self.weather.patience)
            return self.wrong
        self.worker.stop(timeout=self.weather.patience)
        self._over.set()
        watcher.join(self.weather.patience)
        self._check()
        return self.wrong

    def _watch(self) -> None:
        """Check all the time that the counts add up."""
        while not (self._over.wait(0.0005) or self.wrong):
            self._check_law()

    def _check_law(self) -> Any:
        counts = self.worker.statistics()
        fates = [getattr(counts, fate) for fate in FATES]
        if counts.accepted != sum(fates) or min(fates) < 0:
            self.wrong.append(f"the counts do not add up: {counts}")
        return counts

    def _stop(self) -> None:
        self._stops.wait(2 * self.weather.patience)
        mode: dict[str, Any] = {
            "drain": {"drain": True},
            "finish": {"drain": False},
            "now": {"now": True},
        }[self.weather.stop or "drain"]
        try:
            self.worker.stop(timeout=self.weather.patience, **mode)
        except BaseException as error:  # noqa: BLE001 - a bug, whatever it is
            self.wrong.append(f"stop raised {error!r}")

    def _await_calm(self) -> None:
        """Wait, while nobody pushes, until all is processed, without any help of a stop."""
        actor = self.worker.actor
        deadline = time.monotonic() + self.weather.patience
        while not self.wrong and time.monotonic() < deadline:
            with actor.lock:
                resting = bool(actor.idle) and not actor.active
                held = len(actor.core)
            if resting:
                if held:
                    self.wrong.append(f"the worker is idle although {held} messages wait")
                return
            with self.progress:
                self.progress.wait(0.001)
        if not self.wrong:
            self.wrong.append("the worker does not come to rest")

    # Invariants.

    def _check(self) -> None:
        weather = self.weather
        by_producer: dict[int, list[Any]] = {one.number: [] for one in self.producers}
        for message in self.processed:
            at = message[0][0] if weather.behaviour in KEYED else message[1]
            by_producer[at].append(message)
        for one in self.producers:
            self._check_producer(one, by_producer[one.number])
        self._check_counts()

    def _check_producer(self, one: Producer, processed: list[Any]) -> None:
        weather = self.weather
        taken = set(processed)
        if len(taken) < len(processed):
            repeated = [message for message, count in Counter(processed).items() if count > 1]
            self.wrong.append(f"repeated: {repeated[:5]}")
        wrongly = taken & one.refused
        if wrongly:
            self.wrong.append(f"refused, but processed: {sorted(wrongly)[:5]}")
        foreign = taken - set(one.sent)
        if foreign:
            self.wrong.append(f"never sent: {sorted(foreign)[:5]}")
        if weather.behaviour in IN_ORDER and weather.concurrency == 1:
            numbers = [message[-1] for message in processed]
            if numbers != sorted(numbers):
                self.wrong.append(f"reordered: producer {one.number}")
        complete = weather.stop in (None, "drain") and not weather.crash
        if complete and weather.behaviour in COMPLETE:
            known = taken | one.refused | one.unsure
            lost = [message for message in one.sent if message not in known]
            if lost:
                self.wrong.append(f"lost: {lost[:5]}")
        if complete and weather.behaviour == "unique" and weather.concurrency == 1:
            self._check_newest(one, processed)

    def _check_newest(self, one: Producer, processed: list[Any]) -> None:
        last: dict[Any, int] = {}
        for key, number in processed:
            if last.get(key, -1) > number:
                self.wrong.append(f"{key}: {number} came after {last[key]}")
            last[key] = number
        newest: dict[Any, int] = {}
        for message in one.sent:
            if message not in one.refused and message not in one.unsure:
                newest[message[0]] = message[1]
        for key, number in newest.items():
            if last.get(key, -1) < number:
                self.wrong.append(f"{key}: ended with {last.get(key)} instead of {number}")

    def _check_counts(self) -> None:
        counts = self._check_law()
        self._await_threads()
        if counts.held or counts.in_flight:
            self.wrong.append(f"something is left after the end: {counts}")
        if self.weather.crash or self.weather.stop == "now":
            later = self._check_law()
            if any(getattr(later, fate) != getattr(counts, fate) for fate in FATES):
                self.wrong.append("the counts change after the end")
            return
        if counts.processed != len(self.processed):
            self.wrong.append(f"{counts.processed} counted, {len(self.processed)} processed")
        slack = 4 * vars(shape)["FOLD_AT"] + 5 * self.weather.producers
        if "Bounded" in repr(self.worker.actor.core.behaviour):
            if self.largest > BOUND:
                self.wrong.append(f"a batch of {self.largest} with a bound of {BOUND}")
            if self.raw > slack and not self.weather.reset_threshold:
                self.wrong.append(f"{self.raw} raw messages with a slack of {slack}")

    def _await_threads(self) -> None:
        """Wait until jobs that were cut off have come to their end."""
        deadline = time.monotonic() + self.weather.patience
        while time.monotonic() < deadline:
            pool = self.pool.statistics()
            if pool.idle == pool.threads and not pool.waiting:
                return
            self._patience.wait(0.0005)
        self.wrong.append("the threads do not come to rest")


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread, for tasks that push."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


@contextmanager
def _fold_at(limit: int | None) -> Iterator[None]:
    with MonkeyPatch.context() as patch:
        if limit is not None:
            patch.setattr(shape, "FOLD_AT", limit)
        yield


def run_storm(weather: Weather) -> list[str]:
    """Run one storm on threads of its own; return the problems found."""
    pool = ThreadPool(core=2, name="storm")
    try:
        with event_loop() as loop, _fold_at(weather.fold_at):
            return Storm(weather, pool, loop).run()
    finally:
        pool.close()


@contextmanager
def hasty_switches() -> Iterator[None]:
    """Make the interpreter switch between threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
