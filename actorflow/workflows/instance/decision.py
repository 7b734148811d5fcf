"""One decision that is being taken: what the code of a workflow may ask, and what it is answered.

A session answers for one `DecisionJob`: it hands out the branches to execute, schedules the steps
that they ask for and collects the decisions. Whatever executes the branches (a frame in this
process, a script of another language over HTTP) only talks to a session. Nothing here changes the
instance.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct, to_builtins

from actorflow.workflows.errors import WorkflowModified
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.canonical import canonical, same
from actorflow.workflows.instance.state import UNSET, Branch, StepState, StepStatus, StepType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from actorflow.workflows.instance.instance import Instance

__all__ = ["AnswerStatus", "BranchCursor", "DecisionSession", "StepCall", "StepsOutcome", "Until"]


class Until(StrEnum):
    """What a call waits for."""

    ALL = "all"
    FIRST = "first"
    FAILURE = "failure"
    """All, or the first one that has failed."""


class AnswerStatus(StrEnum):
    """What a call is answered."""

    SCHEDULED = "scheduled"
    """Not yet: the branch stops here."""
    COMPLETED = "completed"
    FAILED = "failed"
    """A step has failed and its `raises` says that the code wants to know."""


class StepCall(Struct, frozen=True):
    """A step that the code asks for at a position of its branch."""

    position: str
    """`<call>.<member>`, so that a call can get more steps without shifting the next."""
    type: StepType
    name: str
    input: Any = None
    sync: bool = True
    timeout: float | None = None
    ends: bool = False
    event: str | None = None
    duration: float | None = None
    timestamp: float | None = None
    raises: bool = False
    lane: dict[str, Any] | None = None

    def hash_in(self, branch_key: int) -> str:
        """Return what tells whether the code still asks for the same at this position."""
        parts = [self.type, self.name, self.input, branch_key, self.position, self.sync]
        return blake2b(canonical(parts), digest_size=12).hexdigest()


class StepsOutcome(Struct, frozen=True):
    """The outcome of a call."""

    status: AnswerStatus
    outputs: list[Any] = []
    completion_index: int | None = None
    """When it was complete: of the last step, or of the first one."""
    properties: dict[str, Any] | None = None
    """The properties that the code goes on with; `None` leaves them as they are."""
    winner: int | None = None
    """For `Until.FIRST`: which member came first."""
    failed: StepStatus | None = None


_SCHEDULED = StepsOutcome(AnswerStatus.SCHEDULED)


class BranchCursor:
    """Where the code of a branch is. It lives as long as the frame that runs the code."""

    __slots__ = (
        "before",
        "branch",
        "calls",
        "counts",
        "executed",
        "happened",
        "key",
        "reached",
        "visited",
    )

    def __init__(self, key: int, branch: Branch) -> None:
        self.key = key
        self.branch = branch
        self.calls = 0
        self.counts: dict[str, int] = {}
        self.visited: set[str] = set()
        self.reached = branch.start_index
        self.executed = branch.start_index
        """Index of the execution in which the code that runs now was first run."""
        self.happened = branch.at
        """When that happened because of which the code runs now."""
        self.before = branch.start_index
        """The same of the code before the last answer."""

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
        recorded: compare properties and results with those of all executions before this index.

    """

    def __init__(
        self, instance: Instance, *, strict: bool = False, recorded: int | None = None
    ) -> None:
        state = instance.state
        self.uuid = state.decision_uuid
        self.id = state.id
        """The id of the instance."""
        self.seed = f"{state.id}@{state.run}" if state.run else state.id
        """The seed of the random numbers of this run of the instance."""
        self.now = state.decision_triggered_at
        """When the decision was triggered: the time that the code sees."""
        self.decisions: list[m.Decision] = []
        self.fresh = False
        """Whether the code that runs now has never run before."""
        self.cancelled = state.cancellation is not None
        """Whether the instance is being cancelled."""
        self._instance = instance
        self._find = instance.status
        self._branches = state.branches
        self._executions = state.executions
        self._strict = strict
        self._recorded = recorded
        self.compares = recorded is not None
        """Whether properties and results are compared with the recorded ones."""
        self.begin = state.ongoing_index or 0
        """The first index of the decision."""
        self._index = self.begin - 1
        self._over = False
        self._replays = False
        self._scheduled: dict[str, m.ScheduleStep] = {}
        self._left: set[str] = set()
        self._records: dict[tuple[int, str], Any] = {}
        self._changes: list[m.UpdateProperties] = []
        self.misfit: tuple[int, int, Exception] | None = None
        """A branch, the number of an event that it gets now and cannot read, and why."""

    @property
    def index(self) -> int:
        """The index of the branch that is being executed."""
        return self._index

    # Branches.

    def next_branch(self) -> int | None:
        """Move on to the next execution; return the key of its branch, `None` after the last."""
        self._index += 1
        if self._over or self._index >= len(self._executions):
            return None
        key = self._executions[self._index]
        self.fresh = self._branches[key].start_index == self._index
        return key

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Replay branches before the first one: nothing that they do is new."""
        self._replays = True
        self.fresh = False
        try:
            yield
        finally:
            self._replays = False

    def branch(self, key: int) -> Branch:
        """Return a branch."""
        return self._branches[key]

    def first_properties(self, key: int) -> dict[str, Any]:
        """Return the properties with which a branch starts, each time that it is replayed."""
        return self._properties_at(self.branch(key).start_index)

    @property
    def latest_properties(self) -> dict[str, Any]:
        """The properties as the branches so far have left them."""
        return self._properties_at(self._index + 1)

    def _properties_at(self, index: int) -> dict[str, Any]:
        for change in reversed(self._changes):
            if change.key <= index:
                return change.values
        return self._instance.properties_at(index)

    def compare(
        self, cursor: BranchCursor, properties: dict[str, Any], index: int | None = None
    ) -> None:
        """Compare properties with the recorded ones, if that is wanted.

        Args:
            cursor: where the code is.
            properties: as the code has left them.
            index: of the execution that left them; by default, the one that is replayed now.

        Raises:
            WorkflowModified: one of them differs.

        """
        index = cursor.executed if index is None else index
        if self._recorded is None or index >= self._recorded:
            return
        recorded = self._instance.properties_at(index + 1)
        for name, value in recorded.items():
            found = properties.get(name, UNSET)
            if found is UNSET or not same(found, value):
                text = "no such property" if found is UNSET else f"{name} = {found!r:.80}"
                self._refuse(cursor, f"property {name}", f"{name} = {value!r:.80}", text)

    def compare_end(self, cursor: BranchCursor, output: Any) -> None:
        """Compare the result of a branch, and how much it has published, if that is wanted.

        Raises:
            WorkflowModified: it differs.

        """
        if self._recorded is None or cursor.executed >= self._recorded:
            return
        recorded = cursor.branch.output
        if (recorded is UNSET) != (output is UNSET) or not same(
            *(None if each is UNSET else each for each in (recorded, output))
        ):
            before, now = (
                "no result" if each is UNSET else f"the result {each!r:.80}"
                for each in (recorded, output)
            )
            self._refuse(cursor, "end", before, now)
        count = cursor.counts.get("publish", 0)
        if self._instance.record(cursor.key, f"publish.{count}") is not UNSET:
            self._refuse(cursor, f"publish.{count}", "another published value", "the end")

    def _refuse(self, cursor: BranchCursor, position: str, recorded: str, found: str) -> NoReturn:
        raise WorkflowModified(
            self._instance.state.workflow_name,
            describe_branch(cursor.key, cursor.branch),
            position,
            recorded,
            found,
        )

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
        """Record that the code of a branch has come to its end.

        Raises:
            WorkflowModified: the session is strict, and a recorded step was not asked for.

        """
        for status in self._instance.steps_of(cursor.key):
            if self._strict and status.position not in cursor.visited:
                raise WorkflowModified(
                    self._instance.state.workflow_name,
                    describe_branch(cursor.key, cursor.branch),
                    status.position,
                    describe(status),
                    "nothing: the branch ends before",
                )
        # Only code that waits for several calls at once can end before its steps do. The instance
        # still waits for a step that the code no longer asks for.
        for status in self._instance.steps_of(cursor.key):
            asked = status.position in cursor.visited
            if asked and status.sync and self._completion(status) is None:
                self.leave(status.step)
        for step, scheduled in self._scheduled.items():
            if scheduled.branch_key == cursor.key and scheduled.sync:
                self.leave(step)

    def again(self, properties: dict[str, Any]) -> None:
        """Ask for a new run of the instance; the branches behind this one are left to it."""
        self._over = True
        self.decisions.append(m.RunAgain(properties, self._index))

    # Steps.

    def execute(
        self, cursor: BranchCursor, calls: Sequence[StepCall], until: Until = Until.ALL
    ) -> StepsOutcome:
        """Ask for steps and answer for all: `ask`, then `answer`."""
        return self.answer(cursor, self.ask(cursor, calls), until)

    def ask(self, cursor: BranchCursor, calls: Sequence[StepCall]) -> list[str]:
        """Schedule those steps that are unknown; return the names of all.

        Raises:
            WorkflowModified: another step is recorded at one of these positions. None of them was
                scheduled then.

        """
        steps: list[str] = []
        unknown: list[tuple[str, StepCall, str]] = []
        for call in calls:
            step = f"{cursor.key}/{call.position}"
            digest = call.hash_in(cursor.key)
            known = self._known(step)
            steps.append(step)
            if known is None:
                unknown.append((step, call, digest))
            elif known.hash != digest:
                raise WorkflowModified(
                    self._instance.state.workflow_name,
                    describe_branch(cursor.key, cursor.branch),
                    call.position,
                    describe(known),
                    describe(call),
                )
        cursor.visited.update([call.position for call in calls])
        for step, call, digest in unknown:
            self._schedule(cursor, step, call, digest)
        return steps

    def answer(
        self, cursor: BranchCursor, steps: Sequence[str], until: Until = Until.ALL
    ) -> StepsOutcome:
        """Answer for steps that were asked for before."""
        if not steps:
            return StepsOutcome(AnswerStatus.COMPLETED)
        ends: list[tuple[int, int, StepStatus]] = []
        for member, step in enumerate(steps):
            status = self._find(step)
            if status is not None and (end := self._completion(status)) is not None:
                ends.append((end, member, status))
            elif until is Until.ALL:
                return _SCHEDULED
        winner = None
        if until is Until.FAILURE:
            failed = [each for each in ends if each[2].status is StepState.FAILED]
            if not failed and len(ends) < len(steps):
                return _SCHEDULED
            ends = [min(failed)] if failed else ends
        if not ends:
            return _SCHEDULED
        if until is Until.FIRST:
            first = min(ends)
            ends, winner = [first], first[1]
        return self._completed(cursor, ends, winner)

    def _completed(
        self, cursor: BranchCursor, ends: list[tuple[int, int, StepStatus]], winner: int | None
    ) -> StepsOutcome:
        """Answer for steps whose completion index and place are also given."""
        last = reached = -1
        failed = None
        outputs = []
        for end, _, status in ends:
            last = max(last, end)
            released = status.released_index
            reached = max(reached, end + 1 if released is UNSET else int(released))
            if failed is None and status.status is StepState.FAILED:
                failed = status
            outputs.append(status.output)
        cursor.reached = reached
        cursor.before, cursor.executed = cursor.executed, last + 1
        cursor.happened = self._branches[self._executions[last]].at
        if last == self._index - 1 and not self._replays:
            self.fresh = True
        return StepsOutcome(
            status=AnswerStatus.FAILED if failed else AnswerStatus.COMPLETED,
            outputs=[] if failed else outputs,
            completion_index=last,
            properties=self._properties_at(last + 1),
            winner=winner,
            failed=failed,
        )

    def check_event(self, cursor: BranchCursor, step: str, read: Callable[[Any], Any]) -> None:
        """Read the event that a wait has got in this decision, to see whether it can be read."""
        status = self._find(step)
        if status is None or type(status.taken) is not int or self.misfit is not None:
            return
        end = self._completion(status)
        if end is None or end < self.begin or self.compares:
            return
        try:
            read(status.output)
        except Exception as error:  # noqa: BLE001 - the code of a user
            self.misfit = cursor.key, status.taken, error

    def deadline(self, step: str) -> float | None:
        """Return until when a wait lasts that was begun before."""
        status = self._find(step)
        return None if status is None else status.deadline

    def end_wait(self, step: str) -> None:
        """Record that the condition for which a branch waits holds."""
        self.decisions.append(m.EndWait(step))

    def is_complete(self, step: str) -> bool:
        """Return whether a step is complete as seen from this execution."""
        status = self._find(step)
        return status is not None and self._completion(status) is not None

    def has_failed(self, step: str) -> bool:
        """Return whether a step has failed as seen from this execution."""
        status = self._find(step)
        failed = status is not None and status.status is StepState.FAILED
        return failed and self.is_complete(step)

    def completed_now(self) -> str | None:
        """Return the step because of which the branch is executed again."""
        if self._index == 0:
            return None
        before = self.branch(self._executions[self._index - 1])
        return before.step if isinstance(before.step, str) else None

    def completed_before(self, key: int) -> list[str]:
        """Return the steps of a branch that are complete, in the order in which they were."""
        ends = [(self._completion(status), status.step) for status in self._instance.steps_of(key)]
        return [step for _, step in sorted((end, step) for end, step in ends if end is not None)]

    def _completion(self, status: StepStatus) -> int | None:
        """Return when a step was complete as seen from this execution, if it was."""
        index = status.completion_index
        return index if isinstance(index, int) and index <= self._index else None

    def _known(self, step: str) -> StepStatus | m.ScheduleStep | None:
        """Return a step of an earlier decision or of this one, if it was ever asked for."""
        return self._find(step) or self._scheduled.get(step)

    def _schedule(self, cursor: BranchCursor, step: str, call: StepCall, digest: str) -> None:
        decision = m.ScheduleStep(
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
            ends=call.ends,
            event=call.event,
            duration=call.duration,
            timestamp=call.timestamp,
            raises=call.raises,
            lane=call.lane,
        )
        self.decisions.append(decision)
        self._scheduled[step] = decision

    def leave(self, step: str, *, cancel: bool = False) -> None:
        """Resume a branch without one of its steps, unless it already goes on."""
        known = self._known(step)
        assert known is not None, step  # noqa: S101 - asked for before
        if known.sync and step not in self._left:
            self._left.add(step)
            self.decisions.append(m.LeaveStep(step, cancel, self._index))

    # Values.

    def is_replaying(self, cursor: BranchCursor) -> bool:
        """Return whether the branch has been further than this in an earlier decision."""
        steps = self._instance.steps_of(cursor.key)
        # Calls are numbered as they are made, so the last step belongs to the last call.
        return bool(steps) and int(steps[-1].position.partition(".")[0]) >= cursor.calls

    def recorded(self, cursor: BranchCursor, position: str) -> Any:
        """Return a value that was drawn here before, or `UNSET`."""
        found = self._instance.record(cursor.key, position)
        return self._records.get((cursor.key, position), UNSET) if found is UNSET else found

    def record(self, cursor: BranchCursor, position: str, value: Any) -> None:
        """Record a value, so that replays get the same."""
        self._records[cursor.key, position] = value
        self.decisions.append(m.RecordValue(cursor.key, position, value, self._index, cursor.calls))

    def send_once(
        self, cursor: BranchCursor, what: str, make: Callable[[str], m.Send | m.StartOther]
    ) -> m.Send | m.StartOther:
        """Send something to others, unless it was sent before.

        Args:
            cursor: where the code is.
            what: the kind of call.
            make: returns what to send, given a name for it within the run of the instance.

        Raises:
            WorkflowModified: something else was sent here before.

        """
        position = cursor.next_record(what)
        sent = make(f"{self.seed}/{cursor.key}/{position}")
        value = to_builtins(sent, builtin_types=(bytes,))
        found = self.recorded(cursor, position)
        if found is UNSET:
            self.record(cursor, position, value)
            self.decisions.append(sent)
        elif not same(found, value):
            raise WorkflowModified(
                self._instance.state.workflow_name,
                describe_branch(cursor.key, cursor.branch),
                position,
                f"{what} {found!r:.200}",
                f"{what} {value!r:.200}",
            )
        return sent

    def publish(self, cursor: BranchCursor, value: Any) -> None:
        """Publish a value, unless a replay does it again.

        Raises:
            WorkflowModified: another value was published here before.

        """
        position = cursor.next_record("publish")
        digest = blake2b(canonical(value), digest_size=8).hexdigest()
        found = self.recorded(cursor, position)
        if found is UNSET:
            if self.fresh:
                self.record(cursor, position, digest)
                self.decisions.append(m.Publish(value))
        elif found != digest:
            self._refuse(cursor, position, "another published value", f"publish({value!r:.80})")

    def tag(self, values: dict[str, Any]) -> None:
        """Set searchable attributes, unless a replay does it again."""
        if self.fresh:
            self.decisions.append(m.Tag(values))


def describe(step: StepStatus | m.ScheduleStep | StepCall) -> str:
    """Return a step as a string for people."""
    how = "execute" if step.sync else "dispatch"
    return f"{how} of the {step.type} {step.name}({step.input!r:.80})"


def describe_branch(key: int, branch: Branch) -> str:
    """Return a branch as a string for people."""
    of = branch.event_name if branch.task_name is UNSET else branch.task_name
    return f"branch {key} ({branch.type}{'' if of is UNSET else f' of {of}'})"
