"""One run of an execution that is an instance: the messages of a batch, then decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET

from actorflow.engine.kind import RefusedMessage
from actorflow.runtime.log import log
from actorflow.workflows.errors import MessageRefused, Refused, refusal_of
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import (
    BROKEN_MODES,
    UNDONE,
    DecisionMode,
    StepStatus,
    StepType,
    decode,
)
from actorflow.workflows.service.received_messages import event_body
from actorflow.workflows.service.stored import CodeVersion, StoredInstance
from actorflow.workflows.workflow import Workflow, cancel_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.kind import Context
    from actorflow.workflows.service.pure import PureTasks
    from actorflow.workflows.service.received_messages import ReceivedBatch, Start

__all__ = ["Decides", "InstanceRun"]


class Decides(Protocol):
    """Takes decisions, or has them taken elsewhere."""

    def decide(
        self, cls: type[Workflow[Any]], instance: Instance, *, at: float
    ) -> m.Received | None:
        """Return what the instance is to receive; `None` if that comes as a message, later."""

    def forget(self, instance: str) -> None:
        """Drop the data in memory for an instance."""


class InstanceRun:
    """One run: the messages of the batch, then decisions."""

    def __init__(
        self,
        cls: type[Workflow[Any]],
        context: Context,
        tells_start: Callable[[StepStatus], bool],
        breaks: Callable[[m.DecisionBroken], None] | None,
        decider: Decides,
        *,
        pure: PureTasks,
    ) -> None:
        self.instance: Instance
        self.earlier: list[tuple[Instance, list[m.Outgoing]]] = []
        """Runs of the instance that are over, and what they have sent."""
        self.sent: list[m.Outgoing] = []
        self.history: list[dict[str, Any]] = []
        self.tags: dict[str, Any] = {}
        self.enters: dict[str, Any] | None = None
        """The lane that it enters now."""
        self.due: float | None = None
        """When it is to begin."""
        self.refused: list[RefusedMessage] = []
        """Events that the code has refused, and of which nobody hears otherwise."""
        self.no_room: list[m.EventSent] = []
        """Events for which there was no room."""
        self.events_left = 0
        """Events that no wait had taken at the end."""
        self._cls = cls
        self._context = context
        self._tells_start = tells_start
        self._breaks = breaks
        self._decider = decider
        self._pure = pure
        self._branches = 0
        self._steps = 0
        self._index = 0
        self._length = 0

    def begin(self, start: Start | None, workflow: str, language: str) -> StoredInstance:
        """Begin an instance."""
        if start is None:
            raise MessageRefused(
                f"{self._context.id!r} has not been started: use engine.start({workflow}(...))"
            )
        self.tags = dict(start.tags)
        if start.fork is not None:
            return self._begin_fork(start, start.fork)
        waits = start.due is not None and start.due > self._context.now
        self.instance, sent = Instance.start(
            self._context.id,
            workflow,
            start.properties,
            at=start.at,
            language=language,
            keeps_events=self._cls._actorflow_keeps_events,  # noqa: SLF001 - see check_message
            kept_names=self._cls._actorflow_kept_names,  # noqa: SLF001 - the same
            held=waits or start.lane is not None,
        )
        self.history.append({"type": "start", "at": start.at, "properties": start.properties})
        self._note(sent)
        if waits:
            self.due = start.due
            return StoredInstance(self.instance.state, inbox=start.inbox, lane=start.lane)
        self.enters = None if start.due is None else start.lane
        return StoredInstance(self.instance.state, inbox=start.inbox)

    def _begin_fork(self, start: Start, fork: dict[str, Any]) -> StoredInstance:
        state, at = decode(fork["state"]), start.at
        state.decision_triggered_at = at
        self.go_on(Instance(state))
        self.history.append({"type": "fork", "at": at, "of": fork["of"], "step": fork["step"]})
        self._receive([m.Restore(at)])
        return StoredInstance(state, inbox=start.inbox)

    def note_version(self, stored: StoredInstance, version: str) -> None:
        """Record which code runs, if it is another than before."""
        if not stored.versions or stored.versions[-1].version != version:
            index = len(self.instance.state.executions)
            seen = CodeVersion(version, self._context.now, index if stored.versions else 0)
            stored.versions = [*stored.versions, seen]
            self.history.append({"type": "version", "at": seen.at, "version": version})

    def go_on(self, instance: Instance) -> None:
        """Continue an instance."""
        instance.keep_only(self._cls._actorflow_kept_names)  # noqa: SLF001 - as in begin
        self.instance = instance
        state = instance.state
        self._branches, self._steps = len(state.branches), len(state.statuses)
        self._index = self._length = len(state.executions)
        if state.decision_ongoing:
            self._index = state.ongoing_index or 0

    def receive(self, incoming: ReceivedBatch, stored: StoredInstance) -> None:
        """Pass incoming messages to the instance."""
        received = list(incoming.received)
        if incoming.due:
            self.enters, stored.lane = stored.lane, None
            if self.enters is None:
                received.append(m.Begin(self._context.now))
        for each in incoming.received:
            if type(each) is m.Succeeded:
                continue  # as most are
            if isinstance(each, m.CancelAll):
                received[received.index(each)] = cancel_of(self._cls, each.at)
            elif isinstance(each, m.RetryStep):
                received += self._starts((each.step,))
            elif isinstance(each, m.Completed):
                received += self._children_begun(each)
            elif isinstance(each, m.DecisionBroken) and self._is_awaited(each.uuid):
                self._note_broken(each)
        self.history += incoming.notes
        if received:
            self._receive(received)

    def decide(self) -> None:
        """Take decisions until there are none here, or the budget is used up."""
        context = self._context
        taken = 0
        while self.instance.state.decision_ongoing and (taken == 0 or context.keep_going()):
            answer = self._decider.decide(self._cls, self.instance, at=context.now)
            if answer is None:
                break
            taken += 1
            if isinstance(answer, m.EventRefused):
                self._refuse(answer)
            elif isinstance(answer, m.DecisionBroken):
                if self._breaks is not None:
                    self._breaks(answer)
                self._note_broken(answer)
                self._receive([answer])
            else:
                sent = self._receive([answer, *self._children_begun(answer)])
                self._do_pure_tasks(sent)
        self._answer()

    def _do_pure_tasks(self, sent: list[m.Outgoing]) -> None:
        """Do the pure tasks that a decision asks for, as long as there is time."""
        done: list[m.Received] = []
        instance = self.instance
        for each in sent:
            if type(each) is not m.StepJob or not self._context.keep_going():
                continue
            status = instance.status(each.step)
            if status is None or self._tells_start(status) or each not in self.sent:
                continue
            result = self._pure.done(each, status, self._context.now)
            if result is not None:
                self.sent.remove(each)
                done.append(result)
        if done:
            self._receive(done)

    def _refuse(self, refused: m.EventRefused) -> None:
        """Take a decision again without an event."""
        start = self.instance.state.ongoing_index or 0
        # Branches planned since then are planned, and recorded, again.
        self._branches = sum(each.start_index < start for each in self.instance.state.branches)
        self._receive([refused])

    def _is_awaited(self, decision: str) -> bool:
        state = self.instance.state
        return state.decision_ongoing and state.decision_uuid == decision

    def _receive(self, received: list[m.Received]) -> list[m.Outgoing]:
        sent = self.instance.receive(received, now=self._context.now)
        if m.Rewind in map(type, received):
            self.go_on(self.instance)
        if self.instance.undone_from is not None:
            self._record_from(self.instance.undone_from)
        self._note(sent)
        if self.instance.state.decision_mode is DecisionMode.CONTINUED:
            self._begin_again()
        return sent

    def _record_from(self, index: int) -> None:
        """Record the plan from an index on, which has been undone and is planned again."""
        state = self.instance.state
        begun = sum(branch.start_index < index for branch in state.branches)
        self._branches = min(self._branches, begun)
        self._steps = min(self._steps, len(state.statuses))
        self._index, self._length = min(self._index, index), min(self._length, index)

    def _begin_again(self) -> None:
        """Continue with the next run of the instance."""
        now, before = self._context.now, self.instance
        self._answer()
        self._decider.forget(self._context.id)
        self.earlier.append((before, self.sent))
        self.sent = []
        entry = {"type": "again", "at": now, "properties": before.state.successor}
        self.history.append(entry)
        self.instance, sent = before.again(at=now)
        self._branches = self._steps = self._index = self._length = 0
        self._note(sent)

    def warn_of_length(self) -> None:
        """Log that the history has become long: at the limit, and each time that it doubles."""
        length = len(self.instance.state.executions)
        limit = self._cls._actorflow_history_limit  # noqa: SLF001 - see check_message
        while limit <= self._length:
            limit *= 2
        if length >= limit:
            log.warning(
                "the history of a workflow is long, which costs memory and time in restarts: let "
                "its handle start a new run with `return self.again(...)`, or raise history_limit=",
                execution=self._context.id,
                workflow=self.instance.state.workflow_name,
                length=length,
            )

    def _children_begun(self, answer: m.Received) -> list[m.Received]:
        """Return the starts of steps that begin with the commit: nothing else reports them."""
        decisions = answer.decisions if isinstance(answer, m.Completed) else []
        return [
            m.Started(self._context.now, each.step)
            for each in decisions
            if isinstance(each, m.ScheduleStep)
            and each.type is not StepType.WAIT
            and (each.type is StepType.FLOW or not each.sync)
            and (self._cls.on_start is not Workflow.on_start or each.timeout is not None)
        ]

    def _starts(self, steps: Sequence[str]) -> list[m.Received]:
        found = [self.instance.status(step) for step in steps]
        return [
            m.Started(self._context.now, status.step)
            for status in found
            if status is not None
            and (status.type is StepType.FLOW or not status.sync)
            and self._tells_start(status)
        ]

    # The history.

    def _note(self, sent: list[m.Outgoing]) -> None:
        self.sent += sent
        state = self.instance.state
        for at in range(self._steps, len(state.statuses)):
            status = state.statuses[at]
            self.history.append(
                {
                    "type": "scheduled",
                    "at": self._context.now,
                    "step": status.step,
                    "kind": str(status.type),
                    "name": status.name,
                    "input": status.input,
                    "sync": status.sync,
                }
            )
        for key in range(self._branches, len(state.branches)):
            branch = msgspec.to_builtins(state.branches[key], builtin_types=(bytes,))
            for name in ("task_input", "start_index"):
                branch.pop(name, None)
            self.history.append({"branch": key, **branch, "at": state.branches[key].at})
        self._steps, self._branches = len(state.statuses), len(state.branches)
        for each in sent:
            kind = type(each)
            if kind is m.DecisionJob or kind is m.StepJob:
                continue  # as most are
            self._note_sent(each)

    def _note_sent(self, each: m.Outgoing) -> None:
        match each:
            case m.Send():
                entry = {"type": "sent", "to": each.to, "event": each.name, "data": each.data}
                self.history.append(entry)
            case m.StartOther():
                entry = {"type": "started", "id": each.id, "workflow": each.workflow}
                self.history.append(entry)
            case m.Published(value=value):
                self.history.append({"type": "published", "value": value})
            case m.Tagged(values=values):
                self.tags |= values
                self.history.append({"type": "tagged", "values": values})
            case m.RefusedByCode():
                self._note_refused(each)
            case m.NoRoom(event=event):
                self.no_room.append(event)
            case m.Ended():
                self._note_end(each)

    def _note_end(self, ended: m.Ended) -> None:
        end: dict[str, Any] = {"type": "killed" if ended.killed else "terminated"}
        if ended.error is not None:
            end = {"type": "given up", "at": self._context.now, "error": ended.error}
        elif ended.cancelled:
            end = {"type": "cancelled", "at": self._context.now}
        if ended.output is not UNSET:
            end["output"] = ended.output
        self._note_kept(end)
        self.history.append(end)

    def _note_refused(self, refused: m.RefusedByCode) -> None:
        """Record an event that was refused, with its data, so that it can be sent again."""
        reason = refusal_of(refused.error)
        entry = {
            "type": "refused",
            "at": self._context.now,
            "event": refused.name,
            "data": refused.input,
            "error": reason,
        }
        if refused.id is not UNSET:
            entry["id"] = refused.id
        self.history.append(entry)
        if not refused.asked and refused.error != UNDONE:
            name = None if refused.id is UNSET else refused.id
            body = event_body(refused.name, refused.input, name)
            why = f"{refused.error['name']}: {refused.error['message']}"
            self.refused.append(RefusedMessage(body, why))
        expected = refused.error["name"] == Refused.__name__
        (log.info if expected else log.error)(
            "a workflow has refused an event",
            execution=self._context.id,
            workflow=self.instance.state.workflow_name,
            event_name=refused.name,
            error=reason,
            stack="" if expected else refused.error["stacktrace"],
        )

    def _note_kept(self, end: dict[str, Any]) -> None:
        """Record the events that no wait has taken until the end."""
        kept = [*self.instance.kept]
        if kept:
            self.events_left += len(kept)
            end["kept"] = msgspec.to_builtins(kept, builtin_types=(bytes,))
            log.warning(
                "a workflow has ended with events that no wait has taken",
                execution=self._context.id,
                workflow=self.instance.state.workflow_name,
                events=", ".join(dict.fromkeys(each.name for each in kept)),
                count=len(kept),
            )

    def _note_broken(self, broken: m.DecisionBroken) -> None:
        self.history.append({"type": "broken", "at": broken.at, "error": broken.error})

    def _answer(self) -> None:
        """Record the answers to `ask`, once their branches have ended."""
        instance = self.instance
        state = instance.state
        decided = len(state.executions)
        if state.decision_ongoing or state.decision_mode in BROKEN_MODES:
            decided = state.ongoing_index or 0
        for key in dict.fromkeys(state.executions[self._index : decided]):
            branch = state.branches[key]
            if branch.event_id is UNSET or instance.waits(key):
                continue
            output = None if branch.output is UNSET else branch.output
            self.history.append({"type": "answer", "id": branch.event_id, "output": output})
