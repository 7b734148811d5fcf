"""The scheduler of a plan: choose the next job, and continue after jobs that end. Pure.

Completions go in, jobs to hand out come out. It knows no functions, no results, no processes and no
time: the run of a plan and the durable plan of an engine are two shells around it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from actorflow.plans.queue import JobQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.plans.graph import Graph

__all__ = ["CRASHES_MAX", "Ending", "OnFailure", "Role", "Rules", "Scheduler", "State"]

CRASHES_MAX = 5
"""How many crashes of its worker fail a job, unless told otherwise."""


class Role(IntEnum):
    """The action for a job when all jobs before it are done."""

    CALL = 0
    """Its function is called."""
    MAP = 1
    """It is handed out to learn its items, and replaced by one job for each."""
    GATHER = 2
    """Nothing: it is done. Its result is the list of the results of the jobs before it."""


class State(IntEnum):
    """Where a job stands."""

    WAITING = 0
    READY = 1
    OUT = 2
    """It was handed out, and has not come back."""
    DONE = 3
    FAILED = 4
    SKIPPED = 5


class Ending(Enum):
    """How an attempt of a job has ended."""

    OK = "ok"
    FAILED = "failed"
    """It raised, or its time was up."""
    CRASHED = "crashed"
    """Its worker died."""
    CANCELLED = "cancelled"
    """It was taken back."""


class OnFailure(StrEnum):
    """What a job that has failed for good means for the rest of the plan."""

    STOP = "stop"
    """What runs may end; nothing more is begun."""
    CONTINUE = "continue"
    """The jobs that need its result are skipped; the others go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What applies to one job, or to all that have no rules of their own."""

    priority: int = 0
    retries: int = 0
    """How often it is tried again after it has failed."""
    crashes_max: int = CRASHES_MAX
    """How many crashes of its worker fail it."""
    weight: int = 1
    """How many places it takes while it is out."""
    uses: Mapping[str, int] = field(default_factory=dict)
    """What it takes of each limited resource while it is out."""


class Scheduler:
    """Hands out the jobs of a graph, each once all jobs before it are done.

    Args:
        graph: the jobs; a map adds to it.
        rules: of the jobs that have their own; the others have `default`.
        default: the rules of all other jobs.
        roles: of the jobs that are more than a call.
        on_failure: what a job that has failed for good means for the rest.
        places: the weight that may be out at the same time. A heavier job goes out alone.
        budget: bytes of payload that may be out at the same time; one job is always allowed.
        limits: how much there is of each resource that jobs use.

    """

    def __init__(
        self,
        graph: Graph,
        *,
        rules: Mapping[int, Rules] | None = None,
        default: Rules | None = None,
        roles: Mapping[int, Role] | None = None,
        on_failure: OnFailure = OnFailure.STOP,
        places: int = 1,
        budget: int = 64 << 20,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.on_failure = on_failure
        self.states = bytearray(graph.count)
        """The `State` of each job."""
        self.blamed: dict[int, int] = {}
        """For a job that was skipped: the job whose failure was the cause, if it was one."""
        self.stopped = False
        """Nothing more is handed out."""
        self._rules = dict(rules or {})
        self._default = default or Rules()
        self._roles = dict(roles or {})
        self.places = places
        """The weight that may be out at the same time."""
        self._budget = budget
        self._free = dict(limits or {})
        self._static = graph.count
        self._firsts: list[int] = []  # the first child of each map that is expanded, ascending
        self._origins: dict[int, int] = {}  # by first child: the map
        self._expanded: dict[int, range] = {}  # by map: its children, in order of expansion
        self._failures: dict[int, int] = {}
        self._crashes: dict[int, int] = {}
        self._out: dict[int, int] = {}  # by job: bytes of its payload
        self._weight = 0
        self._bytes = 0
        self._short: dict[str, deque[int]] = {}  # ready jobs that lack a resource
        self._left = graph.count
        priorities = {job: each.priority for job, each in self._rules.items() if each.priority}
        self._queue = JobQueue(graph.keys(), priorities)
        self._settle(self._queue.list0())

    # Asking.

    @property
    def done(self) -> bool:
        """Whether nothing is out and nothing can come back (T13, A2, A6)."""
        return not self._left

    @property
    def out(self) -> int:
        """How many jobs were handed out and have not ended."""
        return len(self._out)

    def handed_out(self) -> list[int]:
        """Return the jobs that are out, in the order in which they were handed out."""
        return list(self._out)

    def state(self, job: int) -> State:
        """Return where a job stands."""
        return State(self.states[job])

    def attempts(self, job: int) -> int:
        """Return how many attempts of a job have ended badly."""
        return self._failures.get(job, 0) + self._crashes.get(job, 0)

    def crashes(self, job: int) -> int:
        """Return how many attempts of a job have ended with the death of their worker."""
        return self._crashes.get(job, 0)

    def role(self, job: int) -> Role:
        """Return the action for a job when all jobs before it are done."""
        return self._roles.get(job, Role.CALL)

    def with_role(self, role: Role) -> list[int]:
        """Return the jobs with a role that is not a call."""
        return sorted(job for job, each in self._roles.items() if each is role)

    def origin(self, job: int) -> tuple[int, int] | None:
        """Return the map that has added a job, and the place of the job in it; else `None`."""
        if job < self._static:
            return None
        first = self._firsts[bisect_right(self._firsts, job) - 1]
        return self._origins[first], job - first

    def rules(self, job: int) -> Rules:
        """Return the rules of a job; one that a map has added has those of the map."""
        if not self._rules:
            return self._default
        origin = self.origin(job)
        return self._rules.get(job if origin is None else origin[0], self._default)

    def children(self, job: int) -> range:
        """Return the jobs that a map has added; empty while its items are not known."""
        return self._expanded.get(job, range(0))

    # Handing out.

    def take(self) -> int | None:
        """Return the next job to hand out; `None` if no job is ready or fits.

        Its payload counts once `weigh` was called for it.
        """
        if self._bytes >= self._budget and self._out:
            return None
        queue = self._queue
        while (job := queue.pop0()) is not None:
            rules = self.rules(job)
            if self._weight + rules.weight > self.places and self._out:
                queue.restore(job)
                return None
            short = self._short_of(rules)
            if short is None:
                break
            self._short.setdefault(short, deque()).append(job)
        if job is None:
            return None
        for name, amount in rules.uses.items():
            self._free[name] -= amount
        self._weight += rules.weight
        self._out[job] = 0
        self.states[job] = State.OUT
        return job

    def weigh(self, job: int, size: int) -> None:
        """Record how many bytes the payload of a job takes that was just handed out."""
        self._out[job] = size
        self._bytes += size

    # Jobs that come back.

    def ended(self, job: int, ending: Ending) -> State:
        """Record how an attempt of a job has ended; return where the job stands now.

        READY means that it will be handed out again: behind the others of its priority (T17).
        A job that is not out is left alone, so that a report which comes twice does no harm.
        """
        if job not in self._out:
            return self.state(job)
        self._take_back(job)
        if ending is Ending.OK:
            self._finish(job)
        elif ending is Ending.CANCELLED:
            self._skip(job)
        elif self._counts_as_final(job, ending):
            self._fail(job)
        elif self.stopped:
            self._skip(job)
        else:
            self._push(job)
        return self.state(job)

    def expand(self, job: int, count: int) -> range:
        """Replace a map that is out by one job for each of its items; return their numbers."""
        self._take_back(job)
        new = self._add(job, count)
        self.states.extend(bytes(count))
        self._left += count
        self.states[job] = State.WAITING
        if self.stopped:
            for each in (*new, job):
                self._skip(each)
        elif not count:
            self._finish(job)
        else:
            self._queue.push(job, count)
            for each in new:
                self._push(each)
        return new

    def stop(self) -> None:
        """Hand out no more jobs: skip waiting ones; running ones may still end."""
        self.stopped = True
        for job in self._queue.clear():
            self._skip(job)
        for jobs in self._short.values():
            for job in jobs:
                self._skip(job)
        self._short.clear()

    # Keeping.

    def snapshot(self) -> dict[str, Any]:
        """Return all that has happened, as plain data; `restore` makes a scheduler of it."""
        return {
            "states": bytes(self.states),
            "maps": [(job, len(children)) for job, children in self._expanded.items()],
            "failures": list(self._failures.items()),
            "crashes": list(self._crashes.items()),
            "out": list(self._out.items()),
            "blamed": list(self.blamed.items()),
            "stopped": self.stopped,
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Bring a new scheduler of the same graph and rules to where another one was."""
        for job, count in kept["maps"]:
            self._add(job, count)
        self.states = bytearray(kept["states"])
        self._failures = dict(map(tuple, kept["failures"]))
        self._crashes = dict(map(tuple, kept["crashes"]))
        self._out = dict(map(tuple, kept["out"]))
        self.blamed = dict(map(tuple, kept["blamed"]))
        self.stopped = kept["stopped"]
        self._bytes = sum(self._out.values())
        for job in self._out:
            rules = self.rules(job)
            self._weight += rules.weight
            for name, amount in rules.uses.items():
                self._free[name] -= amount
        keys = self.graph.keys()
        for first, second in self.graph.edges():
            keys[second] -= self.states[first] == State.DONE
        priorities = {job: each.priority for job, each in self._rules.items() if each.priority}
        for job, children in self._expanded.items():
            if job in priorities:
                priorities |= dict.fromkeys(children, priorities[job])
        self._queue = JobQueue(keys, priorities)
        for job, state in enumerate(self.states):
            if state >= State.OUT:
                self._queue.remove(job)
        self._left = sum(state <= State.OUT for state in self.states)

    # How it is done.

    def _add(self, job: int, count: int) -> range:
        """Add the jobs of a map to the graph."""
        new = self.graph.add(count, before=job)
        if count:
            self._firsts.append(new.start)
            self._origins[new.start] = job
        self._expanded[job] = new
        self._roles[job] = Role.GATHER
        return new

    def _short_of(self, rules: Rules) -> str | None:
        for name, amount in rules.uses.items():
            if amount > self._free.get(name, 0):
                return name
        return None

    def _take_back(self, job: int) -> None:
        self._bytes -= self._out.pop(job)
        rules = self.rules(job)
        self._weight -= rules.weight
        for name, amount in rules.uses.items():
            self._free[name] += amount
            for other in reversed(self._short.pop(name, ())):
                self._queue.restore(other)

    def _counts_as_final(self, job: int, ending: Ending) -> bool:
        rules = self.rules(job)
        if ending is Ending.CRASHED:
            crashes = self._crashes[job] = self._crashes.get(job, 0) + 1
            return crashes >= rules.crashes_max
        failures = self._failures[job] = self._failures.get(job, 0) + 1
        return failures > rules.retries

    def _push(self, job: int) -> None:
        self._queue.push(job, 0, self.rules(job).priority)
        self.states[job] = State.READY

    def _finish(self, job: int) -> None:
        self.states[job] = State.DONE
        self._left -= 1
        if not self.stopped:
            decrease = self._queue.decrease
            self._settle([after for after in self.graph.after(job) if decrease(after)])

    def _settle(self, ready: Sequence[int]) -> None:
        """Mark jobs as ready; gathering jobs are done at once, and so on down the graph."""
        pending = deque(ready)
        while pending:
            job = pending.popleft()
            if self._roles and self.role(job) is Role.GATHER:
                self._queue.remove(job)
                self.states[job] = State.DONE
                self._left -= 1
                pending.extend(each for each in self.graph.after(job) if self._queue.decrease(each))
            else:
                self.states[job] = State.READY

    def _fail(self, job: int) -> None:
        self.states[job] = State.FAILED
        self._left -= 1
        pending = deque((job,))
        while pending:
            for after in self.graph.after(pending.popleft()):
                if self.states[after] == State.WAITING:
                    self._queue.remove(after)
                    self.blamed[after] = job
                    self._skip(after)
                    pending.append(after)
        if self.on_failure is OnFailure.STOP:
            self.stop()

    def _skip(self, job: int) -> None:
        self.states[job] = State.SKIPPED
        self._left -= 1
