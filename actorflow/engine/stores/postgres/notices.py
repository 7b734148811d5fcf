"""What engines tell each other through NOTIFY: hints only, which may be lost.

A notice names its sender, so that nobody listens to himself, and then executions that somebody
should look at, or another matter.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from actorflow.engine.stores.protocol import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from actorflow.engine.stores.postgres.writing.commit_plan import CommitPlan

__all__ = [
    "Followed",
    "Notice",
    "concerned",
    "decode_notice",
    "follow_notice",
    "hint_notice",
    "look_notice",
    "notices_of",
]

_LARGEST = 7_000  # bytes; Postgres takes less than 8,000
_MANY = 16  # notices of one commit, beyond which others look at everything
_EXECUTIONS, _WATCHES, _TASKS, _FOLLOW, _HINT, _ALL = "x", "w", "t", "f", "h", "*"


class Notice(NamedTuple):
    """Something to look at."""

    sender: str
    executions: tuple[str, ...] | None = ()
    """Which have got messages, or have ended; `None`: look at everything."""
    watches: bool = False
    """Watches have changed."""
    workers: tuple[str, ...] = ()
    """Who have got tasks to do."""
    followed: str | None = None
    """The execution whose commits are followed."""
    member: str | None = None
    """The members that should check in soon."""


class Followed:
    """Executions whose commits are to be announced, each for some seconds. Thread-safe."""

    def __init__(self, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def add(self, execution: str) -> None:
        """Follow an execution; drop those whose time is up."""
        now = self._clock()
        self._until = {name: until for name, until in self._until.items() if until > now}
        self._until[execution] = now + self._seconds

    def clear(self) -> None:
        """Forget all of them."""
        self._until = {}

    def names(self) -> tuple[str, ...]:
        """Return all that are followed."""
        now = self._clock()
        return tuple(name for name, until in self._until.items() if until > now)

    def among(self, executions: Iterable[str]) -> list[str]:
        """Return those of some executions that are followed."""
        now, until = self._clock(), self._until
        return [name for name in executions if until.get(name, 0.0) > now]


def concerned(plan: CommitPlan) -> Iterator[str]:
    """Yield the executions that a commit has changed; some of them twice."""
    yield from plan.executions
    for name, _ in plan.consumed:
        yield name


def notices_of(
    plan: CommitPlan,
    sender: str,
    partitions: int,
    owned: Container[int],
    followed: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the notices of a commit to other engines; none if it concerns no other."""
    names = dict.fromkeys(
        out.message.execution
        for out in plan.messages
        if partition_of(out.message.execution, partitions) not in owned
    )
    names.update(dict.fromkeys(plan.ended))
    names.update(dict.fromkeys(followed))
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


def follow_notice(sender: str, execution: str) -> str:
    """Return what makes the owner of an execution tell of its commits."""
    return f"{sender}\n{_FOLLOW}\n{execution}"


def look_notice(sender: str, execution: str) -> str:
    """Return what makes others look at an execution."""
    return f"{sender}\n{_EXECUTIONS}\n{execution}"


def decode_notice(text: str) -> Notice:
    r"""Return what a notice says; one that cannot be read says that there is something to look at.

    >>> decode_notice("7f3c\nx\norder-7").executions
    ('order-7',)
    """
    sender, *rest = text.split("\n")
    match rest:
        case ["x", *names]:
            return Notice(sender, tuple(names))
        case ["w"]:
            return Notice(sender, watches=True)
        case ["t", *workers]:
            return Notice(sender, workers=tuple(workers))
        case ["f", execution]:
            return Notice(sender, followed=execution)
        case ["h", member]:
            return Notice(sender, member=member)
        case _:
            return Notice(sender, None)
