"""A journal of epochs: the members that committed in each epoch of each partition.

A store notes the first commit that each member makes in an epoch, in the transaction of that commit
or together with its record. It notes what happened, and refuses nothing. So if two members have
ever committed in the same epoch, the journal names both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actorflow.cluster.ring.register import Holding

__all__ = ["KEPT_EPOCHS", "EpochJournal", "JournalEntry", "journal_problems"]

KEPT_EPOCHS = 256
"""For each partition; older ones are forgotten."""


class JournalEntry(NamedTuple):
    """The first commit of a member in an epoch."""

    partition: int
    epoch: int
    member: str


class EpochJournal:
    """A journal in memory. Not thread-safe.

    >>> journal = EpochJournal()
    >>> journal.note(3, 1, "a")
    >>> journal.note(3, 1, "a")
    >>> journal.entries()
    [JournalEntry(partition=3, epoch=1, member='a')]
    """

    def __init__(self, entries: Iterable[Sequence[int | str]] = ()) -> None:
        self._members: dict[int, dict[int, tuple[str, ...]]] = {}
        for partition, epoch, member in entries:
            self.note(int(partition), int(epoch), str(member))

    def note(self, partition: int, epoch: int, member: str) -> None:
        """Note a commit. O(1)."""
        epochs = self._members.setdefault(partition, {})
        members = epochs.get(epoch, ())
        if member not in members:
            epochs[epoch] = (*members, member)
            if len(epochs) > KEPT_EPOCHS:
                del epochs[min(epochs)]

    def entries(self) -> list[JournalEntry]:
        """Return the entries. O(n)."""
        return [
            JournalEntry(partition, epoch, member)
            for partition, epochs in sorted(self._members.items())
            for epoch, members in sorted(epochs.items())
            for member in members
        ]


def journal_problems(
    entries: Iterable[JournalEntry], holdings: Sequence[Holding]
) -> Iterator[tuple[int, str]]:
    """Yield each violation of "one owner for each epoch", with its partition. O(n).

    Args:
        entries: the journal.
        holdings: the register of the same moment.

    >>> from actorflow.cluster.ring import Holding
    >>> entries = [JournalEntry(0, 7, "a"), JournalEntry(0, 7, "b")]
    >>> list(journal_problems(entries, [Holding(None, 7)]))
    [(0, 'a and b both committed in epoch 7')]
    """
    committers: dict[tuple[int, int], list[str]] = {}
    for partition, epoch, member in entries:
        committers.setdefault((partition, epoch), []).append(member)
    for (partition, epoch), members in committers.items():
        names = " and ".join(sorted(members))
        if len(members) > 1:
            yield partition, f"{names} both committed in epoch {epoch}"
        if partition >= len(holdings):
            yield partition, f"{names} committed in a partition that is not there"
            continue
        holding = holdings[partition]
        if epoch > holding.epoch:
            yield partition, f"{names} committed in epoch {epoch}; the last one is {holding.epoch}"
        elif epoch == holding.epoch and holding.owner not in (None, *members):
            yield partition, f"{names} committed in epoch {epoch}, which {holding.owner} owns"
