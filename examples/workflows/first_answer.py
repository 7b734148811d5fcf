"""Begin two tasks, take the first answer, and stop the other task.

Temporal calls it *pick first*, asyncio *wait(return_when=FIRST_COMPLETED)*.
"""

import sys
import time

import actorflow as af


@af.task
def ask(server: str, seconds: float) -> str:
    """Ask a server; stop as soon as nobody wants the answer any more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and af.current_task().heartbeat():
        time.sleep(0.01)
    return f"answer of {server}"


class Question(af.Workflow[str]):
    """Asks a fast and a slow server."""

    def handle(self) -> str:
        """Return the answer that came first."""
        servers = [ask("Oslo", 30.0), ask("Rome", 0.05)]
        found = self.first(*servers, cancel=True)
        return f"{found.value}, which is number {found.index}"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Question(), id="question").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
