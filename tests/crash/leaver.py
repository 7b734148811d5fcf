"""A program that is killed: an execution that does one message a run and leaves the others over.

`leaver.py STORE SIZE` goes on with the execution, or begins it if there is none; its batches hold
SIZE messages at most. It ends when the execution has, and prints in which order it ran.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.engine import Engine
from actorflow.engine.kind import Outcome, Status
from behaviours import Chunk, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = "a0"
LEFT = ["a1", "a2", "a3"]
LATER = ["b0", "b1", "b2"]
PATIENCE = 20.0


class Leaver:
    """Runs the first message of its batch; the first of all makes others that come before."""

    name = "leaver"

    def __init__(self, size: int) -> None:
        self._size = size
        self.entered, self.go = threading.Event(), threading.Event()

    def options(self, _execution: str) -> dict[str, Any]:
        return {"behaviour": Chunk(Queue(), self._size)}

    def decode(self, data: bytes | None) -> Any:
        return [] if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        return bodies.encode(state)

    def run(
        self, _execution: str, state: Any, batch: list[str], _keep_going: Callable[[], bool]
    ) -> Outcome:
        message, *left = batch
        if message == FIRST:
            self.entered.set()
            assert self.go.wait(PATIENCE)
            left = LEFT + left
        done = [*state, message]
        ended = len(done) == 1 + len(LEFT) + len(LATER)
        return Outcome(state=done, leftover=left, status=Status.DONE if ended else Status.ACTIVE)


def main(store: str, size: str) -> None:
    with Engine(store) as engine:
        new = engine.store.execution("x") is None
        kind = Leaver(int(size))
        engine.register(kind)
        if new:
            engine.send("x", FIRST, kind="leaver")
            assert kind.entered.wait(PATIENCE)
            for message in LATER:
                engine.send("x", message)
            kind.go.set()
        engine.wait("x", timeout=PATIENCE)
        print(json.dumps(bodies.decode(engine.row("x").state or b"")))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
