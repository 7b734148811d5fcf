"""Who gets which call, and when processes come and go: pure decisions, time as a parameter.

The shell (`pool.py`) reports events, one method for each, and then performs the actions that
`decide` returns. Nothing here touches a process, a thread or a clock.

A pool has *places*, numbered from 1. At each place there is at most one process that takes calls;
while it is leaving, its successor may already be starting there. A process runs the calls that it
holds in order. The first one that it holds is the one in hand.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import (
    LaunchFailed,
    ProcessCancelled,
    ProcessCrashed,
    ProcessTimeout,
)
from actorflow.runtime.processes.call import CallOutcome
from actorflow.runtime.processes.policy.actions import (
    Action,
    CheckProgress,
    EndCall,
    KillProcess,
    LaunchProcess,
    RetireProcess,
    SendCalls,
    SkipCalls,
)
from actorflow.runtime.processes.policy.entries import (
    ACTIVE,
    LaunchBackoff,
    PoolCall,
    PoolLimits,
    ProcessEntry,
    ProcessState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["PoolPolicy"]

_HORIZON = 0.002  # seconds of work that a process may hold in reserve, by the usual length of calls
_SLOW = 0.005  # seconds after which calls behind the one in hand are offered to an idle process
_SETTLES = 0.002  # seconds after which the other process has surely seen a write to shared memory
_GRACE = 5.0  # seconds for a process that was asked to leave and holds nothing
_WEIGHT = 0.2  # of the last call in the usual length of calls


class PoolPolicy:
    """The calls and the processes of a pool. Not thread-safe."""

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.waiting: deque[PoolCall] = deque()
        self.members: dict[int, ProcessEntry] = {}
        self.launches = 0
        self.renewals = 0
        self.crashes = 0
        self.backoff = LaunchBackoff(limits.launches_max)
        self.closing = False
        self._usual: float | None = None
        self._actions: list[Action] = []
        self._cancelled = 0  # number of cancelled calls in `waiting`
        self._changed = True  # by an event since the last decision
        self._next_time = math.inf

    # Events.

    def submit(self, jobs: Iterable[PoolCall]) -> None:
        """Add calls behind the waiting ones."""
        self._changed = True
        self.waiting.extend(jobs)

    def ready(self, worker: int, now: float) -> None:
        """Count on a process that has started."""
        self._changed = True
        member = self.members[worker]
        self.backoff.succeeded()
        if member.state is ProcessState.STARTING:
            member.state = ProcessState.READY
        member.since = member.begun = now

    def ended(
        self, worker: int, sequence: int, now: float, took: float, rss: int
    ) -> PoolCall | None:
        """Take a call off a process that has ended it; return it, unless it was reported before."""
        self._changed = True
        member = self.members[worker]
        usual = self._usual
        self._usual = took if usual is None else usual + _WEIGHT * (took - usual)
        job = self._off(member, sequence, now)
        if rss >= self.limits.max_rss and member.state is ProcessState.READY:
            self._leave(member, renew=True)
        if job is None or job.over:
            return None
        job.over = True
        return job

    def skipped(self, worker: int, sequence: int, now: float) -> None:
        """Take back a call that a process has skipped."""
        self._changed = True
        job = self._off(self.members[worker], sequence, now)
        if job is not None:
            self._take_back([job])

    def looked(self, worker: int, begun: int) -> None:
        """Take back the calls to be skipped that a process has not begun."""
        self._changed = True
        member = self.members[worker]
        back = [job for job in member.held if job.skipped and job.sequence > begun]
        if back:
            member.held = deque(job for job in member.held if job not in back)
            self._take_back(back)

    def exited(
        self, worker: int, begun: int, how: str, now: float, code: int | None = None
    ) -> None:
        """Forget a process that has ended; `begun` is the number of its last call."""
        self._changed = True
        member = self.members.pop(worker)
        back = []
        for job in member.held:
            if job.over:
                continue
            if job.verdict is not None:
                self._end(job, *job.verdict, member if job.sequence <= begun else None)
            elif job.sequence <= begun:
                self._crashed(job, how, code, member)
            else:
                back.append(job)
        self._take_back(back)
        if member.state is ProcessState.STARTING:
            self._launch_failed(how, now)
        elif member.state is ProcessState.READY or (
            member.held and member.state is ProcessState.LEAVING
        ):
            self.crashes += 1

    def launch_failed(self, worker: int, how: str, now: float) -> None:
        """Forget a process that could not be started."""
        self._changed = True
        del self.members[worker]
        self._launch_failed(how, now)

    def cancel(
        self, job: PoolCall, outcome: CallOutcome, error: BaseException, *, running: bool = True
    ) -> None:
        """End a call. If it is the one in hand, kill its process, or leave it to its end."""
        self._changed = True
        if job.over:
            return
        for member in self.members.values():
            if job in member.held:
                if member.held[0] is job and not running:
                    return
                job.verdict = outcome, error
                if member.held[0] is job:
                    self._kill(member)
                elif not job.skipped:
                    job.skipped = True
                    self._actions.append(SkipCalls(member.worker, [job.sequence]))
                return
        job.verdict = outcome, error
        self._end(job, outcome, error, None)
        self._cancelled += 1
        if self._cancelled > len(self.waiting) // 2:
            self.waiting = deque(each for each in self.waiting if not each.over)
            self._cancelled = 0

    def close(self) -> None:
        """Stop processes as soon as no call waits for them."""
        self._changed = True
        self.closing = True

    def abandon(self) -> None:
        """End all calls and kill all processes."""
        self._changed = True
        self.closing = True
        error = ProcessCancelled("the pool was closed before the call ended")
        for job in self.waiting:
            if not job.over:
                self._end(job, CallOutcome.CANCELLED, error, None)
        self.waiting.clear()
        for member in list(self.members.values()):
            for job in member.held:
                if not job.over and job.verdict is None:
                    job.verdict = CallOutcome.CANCELLED, error
            self._kill(member)

    # Decisions.

    def decide(self, now: float) -> list[Action]:
        """Return the actions to perform, and forget them."""
        if not self._changed and now < self._next_time:
            return []
        if self.waiting:
            self._assign(now)
            while self.waiting and self.waiting[0].over:
                self.waiting.popleft()
                self._cancelled -= 1
        if self.members:
            self._watch(now)
        self._launch(now)
        if self.closing:
            self._dismiss()
        actions, self._actions = self._actions, []
        self._next_time = self._find_next_time()
        self._changed = False
        return actions

    def next_time(self) -> float:
        """Return when to call `decide` again although nothing has happened; inf if never."""
        return self._find_next_time() if self._changed else self._next_time

    def _find_next_time(self) -> float:
        when = math.inf
        limits = self.limits
        idle = self._has_idle()
        active = self._active()
        for member in self.members.values():
            state = member.state
            if state is ProcessState.STARTING:
                when = min(when, member.since + limits.launch_timeout)
                continue
            when = min(when, member.look_at)
            if member.held:
                timeout = member.held[0].call.timeout
                if timeout is not None and state is not ProcessState.KILLED:
                    when = min(when, member.begun + timeout)
                if idle and state is ProcessState.READY and self._has_reserve(member):
                    when = min(when, member.begun + _SLOW)
            elif state is ProcessState.LEAVING:
                when = min(when, member.begun + _GRACE)
            elif state is ProcessState.READY and active > limits.least:
                when = min(when, member.begun + limits.idle_stop)
            if state is ProcessState.READY:
                when = min(when, member.since + limits.renew_after_seconds)
        if self._wanted() > 0:
            when = min(when, self.backoff.next_time)
        return when

    @property
    def running(self) -> int:
        """How many calls processes hold."""
        return sum(len(member.held) for member in list(self.members.values()))

    @property
    def depth(self) -> int:
        """How many calls a process may hold beyond the one in hand."""
        most = self.limits.prefetch
        if most <= 1 or self._usual is None:
            return most if self._usual is not None else min(most, 1)
        return max(1, min(most, int(_HORIZON / max(self._usual, 1e-6))))

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        held: set[int] = set()
        active: set[int] = set()
        for worker, member in self.members.items():
            assert member.worker == worker  # noqa: S101
            assert 1 <= member.place <= self.limits.most  # noqa: S101
            numbers = [job.sequence for job in member.held]
            assert numbers == sorted(set(numbers))  # noqa: S101
            assert not held & {id(job) for job in member.held}  # noqa: S101
            held |= {id(job) for job in member.held}
            if member.state in ACTIVE:
                assert member.place not in active  # noqa: S101
                active.add(member.place)
            assert member.assigned <= self.limits.renew_after  # noqa: S101
        assert len({job.sequence for job in self.waiting}) <= len(self.waiting)  # noqa: S101
        assert not held & {id(job) for job in self.waiting}  # noqa: S101

    # Time.

    def _watch(self, now: float) -> None:
        """Do what the time has come for."""
        idle: bool | None = None  # looked up once, and only if it matters
        for member in self.members.values():
            if member.state is ProcessState.STARTING:
                if now >= member.since + self.limits.launch_timeout:
                    member.since = math.inf  # its end counts as a launch that failed
                    self._actions.append(KillProcess(member.worker))
            elif member.state is not ProcessState.KILLED:
                if now >= member.look_at:
                    member.look_at = math.inf
                    self._actions.append(CheckProgress(member.worker))
                if member.held:
                    if idle is None and now >= member.begun + _SLOW and self._has_reserve(member):
                        idle = self._has_idle()
                    self._watch_call(member, now, idle=bool(idle))
                elif member.state is ProcessState.LEAVING and now >= member.begun + _GRACE:
                    self._kill(member)
                if member.state is ProcessState.READY:
                    self._watch_age(member, now)

    def _watch_call(self, member: ProcessEntry, now: float, *, idle: bool) -> None:
        """Check how long the current call takes."""
        job = member.held[0]
        timeout = job.call.timeout
        if timeout is not None and now >= member.begun + timeout:
            msg = f"call {brief(job.call.id)} did not end within {timeout:g} s"
            job.verdict = CallOutcome.TIMED_OUT, ProcessTimeout(msg)
            self._kill(member)
        elif idle and now >= member.begun + _SLOW and self._has_reserve(member):
            self._recall(member, now)

    def _watch_age(self, member: ProcessEntry, now: float) -> None:
        """Check whether a process should be replaced or stopped."""
        if now >= member.since + self.limits.renew_after_seconds:
            self._leave(member, renew=True)
        elif not member.held and self._is_idle_too_long(member, now):
            self._leave(member, renew=False)

    def _is_idle_too_long(self, member: ProcessEntry, now: float) -> bool:
        late = now >= member.begun + self.limits.idle_stop and not self.waiting
        return late and self._active() > self.limits.least

    def _active(self) -> int:
        """Return how many processes take calls, or soon will."""
        active = 0
        for member in self.members.values():
            active += member.state in ACTIVE  # a generator would be a call for each
        return active

    def _has_idle(self) -> bool:
        """Return whether a process has nothing to do or can be started, and nothing waits."""
        if self.waiting:
            return False
        active = 0
        for member in self.members.values():
            if member.state in ACTIVE:
                if not member.held:
                    return True
                active += 1
        return active < self.limits.most and not self.backoff.failures

    @staticmethod
    def _has_reserve(member: ProcessEntry) -> bool:
        return len(member.held) > 1 and not member.held[-1].skipped

    def _recall(self, member: ProcessEntry, now: float) -> None:
        """Take back the calls that wait behind a slow one."""
        back = [job for job in member.held if not job.skipped]
        if back and back[0] is member.held[0]:
            del back[0]
        for job in back:
            job.skipped = True
        member.look_at = now + _SETTLES
        self._actions.append(SkipCalls(member.worker, [job.sequence for job in back]))

    # Calls.

    def _assign(self, now: float) -> None:
        """Hand out calls, to the least busy process first."""
        room = 1 + self.depth
        free, starting = self._free(room, now)
        if not free:
            return
        given: dict[int, list[PoolCall]] = {}
        waiting = self.waiting
        while waiting and free:
            member = free[0] if len(free) == 1 else min(free, key=_load)
            if member.held and len(waiting) <= starting:
                break  # processes that are starting will take these
            job = waiting.popleft()
            if job.over:
                self._cancelled -= 1
                continue
            self._give(member, job, now)
            given.setdefault(member.worker, []).append(job)
            if member.assigned >= self.limits.renew_after:
                free.remove(member)
                self._actions.append(SendCalls(member.worker, given.pop(member.worker)))
                self._leave(member, renew=True)
            elif len(member.held) >= room:
                free.remove(member)
        for worker, jobs in given.items():
            self._actions.append(SendCalls(worker, jobs))

    def _free(self, room: int, now: float) -> tuple[list[ProcessEntry], int]:
        """Return the processes that take calls now, and how many are starting.

        A reserve is filled up once half of it is used, so that several calls share one write; and
        not while the call in hand is slow.
        """
        free: list[ProcessEntry] = []
        starting = 0
        taken: list[int] = []  # places where a predecessor still has something to do
        for member in self.members.values():
            held = member.held
            if member.state is ProcessState.READY:
                if not held or (2 * len(held) <= room and now < member.begun + _SLOW):
                    free.append(member)
            elif member.state is ProcessState.STARTING:
                starting += 1
            elif held:
                taken.append(member.place)
        if taken:
            free = [member for member in free if member.place not in taken]
        return free, starting

    @staticmethod
    def _give(member: ProcessEntry, job: PoolCall, now: float) -> None:
        if not member.held:
            member.begun = now
        member.assigned += 1
        job.sequence = member.assigned
        job.skipped = False
        member.held.append(job)

    def _off(self, member: ProcessEntry, sequence: int, now: float) -> PoolCall | None:
        """Remove a call from the ones that a process holds."""
        held = member.held
        if held and held[0].sequence == sequence:
            job = held.popleft()
            member.begun = now
            if held and held[0].verdict is not None and not held[0].skipped:
                self._kill(member)
            return job
        for job in held:
            if job.sequence == sequence:
                held.remove(job)
                return job
        return None

    def _take_back(self, jobs: list[PoolCall]) -> None:
        """Put calls that were not begun in front of the waiting ones."""
        for job in reversed(jobs):
            if job.over:
                continue
            if job.verdict is not None:
                self._end(job, *job.verdict, None)
            else:
                self.waiting.appendleft(job)

    def _crashed(self, job: PoolCall, how: str, code: int | None, member: ProcessEntry) -> None:
        job.crashes += 1
        if job.crashes <= job.call.crashes_max:
            self.waiting.append(job)
            return
        msg = f"{how} during call {brief(job.call.id)}"
        self._end(job, CallOutcome.CRASHED, ProcessCrashed(msg, code), member)

    def _end(
        self, job: PoolCall, outcome: CallOutcome, error: BaseException, member: ProcessEntry | None
    ) -> None:
        job.over = True
        self._actions.append(EndCall(job, outcome, error, member))

    # Processes.

    def _free_places(self) -> Iterator[int]:
        taken = {member.place for member in self.members.values() if member.state in ACTIVE}
        return (place for place in range(1, self.limits.most + 1) if place not in taken)

    def _wanted(self) -> int:
        """Return how many more processes are wanted."""
        active = idle = 0
        for member in self.members.values():
            if member.state in ACTIVE:
                active += 1
                idle += not member.held
        more = len(self.waiting) - self._cancelled - idle
        if not self.closing:
            started = self.launches > 0 or self.waiting
            more = max(more, self.limits.least - active if started else 0)
        return min(more, self.limits.most - active)

    def _launch(self, now: float) -> None:
        """Start processes for the waiting calls."""
        if len(self.members) >= self.limits.most and not self.waiting:
            return
        wanted = self._wanted()
        if wanted <= 0 or now < self.backoff.next_time:
            return
        if self.backoff.failures:
            wanted = 1  # one attempt is enough to see whether it works again
            if any(member.state is ProcessState.STARTING for member in self.members.values()):
                return
        for place, _ in zip(self._free_places(), range(wanted), strict=False):
            self.launches += 1
            worker = self.launches
            self.members[worker] = ProcessEntry(worker, place, now)
            self._actions.append(LaunchProcess(worker, place))

    def _launch_failed(self, how: str, now: float) -> None:
        others = any(member.state is ProcessState.READY for member in self.members.values())
        if not self.backoff.failed(how, now, others=others):
            return
        msg = f"no worker process could be started in {self.backoff.failures} attempts: {how}"
        error = LaunchFailed(msg)
        for job in self.waiting:
            if not job.over:
                self._end(job, CallOutcome.CRASHED, error, None)
        self.waiting.clear()
        self._cancelled = 0
        self.backoff.succeeded()  # calls to come are worth new attempts

    def _leave(self, member: ProcessEntry, *, renew: bool) -> None:
        """Ask a process to leave, once."""
        member.state = ProcessState.LEAVING
        self.renewals += renew
        self._actions.append(RetireProcess(member.worker))

    def _kill(self, member: ProcessEntry) -> None:
        if member.state is ProcessState.KILLED:
            return
        rest = [job.sequence for job in member.held if not job.skipped][1:]
        for job in member.held:
            job.skipped = True
        if rest:
            self._actions.append(SkipCalls(member.worker, rest))
        member.state = ProcessState.KILLED
        self._actions.append(KillProcess(member.worker))

    def _dismiss(self) -> None:
        """Stop all idle processes."""
        if self.waiting:
            return
        for member in self.members.values():
            if member.state is ProcessState.READY:
                self._leave(member, renew=False)
            elif member.state is ProcessState.STARTING:
                self._kill(member)


def _load(member: ProcessEntry) -> int:
    return len(member.held)
