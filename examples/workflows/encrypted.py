"""Encrypt all that is stored: arguments, events, properties, results and history.

Temporal calls it *codec* or *payload encryption*.
"""

import sys

import actorflow as af

KEY = bytes.fromhex("aa" * 32)  # os.urandom(32), kept where your other secrets are


@af.task
def pay(card: str, amount: int) -> str:
    """Pay with a card."""
    return f"{amount} paid with a card that ends in {card[-4:]}"


class Payment(af.Workflow[str]):
    """Waits for a card number, and pays."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def handle(self) -> str:
        """Return the receipt."""
        card = self.wait("card")
        return self.execute(pay(card.data["number"], self.amount))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store, codec=af.Encrypted(KEY)) as engine:
        payment = engine.start(Payment(40), id="payment")
        payment.send("card", number="4000123412341234", id="card-1")
        print(payment.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
