"""Start a workflow by the clock, once for each date, and make up for dates that were missed.

Temporal calls it *schedules* with *backfill*, DBOS *scheduled*, Oban *cron*.
"""

import sys

import actorflow as af

DAY = 86_400.0


@af.task
def count(shop: str) -> int:
    """Count the goods of the shop."""
    return len(shop)


class Inventory(af.Workflow[int]):
    """Counts each night."""

    def __init__(self, shop: str) -> None:
        self.shop = shop

    def handle(self) -> int:
        """Return how much there is."""
        return self.execute(count(self.shop))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        nightly = engine.schedule("nightly", "0 2 * * *", Inventory("Main St"), zone="Europe/Rome")
        nightly.backfill(0.0, 3 * DAY)  # the first days of 1970; a second time changes nothing
        nights = [f"nightly@1970-01-0{day}T01:00:00Z" for day in (1, 2, 3)]
        print("counted", ", ".join(str(engine.result(night, timeout=20)) for night in nights))


if __name__ == "__main__":
    main(*sys.argv[1:])
