"""A member of the ring: one worker, as a state machine without side effects."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, assert_never

from actorflow.cluster.ring.actions import Action, Bury, Perform, Process, Send, Step, Sweep
from actorflow.cluster.ring.assignment import desired_owners
from actorflow.cluster.ring.clockwork import clock_rank
from actorflow.cluster.ring.events import (
    Committed,
    Drained,
    Event,
    Fenced,
    Leave,
    Processed,
    Received,
    Registered,
    SendFailed,
    Verdict,
)
from actorflow.cluster.ring.leases import Leases
from actorflow.cluster.ring.messages import (
    AskMap,
    Cycle,
    HandedOver,
    Payload,
    Post,
    TaskNote,
    Tracker,
    TrackerMap,
    Work,
)
from actorflow.cluster.ring.options import RingOptions
from actorflow.cluster.ring.rounds import Rounds
from actorflow.cluster.ring.trackers import Trackers
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Member", "Status"]

_REMEMBERED = 2.0  # round trips for which tombstones are kept
_LEAST_REMEMBERED = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Status:
    """A member as it sees itself."""

    name: str
    ring: tuple[str, ...]
    owned: Mapping[int, int]
    """The partitions that it owns, each with its epoch."""
    draining: tuple[int, ...]
    trackers: int
    queued: int
    """Wake-ups and cycles that wait for a step."""
    cycle_epoch: int
    leaving: bool


class Member:
    """One worker of a ring.

    `receive` takes what happens, `step` does what is due and one piece of work. Both return what
    the shell has to do, and both get the time of a monotonic clock. Not thread-safe: one loop calls
    them.

        member = Member("a-7f3c")
        wait = 0.0
        while True:
            for event in events_within(wait):
                carry_out(member.receive(event, monotonic()))
            step = member.step(monotonic())
            carry_out(step.actions)
            wait = step.wait

    Args:
        name: unique for each life of a process, because a worker that is started again must not be
            taken for the one that died.
        options: all members of a ring use the same.
        taskers: the taskers that this worker has.

    Raises:
        BadOption: the name is empty.

    """

    def __init__(
        self, name: str, options: RingOptions | None = None, *, taskers: Iterable[str] = ()
    ) -> None:
        if not name:
            msg = f"name={name!r}: give a member a name, such as 'host-1-7f3c'"
            raise BadOption(msg)
        self.name = name
        self.options = options or RingOptions()
        self._leases = Leases(name, self.options, tuple(sorted(taskers)))
        self._trackers = Trackers()
        self._rounds = Rounds(name, self.options, self._trackers)
        self._work: deque[Post | Cycle] = deque()
        self._handled: dict[str, float] = {}  # timers whose wake-up was here, and until when
        self._clock_at = -inf
        self._sweep_at = -inf
        self._handed: dict[str, int] = {}  # tasks given to each member since the last view

    # What others may know.

    @property
    def ring(self) -> tuple[str, ...]:
        """The members that were alive when the store was last asked, in alphabetical order."""
        return self._leases.ring

    @property
    def owned(self) -> dict[int, int]:
        """The partitions in which runs may start, each with its epoch."""
        leases = self._leases
        return {
            number: lease.epoch
            for number, lease in leases.held.items()
            if number not in leases.draining
        }

    @property
    def draining(self) -> frozenset[int]:
        """The partitions that are on their way out, and in which something may still run."""
        return frozenset(self._leases.draining - self._leases.finished)

    def epoch_of(self, partition: int) -> int | None:
        """Return the epoch under which a partition is owned, also while it is being drained."""
        lease = self._leases.held.get(partition)
        return None if lease is None else lease.epoch

    def may_start(self, partition: int, now: float) -> bool:
        """Return whether a run of a partition may start now: its lease has not ended."""
        return self._leases.owns(partition, now)

    def store_time(self, now: float) -> float:
        """Return what the store's clock says at least."""
        return self._leases.store_time(now)

    def executor_of(self, partition: int) -> str | None:
        """Return the member in charge of a partition: its owner, or else the one that should be."""
        view = self._leases.view
        if view is None or not 0 <= partition < len(view.holdings):
            return None
        owner = view.holdings[partition].owner
        if owner in self.ring:
            return owner
        owners = desired_owners(self.ring, len(view.holdings))
        return owners[partition] if owners else owner

    def status(self) -> Status:
        """Return a picture of it."""
        return Status(
            self.name,
            self.ring,
            self.owned,
            tuple(sorted(self._leases.draining)),
            len(self._trackers),
            len(self._work),
            self._rounds.epoch,
            self._leases.leaving,
        )

    # Steps.

    def step(self, now: float) -> Step:
        """Do what is due, then one piece of work.

        Clock duty comes first, if the last was more than 0.3 s ago. A step that has done work asks
        for the next one at once; otherwise the shell waits for an event, or until `wait` is over.
        """
        actions = self._leases.expire(now)
        actions += self._leases.ask(now)
        if now - self._clock_at > self.options.clock:
            self._clock_at = now
            actions += self._clock_duty(now)
        actions += self._sweep(now)
        view = self._leases.view
        if view is not None and not self._leases.left:
            time = self.store_time(now)
            actions += self._rounds.tick(self.ring, view.now, time, now)
        if self._work:
            actions += self._process(self._work.popleft(), now)
            return Step(actions, 0.0)
        return Step(actions, max(self._next_time(now) - now, self.options.idle))

    def _next_time(self, now: float) -> float:
        leases = self._leases
        times = [leases.next_time()]
        if leases.held:
            times.append(self._sweep_at + self.options.sweep)
        if leases.view is not None and not leases.left:
            times.append(self._rounds.next_time(self.ring))
            due = self._trackers.first_due()
            if due < inf:
                later = now + due - leases.store_time(now)
                times.append(max(later, self._clock_at + self.options.clock))
        return min(times)

    def _sweep(self, now: float) -> list[Action]:
        if now < self._sweep_at + self.options.sweep:
            return []
        self._sweep_at = now
        return [Sweep(tuple(sorted(self.owned)))] if self.owned else []

    # Events.

    def receive(self, event: Event, now: float) -> list[Action]:
        """Take note of something that has happened. Wake-ups and cycles wait for a step."""
        actions = self._leases.expire(now)
        match event:
            case Registered(number, view):
                if view is not None:
                    self._handed.clear()
                actions += self._leases.answered(number, view, now)
            case Received(payload):
                actions += self._received(payload, now)
            case SendFailed(to, payload):
                actions += self._send_failed(to, payload)
            case Processed(post, verdict):
                self._processed(post, verdict)
            case Committed(posts, trackers, tasks):
                actions += self._committed(posts, trackers, tasks, now)
            case Drained(partition):
                self._leases.drained(partition, now)
            case Fenced(partition):
                actions += self._leases.fenced(partition, now)
            case Leave():
                actions += self._leases.drain_all(now)
            case _:
                assert_never(event)
        return actions

    def _received(self, payload: Payload, now: float) -> list[Action]:
        match payload:
            case Post() | Cycle():
                self._work.append(payload)
            case AskMap(sender):
                return [Send(sender, TrackerMap(tuple(self._trackers)))]
            case TrackerMap(trackers):
                oldest = self._oldest(now)
                for tracker in trackers:
                    self._trackers.add(tracker, oldest)
            case HandedOver():
                self._leases.hurry(now)
            case Work(task):
                return [Perform(task)]
            case _:
                assert_never(payload)
        return []

    def _send_failed(self, to: str, payload: Payload) -> list[Action]:
        if isinstance(payload, Post):
            self._rounds.queue_post(payload)
        elif isinstance(payload, Cycle):
            return self._rounds.failed(to, payload, self.ring)
        return []  # the rest is found by the next check-in, cycle or sweep

    # Messages.

    def _process(self, work: Post | Cycle, now: float) -> list[Action]:
        if isinstance(work, Cycle):
            return self._pass_cycle(work, now)
        if not self._leases.owns(work.partition, now):
            return self._pass_on(work)
        if work.tracker is not None:
            if work.id in self._handled or work.tracker.due < self._oldest(now):
                return []  # several members watch each timer; the sweep finds what is old
            self._handled[work.id] = now + self._memory
        return [Process(work)]

    def _pass_on(self, post: Post) -> list[Action]:
        """Pass a wake-up to the member that is in charge now."""
        moved = post._replace(hops=post.hops + 1)
        if moved.hops > self.options.hop_limit:
            return [Bury(post)]
        if self.executor_of(post.partition) == self.name:  # about to own it, or to hand it over
            self._rounds.queue_post(moved)
            return []
        return self._emit(moved)

    def _processed(self, post: Post, verdict: Verdict) -> None:
        if verdict is Verdict.DONE:
            self._rounds.finished(post)
        elif verdict is Verdict.NOT_FOUND and not post.creates:
            self._rounds.not_found(post)
        else:  # again, on the newer state, or with what is left
            self._handled.pop(post.id, None)
            self._work.appendleft(post)

    def _emit(self, post: Post) -> list[Action]:
        """Send a wake-up to the executor, or let the cycle carry it."""
        executor = self.executor_of(post.partition)
        if executor == self.name:
            self._work.append(post)
        elif executor is not None and executor in self.ring:
            return [Send(executor, post)]
        else:
            self._rounds.queue_post(post)
        return []

    # What a commit leads to.

    def _committed(
        self,
        posts: Iterable[Post],
        trackers: Iterable[Tracker],
        tasks: Iterable[TaskNote],
        now: float,
    ) -> list[Action]:
        actions: list[Action] = []
        for task in tasks:
            actions += self._hand_out(task)
        oldest = self._oldest(now)
        for tracker in trackers:
            if self._trackers.add(tracker, oldest):
                self._rounds.queue_tracker(tracker)
        for post in posts:
            actions += self._emit(post)
        return actions

    def _hand_out(self, task: TaskNote) -> list[Action]:
        """Assign a task to the least busy member with its tasker; without one, it waits."""
        view = self._leases.view
        seats = [seat for seat in view.seats if task.tasker in seat.taskers] if view else []
        if not seats:
            return []
        handed = self._handed
        least = min(
            seats,
            key=lambda seat: (
                seat.busy + handed.get(seat.name, 0), seat.name != self.name, seat.name,
            ),
        ).name  # fmt: skip
        handed[least] = handed.get(least, 0) + 1
        return [Perform(task)] if least == self.name else [Send(least, Work(task))]

    def serve(self, taskers: Iterable[str], codes: Iterable[str] = ()) -> bool:
        """Announce taskers and code with the next check-in; return whether any of it is new."""
        leases = self._leases
        before = leases.taskers, leases.codes
        leases.taskers, leases.codes = tuple(sorted(taskers)), tuple(sorted(codes))
        return before != (leases.taskers, leases.codes)

    def hurries(self, now: float) -> bool:
        """Return whether it checks in as soon as it may: to take or release something."""
        return self._leases.hurries(now)

    def busy_with(self, tasks: int) -> None:
        """Say how many tasks this worker has, for the next check-in."""
        self._leases.busy = tasks

    # Cycles.

    def _pass_cycle(self, cycle: Cycle, now: float) -> list[Action]:
        view = self._leases.view
        if view is None or self._leases.left or self.options.cycle is None:
            return []
        reading = self._rounds.read(
            cycle,
            ring=self.ring,
            as_of=view.now,
            time=self.store_time(now),
            oldest=self._oldest(now),
            now=now,
            owns=lambda partition: self._leases.owns(partition, now),
        )
        self._work.extend(reading.posts)
        if reading.ring_differs and cycle.as_of > view.now:
            self._leases.hurry(now)
        return reading.actions

    # Timers.

    @property
    def _memory(self) -> float:
        """How long tombstones are kept."""
        trip = self._rounds.round_trip
        return max(_REMEMBERED * trip if trip < inf else 0.0, _LEAST_REMEMBERED)

    def _oldest(self, now: float) -> float:
        """Return since when timers are remembered: those due earlier are left to the sweep."""
        return self.store_time(now) - self._memory

    def _clock_duty(self, now: float) -> list[Action]:
        """Look at the trackers that are due: emit those that this member watches, discard them.

        The executor's own come at once; other clockworkers wake the executor after a grace, one
        after the other, in case it has missed them.
        """
        self._trackers.forget(now)
        for key in [key for key, until in self._handled.items() if until <= now]:
            del self._handled[key]
        time = self.store_time(now)
        actions: list[Action] = []
        for tracker in self._trackers.due(time):
            executor = self.executor_of(tracker.partition)
            rank = (
                None
                if executor is None
                else clock_rank(self.name, executor, self.ring, self.options.clock_count)
            )
            if rank is not None and time < tracker.due + rank * self.options.grace:
                continue
            self._trackers.discard(tracker, now + self._memory)
            self._rounds.forget_tracker(tracker)
            if rank is not None:
                actions += self._emit(_wake_up(tracker))
        return actions


def _wake_up(tracker: Tracker) -> Post:
    """Return the message of a timer; the same whoever sends it, so that one of them counts."""
    name = f"timer {tracker.execution} {tracker.timer} {tracker.due!r}"
    return Post(name, tracker.partition, tracker.execution, tracker)
