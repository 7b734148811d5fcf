"""One decision that is being taken: what the code of a workflow may ask, and what it is answered.

A session answers for one `DecisionJob`: it hands out the branches to execute, schedules the works
that they ask for and collects the decisions. Whatever executes the branches (a frame in this
process, a script of another language over HTTP) only talks to a session. Nothing here changes the
instance.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actorflow.workflows.errors import WorkflowModified
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.canonical import canonical, same
from actorflow.workflows.instance.state import UNSET, Branch, WorkState, WorkStatus, WorkType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actorflow.workflows.instance.instance import Instance

__all__ = ["Answer", "AnswerStatus", "BranchCursor", "DecisionSession", "Until", "WorkCall"]


class Until(StrEnum):
    """What a call waits for."""

    ALL = "all"
    FIRST = "first"


class AnswerStatus(StrEnum):
    """What a call is answered."""

    SCHEDULED = "scheduled"
    """Not yet: the branch stops here."""
    COMPLETED = "completed"
    FAILED = "failed"
    """A work has failed and its `raises` says that the code wants to know."""


class WorkCall(Struct, frozen=True):
    """A work that the code asks for at a position of its branch."""

    position: str
    """`<call>.<member>`, so that a call can get more works without shifting the next."""
    type: WorkType
    name: str
    input: Any = None
    sync: bool = True
    timeout: float | None = None
    event: str | None = None
    duration: float | None = None
    timestamp: float | None = None
    raises: bool = False

    def hash_in(self, branch_key: int) -> str:
        """Return what tells whether the code still asks for the same at this position."""
        parts = [self.type, self.name, self.input, branch_key, self.position, self.sync]
        return blake2b(canonical(parts), digest_size=12).hexdigest()


class Answer(Struct, frozen=True):
    """The outcome of a call."""

    status: AnswerStatus
    outputs: list[Any] = []
    completion_index: int | None = None
    """When it was complete: of the last work, or of the first one."""
    properties: dict[str, Any] | None = None
    """Those that the code goes on with; `None` leaves them as they are."""
    winner: int | None = None
    """Of `Until.FIRST`: which member came first."""
    failed: WorkStatus | None = None


_SCHEDULED = Answer(AnswerStatus.SCHEDULED)


class BranchCursor:
    """Where the code of a branch is. It lives as long as the frame that runs the code."""

    __slots__ = ("branch", "calls", "counts", "key", "reached", "visited")

    def __init__(self, key: int, branch: Branch) -> None:
        self.key = key
        self.branch = branch
        self.calls = 0
        self.counts: dict[str, int] = {}
        self.visited: set[str] = set()
        self.reached = branch.start_index

    def next_call(self) -> int:
        """Return the number of the next call of `execute`, `dispatch` or `first`."""
        self.calls += 1
        return self.calls - 1

    def next_record(self, what: str) -> str:
        """Return the position of the next value that is drawn."""
        count = self.counts.get(what, 0)
        self.counts[what] = count + 1
        return f"{what}.{count}"


class DecisionSession:
    """Answers the code that takes the ongoing decision of an instance.

    Args:
        instance: is only read.
        strict: refuse a branch that ends without asking for all that is recorded of it.

    """

    def __init__(self, instance: Instance, *, strict: bool = False) -> None:
        state = instance.state
        self.uuid = state.decision_uuid
        self.now = state.decision_triggered_at
        """When the decision was triggered: the time that the code sees."""
        self.decisions: list[m.Decision] = []
        self.fresh = False
        """Whether the code that runs now has never run before."""
        self._instance = instance
        self._find = instance.status
        self._branches = state.branches
        self._executions = state.executions
        self._strict = strict
        self._index = (state.ongoing_index or 0) - 1
        self._scheduled: dict[str, m.ScheduleWork] = {}
        self._left: set[str] = set()
        self._records: dict[tuple[int, str], Any] = {}
        self._changes: list[m.UpdateProperties] = []

    @property
    def index(self) -> int:
        """The index of the branch that is being executed."""
        return self._index

    # Branches.

    def next_branch(self) -> int | None:
        """Move on to the next execution; return the key of its branch, `None` after the last."""
        self._index += 1
        if self._index >= len(self._executions):
            return None
        key = self._executions[self._index]
        self.fresh = self._branches[key].start_index == self._index
        return key

    def branch(self, key: int) -> Branch:
        """Return a branch."""
        return self._branches[key]

    def first_properties(self, key: int) -> dict[str, Any]:
        """Return the properties with which a branch starts, each time that it is replayed."""
        return self._properties_at(self.branch(key).start_index)

    def _properties_at(self, index: int) -> dict[str, Any]:
        for change in reversed(self._changes):
            if change.key <= index:
                return change.values
        return self._instance.properties_at(index)

    def finish(self, properties: dict[str, Any], output: Any = UNSET) -> dict[str, Any] | None:
        """Leave a branch, at its end or where it waits; return the properties that count.

        These are the ones given, or equal ones of before. `None`: no new code ran, and a replay
        that stops where the last one did must not put back old ones.
        """
        counts = None
        if self.fresh:
            counts = self._properties_at(self._index)
            if not same(counts, properties):
                counts = properties
                change = m.UpdateProperties(self._index + 1, properties)
                self._changes.append(change)
                self.decisions.append(change)
        if output is not UNSET:
            self.decisions.append(m.SetOutput(self._executions[self._index], output))
        return counts

    def end(self, cursor: BranchCursor) -> None:
        """Note that the code of a branch has come to its end.

        Raises:
            WorkflowModified: the session is strict, and a recorded work was not asked for.

        """
        for status in self._instance.works_of(cursor.key):
            if self._strict and status.position not in cursor.visited:
                raise WorkflowModified(
                    self._instance.state.workflow_name,
                    describe_branch(cursor.key, cursor.branch),
                    status.position,
                    describe(status),
                    "nothing: the branch ends before",
                )
        # Only code that waits for several calls at once can end before its works do. The instance
        # still waits for a work that the code no longer asks for.
        for status in self._instance.works_of(cursor.key):
            asked = status.position in cursor.visited
            if asked and status.sync and self._completion(status) is None:
                self.leave(status.work)
        for work, scheduled in self._scheduled.items():
            if scheduled.branch_key == cursor.key and scheduled.sync:
                self.leave(work)

    # Works.

    def execute(
        self, cursor: BranchCursor, calls: Sequence[WorkCall], until: Until = Until.ALL
    ) -> Answer:
        """Ask for works and answer for all: `ask`, then `answer`."""
        return self.answer(cursor, self.ask(cursor, calls), until)

    def ask(self, cursor: BranchCursor, calls: Sequence[WorkCall]) -> list[str]:
        """Schedule those works that are unknown; return the names of all.

        Raises:
            WorkflowModified: another work is recorded at one of these positions. None of them was
                scheduled then.

        """
        works: list[str] = []
        unknown: list[tuple[str, WorkCall, str]] = []
        for call in calls:
            work = f"{cursor.key}/{call.position}"
            digest = call.hash_in(cursor.key)
            known = self._known(work)
            works.append(work)
            if known is None:
                unknown.append((work, call, digest))
            elif known.hash != digest:
                raise WorkflowModified(
                    self._instance.state.workflow_name,
                    describe_branch(cursor.key, cursor.branch),
                    call.position,
                    describe(known),
                    describe(call),
                )
        cursor.visited.update([call.position for call in calls])
        for work, call, digest in unknown:
            self._schedule(cursor, work, call, digest)
        return works

    def answer(
        self, cursor: BranchCursor, works: Sequence[str], until: Until = Until.ALL
    ) -> Answer:
        """Answer for works that were asked for before."""
        if not works:
            return Answer(AnswerStatus.COMPLETED)
        ends: list[tuple[int, int, WorkStatus]] = []
        for member, work in enumerate(works):
            status = self._find(work)
            if status is not None and (end := self._completion(status)) is not None:
                ends.append((end, member, status))
            elif until is Until.ALL:
                return _SCHEDULED
        if not ends:
            return _SCHEDULED
        winner = None
        if until is Until.FIRST:
            first = min(ends)
            ends, winner = [first], first[1]
        return self._completed(cursor, ends, winner)

    def _completed(
        self, cursor: BranchCursor, ends: list[tuple[int, int, WorkStatus]], winner: int | None
    ) -> Answer:
        """Answer for works of which the completion index and the place are given, too."""
        last = reached = -1
        failed = None
        outputs = []
        for end, _, status in ends:
            last = max(last, end)
            released = status.released_index
            reached = max(reached, end + 1 if released is UNSET else int(released))
            if failed is None and status.status is WorkState.FAILED:
                failed = status
            outputs.append(status.output)
        cursor.reached = reached
        if last == self._index - 1:
            self.fresh = True
        return Answer(
            status=AnswerStatus.FAILED if failed else AnswerStatus.COMPLETED,
            outputs=[] if failed else outputs,
            completion_index=last,
            properties=self._properties_at(last + 1),
            winner=winner,
            failed=failed,
        )

    def is_complete(self, work: str) -> bool:
        """Return whether a work is complete as seen from this execution."""
        status = self._find(work)
        return status is not None and self._completion(status) is not None

    def completed_now(self) -> str | None:
        """Return the work because of which the branch is executed again."""
        if self._index == 0:
            return None
        before = self.branch(self._executions[self._index - 1])
        return before.work if isinstance(before.work, str) else None

    def completed_before(self, key: int) -> list[str]:
        """Return the works of a branch that are complete, in the order in which they were."""
        ends = [(self._completion(status), status.work) for status in self._instance.works_of(key)]
        return [work for _, work in sorted((end, work) for end, work in ends if end is not None)]

    def _completion(self, status: WorkStatus) -> int | None:
        """Return when a work was complete as seen from this execution, if it was."""
        index = status.completion_index
        return index if isinstance(index, int) and index <= self._index else None

    def _known(self, work: str) -> WorkStatus | m.ScheduleWork | None:
        """Return a work of an earlier decision or of this one, if it was ever asked for."""
        return self._find(work) or self._scheduled.get(work)

    def _schedule(self, cursor: BranchCursor, work: str, call: WorkCall, digest: str) -> None:
        decision = m.ScheduleWork(
            branch_key=cursor.key,
            position=call.position,
            hash=digest,
            type=call.type,
            name=call.name,
            input=call.input,
            sync=call.sync,
            index=self._index,
            reached=cursor.reached,
            timeout=call.timeout,
            event=call.event,
            duration=call.duration,
            timestamp=call.timestamp,
            raises=call.raises,
        )
        self.decisions.append(decision)
        self._scheduled[work] = decision

    def leave(self, work: str, *, cancel: bool = False) -> None:
        """Resume a branch without one of its works, unless it already goes on."""
        known = self._known(work)
        assert known is not None, work  # noqa: S101 - asked for before
        if known.sync and work not in self._left:
            self._left.add(work)
            self.decisions.append(m.LeaveWork(work, cancel, self._index))

    # Values.

    def is_replaying(self, cursor: BranchCursor) -> bool:
        """Return whether the branch has been further than this in an earlier decision."""
        works = self._instance.works_of(cursor.key)
        # Calls are numbered as they are made, so the last work belongs to the last call.
        return bool(works) and int(works[-1].position.partition(".")[0]) >= cursor.calls

    def recorded(self, cursor: BranchCursor, position: str) -> Any:
        """Return a value that was drawn here before, or `UNSET`."""
        found = self._instance.record(cursor.key, position)
        return self._records.get((cursor.key, position), UNSET) if found is UNSET else found

    def record(self, cursor: BranchCursor, position: str, value: Any) -> None:
        """Record a value, so that replays get the same."""
        self._records[cursor.key, position] = value
        self.decisions.append(m.RecordValue(cursor.key, position, value, self._index, cursor.calls))

    def publish(self, value: Any) -> None:
        """Publish a value, unless a replay does it again."""
        if self.fresh:
            self.decisions.append(m.Publish(value))

    def tag(self, values: dict[str, Any]) -> None:
        """Set searchable attributes, unless a replay does it again."""
        if self.fresh:
            self.decisions.append(m.Tag(values))


def describe(work: WorkStatus | m.ScheduleWork | WorkCall) -> str:
    """Return a work as a text for people."""
    how = "execute" if work.sync else "dispatch"
    return f"{how} of the {work.type} {work.name}({work.input!r:.80})"


def describe_branch(key: int, branch: Branch) -> str:
    """Return a branch as a text for people."""
    of = branch.event_name if branch.task_name is UNSET else branch.task_name
    return f"branch {key} ({branch.type}{'' if of is UNSET else f' of {of}'})"
