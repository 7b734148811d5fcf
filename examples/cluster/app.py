"""Orders on a cluster: any worker may run them, and any may die.

`actorflow cluster dev --app app:setup` starts a Postgres server and three workers, and prints the
address. `python app.py ADDRESS` starts 30 orders there and prints how they end. Kill workers
meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections import Counter

import actorflow as af


@af.task(retries=100, backoff=0.1)
def pack(order: str) -> int:
    """Pack an order; return the process that has done it."""
    print("packing", order)
    return os.getpid()


@af.task(retries=100, backoff=0.1)
def ship(order: str) -> int:
    """Ship an order; return the process that has done it."""
    print("shipping", order)
    return os.getpid()


class Order(af.Workflow[list[int]]):
    """Packs, waits for the payment, ships."""

    def handle(self) -> list[int]:
        """Return the processes that have worked on it."""
        packed = self.execute(pack(self.id))
        self.publish(packed)
        self.wait("paid")
        self.wait(seconds=0.5)
        return [packed, self.execute(ship(self.id))]


def setup(engine: af.Engine) -> None:
    """Register what each worker has to know."""
    engine.workflows.register(Order)


def main(address: str, count: int = 30) -> Counter[int]:
    """Start orders, pay for them, and wait; return how much each process has done.

    A client is an engine on the same store; it runs a share of the orders as well.
    """
    with af.Engine(address) as engine:
        orders = [engine.start(Order(), id=f"order-{number}") for number in range(count)]
        for order in orders:
            order.send("paid", id="payment")
        done: Counter[int] = Counter()
        for order in orders:
            done.update(order.result(timeout=60))
            print(order.id, "is shipped", flush=True)
        return done


if __name__ == "__main__":
    for process, steps in main(sys.argv[1]).items():
        print(f"process {process} has done {steps} steps")
