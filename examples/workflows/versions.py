"""Change the code of running workflows: instances that are past the change keep the old way.

Temporal calls it *patching* or *versioning*, DBOS *patch*.
"""

import sys
import tempfile

import actorflow as af


@af.task
def check(order: str) -> str:
    """Look for fraud."""
    return f"{order} is fine"


def first_version() -> type[af.Workflow[str]]:
    """Return the code of last week."""

    class Order(af.Workflow[str]):
        def handle(self) -> str:
            self.wait("paid")
            return f"{self.id} paid"

    return Order


def second_version() -> type[af.Workflow[str]]:
    """Return the code of today, which looks for fraud first."""

    class Order(af.Workflow[str]):
        def handle(self) -> str:
            checked = self.execute(check(self.id)) if self.patched("fraud") else "not checked"
            self.wait("paid")
            return f"{self.id} paid ({checked})"

    return Order


def main(store: str | None = None) -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    store = store or f"{tempfile.mkdtemp()}/orders.db"
    with af.Engine(store) as engine:
        if "o-2" not in [each.id for each in engine.executions()]:  # not deployed yet
            engine.start(first_version()(), id="o-1").query()  # it has begun, and waits
    with af.Engine(store) as engine:  # after the deploy
        new = second_version()
        orders = [engine.start(new(), id=name) for name in ("o-1", "o-2")]
        for order in orders:
            order.send("paid", id="payment")
        print(", ".join(order.result(timeout=20) for order in orders))


if __name__ == "__main__":
    main(*sys.argv[1:])
