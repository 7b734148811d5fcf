"""What a worker is measured against: the same messages and jobs, carried in other ways.

Each peer is constructed with a *job* and has `push(message)` and `close()`. Peers that batch call
`job(batch)` with a list, the others `job(message)`: `batches` says which. The bare peers are
limits, not libraries: nothing that carries messages to another thread in Python does less.
"""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pykka

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "PATIENCE",
    "PEERS",
    "AskedTask",
    "AskedThread",
    "BareDict",
    "BareList",
    "BareRunner",
    "HandOff",
    "PlainPykka",
    "QueueThread",
    "TwoActorPykka",
    "asyncio_burst",
    "asyncio_crowd",
]

PATIENCE = 60.0
"""Seconds after which a benchmark assumes that something hangs."""


class BareRunner:
    """The thread of the bare limits: it drains whatever is put into `ready`."""

    def __init__(self) -> None:
        self.ready: SimpleQueue[BareList | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        get = self.ready.get
        while (target := get()) is not None:
            target.drain()

    def close(self) -> None:
        """End the thread."""
        self.ready.put(None)
        self._thread.join(PATIENCE)


class BareList:
    """A list and an idle token: append, and wake the thread if it is idle. The limit.

    It has no lock, no behaviour, no statistics and no stop, and it reports no error.
    """

    __slots__ = ("_idle", "_items", "_job", "_own", "_runner")
    batches = True

    def __init__(self, job: Callable[[Any], None], runner: BareRunner | None = None) -> None:
        self._items: list[Any] = []
        self._idle: list[None] = [None]
        self._job = job
        self._own = runner is None
        self._runner = runner or BareRunner()

    def push(self, message: Any, /) -> None:
        """Append; the thread that takes the token schedules."""
        self._items.append(message)
        if self._idle:
            self._wake()

    def push_many(self, messages: list[Any]) -> None:
        """Append many at once."""
        self._items.extend(messages)
        if self._idle:
            self._wake()

    def _wake(self) -> None:
        try:
            self._idle.pop()
        except IndexError:
            return
        self._runner.ready.put(self)

    def drain(self) -> None:
        """Process until nothing is left; then put the token back, and look again."""
        items, idle = self._items, self._idle
        while True:
            count = len(items)
            if count:
                batch = items[:count]
                del items[:count]
                self._handle(batch)
                continue
            idle.append(None)
            if not items:
                return
            try:
                idle.pop()
            except IndexError:
                return

    def _handle(self, batch: list[Any]) -> None:
        self._job(batch)

    def close(self) -> None:
        """End the thread, unless it is shared."""
        if self._own:
            self._runner.close()


class BareDict(BareList):
    """The same list, folded into a dict by its first element when it is drained: Unique's limit."""

    __slots__ = ()

    def _handle(self, batch: list[Any]) -> None:
        table = dict(zip(map(operator.itemgetter(0), batch), batch, strict=True))
        self._job(list(table.values()))


class QueueThread:
    """`queue.SimpleQueue` and a thread that takes one message at a time."""

    batches = False
    push: Callable[[Any], None]

    def __init__(self, job: Callable[[Any], None]) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.push = self._queue.put
        self._job = job
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        get, job = self._queue.get, self._job
        while (message := get()) is not None:
            job(message)

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join(PATIENCE)


class BatchingThread(QueueThread):
    """What people write by hand: a thread that waits for one message, and takes all that wait."""

    batches = True

    def _run(self) -> None:
        get, more, job = self._queue.get, self._queue.get_nowait, self._job
        while (message := get()) is not None:
            batch = [message]
            try:
                while (message := more()) is not None:
                    batch.append(message)
            except Empty:
                job(batch)
                continue
            job(batch)  # the end came with the last messages
            return


class AskedThread(BatchingThread):
    """The same with answers: each caller waits with a lock of its own."""

    def __init__(self, function: Callable[[list[Any]], list[Any]]) -> None:
        self._function = function
        super().__init__(self._answer)

    def _answer(self, calls: list[tuple[Any, Any, list[Any]]]) -> None:
        answers = self._function([message for message, _, _ in calls])
        for (_, lock, place), answer in zip(calls, answers, strict=True):
            place.append(answer)
            lock.release()

    def ask(self, message: Any) -> Any:
        """Return the answer to one message."""
        lock = threading.Lock()
        lock.acquire()
        place: list[Any] = []
        self.push((message, lock, place))
        lock.acquire()
        return place[0]


class AskedTask:
    """An asyncio batcher written by hand: a queue, a task, and a thread for the function."""

    def __init__(self, function: Callable[[list[Any]], list[Any]]) -> None:
        self._function = function
        self._queue: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        self._pool = ThreadPoolExecutor(1)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            calls = [await self._queue.get()]
            while not self._queue.empty():
                calls.append(self._queue.get_nowait())
            messages = [message for message, _ in calls]
            answers = await loop.run_in_executor(self._pool, self._function, messages)
            for (_, future), answer in zip(calls, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def ask(self, message: Any) -> Any:
        """Return the answer to one message."""
        future = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((message, future))
        return await future

    def close(self) -> None:
        """End the task and the thread."""
        self._task.cancel()
        self._pool.shutdown()


class _OneByOne(pykka.ThreadingActor):
    use_daemon_thread = True

    def __init__(self, job: Callable[[Any], None]) -> None:
        super().__init__()
        self._job = job

    def on_receive(self, message: Any) -> Any:
        self._job(message)


class PlainPykka:
    """A `pykka.ThreadingActor` that gets one message at a time."""

    batches = False
    push: Callable[[Any], None]

    def __init__(self, job: Callable[[Any], None]) -> None:
        self.ref = _OneByOne.start(job)
        self.push = self.ref.tell

    def close(self) -> None:
        """Stop the actor."""
        self.ref.stop(timeout=PATIENCE)


_FREE = object()


class _Front(pykka.ThreadingActor):
    """Accumulates while the executor is busy: Workex, translated to pykka."""

    use_daemon_thread = True

    def __init__(self, executor: Any) -> None:
        super().__init__()
        self._executor = executor
        self._held: list[Any] = []
        self._free = True

    def on_receive(self, message: Any) -> None:
        if message is _FREE:
            self._free = True
        else:
            self._held.append(message)
        if self._free and self._held:
            self._free = False
            held, self._held = self._held, []
            self._executor.tell((held, self.actor_ref))


class _Back(pykka.ThreadingActor):
    use_daemon_thread = True

    def __init__(self, job: Callable[[Any], None]) -> None:
        super().__init__()
        self._job = job

    def on_receive(self, message: Any) -> None:
        batch, front = message
        self._job(batch)
        front.tell(_FREE)


class TwoActorPykka:
    """The obvious version: an accumulator actor in front of an executor actor, both threads."""

    batches = True
    push: Callable[[Any], None]

    def __init__(self, job: Callable[[Any], None]) -> None:
        self._back = _Back.start(job)
        self._front = _Front.start(self._back)
        self.push = self._front.tell

    def close(self) -> None:
        """Stop both."""
        self._front.stop(timeout=PATIENCE)
        self._back.stop(timeout=PATIENCE)


async def asyncio_burst(job: Callable[[Any], None], parts: list[list[Any]]) -> None:
    """`asyncio.Queue`: each part is put by a task of its own, a task processes one by one.

    All on one loop: nothing crosses a thread.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()
    await asyncio.gather(
        _consume(queue, sum(map(len, parts)), job), *(_produce(queue, part) for part in parts)
    )


async def asyncio_crowd(
    job: Callable[[Any], None], queues: int, messages: list[Any], ready: Callable[[], None]
) -> float:
    """Put each message into many queues in turn; return the seconds until all are processed.

    Each queue has a task that processes its messages. Queues and tasks are made before the clock
    starts, as workers are; `ready` is called in between.
    """
    inboxes: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(queues)]
    tasks = [asyncio.create_task(_consume(inbox, len(messages), job)) for inbox in inboxes]
    await asyncio.sleep(0)  # each task waits for its first message
    ready()
    begin = time.perf_counter()
    for message in messages:
        for inbox in inboxes:
            await inbox.put(message)
    await asyncio.gather(*tasks)
    return time.perf_counter() - begin


async def _produce(queue: asyncio.Queue[Any], messages: list[Any]) -> None:
    for message in messages:
        await queue.put(message)


async def _consume(queue: asyncio.Queue[Any], count: int, job: Callable[[Any], None]) -> None:
    for _ in range(count):
        job(await queue.get())


class HandOff:
    """Send a lock to a waiting thread through a `SimpleQueue`; the thread releases it.

    There is no message at all: no round trip to another thread can be shorter.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        get = self._queue.get
        while (lock := get()) is not None:
            lock.release()

    def round_trip(self) -> None:
        """Wake the thread and wait for it."""
        lock = threading.Lock()
        lock.acquire()
        self._queue.put(lock)
        lock.acquire()

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join(PATIENCE)


PEERS: dict[str, type[PlainPykka | TwoActorPykka | QueueThread | BareList]] = {
    "plain pykka": PlainPykka,
    "two-actor pykka": TwoActorPykka,
    "SimpleQueue thread": QueueThread,
    "batching thread": BatchingThread,
    "bare list": BareList,
    "bare dict": BareDict,
}
"""The peers that any thread can push to, by the names used in the tables."""
