"""The cycle: what a member reads from it, writes to it and deletes from it, and where it goes.

Also who starts it, how a copy or an outdated one is recognised, and when it counts as lost.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from actorflow.cluster.ring.actions import Action, Bury, Send
from actorflow.cluster.ring.assignment import next_of
from actorflow.cluster.ring.messages import AskMap, Carried, Cycle, Noted, Post, Tracker, TrackerKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.cluster.ring.options import RingOptions
    from actorflow.cluster.ring.trackers import Trackers

__all__ = ["Reading", "Rounds"]

_MOST = 500  # trackers and wake-ups that one member adds to a cycle at a time
_LONGEST = 5  # times the pace that a round is taken to last, at most
_QUEUED = 10_000  # wake-ups that wait for a cycle; older ones are left to the sweep


class Reading(NamedTuple):
    """What a member has learned from a cycle."""

    actions: list[Action]
    posts: list[Post]
    """Wake-ups for partitions that it owns."""
    ring_differs: bool
    """Its list of members is another one: ask the store."""


class Rounds:
    """The part of a member that has to do with the cycle."""

    def __init__(self, name: str, options: RingOptions, trackers: Trackers) -> None:
        self.name = name
        self.round_trip = options.cycle or inf
        """How long a round takes, about."""
        self._options = options
        self._trackers = trackers
        self._rank: tuple[int, str] = (0, "")
        self._hop = -1
        self._seen = -inf  # when a cycle was here last
        self._since = -inf  # when there was first somebody to send one to
        self._emitted = -inf
        self._posts: deque[Post] = deque(maxlen=_QUEUED)
        self._mine: dict[TrackerKey, Tracker] = {}  # own ones, until they have come back
        self._taken: set[str] = set()  # wake-ups on board that wait or are processed here
        self._done: set[str] = set()  # those of them that are done: they may be deleted
        self._held: Cycle | None = None
        self._asked_map = -inf

    @property
    def epoch(self) -> int:
        """The highest epoch of a cycle that was seen."""
        return self._rank[0]

    @property
    def queued(self) -> int:
        """How much waits for the next cycle."""
        return len(self._posts) + len(self._mine)

    def queue_post(self, post: Post) -> None:
        """Put a wake-up on board of the next cycle; without cycles it is left to the sweep."""
        if self._options.cycle is not None:
            self._posts.append(post)

    def finished(self, post: Post) -> None:
        """Note that a wake-up was processed: if it is on board of the cycle, it may go."""
        if post.id in self._taken:
            self._done.add(post.id)

    def not_found(self, post: Post) -> None:
        """Pass a wake-up on with the cycle: its execution is not here yet."""
        if post.id in self._taken:
            self._taken.discard(post.id)  # it is on board, and may be taken again
        else:
            self.queue_post(post._replace(hops=post.hops + 1))

    def queue_tracker(self, tracker: Tracker) -> None:
        """Put a new tracker on board of the next cycle, until it has come back."""
        if self._options.cycle is not None:
            self._mine[tracker.key] = tracker

    def forget_tracker(self, tracker: Tracker) -> None:
        """Leave a tracker out of the next cycles: it is done."""
        self._mine.pop(tracker.key, None)

    # Starting, holding, losing.

    def next_time(self, ring: tuple[str, ...]) -> float:
        """Return when something is to be done without any event."""
        if self._options.cycle is None or len(ring) < 2 or self.name not in ring:  # noqa: PLR2004
            return inf
        if self._held is not None:
            return self._emitted + self._options.cycle
        seen = max(self._seen, self._since)
        place = ring.index(self.name)
        return seen + self._options.patience * self.round_trip * (1 + place)

    def tick(self, ring: tuple[str, ...], as_of: float, time: float, now: float) -> list[Action]:
        """Emit a cycle that was held back, or start one if it seems to be lost.

        The first in the alphabet waits the shortest time, so usually one begins. If several do,
        the highest epoch counts, and of the same epoch the last in the alphabet.
        """
        if self._since == -inf and len(ring) > 1:
            self._since = now  # give others the time to begin
        if now < self.next_time(ring):
            return []
        if self._held is not None:
            held, self._held = self._held, None
            return self._emit(held, ring, now)
        self._rank, self._hop = (self._rank[0] + 1, self.name), 0
        self._seen = now
        empty = Cycle(*self._rank, 0, ring, as_of, time, "", self.name)
        return self._emit(self._written(empty, ring, time), ring, now)

    # One pass.

    def read(
        self,
        cycle: Cycle,
        *,
        ring: tuple[str, ...],
        as_of: float,
        time: float,
        oldest: float,
        now: float,
        owns: Callable[[int], bool],
    ) -> Reading:
        """Read, write and delete; then emit to the next member.

        `ring` is the list of members that the store gave at `as_of`, by the store's clock, which
        says `time` now. Trackers that were due before `oldest` are not read.
        """
        rank = cycle.epoch, cycle.starter
        if rank < self._rank or (rank == self._rank and cycle.hop <= self._hop):
            return Reading([], [], ring_differs=False)  # outdated, or a copy
        if rank == self._rank and self._seen > -inf:
            self._measure(now - self._seen)
        if rank > self._rank:
            self._taken.clear()
            self._done.clear()
        self._rank, self._hop, self._seen = rank, cycle.hop, now
        self._held = None
        actions = self._compare(cycle, now)
        for noted in cycle.trackers:
            self._trackers.add(noted.tracker, oldest)
        posts = [
            carried.post
            for carried in cycle.posts
            if carried.post.id not in self._taken and owns(carried.post.partition)
        ]
        self._taken.update(post.id for post in posts)
        newer = cycle.as_of > as_of
        differs = cycle.ring != ring
        way = cycle.ring if newer and self.name in cycle.ring else ring
        if differs and not newer:  # the list that goes on is another one: the epoch is, too
            self._rank, self._hop = (cycle.epoch + 1, self.name), 0
        passed = cycle._replace(
            epoch=self._rank[0],
            starter=self._rank[1],
            hop=self._hop,
            ring=way,
            as_of=max(cycle.as_of, as_of),
            posts=tuple(Carried(each.post, each.hops + 1) for each in cycle.posts),
            trackers=tuple(each._replace(hops=each.hops + 1) for each in cycle.trackers),
        )
        kept, buried = self._delete(passed, way)
        actions += [Bury(post) for post in buried]
        written = self._written(kept, way, time)
        if way and self.name == way[0] and now < self._emitted + (self._options.cycle or 0.0):
            self._held = written  # the first in the alphabet keeps the pace
        else:
            actions += self._emit(written, way, now)
        return Reading(actions, posts, differs)

    def _measure(self, seconds: float) -> None:
        """Learn how long a round takes. One long pause must not spoil the watchdog."""
        longest = _LONGEST * (self._options.cycle or 0.0)
        self.round_trip += 0.3 * (min(seconds, longest) - self.round_trip)

    def _compare(self, cycle: Cycle, now: float) -> list[Action]:
        """Ask for all trackers if the cycle builds on others than those that are known."""
        noted = {each.tracker.key for each in cycle.trackers}
        base = self._trackers.digest(
            cycle.sent, lambda key: key not in noted and key not in self._mine
        )
        if base == cycle.base or now < self._asked_map + self.round_trip:
            return []
        self._asked_map = now
        return [Send(cycle.sender, AskMap(self.name))]

    def _delete(self, cycle: Cycle, ring: tuple[str, ...]) -> tuple[Cycle, list[Post]]:
        """Remove what has been round the whole ring, what is done, and what is not wanted."""
        trackers = []
        for noted in cycle.trackers:
            if noted.origin == self.name:
                self._mine.pop(noted.tracker.key, None)
            elif noted.origin in ring or noted.hops < len(ring):
                trackers.append(noted)
        posts, buried = [], []
        for carried in cycle.posts:
            if carried.post.id in self._done:
                self._done.discard(carried.post.id)
                self._taken.discard(carried.post.id)
            elif carried.hops > self._options.hop_limit:
                buried.append(carried.post)
            else:
                posts.append(carried)
        return cycle._replace(posts=tuple(posts), trackers=tuple(trackers)), buried

    def _written(self, cycle: Cycle, ring: tuple[str, ...], time: float) -> Cycle:
        """Add what is queued here."""
        on_board = {noted.tracker.key for noted in cycle.trackers}
        new = [tracker for key, tracker in self._mine.items() if key not in on_board][:_MOST]
        posts = [self._posts.popleft() for _ in range(min(len(self._posts), _MOST))]
        trackers = (*cycle.trackers, *(Noted(tracker, self.name) for tracker in new))
        noted = {each.tracker.key for each in trackers}
        base = self._trackers.digest(time, lambda key: key not in noted and key not in self._mine)
        return cycle._replace(
            ring=ring,
            sent=time,
            base=base,
            sender=self.name,
            posts=(*cycle.posts, *map(Carried, posts)),
            trackers=trackers,
        )

    def _emit(self, cycle: Cycle, ring: tuple[str, ...], now: float) -> list[Action]:
        follower = next_of(self.name, ring)
        if follower is None:
            return []
        self._emitted = now
        self._hop = cycle.hop + 1
        return [Send(follower, cycle._replace(hop=cycle.hop + 1))]

    def failed(self, to: str, cycle: Cycle, ring: tuple[str, ...]) -> list[Action]:
        """Send the cycle to the member after one that cannot be reached."""
        follower = next_of(to, [each for each in ring if each != to])
        if follower in (None, self.name) or (cycle.epoch, cycle.starter) < self._rank:
            return []
        return [Send(str(follower), cycle)]
