"""Compare batching policies for inference: ours, untuned, with the batchers that people use.

python benchmarks/policies.py               three kinds of traffic
python benchmarks/policies.py --markdown    ... and into benchmarks/RESULTS.md
python benchmarks/policies.py --quick       tiny sizes, to see that everything runs

All of them batch calls of one coroutine function in one event loop, which sleeps as long as a
model would compute: 8 ms, and 0.25 ms for each item, or for each item as long as the longest one
where shapes are mixed. Latency counts from when a request was due.

- `actorflow` is `af.batched` with a limit of 32 items, and `Bucket` where shapes are mixed.
- `hand-written` takes the requests that have arrived when the last batch is done, at most 32 items.
- `Ray Serve's rule` waits until 32 items are there or `batch_wait_timeout_s` has passed since the
  first one, as its documentation says; it is restated here, and the best of five waits counts.
- `batched` is the library from PyPI, with its own default wait of 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import actorflow as af
from actorflow.behaviours import Bucket, Chunk, Queue
from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.traffic import Bursty, Poisson
from benchmarks.harness.machine import describe
from benchmarks.harness.tables import piped, plain, put_between_markers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from actorflow.lab.models.traffic import Traffic
    from benchmarks.harness.tables import Rows

RESULTS = Path(__file__).parent / "RESULTS.md"
MOST = 32
FIXED, EACH = 0.008, 0.00025
LONGEST = 16  # a shape of 16 costs as much as 16 of shape 1
WAITS = (0.0, 0.002, 0.005, 0.01, 0.02)
NO_WORSE = 1.05  # times the best other figure


class Item(NamedTuple):
    """A request."""

    number: int
    shape: int


async def infer(batch: list[Item]) -> list[int]:
    """Compute as long as a model would: the longest item of a batch counts for each."""
    await asyncio.sleep(FIXED + EACH * len(batch) * max(item.shape for item in batch))
    return [item.number for item in batch]


class Peer:
    """Batches calls of `infer`. Made, used and closed in one event loop."""

    async def call(self, item: Item) -> int:
        """Return the answer to one item."""
        raise NotImplementedError

    async def close(self) -> None:
        """End what it has started."""


class Ours(Peer):
    """`af.batched`, with a behaviour and nothing tuned."""

    def __init__(self, *, mixed: bool) -> None:
        inner = Chunk(Queue(), MOST)
        behaviour: Any = Bucket(lambda item: item.shape, inner) if mixed else inner
        self._infer = af.batched(behaviour)(infer)

    async def call(self, item: Item) -> int:
        """Return the answer to one item."""
        return await self._infer(item)

    async def close(self) -> None:
        """Stop the worker."""
        await asyncio.to_thread(self._infer.worker.stop)


class HandWritten(Peer):
    """What most people write: a queue, and a task that takes the waiting items."""

    def __init__(self, *, mixed: bool) -> None:
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[int]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    async def call(self, item: Item) -> int:
        """Return the answer to one item."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((item, answer))
        return await answer

    async def _gather(self) -> list[tuple[Item, asyncio.Future[int]]]:
        batch = [await self._queue.get()]
        while len(batch) < MOST and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    async def _run(self) -> None:
        while True:
            batch = await self._gather()
            answers = await infer([item for item, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)

    async def close(self) -> None:
        """Cancel the task."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class RayServeRule(HandWritten):
    """The rule that Ray Serve documents: `max_batch_size` and `batch_wait_timeout_s`."""

    def __init__(self, wait: float, *, mixed: bool) -> None:
        self._wait = wait
        super().__init__(mixed=mixed)

    async def _gather(self) -> list[tuple[Item, asyncio.Future[int]]]:
        batch = [await self._queue.get()]
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait
        while len(batch) < MOST:
            left = until - loop.time()
            try:
                got = self._queue.get_nowait() if left <= 0 else await asyncio.wait_for(
                    self._queue.get(), left
                )  # fmt: skip
            except (asyncio.QueueEmpty, TimeoutError):
                break
            batch.append(got)
        return batch


class BatchedLibrary(Peer):
    """`batched` from PyPI."""

    def __init__(self, *, mixed: bool) -> None:
        library = importlib.import_module("batched.aio")  # left out where it is missing
        self._infer = library.dynamically(infer, batch_size=MOST, timeout_ms=5.0)

    async def call(self, item: Item) -> int:
        """Return the answer to one item."""
        return (await self._infer([item]))[0]  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Cancel what the library has started in this loop."""
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Scene:
    """A kind of traffic."""

    name: str
    traffic: Callable[[float], Traffic]
    mixed: bool = False


SCENES = (
    Scene("steady", lambda seconds: Poisson(600, duration=seconds)),
    Scene(
        "bursty",
        lambda seconds: Bursty(1_500, on=0.3, off=0.7, quiet_rate=60, duration=seconds),
    ),
    Scene("mixed shapes", lambda seconds: Poisson(200, duration=seconds), mixed=True),
)


class Seen(NamedTuple):
    """What the callers have seen."""

    p50: float
    p99: float


async def drive(make: Callable[[], Peer], scene: Scene, seconds: float, seed: int) -> Seen:
    """Send the requests of a scene to a peer when they are due."""
    random = Random(f"{seed}/shapes")
    due = [message[3] for chunk in scene.traffic(seconds).chunks(seed) for message in chunk]
    shapes = [random.choice((1, 4, LONGEST)) if scene.mixed else 1 for _ in due]
    peer = make()
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    begin = loop.time() + 0.05

    async def one(number: int, at: float) -> None:
        answer = await peer.call(Item(number, shapes[number]))
        assert answer == number
        latencies.append(loop.time() - begin - at)

    calls: list[Awaitable[None]] = []
    for number, at in enumerate(due):
        if (left := begin + at - loop.time()) > 0:
            await asyncio.sleep(left)
        calls.append(asyncio.create_task(one(number, at)))
    await asyncio.gather(*calls)
    await peer.close()
    assert len(latencies) == len(due) > 0
    latencies.sort()
    last = len(latencies) - 1
    return Seen(latencies[last // 2], latencies[int(last * 0.99)])


def peers(scene: Scene) -> dict[str, list[Callable[[], Peer]]]:
    """Return how to make each peer; of several ways, the best counts."""
    mixed = scene.mixed
    found: dict[str, list[Callable[[], Peer]]] = {
        "actorflow": [lambda: Ours(mixed=mixed)],
        "hand-written": [lambda: HandWritten(mixed=mixed)],
        "Ray Serve's rule": [
            (lambda wait=wait: RayServeRule(wait, mixed=mixed))  # type: ignore[misc]
            for wait in WAITS
        ],
    }
    if importlib.util.find_spec("batched") is None:
        print("batched is not installed, so it is left out", file=sys.stderr)
    else:
        found["batched"] = [lambda: BatchedLibrary(mixed=mixed)]
    return found


def compare(scene: Scene, seconds: float, rounds: int) -> Rows:
    """Run all peers in turns, and return a table; the best round of each counts."""
    best: dict[str, Seen] = {}
    for seed in range(rounds):
        for name, ways in peers(scene).items():
            for make in ways:
                seen = asyncio.run(drive(make, scene, seconds, seed))
                if name not in best or seen.p99 < best[name].p99:
                    best[name] = seen
    others = [seen for name, seen in best.items() if name != "actorflow"]
    table = [["batcher", "p50", "p99", "goal", ""]]
    for name, seen in best.items():
        row = [name, seconds_text(seen.p50), seconds_text(seen.p99), "", ""]
        if name == "actorflow":
            met = all(
                mine <= NO_WORSE * min(theirs) for mine, theirs in zip(
                    seen, zip(*others, strict=True), strict=True)
            )  # fmt: skip
            row[3:] = ["no worse than any", "met" if met else "MISSED"]
        table.append(row)
    return table


def as_markdown(tables: dict[str, Rows]) -> str:
    """Return the section of the page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in describe().items())
    parts = ["## Policies for inference", facts]
    for title, table in tables.items():
        parts += [f"### {title}", piped(table)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes: the figures mean nothing")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=RESULTS, metavar="FILE",
        help=f"put the tables into FILE (by default {RESULTS.name})",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    seconds, rounds = (0.2, 1) if options.quick else (10.0, 3)
    tables = {}
    for scene in SCENES:
        tables[scene.name] = compare(scene, seconds, rounds)
        print(f"{scene.name}\n\n{plain(tables[scene.name])}\n")
    if options.markdown:
        put_between_markers(options.markdown, as_markdown(tables), "policies")
    return 0


if __name__ == "__main__":
    sys.exit(main())
