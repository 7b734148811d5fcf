"""Go through many pages of records; each page begins a fresh history, so there may be millions.

Temporal calls it *batch iterator* with *continue as new*.
"""

import sys

import actorflow as af


@af.task(retries=5)
def read(page: int) -> list[int]:
    """Read one page; an empty one is the end."""
    return list(range(page * 5, page * 5 + 5)) if page < 4 else []


@af.task(retries=5)
def process(record: int) -> int:
    """Process one record."""
    return record


class Records(af.Workflow[str]):
    """Processes page after page."""

    def __init__(self, page: int = 0, total: int = 0) -> None:
        self.page = page
        self.total = total

    def handle(self) -> str:
        """Process one page; begin anew with the next."""
        records = self.execute(read(self.page))
        if not records:
            return f"{self.page} pages, total {self.total}"
        done = self.execute_all([process(record) for record in records])
        return self.again(Records(self.page + 1, self.total + sum(done)))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Records(), id="records").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
