"""The part of a store by which the engines that share it divide its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from actorflow.cluster.membership import Membership, Peer

__all__ = ["MemberStore"]


class MemberStore:
    """A store that owns partitions as a member. Subclasses set `_membership` before they are used.

    Until it has joined, it owns nothing.
    """

    _membership: Membership
    _joined = False

    def _check_joinable(self) -> None:
        """Raise if the store cannot own partitions now."""

    def owned(self) -> Mapping[int, int]:
        """Return the partitions that this engine owns, each with its epoch."""
        return self._membership.owned() if self._joined else {}

    def join(self) -> None:
        """Begin to own partitions, and to divide them with the other members."""
        self._check_joinable()
        if not self._joined:
            self._membership.join()
            self._joined = True

    def _leave(self) -> bool:
        """Own nothing any more; return whether partitions may have been owned."""
        self._membership.stop()
        joined, self._joined = self._joined, False
        return joined

    def inherited(self, partition: int) -> bool:
        """Return whether the owner before us ended without handing a partition over."""
        return self._membership.inherited(partition)

    def draining(self) -> Collection[int]:
        """Return the partitions that others are to have once nothing of them runs here."""
        return self._membership.draining()

    def drained(self, partition: int) -> None:
        """Record that nothing of a partition runs here any more, so that others may have it."""
        self._membership.drained(partition)

    def time(self) -> float:
        """Return the time of the shared clock, as estimated; the own time until it has joined."""
        return self._membership.time.now()

    def serve(
        self, taskers: Collection[str], busy: Callable[[], int], codes: Collection[str] = ()
    ) -> None:
        """Announce the taskers and the code of this process; `busy` counts its tasks."""
        self._membership.serve(taskers, busy, codes)

    def peers(self) -> Sequence[Peer]:
        """Return the engines that share the store, as of the last check-in."""
        return self._membership.peers()
