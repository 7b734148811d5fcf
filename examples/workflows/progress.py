"""Report how far a long task has come; the next attempt goes on from there.

Temporal calls it *heartbeating activity tasks* with *heartbeat details*.
"""

import sys

import actorflow as af


@af.task(heartbeat=30, retries=1_000, backoff=0.02)
def copy(files: int) -> str:
    """Copy many files; the connection breaks now and then."""
    task = af.current_task()
    begun = task.last_progress or 0
    print("beginning at file", begun)
    for number in range(begun, files):
        task.progress(number + 1)
        if number == 10 * task.attempt:
            raise ConnectionError(f"lost at file {number}")
    return f"{files} files copied"


class Backup(af.Workflow[str]):
    """Copies files."""

    def __init__(self, files: int) -> None:
        self.files = files

    def handle(self) -> str:
        """Return how many were copied."""
        return self.execute(copy(self.files))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Backup(files=35), id="backup").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
