"""What engines tell each other through NOTIFY: hints only, which may be lost.

A notice names its sender, so that nobody listens to himself, and then executions that somebody
should look at, or another matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from actorflow.engine.stores.protocol import partition_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from actorflow.cluster.postgres.planning import Plan

__all__ = ["Notice", "decode_notice", "hint_notice", "notices_of"]

_LARGEST = 7_000  # bytes; Postgres takes less than 8,000
_MANY = 16  # notices of one commit, beyond which others look at everything
_EXECUTIONS, _WATCHES, _TASKS, _HINT, _ALL = "x", "w", "t", "h", "*"


class Notice(NamedTuple):
    """Something to look at."""

    sender: str
    executions: tuple[str, ...] | None = ()
    """Which have got messages, or have ended; `None`: look at everything."""
    watches: bool = False
    """Watches have changed."""
    workers: tuple[str, ...] = ()
    """Who have got tasks to do."""
    member: str | None = None
    """The members that should check in soon."""


def notices_of(plan: Plan, sender: str, partitions: int, owned: Container[int]) -> Iterator[str]:
    """Yield what others are told of a commit. Nothing if it concerns nobody else."""
    names = dict.fromkeys(
        out.message.execution
        for out in plan.messages
        if partition_of(out.message.execution, partitions) not in owned
    )
    names.update(dict.fromkeys(plan.ended))
    workers = {task.worker for task in plan.retried.values() if task.worker is not None}
    if workers:
        yield "\n".join((sender, _TASKS, *sorted(workers)))
    if plan.watches or plan.cancelled_watches:
        yield f"{sender}\n{_WATCHES}"
    if names:
        parts = list(_chunks(names))
        if len(parts) > _MANY:
            yield f"{sender}\n{_ALL}"
        else:
            yield from ("\n".join((sender, _EXECUTIONS, *part)) for part in parts)


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name in names:
        length = len(name.encode()) + 1
        if part and size + length > _LARGEST:
            yield part
            part, size = [], 0
        part.append(name)
        size += length
    if part:
        yield part


def hint_notice(sender: str, member: str) -> str:
    """Return what makes another member check in soon."""
    return f"{sender}\n{_HINT}\n{member}"


def decode_notice(text: str) -> Notice:
    r"""Return what a notice says; one that cannot be read says that there is something to look at.

    >>> decode_notice("7f3c\nx\norder-7")
    Notice(sender='7f3c', executions=('order-7',), watches=False, workers=(), member=None)
    """
    sender, *rest = text.split("\n")
    match rest:
        case ["x", *names]:
            return Notice(sender, tuple(names))
        case ["w"]:
            return Notice(sender, watches=True)
        case ["t", *workers]:
            return Notice(sender, workers=tuple(workers))
        case ["h", member]:
            return Notice(sender, member=member)
        case _:
            return Notice(sender, None)
