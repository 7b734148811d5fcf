"""Flows as a kind of execution: a pure run on the engine's envelopes.

Between two runs an execution is its bytes; a large one is decoded only when messages arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine.executions.waiters import Waiters
from actorflow.engine.kind import Failure, Options
from actorflow.engine.kind import Status as EngineStatus
from actorflow.flows.errors import FlowMessageRefused
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.loop import MAX_MESSAGES, process
from actorflow.flows.execution.messages.intake import fault_of
from actorflow.flows.execution.node import ROOT
from actorflow.flows.execution.run import FlowRun
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.procedures.registry import all_procedures
from actorflow.flows.service.history import HistoryRecorder
from actorflow.flows.service.library import Library
from actorflow.flows.service.received_messages import new_execution, received
from actorflow.flows.service.run_outcome import outcome_of
from actorflow.flows.service.taskers import Directory
from actorflow.flows.service.view import FlowExecution
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.kind import Context, Envelope, Outcome
    from actorflow.engine.stores.protocol import Change, ExecutionRow, Store
    from actorflow.flows.execution.environment import Loader
    from actorflow.flows.execution.node import Message

__all__ = ["KIND", "FlowKind", "FlowState"]

KIND = "flow"
_SMALL = 4_096  # bytes of a state up to which the decoded form is kept as well
_OPTIONS = Options()


class FlowState(msgspec.Struct, gc=False):
    """An execution between two runs: bytes, and the decoded form if it is small or busy."""

    data: bytes | None
    live: ExecutionState | None = None


class _Dice:
    """The random numbers of a run, which are only seeded if a flow rolls them."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context.random, name)


class FlowKind:
    """Runs flows. Its methods run in threads of the engine.

    Args:
        directory: returns who can be given tasks; each run asks once.
        library: returns the variables and subflows of domains; each run asks once.
        max_messages: that one run processes, at most.
        history: whether every message is kept.

    """

    name = KIND
    version = 1

    def __init__(
        self,
        *,
        directory: Callable[[], Directory] = Directory,
        library: Callable[[], Loader] = Library,
        max_messages: int = MAX_MESSAGES,
        history: bool = True,
    ) -> None:
        self._procedures = all_procedures()
        self._directory = directory
        self._library = library
        self._max_messages = max_messages
        self.keeps_history = history
        self.waiters = Waiters()
        """Callers that wait for something inside an execution."""

    def quick(self, _execution: str) -> bool:
        """Return True: no code of a user runs in its inbox."""
        return True

    def options(self, _execution: str) -> Options:
        """Return the defaults: messages are processed in the order in which they came."""
        return _OPTIONS

    def decode(self, data: bytes | None) -> FlowState:
        """Return a state; its bytes are decoded when they are needed."""
        return FlowState(data)

    def encode(self, state: FlowState) -> bytes:
        """Return the bytes of a state. O(1): the run made them."""
        if state.data is None:
            msg = "an execution that never ran has no bytes"
            raise ValueError(msg)
        return state.data

    def check_message(self, _execution: str, body: Any) -> None:
        """Refuse bodies that no flow could process; the execution checks the rest.

        Raises:
            MessageRefused: the body is not a message.

        """
        why = fault_of(body)
        if why is not None:
            raise FlowMessageRefused(
                f"{body!r:.100} refused: {why}; a message to a flow is a dict with a point, such as"
                " {'point': 'signal', 'name': 'go', 'payload': {}}; use the verbs of engine.flows"
            )

    def run(self, context: Context, state: FlowState, batch: Sequence[Envelope]) -> Outcome:
        """Process messages until nothing is left, or the budget is used up."""
        before = state.live
        if before is None:
            data = state.data
            before = new_execution(context.id, batch) if data is None else decode(data)
        messages, refused = received(before, batch)
        directory = self._directory()
        dice: Any = _Dice(context)
        run = FlowRun(
            before,
            procedures=self._procedures,
            now=context.now,
            loader=self._library(),
            taskers=directory,
            rng=dice,
        )
        recorder = HistoryRecorder(run) if self.keeps_history else None
        out = process(run, messages, self._max_messages, context.keep_going, recorder)
        if out.refused:
            refused += [str(refusal.error) for refusal in out.refused]
        outcome = outcome_of(before, out, directory, context.watches, refused)
        after = out.state
        if refused and not after.counters.get("msgs"):
            outcome.status = EngineStatus.STUCK  # it was never launched
            outcome.error = Failure(FlowMessageRefused.__name__, refused[0])
        if outcome.status is EngineStatus.DONE:
            after.payload = None  # it is stored as the result
        data = encode(after)
        keep = len(data) <= _SMALL or out.leftover
        outcome.state = FlowState(data, after if keep else None)
        for echo in out.echoes:
            log.info("echo", execution=after.exid, **echo)
        for text in refused:
            log.info("message refused", execution=after.exid, error=text)
        if recorder is not None:
            record = recorder.record(
                at=context.now,
                size_before=len(state.data or b""),
                counters=after.counters,
                nodes=len(after.nodes),
                size=len(data),
                traps=len(after.traps),
                traces=out.traces,
                refused=refused,
            )
            outcome.history.append(msgspec.Raw(record))
        return outcome

    def view(self, row: ExecutionRow, store: Store) -> FlowExecution:
        """Return an execution for people and programs that look."""
        return FlowExecution(row, store)

    def cancel(self, target: Any) -> Message:
        """Return the message that cancels a node: the root if `target` is `None`."""
        return {"point": "cancel", "nid": ROOT if target is None else str(target)}

    def is_cancel(self, body: Any) -> bool:
        """Return whether a message only cancels or kills a node, and executes nothing instead."""
        return (
            type(body) is dict and body.get("point") == "cancel" and "on_receive_last" not in body
        )

    def has_part(self, row: ExecutionRow, target: Any) -> bool:
        """Return whether there is a node `target` that has not ended."""
        if str(target) == ROOT or row.state is None:
            return str(target) == ROOT
        node = decode(row.state).nodes.get(str(target))
        return node is not None and node.state != "ended"

    @property
    def committed(self) -> Callable[[Change], None] | None:
        """The function to call after each commit; `None` while no caller waits in an execution."""
        return self.waiters.committed if self.waiters else None
