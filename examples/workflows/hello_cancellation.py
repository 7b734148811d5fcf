"""Stop a workflow from outside; its code cleans up before it ends.

Temporal calls it *hello cancellation*, DBOS *cancel a workflow*.
"""

import sys

import actorflow as af


@af.task
def rent(machine: str) -> str:
    """Rent a machine, which costs money until it is given back."""
    return f"{machine}-1"


@af.task(retries=10)
def give_back(machine: str) -> str:
    """Give it back."""
    return f"{machine} given back"


class Job(af.Workflow[None]):
    """Works on a rented machine."""

    def __init__(self) -> None:
        self.note = ""

    def handle(self) -> None:
        """Give the machine back whatever happens."""
        machine = self.execute(rent("gpu"))
        try:
            self.publish("running")
            self.wait("finished", days=1)
        finally:
            self.note = self.execute(give_back(machine))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        job = engine.start(Job(), id="job")
        next(job.follow(timeout=20))
        job.cancel(id="cancel-1")  # a second cancel without this id would end it at once
        try:
            job.result(timeout=20)
        except af.Cancelled:
            print("cancelled:", job.query().properties["note"])


if __name__ == "__main__":
    main(*sys.argv[1:])
