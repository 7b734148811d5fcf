"""Charge a customer each month for years. Each month begins a fresh history.

Temporal calls it *subscription* and *continue as new*.
"""

import sys

import actorflow as af

MONTH = 0.03  # seconds; 30 * 86_400 in real life


@af.task(retries=10)
def charge(customer: str, month: int, amount: int) -> str:
    """Charge the card; `af.current_task().id` is the idempotency key."""
    return f"{customer} has paid {amount} for month {month}"


class Subscription(af.Workflow[str], keep_events=["cancel"]):
    """One customer."""

    def __init__(self, customer: str, amount: int, month: int = 1) -> None:
        self.customer = customer
        self.amount = amount
        self.month = month

    def handle(self) -> str:
        """Return how long it has lasted."""
        self.publish(self.execute(charge(self.customer, self.month, self.amount)))
        if self.wait("cancel", seconds=MONTH) is not None:
            return f"{self.customer} has stayed, and pays {self.amount} now"
        return self.again(Subscription(self.customer, self.amount, self.month + 1))

    def on_event(self, event: af.Event) -> None:
        """Change the amount at any time."""
        if event.name == "change":
            self.amount = event.data["amount"]


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        ann = engine.start(Subscription("ann", 10), id="ann")
        ann.send("change", amount=12, id="change-1")
        for payment in ann.follow(timeout=20):
            print(payment)
            if "month 4" in payment:
                ann.send("cancel", id="cancel-1")
        print(ann.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
