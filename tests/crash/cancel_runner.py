"""A program that is killed while its workflow is cancelled.

`cancel_runner.py STORE NOTES WORKFLOW AT` starts the workflow, cancels it when it waits for the
event named AT, and prints how it ended. Nothing of that is done twice, however often it is run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import actorflow as af

NOTES: list[int] = []
TRIP = ("car", "hotel", "flight")


@af.task(retries=1_000_000)  # each kill counts as an attempt
def do(what: str) -> str:
    os.write(NOTES[0], f"{what}\n".encode())
    return what


class Saga(af.Workflow[str]):
    """Books three things, and undoes the bookings if it is cancelled."""

    def handle(self) -> str:
        booked: list[str] = []
        try:
            for what in TRIP:
                self.execute(do(f"book {what}"))
                booked.append(what)
                self.wait(what)
        except af.Cancelled:
            for what in reversed(booked):
                self.execute(do(f"undo {what}"))
            raise
        return "booked"


class AsyncSaga(af.Workflow[str]):
    """The same, with tasks of asyncio."""

    async def handle(self) -> str:
        booked: list[str] = []
        try:
            for what in TRIP:
                await do(f"book {what}")
                booked.append(what)
                await af.Wait(what)
        except af.Cancelled:
            await asyncio.gather(*[do(f"undo {what}") for what in reversed(booked)])
            raise
        return "booked"


class Greets(af.Workflow[str]):
    """Temporal's hello_cancellation: greets until it is cancelled, then says goodbye."""

    def handle(self) -> str:
        try:
            for what in TRIP:
                self.execute(do(f"book {what}"))
                self.wait(what)
        finally:
            self.execute(do("goodbye"))
        return "never"


def main(store: str, notes: str, workflow: str, at: str) -> None:
    NOTES[:] = [os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)]
    made: Any = {"Saga": Saga, "AsyncSaga": AsyncSaga, "Greets": Greets}[workflow]()
    with af.Engine(store, durability="off") as engine:
        handle = engine.start(made, id="w")
        for name in TRIP[: TRIP.index(at)]:
            if handle.status == "active":
                handle.send(name, id=name)
        while handle.status == "active":
            state = handle.query().state
            if state.cancellation is not None:
                break
            if any(wait.event == at for wait in state.waits):
                handle.cancel()
                break
            time.sleep(0.01)
        try:
            ended = str(handle.result(60))
        except af.Cancelled:
            ended = "cancelled"
        entries = [*handle.history()]
        done = [each["task_output"] for each in entries if _is_done(each)]
        sys.stdout.write(json.dumps({"ended": ended, "done": done}) + "\n")


def _is_done(entry: dict[str, Any]) -> bool:
    return entry.get("type") == "onSuccess" and entry.get("task_name") == "do"


if __name__ == "__main__":
    main(*sys.argv[1:])
