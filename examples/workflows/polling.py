"""Ask a service again and again until it is ready, without holding a thread meanwhile.

Temporal calls it *polling*; with a wait of an hour it is *infrequent polling*.
"""

import sys

import actorflow as af


@af.task(retries=5, backoff=0.1)
def poll(report: str, asked: int) -> str | None:
    """Ask for the report; `None` as long as it is not ready."""
    print(f"{report}: asked {asked} times")
    return f"{report}: 40 pages" if asked == 4 else None


class Report(af.Workflow[str]):
    """Waits for a report."""

    def __init__(self, name: str) -> None:
        self.name = name

    def handle(self) -> str:
        """Return the report, or give up."""
        for asked in range(1, 10):
            report = self.execute(poll(self.name, asked))
            if report is not None:
                return f"{report}, asked {asked} times"
            self.wait(seconds=0.02 * asked)  # longer each time
        return f"{self.name} is never ready"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Report("sales of May"), id="may").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
