"""Process many records with at most three workflows at a time: as one ends, the next begins.

Temporal calls it *batch sliding window*.
"""

import sys

import actorflow as af


@af.task
def process(record: int) -> int:
    """Process one record."""
    return record * record


class Record(af.Workflow[None]):
    """Processes one record, and reports to the batch."""

    def __init__(self, record: int, batch: str) -> None:
        self.record = record
        self.batch = batch

    def handle(self) -> None:
        """Send the result to the batch."""
        self.send(self.batch, "done", value=self.execute(process(self.record)))


class Batch(af.Workflow[int]):
    """Keeps the window full."""

    def __init__(self, records: int, window: int) -> None:
        self.records = records
        self.window = window

    def handle(self) -> int:
        """Return the sum of all results."""
        total = 0
        for number in range(self.records + self.window):
            if number >= self.window:
                total += self.wait("done").data["value"]
            if number < self.records:
                self.start(Record(number, self.id), id=f"{self.id}/{number}")
        return total


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        batch = engine.start(Batch(records=10, window=3), id="batch")
        print("sum of squares:", batch.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
