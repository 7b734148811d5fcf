"""Tasks that another process imports."""

from __future__ import annotations

import os
import threading

import actorflow as af


@af.task(executor="process")
def elsewhere(number: int) -> tuple[int, int]:
    return number, os.getpid()


@af.task(executor="process")
async def elsewhere_later(number: int) -> int:
    return number + 1


@af.task(executor="process")
def hangs(path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - flushed by its end
        file.write(str(os.getpid()))
    threading.Event().wait()  # until it is killed


class Away(af.Workflow[tuple[tuple[int, int], int]]):
    def handle(self) -> tuple[tuple[int, int], int]:
        return self.execute(elsewhere(7), elsewhere_later(7))


class Hangs(af.Workflow[None]):
    def __init__(self, path: str) -> None:
        self.path = path

    def handle(self) -> None:
        self.execute(hangs(self.path))


@af.task(executor="process")
def breaks_elsewhere() -> None:
    raise ValueError("no")


@af.task(executor="process")
def says_who() -> str:
    return af.current_task().id


@af.task(executor="process", retries=1, backoff=af.Backoff(initial=1.0, factor=1.0, maximum=1.0))
def counts_up() -> int:
    task = af.current_task()
    count = (task.last_progress or 0) + 1
    task.progress(count)
    if count == 1:
        raise OSError("no network")
    return count
