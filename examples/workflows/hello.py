"""Call one task from a workflow: the smallest program.

Temporal calls it *hello activity*, DBOS a workflow with one step, Hatchet a simple task.
"""

import sys

import actorflow as af


@af.task
def greet(name: str) -> str:
    """Do something outside; its result is recorded once."""
    return f"Hello, {name}!"


class Hello(af.Workflow[str]):
    """Greets somebody."""

    def __init__(self, name: str) -> None:
        self.name = name

    def handle(self) -> str:
        """Return the greeting."""
        return self.execute(greet(self.name))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Hello("world"), id="hello").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
