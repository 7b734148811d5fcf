"""The code of the workers: `actorflow cluster worker URL --app shop:setup`."""

from typing import Any

import actorflow as af


class Order(af.Workflow[str]):
    """Charges a customer, then ships."""

    def __init__(self, number: str) -> None:
        self.number = number

    def handle(self) -> str:
        """Return what the carrier calls the parcel."""
        self.execute(charge(self.number))
        parcel: str = self.execute(ship(self.number))
        return parcel


@af.task(retries=3)
def charge(number: str) -> str:
    """Charge for an order; the provider ignores a repetition with the same number."""
    return f"paid {number}"


@af.task
def ship(number: str) -> str:
    """Hand an order to the carrier."""
    return f"parcel {number}"


def setup(engine: Any) -> None:
    """Register what the workers run."""
    engine.workflows.register(Order)
