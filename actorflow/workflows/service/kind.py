"""Workflows as a kind of execution: one kind for each class, so that instances wait for its code.

Between two runs an execution is its bytes, and the instance that they stand for while it is in
memory. A run may be thrown away: then the next one begins with the bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET

from actorflow.engine.errors import CodeElsewhere
from actorflow.engine.execution.watching import Waiters
from actorflow.engine.kind import Options
from actorflow.engine.tags import texts_of
from actorflow.runtime.log import log
from actorflow.workflows.errors import MessageRefused
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import BROKEN_MODES, WorkStatus, WorkType, decode
from actorflow.workflows.service.holding import Holding
from actorflow.workflows.service.incoming import check_message, control_body, read_batch
from actorflow.workflows.service.names import kind_name
from actorflow.workflows.service.outgoing import outcome_of
from actorflow.workflows.service.stored import CodeVersion, StoredInstance, WorkflowState, read_row
from actorflow.workflows.service.view import WorkflowView
from actorflow.workflows.versions import code_version
from actorflow.workflows.workflow import Workflow, workflow_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.kind import Addition, Context, NewTask, Outcome
    from actorflow.engine.stores.protocol import Change, ExecutionRow, Store
    from actorflow.workflows.service.incoming import Incoming, Start

__all__ = ["FRAMES", "Decides", "WorkflowKind"]

FRAMES = 1_000
"""Instances of one class whose code stays in memory between decisions."""


_encode = msgspec.msgpack.Encoder().encode


class Decides(Protocol):
    """Takes decisions, or has them taken elsewhere."""

    def decide(
        self, cls: type[Workflow[Any]], instance: Instance, *, at: float
    ) -> m.Received | None:
        """Return what the instance is to receive; `None` if that comes as a message, later."""

    def forget(self, instance: str) -> None:
        """Drop what is in memory for the sake of an instance."""


def _nobody_has(_code: str) -> bool:
    """Stand for a cluster of one."""
    return False


class WorkflowKind:
    """Runs the instances of one class. Its methods run in whatever thread the engine has.

    Args:
        cls: the class.
        decider: takes the decisions; several kinds may share it.
        inbox: a factory of behaviours for the events of those instances that have none.
        language: that the code is written in.
        hand_out: makes the task by which a decision is taken elsewhere; `None` if the decider takes
            all of them here.
        look: reads an execution; for inboxes that depend on what an instance is doing.
        has_code: returns whether another worker has this `code`.

    """

    version = 1

    def __init__(
        self,
        cls: type[Workflow[Any]],
        decider: Decides,
        *,
        inbox: Callable[[], Any] | None = None,
        language: str = "python",
        hand_out: Callable[[Instance], NewTask] | None = None,
        look: Callable[[str], ExecutionRow | None] | None = None,
        has_code: Callable[[str], bool] = _nobody_has,
    ) -> None:
        self.cls = cls
        self.workflow = workflow_name(cls)
        self.name = kind_name(self.workflow)
        self.waiters = Waiters()
        """Callers that wait for something inside an execution."""
        self._decider = decider
        self._language = language
        self._hand_out = hand_out
        self._holding = Holding(elsewhere=hand_out is not None, look=look)
        self._inbox = inbox
        self._inboxes: dict[str, Callable[[], Any]] = {}
        self._lock = threading.Lock()
        self._frames: OrderedDict[str, object] = OrderedDict()
        self._version = code_version(cls)
        self._has_code = has_code
        self._set_aside: dict[str, str] = {}  # instances, and the code that they wait for
        self._wants_start = cls.on_start is not Workflow.on_start

    def __repr__(self) -> str:
        return f"<kind {self.name}>"

    # The code.

    @property
    def code(self) -> str:
        """The code of this class, as it is announced to other workers."""
        return self._code(self._version)

    def _code(self, version: str) -> str:
        return f"{self.name}@{version}"

    def knows(self, execution: str) -> bool:
        """Return whether an instance may run here: not while it waits for code of another worker.

        If nobody has that code any more, it runs here, and fails where everybody sees it.
        """
        code = self._set_aside.get(execution)
        if code is None:
            return True
        if self._has_code(code):
            return False
        self._set_aside.pop(execution, None)
        return True

    def _require_code(self, execution: str, before: str, broken: m.DecisionBroken) -> None:
        """Leave an instance to the code that has run it before, if another worker has that.

        During a deploy an instance that has begun with the new code may come to a worker that
        still has the old one.
        """
        code = self._code(before)
        if self._has_code(code):
            self._set_aside[execution] = code
            raise CodeElsewhere(
                f"instances of {code} wait for a worker that has it, as another one does: with "
                f"{self.code} they fail ({broken.error['name']})"
            )

    # The inbox.

    def add_inbox(self, execution: str, inbox: Callable[[], Any]) -> bool:
        """Put a behaviour in front of the events of one instance; return whether it had none."""
        before = self._inboxes.get(execution, _no_inbox)
        self._inboxes[execution] = inbox
        return before is _no_inbox

    def share_inbox(self, of: str, execution: str) -> None:
        """Use the inbox of one instance for another as well, if it has one of its own."""
        inbox = self._inboxes.get(of)
        if inbox is not None:
            self._inboxes.setdefault(execution, inbox)

    def quick(self, execution: str) -> bool:
        """Return whether no code of a user runs in its inbox."""
        return self._inbox is None and execution not in self._inboxes

    def options(self, execution: str) -> Options:
        """Return the inbox: a queue, or the behaviour that was chosen for events."""
        inbox = self._inboxes.get(execution, self._inbox)
        if inbox is None:
            return Options()
        return Options(behaviour=self._holding.inbox(execution, inbox))

    # States.

    def decode(self, data: bytes | None) -> WorkflowState:
        """Return a state; its bytes are decoded when they are needed."""
        return WorkflowState(data)

    def encode(self, state: WorkflowState) -> bytes | Addition:
        """Return the bytes of a state, or what the run has added. O(1): the run made them."""
        return state.encoded()

    def view(self, row: ExecutionRow, _store: Store) -> WorkflowView | None:
        """Return the state of the instance, for people and programs that look."""
        if row.state is None:
            return None
        stored = read_row(row)
        return WorkflowView(stored, killed=row.status == "cancelled")

    def check_message(self, body: Any) -> None:
        """Refuse what can be no message to a workflow."""
        check_message(body)

    def cancel(self, target: Any) -> dict[str, Any]:
        """Return the message that ends an instance, or stops the work that `target` names."""
        return control_body("kill") if target is None else control_body("cancel", str(target))

    @property
    def committed(self) -> Callable[[Change], None] | None:
        """What to call after each commit: nothing while nobody waits inside an execution."""
        return self.waiters.committed if self.waiters else None

    # Running.

    def run(self, context: Context, state: WorkflowState, batch: Sequence[Any]) -> Outcome:
        """Pass a batch to the instance, and take its decisions until there is none."""
        self._claim_frames(context.id, state)
        try:
            outcome = self._run(context, state, batch)
        except BaseException:
            self._decider.forget(context.id)
            raise
        after: WorkflowState = outcome.state
        ended = after.stored is not None and after.stored.instance.ended
        if ended:
            self._holding.forget(context.id)
        self._keep_frames(context.id, after, ended=ended)
        return outcome

    def _run(self, context: Context, state: WorkflowState, batch: Sequence[Any]) -> Outcome:
        stored, instance = state.take()
        incoming = read_batch(context.id, instance, batch, context.now)
        before = stored.versions[-1].version if stored and stored.versions else self._version
        foreign = None
        if before != self._version:
            foreign = partial(self._require_code, context.id, before)
        run = _Run(self.cls, context, self._tells_start, foreign)
        if instance is None or stored is None:
            stored = run.begin(incoming.start, self.workflow, self._language)
        else:
            run.go_on(instance)
            if stored.inbox and self.quick(context.id):
                self._warn_of_inbox(context.id)
        run.note_version(stored, self._version)
        run.receive(incoming)
        run.decide(self._decider)
        instance = run.instance
        stored.tags |= run.tags
        outcome = outcome_of(instance, run.sent, self._tells_start, self._hand_out)
        if run.tags:
            stored.tags = {name: tag for name, tag in stored.tags.items() if tag is not None}
            outcome.tags = texts_of(stored.tags)
        entry = {"at": context.now, "entries": run.history}
        outcome.history.append(msgspec.Raw(_encode(entry)))
        outcome.state = state.after(stored, instance)
        self._holding.note(context.id, instance)
        return outcome

    def _tells_start(self, status: WorkStatus) -> bool:
        """Return whether the instance wants to know when a task or child starts."""
        return self._wants_start or status.timeout is not None

    def _warn_of_inbox(self, execution: str) -> None:
        log.warning(
            "a workflow was started with inbox=, which is not stored: register(..., inbox=) its "
            "class with one, or start it again with its id and its inbox",
            execution=execution,
        )
        self._inboxes.setdefault(execution, _no_inbox)

    # Frames. They are only good for the state that they have led to.

    def _claim_frames(self, execution: str, state: WorkflowState) -> None:
        with self._lock:
            held = self._frames.pop(execution, None)
        if held is None or held is not state.frames:
            self._decider.forget(execution)

    def _keep_frames(self, execution: str, state: WorkflowState, *, ended: bool) -> None:
        if ended:
            self._decider.forget(execution)
            self._inboxes.pop(execution, None)
            return
        state.frames = object()
        with self._lock:
            self._frames[execution] = state.frames
            if len(self._frames) > FRAMES:
                # Under the lock, so that no run of that one begins meanwhile.
                oldest, _ = self._frames.popitem(last=False)
                self._decider.forget(oldest)

    def ended(self, execution: str) -> None:
        """Forget an instance that was killed."""
        self._holding.forget(execution)
        self._inboxes.pop(execution, None)
        with self._lock:
            if self._frames.pop(execution, None) is not None:
                self._decider.forget(execution)

    def give_up_frames(self) -> None:
        """Drop the frames of all instances of which no decision is being taken."""
        while self._frames:
            with self._lock:
                if self._frames:
                    self._decider.forget(self._frames.popitem()[0])


def _no_inbox() -> Any:
    """Stand for the inbox of an instance that has lost it."""
    from behaviours import Queue  # noqa: PLC0415 - rare

    return Queue()


class _Run:
    """One run: the messages of the batch, then decisions."""

    def __init__(
        self,
        cls: type[Workflow[Any]],
        context: Context,
        tells_start: Callable[[WorkStatus], bool],
        breaks: Callable[[m.DecisionBroken], None] | None,
    ) -> None:
        self.instance: Instance
        self.sent: list[m.Outgoing] = []
        self.history: list[dict[str, Any]] = []
        self.tags: dict[str, Any] = {}
        self._cls = cls
        self._context = context
        self._tells_start = tells_start
        self._breaks = breaks
        self._branches = 0
        self._works = 0
        self._index = 0

    def begin(self, start: Start | None, workflow: str, language: str) -> StoredInstance:
        """Begin an instance."""
        if start is None:
            raise MessageRefused(
                f"{self._context.id!r} has not been started: use engine.start({workflow}(...))"
            )
        self.tags = dict(start.tags)
        if start.fork is not None:
            return self._begin_fork(start, start.fork)
        self.instance, sent = Instance.start(
            self._context.id, workflow, start.properties, at=start.at, language=language
        )
        self.history.append({"type": "start", "at": start.at, "properties": start.properties})
        self._note(sent)
        return StoredInstance(self.instance.state, inbox=start.inbox)

    def _begin_fork(self, start: Start, fork: dict[str, Any]) -> StoredInstance:
        state, at = decode(fork["state"]), start.at
        state.decision_triggered_at = at
        self.go_on(Instance(state))
        self.history.append({"type": "fork", "at": at, "of": fork["of"], "work": fork["work"]})
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
        """Go on with an instance."""
        self.instance = instance
        state = instance.state
        self._branches, self._works = len(state.branches), len(state.statuses)
        self._index = len(state.executions)
        if state.decision_ongoing:
            self._index = state.ongoing_index or 0

    def receive(self, incoming: Incoming) -> None:
        """Take what has arrived."""
        received = list(incoming.received)
        for each in incoming.received:
            if type(each) is m.Succeeded:
                continue  # as most are
            if isinstance(each, m.Retry):
                received += self._starts((each.work,))
            elif isinstance(each, m.Completed):
                received += self._children_begun(each)
            elif isinstance(each, m.DecisionBroken) and self._is_awaited(each.uuid):
                self._note_broken(each)
        self.history += incoming.notes
        if received:
            self._receive(received)

    def decide(self, decider: Decides) -> None:
        """Take decisions until there are none here, or the budget is used up."""
        context, instance = self._context, self.instance
        taken = 0
        while instance.state.decision_ongoing and (taken == 0 or context.keep_going()):
            answer = decider.decide(self._cls, instance, at=context.now)
            if answer is None:
                break
            taken += 1
            if isinstance(answer, m.DecisionBroken):
                if self._breaks is not None:
                    self._breaks(answer)
                self._note_broken(answer)
                self._receive([answer])
            else:
                self._receive([answer, *self._children_begun(answer)])
        self._answer()

    def _is_awaited(self, decision: str) -> bool:
        state = self.instance.state
        return state.decision_ongoing and state.decision_uuid == decision

    def _receive(self, received: list[m.Received]) -> None:
        sent = self.instance.receive(received, now=self._context.now)
        if m.Rewind in map(type, received):
            self.go_on(self.instance)
        self._note(sent)

    def _children_begun(self, answer: m.Received) -> list[m.Received]:
        """Return the starts of works that begin with the commit: nothing else reports them."""
        decisions = answer.decisions if isinstance(answer, m.Completed) else []
        return [
            m.Started(self._context.now, each.work)
            for each in decisions
            if isinstance(each, m.ScheduleWork)
            and each.type is not WorkType.WAIT
            and (each.type is WorkType.FLOW or not each.sync)
            and (self._cls.on_start is not Workflow.on_start or each.timeout is not None)
        ]

    def _starts(self, works: Sequence[str]) -> list[m.Received]:
        found = [self.instance.status(work) for work in works]
        return [
            m.Started(self._context.now, status.work)
            for status in found
            if status is not None
            and (status.type is WorkType.FLOW or not status.sync)
            and self._tells_start(status)
        ]

    # The history.

    def _note(self, sent: list[m.Outgoing]) -> None:
        self.sent += sent
        state = self.instance.state
        for at in range(self._works, len(state.statuses)):
            status = state.statuses[at]
            self.history.append(
                {
                    "type": "scheduled",
                    "at": self._context.now,
                    "work": status.work,
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
        self._works, self._branches = len(state.statuses), len(state.branches)
        for each in sent:
            kind = type(each)
            if kind is m.DecisionJob or kind is m.WorkJob:
                continue  # as most are
            match each:
                case m.Published(value=value):
                    self.history.append({"type": "published", "value": value})
                case m.Tagged(values=values):
                    self.tags |= values
                    self.history.append({"type": "tagged", "values": values})
                case m.Ended():
                    end: dict[str, Any] = {"type": "killed" if each.killed else "terminated"}
                    if not each.killed:
                        end["output"] = each.output
                    self.history.append(end)

    def _note_broken(self, broken: m.DecisionBroken) -> None:
        self.history.append({"type": "broken", "at": broken.at, "error": broken.error})
        error = broken.error
        log.error(
            "a workflow has failed; deploy a fix, then resume it",
            execution=self._context.id,
            workflow=self.instance.state.workflow_name,
            error=f"{error['name']}: {error['message']}",
            stack=error["stacktrace"],
        )

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
