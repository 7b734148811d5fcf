"""Let several workflows use one thing, one after the other.

Temporal calls it *mutex*: a workflow that lends, and workflows that send it signals.
"""

import sys

import actorflow as af


class Lender(af.Workflow[list[str]]):
    """Lends one thing to one workflow at a time, in the order in which they ask."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.lent: list[str] = []

    def handle(self) -> list[str]:
        """Return who has had it."""
        for _ in range(self.times):
            who = self.wait("want").data["who"]
            self.send(who, "yours")
            self.wait("returned")
            self.lent.append(who)
        return self.lent


class User(af.Workflow[str]):
    """Needs the thing for a while."""

    def handle(self) -> str:
        """Return that it has had it."""
        self.send("printer", "want", who=self.id)
        self.wait("yours")
        self.wait(seconds=0.02)  # nobody else has it now
        self.send("printer", "returned")
        return f"{self.id} has printed"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        printer = engine.start(Lender(times=3), id="printer")
        users = [engine.start(User(), id=name) for name in ("ann", "bob", "cid")]
        print(", ".join(user.result(timeout=20) for user in users))
        print("lent to", ", ".join(sorted(printer.result(timeout=20))))


if __name__ == "__main__":
    main(*sys.argv[1:])
