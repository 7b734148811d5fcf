"""A tour of actorflow in a few seconds: `make run`, or `python examples/tour.py [section ...]`.

On a terminal it waits for Enter between two sections; with `--all` it does not.

Each section is one function. The tour prints its source, runs it, and prints what it printed, so
the code on the screen is the code that ran and every number was measured just now. To add a
section, write a function with a docstring (its heading) and decorate it with `@section`.
"""

from __future__ import annotations

import argparse
import inspect
import keyword
import logging
import math
import os
import re
import shutil
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import actorflow as af
from actorflow.behaviours import Bounded, Priority, Queue, Stack, Throttle, Unique
from actorflow.lab import simulate
from actorflow.testing.simulation import Faults, simulate_workflows

Section = Callable[[], None]
SECTIONS: dict[str, Section] = {}


def section(function: Section) -> Section:
    """Add a function to the tour."""
    SECTIONS[function.__name__] = function
    return function


# --- the sections --------------------------------------------------------------------------------


@section
def batches() -> None:
    """Push to an idle worker, then to a busy one.

    An idle worker gets a message at once and alone. Whatever arrives while it is busy accumulates,
    and is the next batch.
    """
    finish = threading.Event()

    def job(batch: list[int], _state: None) -> None:
        print("the job gets", batch)
        finish.wait()

    with af.spawn(job) as worker:  # leaving the block waits until everything is processed
        for message in range(1, 10):
            worker.push(message)
        finish.set()


@section
def throughput() -> None:
    """Write to a slow disk, one row per call and then in batches.

    The more arrives, the larger the batches, and the less each row costs.
    """
    sizes: list[int] = []  # how many rows each call wrote

    def write(rows: list[int], _state: None = None) -> None:
        time.sleep(0.001 + 0.000_001 * len(rows))  # a disk: 1 ms per call and 1 us per row
        sizes.append(len(rows))

    def report(name: str, seconds: float) -> float:
        rows, calls, rate = sum(sizes), len(sizes), sum(sizes) / seconds
        print(f"{name:10} {rows:7,} rows in {calls:5,} calls: {rate:7,.0f} rows/s")
        sizes.clear()
        return rate

    started = time.perf_counter()
    with ThreadPoolExecutor(max_workers=1) as thread:  # the usual background thread
        for row in range(1_000):
            thread.submit(write, [row])
    one_by_one = report("one by one", time.perf_counter() - started)

    started = time.perf_counter()
    with af.spawn(write) as worker:
        for row in range(500_000):
            worker.push(row)
    batched = report("batched", time.perf_counter() - started)

    print(f"the same disk, {batched / one_by_one:,.0f} times the throughput")


@section
def answers() -> None:
    """Call a function with one item; it works on many.

    Calls that arrive while a batch runs share the next one. Each caller gets its own answer, or
    its own exception.
    """
    sizes: list[int] = []

    @af.batched()
    def roots(numbers: list[float]) -> list[float | Exception]:
        time.sleep(0.01)  # a model, a remote service: one call costs as much as a hundred
        sizes.append(len(numbers))
        return [n**0.5 if n >= 0 else ValueError(f"{n} is negative") for n in numbers]

    with ThreadPoolExecutor(16) as callers:
        found = list(callers.map(roots, range(64)))
    print("the root of 49 is", found[49])
    print("64 calls became", len(sizes), "calls of the function, of", sizes)
    try:
        roots(-1.0)
    except ValueError as error:
        print("to that caller alone:", error)


@section
def behaviours() -> None:
    """Choose what a busy worker gets next: that is its behaviour."""

    def show(behaviour: Any, *messages: Any) -> None:
        seen: list[Any] = []
        finish = threading.Event()

        def job(batch: Any, _state: None) -> None:
            seen.append(batch)
            finish.wait()

        with af.spawn(job, behaviour=behaviour) as worker:
            for message in messages:
                worker.push(message)
            finish.set()
        print(f"{behaviour!r:44}", *seen)

    show(Queue(), 1, 2, 3, 4)
    show(Stack(), 1, 2, 3, 4)
    show(Unique(key=0), ("a", 1), ("b", 2), ("b", 3), ("c", 4))  # the newest per key
    show(Priority(key=0), (1, "a"), (1, "b"), (5, "c"), (3, "d"))
    show(Bounded(Queue(), 2, when_full="drop_oldest"), 1, 2, 3, 4)


@section
def throttle() -> None:
    """Limit how often the job is called: at most every 200 ms."""
    started = time.perf_counter()

    def job(batch: list[int], _state: None) -> None:
        print(f"at {time.perf_counter() - started:.1f} s: a batch of {len(batch)}")

    with af.spawn(job, behaviour=Throttle(Queue(), 0.2)) as worker:
        for message in range(60):
            worker.push(message)
            time.sleep(0.01)


