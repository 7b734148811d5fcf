"""Wait for a person who approves or declines: a task that somebody answers later.

Temporal calls it *expense* (asynchronous activity completion), Zenaton *expense approval*.
"""

import sys
from queue import Queue
from threading import Thread

import actorflow as af

requests: Queue[str] = Queue()


@af.task(timeout=3 * 86_400)
def approve(expense: str) -> bool:
    """Queue the request for the boss, and leave the task open."""
    print("to approve:", expense)
    requests.put(af.current_task().id)
    return af.HOLD


@af.task
def pay(expense: str) -> str:
    """Pay."""
    return f"{expense} paid"


class Expense(af.Workflow[str]):
    """Pays an expense that the boss has approved."""

    def __init__(self, what: str) -> None:
        self.what = what

    def handle(self) -> str:
        """Return whether it was paid."""
        if not self.execute(approve(self.what)):
            return f"{self.what} declined"
        return self.execute(pay(self.what))


def boss(engine: af.Engine) -> None:
    """Answer each request; in real life: a web page, or `actorflow return-task`."""
    while task := requests.get():
        engine.return_task(task, value=True)


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        Thread(target=boss, args=[engine], daemon=True).start()
        print(engine.start(Expense("train to Rome"), id="e-1").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
