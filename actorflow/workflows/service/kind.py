"""Workflows as a kind of execution: one kind for each class, so that instances wait for its code.

Between two runs an execution is its bytes, and the instance that they stand for while it is in
memory. A run may be thrown away: then the next one begins with the bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.behaviours.errors import Rejected
from actorflow.engine.errors import CodeElsewhere
from actorflow.engine.executions.waiters import Waiters
from actorflow.engine.kind import ENDED, Options, Outgoing, SetTimer
from actorflow.engine.kinds.lane import BEGIN, LANE
from actorflow.engine.tags import texts_of
from actorflow.runtime.log import log
from actorflow.workflows.instance.state import StepState
from actorflow.workflows.service.busy_instances import BusyInstances
from actorflow.workflows.service.names import START_TIMER, kind_name, step_id
from actorflow.workflows.service.pure import PureTasks
from actorflow.workflows.service.received_messages import (
    ReceivedBatch,
    check_message,
    control_body,
    read_batch,
)
from actorflow.workflows.service.run import Decides, InstanceRun
from actorflow.workflows.service.run_outcome import outcome_of
from actorflow.workflows.service.stored import WorkflowState, read, read_row
from actorflow.workflows.service.stuck import StuckLog
from actorflow.workflows.service.view import WorkflowView
from actorflow.workflows.versions import code_version
from actorflow.workflows.wait import check_event
from actorflow.workflows.workflow import Workflow, workflow_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.kind import Addition, Context, NewTask, Outcome
    from actorflow.engine.stores.protocol import Change, ExecutionRow, Store
    from actorflow.workflows.instance import messages as m
    from actorflow.workflows.instance.instance import Instance
    from actorflow.workflows.instance.state import (
        StepStatus,
    )

__all__ = ["FRAMES", "WorkflowKind"]

FRAMES = 1_000
"""Instances of one class whose code stays in memory between decisions."""

_SENDERS = 64  # that may send to one instance at the same time
_encode = msgspec.msgpack.Encoder().encode


def _nobody_has(_code: str) -> bool:
    """Stand for a cluster of one."""
    return False


class WorkflowKind:
    """Runs the instances of one class. Its methods run in threads of the engine.

    Args:
        cls: the class.
        decider: takes the decisions; several kinds may share it.
        inbox: a factory of behaviours for the events of those instances that have none.
        language: that the code is written in.
        hand_out: makes the task by which a decision is taken elsewhere; `None` if the decider takes
            all of them here.
        look: reads an execution; for inboxes that depend on what an instance is doing.
        has_code: returns whether another worker has this `code`.
        pure: does the tasks that need no tasker.
        store: how commands name the store.

    """

    version = 1

    traced_as = "decision"

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
        pure: PureTasks | None = None,
        store: str = "STORE",
    ) -> None:
        self._cls = cls
        self.definitions = -1
        """`Task.definitions` when the tasks that the class names were last looked for."""
        self.workflow = workflow_name(cls)
        self.name = kind_name(self.workflow)
        self.events_left = 0
        """Events that no wait had taken when their instances ended."""
        self.waiters = Waiters()
        """Callers that wait for something inside an execution."""
        self._decider = decider
        self._language = language
        self._hand_out = hand_out
        self._holding = BusyInstances(elsewhere=hand_out is not None, look=look)
        self._inbox = inbox
        self._inboxes: dict[str, Callable[[], Any]] = {}
        self._lock = threading.Lock()
        self._frames: OrderedDict[str, object] = OrderedDict()
        self._version = code_version(cls)
        self._has_code = has_code
        self._pure = pure or PureTasks({})
        self._stuck = StuckLog(store)
        self._set_aside: dict[str, str] = {}  # instances, and the code that they wait for
        self._full: dict[str, frozenset[str | None]] = {}
        """Instances that keep as many events as they may, and the names for which they wait."""
        self._wants_start = cls.on_start is not Workflow.on_start

    def __repr__(self) -> str:
        return f"<kind {self.name}>"

    # The code.

    @property
    def cls(self) -> type[Workflow[Any]]:
        """The class. If another takes its place, the next decisions are taken by that."""
        return self._cls

    @cls.setter
    def cls(self, cls: type[Workflow[Any]]) -> None:
        self._cls = cls
        self._version = code_version(cls)
        self._wants_start = cls.on_start is not Workflow.on_start

    @property
    def code(self) -> str:
        """The code of this class, as it is announced to other workers."""
        return self._code(self._version)

    def _code(self, version: str) -> str:
        return f"{self.name}@{version}"

    def knows(self, execution: str) -> bool:
        """Return whether an instance may run here: not while it waits for code of another worker.

        If no engine has that code any more, it runs here, and fails visibly.
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

    def check_message(self, execution: str, body: Any) -> None:
        """Refuse a body that is not a message to an instance.

        Raises:
            MessageRefused: it is not one, or an event that the class does not declare.
            Rejected: it is an event, and the instance keeps as many as it may.

        """
        check_message(body)
        name = body.get("event")
        if name is None:
            return
        declared = self.cls._actorflow_events  # noqa: SLF001 - it belongs to this package
        if declared is not None:
            check_event(self.workflow, declared, name, body.get("data"))
        if self._is_full(execution, name):
            raise self._no_room(execution)

    def _is_full(self, execution: str, event: str) -> bool:
        """Return whether an event was one too many when the instance last ran."""
        names = self.cls._actorflow_kept_names  # noqa: SLF001 - it belongs to this package
        if names is not None and event not in names:
            return False
        awaited = self._full.get(execution)
        # The run decides where the sender can wait for it.
        return awaited is not None and event not in awaited and not self.quick(execution)

    def _no_room(self, execution: str) -> Rejected:
        most = self.cls._actorflow_max_kept  # noqa: SLF001 - it belongs to this package
        return Rejected(
            f"{execution!r} keeps {most:,} events that no wait has taken, as many as its "
            "max_kept: let it wait for them, discard some, or raise max_kept. If `on_event` "
            "handles them, name the events that waits take: class "
            f"{self.cls.__name__}(Workflow, keep_events=['paid']), or keep_events=[] for none"
        )

    def bounded(
        self, execution: str, state: WorkflowState, unread: int, body: Any
    ) -> dict[str, Any] | None:
        """Return an event that its run may refuse, if the instance may keep too many.

        Without an inbox: else the run may be far away.
        """
        most = self.cls._actorflow_max_kept  # noqa: SLF001 - it belongs to this package
        if "event" not in body or not self.quick(execution) or execution in self._set_aside:
            return None
        if state.most_kept + unread + _SENDERS < most:
            return None
        return {**body, "room": most}

    def _refusals(
        self,
        execution: str,
        size: int,
        incoming: ReceivedBatch,
        refused: Sequence[m.EventSent],
    ) -> list[Any]:
        """Return the answers to a batch of which some events found no room."""
        answers: list[Any] = [None] * size
        for place, event in incoming.bounded:
            if any(event is each for each in refused):
                answers[place] = self._no_room(execution)
        return answers

    def cancel(self, target: Any) -> dict[str, Any]:
        """Return the message that cancels an instance, or the step that `target` names.

        Code in other languages is not told: its instances end at once.
        """
        if target is not None:
            return control_body("cancel", str(target))
        return control_body("cancel" if self._hand_out is None else "kill")

    def farewell(self, state: bytes | None) -> list[Outgoing]:
        """Return messages to others when an instance is killed: cancels of tasks in lanes."""
        if state is None or b"lane" not in state:
            return []
        instance = read(state).instance
        return [
            Outgoing(step_id(instance.id, each.step, each.attempt, instance.run), {"do": "cancel"})
            for each in instance.statuses
            if each.lane is not None and each.status is StepState.SCHEDULED and not each.dispatched
        ]

    def control(self, verb: str) -> dict[str, Any]:
        """Return the message by which an instance is paused or resumed."""
        return control_body(verb)

    def is_cancel(self, body: Any) -> bool:
        """Return whether a message ends an instance, or means nothing to one that has ended."""
        return type(body) is dict and body.get("do") in ("kill", "cancel", "started", BEGIN["do"])

    @property
    def committed(self) -> Callable[[Change], None] | None:
        """The function to call after each commit; `None` while no caller waits in an execution."""
        return self.waiters.committed if self.waiters else None

    # Running.

    def run(self, context: Context, state: WorkflowState, batch: Sequence[Any]) -> Outcome:
        """Pass a batch to the instance, and take its decisions until none is left."""
        self._claim_frames(context.id, state)
        try:
            outcome = self._run(context, state, batch)
        except BaseException:
            self._decider.forget(context.id)
            raise
        after: WorkflowState = outcome.state
        ended = after.stored is not None and after.stored.instance.ended
        kept = 0 if ended or after.instance is None else after.instance.kept.count
        after.kept = kept
        if kept >= self.cls._actorflow_max_kept:  # noqa: SLF001 - it belongs to this package
            waits = [] if after.instance is None else after.instance.state.waits
            self._full[context.id] = frozenset(wait.event for wait in waits)
        else:
            self._full.pop(context.id, None)
        if ended:
            self._holding.forget(context.id)
            self._stuck.forget(context.id)
        self._keep_frames(context.id, after, ended=ended)
        return outcome

    def _run(self, context: Context, state: WorkflowState, batch: Sequence[Any]) -> Outcome:
        stored, instance = state.take()
        incoming = read_batch(instance, batch, context.now)
        before = stored.versions[-1].version if stored and stored.versions else self._version
        foreign = None
        if before != self._version:
            foreign = partial(self._require_code, context.id, before)
        run = InstanceRun(
            self.cls, context, self._tells_start, foreign, self._decider, pure=self._pure
        )
        if instance is None or stored is None:
            stored = run.begin(incoming.start, self.workflow, self._language)
        else:
            run.go_on(instance)
            if stored.inbox and self.quick(context.id):
                self._warn_of_inbox(context.id)
        run.note_version(stored, self._version)
        if incoming.notes:  # somebody has acted
            self._stuck.forget(context.id)
        run.receive(incoming, stored)
        run.decide()
        run.warn_of_length()
        instance = run.instance
        stored.instance = instance.state
        stored.tags |= run.tags
        outcome = outcome_of(instance, run.sent, self._tells_start, self._hand_out, run.earlier)
        if outcome.status not in ENDED:
            self._stuck.note(instance, outcome.error)
        if run.due is not None and not instance.state.ended:
            outcome.timers.append(SetTimer(START_TIMER, run.due))
        if run.enters is not None:
            outcome.messages.append(Outgoing(run.enters["to"], run.enters["body"], LANE))
        if run.tags:
            stored.tags = {name: tag for name, tag in stored.tags.items() if tag is not None}
            outcome.tags = texts_of(stored.tags)
        entry = {"at": context.now, "entries": run.history}
        outcome.history.append(msgspec.Raw(_encode(entry)))
        outcome.refused = run.refused
        self.events_left += run.events_left
        if run.no_room:
            outcome.answers = self._refusals(context.id, len(batch), incoming, run.no_room)
        outcome.state = state.after(stored, instance)
        self._holding.note(context.id, instance)
        return outcome

    def _tells_start(self, status: StepStatus) -> bool:
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
        self._full.pop(execution, None)
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
    from actorflow.behaviours import Queue  # noqa: PLC0415 - rare

    return Queue()