@section
def crash() -> None:
    """Crash under a supervisor, as in Erlang/OTP.

    The worker is restarted with its initial state. Only the batch that crashed is lost;
    messages that have accumulated meanwhile are kept.
    """
    begin = threading.Event()

    def eat(batch: list[str], eaten: int) -> int:
        begin.wait()
        if "poison" in batch:
            raise ValueError("cannot digest this")
        print(f"ate {batch}, {eaten + len(batch)} since the last start")
        return eaten + len(batch)

    with af.Supervisor([af.Worker("eater", eat, state=0)], name="tour") as supervisor:
        eater = supervisor.worker("eater")
        for food in ("poison", "bread", "butter", "salt"):
            eater.push(food)
        pepper = eater.ask("pepper", block=False)  # a future
        begin.set()
        pepper.get()  # returns once it is processed
        print(supervisor.tree())


@section
def isolate() -> None:
    """Find the poison in a batch without a crash.

    The failed batch is halved until the poison stands alone; everything else is processed.
    """
    calls: list[int] = []

    def job(batch: list[int], _state: None) -> None:
        calls.append(len(batch))
        if 666 in batch:
            raise ValueError("cannot digest this")

    with af.spawn(job, on_failure="isolate") as worker:
        worker.push_many(range(999))
        worker.push_block(999)
        print(f"{worker.statistics().processed} of 1,000 processed in {len(calls)} calls")
        for letter in worker.dead_letters:
            print(f"dead letter: {letter.message}, because of {letter.error!r}")


@section
def durable() -> None:
    """Keep a worker on disk, where its state outlives the process."""

    def count(batch: list[str], total: int) -> int:
        return total + len(batch)

    with tempfile.TemporaryDirectory() as folder:
        for day in ("Monday", "Tuesday"):
            with af.Engine(f"{folder}/orders.db") as engine:  # a new engine on the same file
                orders = engine.worker("orders", count, state=0)
                orders.push_many(["tea", "coffee"])
                orders.push_block("cake")  # returns once the new state is committed
                print(f"{day}: {orders.state()} orders so far")


@section
def flow() -> None:
    """Run a process that is written down as text."""
    process = """
        sequence
          concurrence
            alice 'check the order'
            bob 'check the stock'
          alice 'send the parcel'
    """

    def person(task: af.FlowTask) -> None:
        print(f"{task.tasker}: {task.name} {task.payload['order']}")

    with af.Engine(":memory:") as engine:
        for name in ("alice", "bob"):
            engine.tasker(name, person)
        execution = engine.launch(process, payload={"order": 7})
        print("the flow is", engine.wait(execution, timeout=10).status)


@section
def workflow() -> None:
    """Write a process as plain Python, and let it survive a restart while it waits.

    The engine keeps the answers of its tasks; after the restart the method goes on where it was.
    """

    @af.task
    def charge(order: str) -> int:
        print("charging", order)
        return 40

    class Order(af.Workflow[str]):
        def __init__(self, order: str) -> None:
            self.order = order

        def handle(self) -> str:
            amount = self.execute(charge(self.order))
            self.publish(f"{amount} to pay")
            paid = self.wait("paid", days=3)
            return "cancelled" if paid is None else f"{self.order}: {amount} paid"

    with tempfile.TemporaryDirectory() as folder:
        with af.Engine(f"{folder}/orders.db") as engine:
            order = engine.start(Order("o-1"), id="o-1")
            print(next(order.follow()))

        with af.Engine(f"{folder}/orders.db") as engine:  # the next day
            order = engine.workflows.get(Order, "o-1")
            order.send("paid")
            print(order.result(timeout=10))


@section
def plan() -> None:
    """Run a graph of jobs on other processes, which may crash.

    A job as an argument makes an edge, and hands over its result.
    """
    plan = af.Plan()
    factorials = plan.map(math.factorial, [5, 10, 20])
    total = plan.job(sum, factorials)
    plan.job(os._exit, 1, name="crash")  # its process is gone, each time it is tried
    result = plan.run(workers=2, on_failure="continue", crashes_max=2)
    print(result[total])
    print(result.failed["crash"].error)


@section
def cluster() -> None:
    """Share a store among workers that crash, in virtual time; for real on Postgres or NATS.

    A random seed decides which faults occur. Each order is charged and paid correctly in all cases.
    """

    @af.task
    def charge(_order: str) -> int:
        return 40

    class Order(af.Workflow[str]):
        def __init__(self, order: str) -> None:
            self.order, self.paid = order, 0

        def handle(self) -> str:
            amount = self.execute(charge(self.order))
            while self.paid < amount:
                self.wait("paid", days=3)
            return f"paid {self.paid}"

        def on_event(self, event: af.Event) -> None:
            self.paid += event.data["amount"]

    print("faults in one cluster, within seconds:", *Faults.drawn(16).describe(), sep="\n")
    orders = {name: Order(name) for name in ("o-1", "o-2")}
    events = [(name, "paid", {"amount": 20}) for name in [*orders, *orders]]
    for seed in range(5):  # each raises if a message is lost, or taken twice
        print("cluster", seed, simulate_workflows(orders, seed=seed, events=events))


