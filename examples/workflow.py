"""A workflow that waits for days, and outlives the engine that has started it.

`python examples/workflow.py` opens two engines on one file, one after the other. To serve it:

    cd examples
    actorflow serve orders.db --app workflow:setup
    actorflow start orders.db Order '{"order": "o-7"}' --id o-7
    actorflow send orders.db o-7 '{"event": "paid", "data": {}}'
    actorflow cluster dev --app workflow:setup       # a Postgres server and three workers
"""

import tempfile

import actorflow as af


@af.task(retries=3)
def charge(order: str) -> int:
    """Charge the customer; done again only if the process dies before the answer is stored."""
    print("charging", order)
    return 40


@af.task
def ship(order: str) -> str:
    """Ship the order."""
    return f"{order} is on its way"


class Order(af.Workflow[str]):
    """Charge, wait for the payment, ship."""

    def __init__(self, order: str) -> None:
        self.order = order

    def handle(self) -> str:
        """Return what became of the order."""
        amount = self.execute(charge(self.order))
        self.publish(f"{amount} to pay")
        if self.wait("paid", days=3) is None:
            return f"{self.order}: {amount} were not paid in time"
        return self.execute(ship(self.order))


def setup(engine: af.Engine) -> None:
    """Register what an engine has to know."""
    engine.workflows.register(Order)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with af.Engine(f"{folder}/orders.db") as engine:
            started = engine.start(Order("o-1"), id="o-1")
            print(next(started.follow()))

        with af.Engine(f"{folder}/orders.db") as engine:  # days later, another process
            setup(engine)
            order = engine.workflows.get(Order, "o-1")
            order.send("paid")
            print(order.result(timeout=10))
