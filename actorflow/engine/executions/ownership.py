"""Which executions this engine may run, where several engines share a store.

A store that is shared divides its executions into partitions, and gives each to one engine for as
long as that renews its lease. So ownership can change at any time. Every commit of an owner
names the epoch in which it owns the partition; the store refuses one that is over.

An engine that has its store for itself owns everything, and none of this costs anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from actorflow.engine.stores.protocol import partition_of
from actorflow.runtime.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actorflow.engine.stores.protocol import SharedStore, Store

__all__ = ["MOVED", "Ownership", "refusal_of"]

MOVED = "the execution has moved to another engine, where its messages are processed"

_WINDOW = 10_000  # messages of one execution that are searched for one that is awaited


def refusal_of(store: Store, number: Any) -> Exception | None:
    """Return why a message became a dead letter, if it did. Thread-safe."""
    letter = store.dead_letter(number)
    return None if letter is None else Rejected(letter.error)


class Ownership:
    """The partitions of an engine, and callers that wait for messages which others process.

    Thread-safe, except for methods of the writer's thread: `followed`, `delivers`,
    `await_processed`, `tell_processed` and `close`.
    """

    def __init__(self, store: Store) -> None:
        self._store = cast("SharedStore", store)
        self._partitions = store.traits.partitions
        self.shared = store.traits.shared
        self.followed: Mapping[int, int] = {}
        """The partitions of which everything stored has been looked at, each with its epoch. The
        writer's thread."""
        self.waiting: dict[str, dict[Any, Any]] = {}
        """The callers that wait for stored messages, by execution and message."""

    def partition_of(self, execution: str) -> int:
        """Return the partition that an execution belongs to."""
        return partition_of(execution, self._partitions)

    def epoch_of(self, execution: str) -> int | None:
        """Return the epoch that commits of an execution have to name; `None`: none."""
        if not self.shared:
            return None
        return self._store.owned().get(partition_of(execution, self._partitions))

    def runs(self, execution: str) -> bool:
        """Return whether an execution may run here now."""
        return not self.shared or self.epoch_of(execution) is not None

    def delivers(self, execution: str) -> bool:
        """Return whether a message that was just stored goes to the execution here at once.

        Not if the partition was gained while the commit was under way: its last owner may have
        processed the message already. It is read with everything else, if it is still there. In the
        writer's thread.
        """
        if not self.shared:
            return True
        partition = partition_of(execution, self._partitions)
        epoch = self._store.owned().get(partition)
        return epoch is not None and self.followed.get(partition) == epoch

    def keeps(self, execution: str, epoch: int | None) -> bool:
        """Return whether an execution has been owned ever since that epoch began."""
        # One that was loaded from a page that was read before the partition was lost has no epoch.
        return not self.shared or (epoch is not None and self.epoch_of(execution) == epoch)

    def is_suspect(self, execution: str) -> bool:
        """Return whether stored messages of an execution may have ended a process before."""
        if not self.shared:
            return self._store.left_open
        return self._store.inherited(partition_of(execution, self._partitions))

    def has_code(self, code: str) -> bool:
        """Return whether another live engine has announced this `code` of a kind."""
        if not self.shared:
            return False
        me = self._store.name
        return any(code in peer.codes for peer in self._store.peers() if peer.name != me)

    def follow(self, execution: str) -> None:
        """Ask to hear of the next commits of an execution that another engine owns.

        Call it before you ask for what you wait for, so that nothing is missed.
        """
        if self.shared and not self.runs(execution):
            self._store.follow(execution)

    # Messages that other engines process.

    def awaited(self, names: Iterable[str] | None) -> list[str]:
        """Return the executions with waiting callers: all of them, or those among `names`."""
        return sorted(self.waiting if names is None else self.waiting.keys() & set(names))

    def await_processed(self, execution: str, waiters: dict[Any, Any]) -> None:
        """Resolve waiters once the messages of these ids have been processed, wherever."""
        if waiters:
            self.waiting.setdefault(execution, {}).update(waiters)

    def tell_processed(self, name: str) -> None:
        """Resolve the waiters of messages that are not in the store any more."""
        waiting = self.waiting[name]
        page = self._store.pending(execution=name, limit=_WINDOW)
        left = {row.id for row in page.rows}
        last = page.rows[-1].id if page.after is not None else None
        for number in [each for each in waiting if each not in left]:
            if last is None or number < last:
                waiting.pop(number).resolve(refusal_of(self._store, number))
        if waiting:
            self.follow(name)
        else:
            del self.waiting[name]

    def close(self) -> list[Any]:
        """Return the remaining waiters, and forget them."""
        waiters = [each for waiting in self.waiting.values() for each in waiting.values()]
        self.waiting.clear()
        return waiters