@section
def lab() -> None:
    """Compare policies before you deploy one.

    The policy lab runs your traffic through the same behaviours in virtual time.
    """
    started = time.perf_counter()
    for policy in ("queue", "linger(queue, 20ms)", "adaptive(queue, 50ms)"):
        result = simulate(
            traffic="poisson(5000, duration=20s)",  # 5,000 messages/s
            service="5ms + 10us*n",  # what a call with n messages costs
            policy=policy,
        )
        p99 = 1_000 * result.latency["p99"]
        print(f"{policy:22} p99 {p99:4.1f} ms, worker busy {result.busy:4.0%} of the time")
    print(f"simulated in {time.perf_counter() - started:.1f} s")


# --- how they are shown --------------------------------------------------------------------------

STYLES = {
    "heading": "1;36",
    "prose": "2",
    "margin": "32",
    "comment": "2",
    "string": "33",
    "number": "36",
    "keyword": "35",
}
TOKENS = re.compile(
    r"(?P<comment>#[^\n]*)"
    r'|(?P<string>f?"""(?s:.*?)"""|f?"[^"\n]*")'
    rf"|(?P<keyword>\b(?:{'|'.join(keyword.kwlist)})\b)"
    r"|(?P<number>\b\d[\d_.]*\b)"
)
INDENT = "    "


def wants_colours(stream: TextIO) -> bool:
    """Return whether to write colours: on a terminal, unless NO_COLOR or TERM=dumb is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Screen:
    """Prints sections to a stream, in colours or plainly."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colours = wants_colours(stream)

    def paint(self, style: str, text: str) -> str:
        """Return the text in a style."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self._colours else text

    def write(self, *lines: str) -> None:
        """Print lines at once, since the next step may take a while. Thread-safe."""
        for line in lines:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def show(self, number: int, function: Section) -> None:
        """Print the heading and the code of a section, then run it and print its output."""
        heading, _, prose = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        self.write("", self.paint("heading", f"{number}. {heading.rstrip('.')}"))
        if prose:
            self.write(*(self.paint("prose", line) for line in prose.splitlines()))
        code = TOKENS.sub(self._highlight, body(function))
        self.write("", *(INDENT + line if line else "" for line in code.splitlines()), "")
        with redirect_stdout(Margin(self)):
            function()

    def _highlight(self, match: re.Match[str]) -> str:
        # Line by line, so that the colour of a text of several lines does not reach the indent.
        kind = match.lastgroup or "string"
        return "\n".join(self.paint(kind, line) for line in match[0].split("\n"))


class Margin(TextIOBase):
    """The standard output of a section: marks each line, to set it off from the code."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pending = threading.local()  # jobs print from their own threads

    def write(self, text: str) -> int:
        """Print all complete lines. Thread-safe."""
        *lines, rest = (getattr(self._pending, "line", "") + text).split("\n")
        self._pending.line = rest
        self._screen.write(*(self._screen.paint("margin", "  > ") + line for line in lines))
        return len(text)


def body(function: Section) -> str:
    """Return the source of a section without its signature and its docstring."""
    _, _, code = inspect.getsource(function).split('"""', 2)
    return textwrap.dedent(code).strip()


def main() -> None:
    """Show the sections that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description="A tour of actorflow.")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--all", action="store_true", help="do not wait between sections")
    given = parser.parse_args()
    names = given.sections or list(SECTIONS)
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")

    logging.getLogger("actorflow").setLevel(logging.CRITICAL)  # the crashes are part of the tour
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the tree of a supervisor has lines to draw
    screen = Screen(sys.stdout)
    pauses = not given.all and sys.stdin.isatty() and sys.stdout.isatty()
    took = 0.0
    for number, name in enumerate(names, start=1):
        started = time.perf_counter()
        screen.show(number, SECTIONS[name])
        took += time.perf_counter() - started
        if pauses and number < len(names):
            answer = input(f"\n{len(names) - number} more: Enter goes on, a shows all, q quits: ")
            if answer.strip().lower() == "q":
                break
            pauses = answer.strip().lower() != "a"
    screen.write(
        "",
        f"The tour took {took:.1f} s. Its code is in examples/tour.py.",
        "The documentation starts at docs/index.md; `make bench` measures this machine.",
        "",
        "Three commands to try next:",
        f"  {installation()}",
        f"  {command()} web --demo",
        f"  {command()} new demo && cd demo && make test",
    )


def command() -> str:
    """Return how a shell finds the command of this environment, which may not be active."""
    path = Path(sys.executable).with_name("actorflow")
    if shutil.which("actorflow") == str(path):
        return path.name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def installation() -> str:
    """Return the command that installs everything: from a checkout, or from the index."""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").exists():
        return f"{sys.executable} -m pip install -e '{checkout}[all]'"
    return f"{sys.executable} -m pip install 'actorflow[all]'"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
