"""Jobs that tests run in worker processes, so they stand at the top of a module."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import actorflow as af


def note(path: str, text: object) -> None:
    with Path(path).open("a", encoding="ascii") as file:
        file.write(f"{text}\n")


def add(batch: list[int], total: int) -> Any:
    return af.Answers(total + sum(batch), [total + sum(batch)] * len(batch))


def where(batch: list[Any], _state: None) -> Any:
    return af.Answers(None, [os.getpid()] * len(batch))


def meet(batch: list[str], _state: None) -> Any:
    """Wait until as many processes as wanted are here."""
    (path,) = batch
    note(path, os.getpid())
    while len(set(Path(path).read_text(encoding="ascii").split())) < 2:
        pass
    return af.Answers(None, [os.getpid()])


async def later(batch: list[int], total: int) -> Any:
    return add(batch, total)


def die_at_first(batch: list[str], _state: None) -> None:
    for path in batch:
        before = Path(path).read_text(encoding="ascii")
        note(path, os.getpid())
        if not before:
            os._exit(3)


def die_of_poison(batch: list[Any], _state: None) -> None:
    if any(text == "poison" for _, text in batch):
        os._exit(3)
    for path, text in batch:
        note(path, text)


def hang(batch: list[str], _state: None) -> None:
    note(batch[0], os.getpid())
    threading.Event().wait()


def fail(batch: list[str], _state: None) -> None:
    raise ValueError(batch[0])


def stop(batch: list[str], _state: None) -> Any:
    raise af.Stop(batch[0])


def say(batch: list[str], _state: None) -> None:
    print(*batch)  # noqa: T201 - the test reads it


def return_a_lock(batch: list[str], _state: Any) -> Any:
    return threading.Lock()


@af.batched(executor="process", concurrency=2)
def double(numbers: list[int]) -> list[Any]:
    if 13 in numbers:
        msg = "unlucky"
        raise ValueError(msg)
    return [KeyError(each) if each == 7 else (2 * each, os.getpid()) for each in numbers]


@af.batched(executor="process")
async def triple(numbers: list[int]) -> list[int]:
    return [3 * each for each in numbers]


def hang_at_first(batch: list[Any], _state: None) -> Any:
    """Note each batch; hang where it is the first one."""
    texts = [text for _, text in batch]
    path = batch[0][0]
    is_first = not Path(path).read_text(encoding="ascii")
    note(path, ",".join(texts))
    if is_first:
        threading.Event().wait()
    return af.Answers(None, [text.upper() for text in texts])


def take_more(_batch: list[Any], _state: None) -> Any:
    return af.Answers(None, [af.current_inbox().take_now()])
