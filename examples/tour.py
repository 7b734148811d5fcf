"""A short tour of what actorflow does: run it with `make run`."""

from __future__ import annotations

import logging
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import actorflow as af
from actorflow.bench.simulate import simulate
from actorflow.bench.traffic import Poisson
from actorflow.testing import ManualLane, VirtualClock
from behaviours import Bounded, Priority, Queue, Stack, Throttle, Unique

if TYPE_CHECKING:
    from behaviours.base import Behaviour


def title(text: str) -> None:
    """Head a part of the tour."""
    print(f"\n== {text}")


def batches(behaviour: Behaviour, messages: list[Any]) -> None:
    """Push messages to a worker that is busy with the first one, and show what it gets."""
    busy, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []

    def job(batch: Any, _state: None) -> None:
        seen.append(batch)
        busy.set()
        go_on.wait()

    with af.spawn(job, behaviour=behaviour) as worker:
        worker.push(messages[0])
        busy.wait()
        for message in messages[1:]:
            worker.push(message)
        go_on.set()
    print(f"{behaviour!r:50} {' then '.join(str(batch) for batch in seen)}")


def show_behaviours() -> None:
    """Show what accumulates by which behaviour."""
    title("One worker, busy with its first message: what does it get next?")
    batches(Queue(), [1, 2, 3])
    batches(Stack(), [1, 2, 3])
    batches(Unique(), [("a", 1), ("b", 2), ("b", 3), ("c", 4)])
    batches(Priority(), [(1, "a"), (1, "b"), (2, "c"), (1, "d"), (3, "e")])
    batches(Bounded(Queue(), 3, when_full="drop_oldest"), list(range(10)))


def show_throttle() -> None:
    """Show a throttle, with time in hand."""
    title("Throttle, in virtual time: at most one call per second, from start to start")
    clock, lane = VirtualClock(), ManualLane()

    def job(batch: list[str], _state: None) -> None:
        print(f"at {clock.now():.1f} s: {batch}")

    worker = af.spawn(job, behaviour=Throttle(Queue(), 1.0), clock=clock, executor=lane)
    for at, message in ((0.0, "a"), (0.2, "b"), (0.4, "c"), (2.5, "d")):
        clock.advance(at - clock.now())
        worker.push(message)
        lane.run()
        if at == 0.4:
            clock.advance(0.6)
            lane.run()
    worker.stop()


def show_crash() -> None:
    """Show a crash that loses nothing but its own batch."""
    title("A supervised worker crashes; what has accumulated is kept")
    gate = threading.Event()

    def fragile(batch: list[str], seen: int) -> int:
        gate.wait()
        if "poison" in batch:
            raise ValueError("cannot digest this")
        print(f"processed {batch}, {seen + len(batch)} since the last start")
        return seen + len(batch)

    tree = af.Supervisor([af.Worker("eater", fragile, state=0)], name="tour")
    with tree as supervisor:
        worker = supervisor.worker("eater")
        worker.push("poison")
        for message in ("bread", "butter", "salt"):
            worker.push(message)
        gate.set()
        worker.push_block("pepper")
        print(supervisor.tree())


def show_isolation() -> None:
    """Show how poison is found."""
    title("The same without a crash: the poison is found and put aside, the rest goes on")

    def careful(batch: list[int], _state: None) -> None:
        if 13 in batch:
            raise ValueError("13 brings bad luck")

    with af.spawn(careful, on_failure="isolate") as worker:
        worker.push_many(range(100))
        worker.push_block(100)
        statistics = worker.statistics()
        letters = [letter.message for letter in worker.dead_letters]
        print(f"{statistics.processed} processed, dead letters: {letters}")


def show_durable_worker() -> None:
    """Show state that survives its engine."""
    title("A durable worker: its state outlives the engine")

    def count(batch: list[str], total: int) -> int:
        return total + len(batch)

    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with af.Engine(f"{folder}/orders.db") as engine:
                worker = engine.worker("orders", count, state=0)
                worker.push_many(["tea", "coffee"])
                worker.push_block("cake")
                print(f"on disk: {worker.state()} orders")


def show_flow() -> None:
    """Show a process that is written down as text."""
    title("A flow: text in, tasks out, every step durable if the engine is")
    with af.Engine() as engine:
        engine.tasker("alice", lambda task: print("alice does", task.body["taskname"]))
        engine.tasker("bob", lambda task: print("bob does", task.body["taskname"]))
        execution = engine.launch("sequence\n  alice 'stage a'\n  bob 'stage b'")
        print("ended:", engine.wait(execution, timeout=10).status)


def show_lab() -> None:
    """Show what the policy lab says before anything is deployed."""
    title("The policy lab: 100,000 simulated messages a policy, a sink that costs 5 ms a call")
    for policy in ("queue", "linger(queue, 20ms)", "adaptive(queue, 50ms)", "unique"):
        result = simulate(Poisson(5_000, duration=20.0), "5ms + 10us*n", policy)
        p99 = 1_000 * result.latency["p99"]
        print(f"{policy:24} p99 {p99:6.1f} ms, executor busy {100 * result.busy:3.0f} %")


def main() -> None:
    """Give the tour."""
    logging.getLogger("actorflow").setLevel(logging.CRITICAL)  # crashes are part of the show
    show_behaviours()
    show_throttle()
    show_crash()
    show_isolation()
    show_durable_worker()
    show_flow()
    show_lab()
    print("\nNext: README.md, docs/index.md, and `make bench`.")


if __name__ == "__main__":
    main()
