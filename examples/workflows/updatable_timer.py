"""Sleep until a moment that others may move, to an earlier or a later one.

Temporal calls it *updatable timer*.
"""

import sys

import actorflow as af

DAY = 86_400  # seconds


class Auction(af.Workflow[str]):
    """Ends some time after the last bid."""

    def __init__(self, thing: str) -> None:
        self.thing = thing
        self.best = 0

    def handle(self) -> str:
        """Return what it was sold for."""
        closes = self.now().timestamp() + DAY
        while bid := self.wait("bid", until=closes):
            self.best = max(self.best, bid.data["amount"])
            closes = self.now().timestamp() + (0.1 if self.best >= 30 else DAY)
            self.publish(self.best)
        return f"{self.thing} sold for {self.best}"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        auction = engine.start(Auction("a clock"), id="clock")
        for amount in (10, 20, 30):
            auction.send("bid", amount=amount, id=f"bid-{amount}")
        for best in auction.follow(timeout=20):
            print("best bid:", best)
        print(auction.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
