"""Several workers on one Postgres, as processes of their own: what they do, and how it is measured.

Each load takes the URL of a store that does not exist yet.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import actorflow as af
from benchmarks.loads import workflows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DBOS", "LEASE", "LOADS", "OURS", "setup", "setup_newer"]

Figures = dict[str, float]
ROOT = Path(__file__).parents[2]
OURS, DBOS = "actorflow", "DBOS"
WAITS = 0.005  # seconds that a task takes without computing
LEASE = 2.0  # seconds; short, so that the benchmark sees leases expire
_LONG = 300.0
_LOOK = 0.02
_ONE_TASK = "waits 'a'"
_HELD = "stall _"
_LOADED = "sequence\n  sleep '{seconds}s'\n  waits 'a'"


def setup(engine: af.Engine) -> None:
    """Register what the workers do."""

    def wait(_task: object) -> dict[str, object]:
        time.sleep(WAITS)
        return {}

    engine.tasker("waits", wait)
    engine.workflows.register(Parcel)


def setup_newer(engine: af.Engine) -> None:
    """Register the same after a deploy: the code of the workflow has changed."""
    Parcel.version = "2"
    setup(engine)


@af.task
def weigh() -> int:
    """Do something that workers of before the deploy do not ask for."""
    return 1


class Parcel(af.Workflow[str]):
    """Waits for an event; after the deploy, a task is asked for first."""

    version: ClassVar[str] = "1"

    def handle(self) -> str:
        """Return once it is sent."""
        if self.version == "2" and self.patched("weigh first"):
            self.dispatch(weigh())
        self.wait("sent")
        return "sent"


class Worker:
    """A worker, started by the command that users have."""

    def __init__(self, url: str, name: str, setup: str = "setup") -> None:
        command = [sys.executable, "-m", "actorflow.cli", "cluster", "worker", url, "--name", name]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter on our own module
            [*command, "--app", f"benchmarks.loads.cluster:{setup}"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.name = name

    def wait_until_ready(self) -> None:
        """Return when it owns its first partitions, or is about to."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("worker "), f"{self.name} did not start"

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process, in good order unless told otherwise."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(_LONG)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def cpu(self) -> float:
        """Return the seconds of processor time that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def workers(url: str, *names: str) -> Iterator[list[Worker]]:
    """Start workers that share the partitions, and end them on exit."""
    with ExitStack() as stack:
        made = [Worker(url, name) for name in names]
        for each in made:
            stack.callback(each.end)
        for each in made:
            each.wait_until_ready()
        with af.Engine(url, worker=False) as client:
            wait_until_shared(client, len(names))
        yield made


def wait_until_shared(client: af.Engine, count: int) -> None:
    """Wait until this many members have about the same number of partitions, and all of them."""
    store = cast("Any", client.parts.store)

    def shared() -> bool:
        status = store.status()
        held = [len(member.partitions) for member in status.members]
        return len(held) == count and not status.unowned and max(held) - min(held) <= 1

    until(shared, f"{count} members do not share the partitions")


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + _LONG
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(_LOOK)


# What one engine does, beside DBOS on the same server.


def two_steps(url: str, subject: str, starters: int, each: int) -> Figures:
    """Run workflows of two steps from several threads, each until its result is known."""
    opening = {OURS: workflows.actorflow_on, DBOS: workflows.dbos_on}[subject]
    with opening(url) as library:

        def start() -> None:
            for number in range(each):
                assert library.two_steps(number) == number + 1

        library.two_steps(0)
        cpu, begin = time.process_time(), time.perf_counter()
        threads = [threading.Thread(target=start) for _ in range(starters)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall, used = time.perf_counter() - begin, time.process_time() - cpu
    return {"rate": starters * each / wall, "rate_cpu": starters * each / used}


# What several workers do.


def scaling(url: str, _subject: str, members: int, flows: int) -> Figures:
    """Run flows of a task that waits, one at a time on each worker, on some workers."""
    with (
        workers(url, *"abc"[:members]) as made,
        af.Engine(url, worker=False) as client,
    ):
        client.wait(client.launch(_ONE_TASK), timeout=_LONG)
        used, begin = [each.cpu() for each in made], time.perf_counter()
        for exid in client.flows.launch_many(_ONE_TASK, [{}] * flows):
            client.wait(exid, timeout=_LONG)
        wall = time.perf_counter() - begin
        spent = sum(each.cpu() for each in made) - sum(used)
    return {"rate": flows / wall, "ms of the processor each": spent / flows * 1e3}


def idle(url: str, _subject: str, waiting: int, seconds: float) -> Figures:
    """Let three workers own executions that wait; return what share of a processor they use."""
    with (
        workers(url, *"abc") as made,
        af.Engine(url, worker=False) as client,
    ):
        exids = client.flows.launch_many(_HELD, [{}] * waiting)
        store = client.parts.store
        until(lambda: not store.pending(limit=1).rows, "executions have not begun to wait")
        time.sleep(seconds / 4)  # the work after the start is over
        used = [each.cpu() for each in made]
        time.sleep(seconds)
        shares = [(each.cpu() - before) / seconds for each, before in zip(made, used, strict=True)]
        row = client.execution(exids[-1])
        assert row is not None
        assert row.status == "active"
    return {
        "% of a processor": max(shares) * 100,
        "mean": statistics.mean(shares) * 100,
    }


# What happens when workers come and go.


class Traffic:
    """Events from one client, at a steady rate, each until its reaction is known."""

    def __init__(self, url: str, pause: float) -> None:
        self._url = url
        self._pause = pause
        self._over = threading.Event()
        self.times: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with af.Engine(self._url, worker=False) as client:
            while not self._over.wait(self._pause):
                begin = time.perf_counter()
                client.wait(client.launch(_ONE_TASK), timeout=_LONG)
                self.times.append(time.perf_counter() - begin)
                parcel = client.start(Parcel(), id=uuid.uuid4().hex)
                begin = time.perf_counter()
                parcel.send("sent")
                parcel.result(timeout=_LONG)
                self.times.append(time.perf_counter() - begin)

    def end(self) -> None:
        """Wait for the last reaction."""
        self._over.set()
        self._thread.join()


def deploy(url: str, _subject: str, streams: int, between: float) -> Figures:
    """Replace three workers one by one under load; return how late reactions are meanwhile."""
    with ExitStack() as stack:
        old = stack.enter_context(workers(url, *"abc"))
        traffic = [Traffic(url, 0.02) for _ in range(streams)]
        for stream in traffic:
            stack.callback(stream.end)
        time.sleep(between)
        for number, each in enumerate(old):
            new = Worker(url, f"new-{number}", "setup_newer")
            stack.callback(new.end)
            new.wait_until_ready()  # old and new code overlap
            time.sleep(between)
            each.end()
        time.sleep(between)
        for stream in traffic:
            stream.end()
    times = sorted(found for stream in traffic for found in stream.times)
    return {
        "reactions": len(times),
        "p50 ms": statistics.median(times) * 1e3,
        "p99 ms": times[-max(len(times) // 100, 1)] * 1e3,
        "worst ms": times[-1] * 1e3,
    }


def adoption(url: str, _subject: str, flows: int) -> Figures:
    """Kill a worker of three; return when the last of its executions went on, in leases."""
    with (
        workers(f"{url}&lease={LEASE}", *"abc") as (first, *_rest),
        af.Engine(f"{url}&lease={LEASE}", worker=False) as client,
    ):
        text = _LOADED.format(seconds=0.5)
        exids = client.flows.launch_many(text, [{}] * flows)
        until(lambda: not client.parts.store.pending(limit=1).rows, "flows have not begun")
        first.end(signal.SIGKILL)
        begin = time.perf_counter()
        for exid in exids:
            client.wait(exid, timeout=_LONG)
        return {"leases": (time.perf_counter() - begin) / LEASE}


LOADS: dict[str, Callable[..., Figures]] = {
    each.__name__: each for each in (two_steps, scaling, idle, deploy, adoption)
}
