"""The loop of a run: messages in, a new state and messages out.

Pure: no threads, no files, no clock and no randomness of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution import garbage_collection, literal_attributes
from actorflow.flows.execution.environment import NoLoader, NoTaskers
from actorflow.flows.execution.messages import (
    cancel,
    enter,
    failures,
    intake,
    leave,
    receive,
    tasks,
    timers,
    traps,
)
from actorflow.flows.execution.run import FlowRun
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.limits import LIMITS, Limits
from actorflow.runtime.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from actorflow.flows.execution.environment import Loader, Observer, Taskers
    from actorflow.flows.execution.literal_messages import Literals
    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import Procedures, RunOutcome

MAX_MESSAGES = 77


def run(
    state: ExecutionState,
    messages: Iterable[Message],
    *,
    procedures: Procedures,
    now: float,
    max_messages: int = MAX_MESSAGES,
    keep_going: Callable[[], bool] | None = None,
    loader: Loader | None = None,
    taskers: Taskers | None = None,
    rng: Random | None = None,
    observer: Observer | None = None,
    limits: Limits = LIMITS,
) -> RunOutcome:
    """Process ``messages`` and those they emit, first in, first out; return the outcome.

    Stops when no message is left, after ``max_messages``, or when ``keep_going()`` (called before
    each message except the first) returns false; the outcome has the messages that are left over.
    ``procedures`` maps names to procedures; ``observer`` is called after each message. Errors of
    the flow are not raised but become ``failed`` messages, and messages that make no sense are
    refused.
    """
    one = FlowRun(
        state,
        procedures=procedures,
        now=now,
        loader=loader or NoLoader(),
        taskers=taskers or NoTaskers(),
        rng=rng,
        limits=limits,
    )
    accepted = intake.accepted(one, messages)
    return process(one, accepted, max_messages, keep_going or _always, observer)


def process(  # noqa: C901 - the hot loop, inlined on purpose
    run: FlowRun,
    messages: list[Message],
    max_messages: int,
    keep_going: Callable[[], bool],
    observer: Observer | None,
) -> RunOutcome:
    """Process ``messages`` in a new run, as `run` does.

    They belong to the run, and have passed `intake.accepted`.
    """
    queue, counters, nodes, exid = run.queue, run.counters, run.nodes, run.exid
    queue.extend(messages)
    runs = counters["runs"] = max(counters.get("runs", 0), 0) + 1
    history, signals = run.out.processed, run.out.signals
    observe = None if observer is None else observer.observe
    processed = 0
    while queue and processed < max_messages:
        if processed and not keep_going():
            break
        message = queue.popleft()
        if queue and message["point"] == "terminated":
            queue.append(message)
            message = queue.popleft()
        if "er" not in message and intake.refuses(run, message):
            continue
        point = message["point"]
        if (
            not queue
            and point == "execute"
            and literal_attributes.is_literal(message.get("tree"))
            and (literals := _process_literals(run, message, max_messages - processed, observer))
        ):
            processed += literals.count
            if not literals.goes_on:
                queue.append(literals.answer)
                continue
            message, point = literals.answer, _GO_ON
        processed += 1
        message["m"] = counters["msgs"] = counters.get("msgs", 0) + 1
        message["pr"] = runs
        emitted = _process_one(run, point, message)
        history.append(message)
        for one in emitted:
            one["er"] = message.get("er") if "fm" in one else runs
            if one["exid"] == exid:
                queue.append(one)
            else:
                signals.append(one)
        if observe is not None:
            observe(message, emitted, len(nodes))
    if processed:
        counters["omsgs"] = counters.get("omsgs", 0) + len(signals)
    return _finish(run)


def _process_literals(
    run: FlowRun, message: Message, room: int, observer: Observer | None
) -> Literals | None:
    """Process literal attributes, of which ``message`` executes one, but not their answer."""
    literals = literal_attributes.evaluate(run, message, room)
    if literals is not None:
        run.out.processed.append(literals)
        if observer is not None:
            nodes = len(run.nodes)
            observer.observe_literals(literals, nodes if literals.goes_on else nodes - 1)
    return literals


def _process_one(run: FlowRun, point: str, message: Message) -> list[Message]:
    """Process a numbered message, and return the messages that it emits."""
    try:
        if run.traps or point in _CAUSES:
            return _process_watched(run, point, message)
        return _POINTS[point](run, message)
    except Exception as error:  # noqa: BLE001 - any error of a procedure fails the flow, not the run
        return _failure(run, message, error)


def _process_watched(run: FlowRun, point: str, message: Message) -> list[Message]:
    """Process a message that may spring a trap, or causes other messages."""
    if point in _CAUSES:
        cancel.add_cause(run, message)
    if point == "cancel" and cancel.means_the_rest(run, message):
        traps.drop_ended(run)  # else each cancel of what they have begun would spring them again
    if not run.traps:
        return _POINTS[point](run, message)
    if point != "execute":
        return [*traps.matching(run, message), *_POINTS[point](run, message)]
    node = enter.create_node(run, message)  # a trap may watch for it
    return [*traps.matching(run, message), *enter.start(run, node, message)]


def _always() -> bool:
    return True


def _nothing(_run: FlowRun, _message: Message) -> list[Message]:
    return []


def _failure(run: FlowRun, message: Message, error: BaseException) -> list[Message]:
    """Turn an error into a failed message; an error while handling a failure is only noted."""
    if message["point"] != "failed":
        return [failures.failed_message(run, message, error)]
    message["unhandled"] = text_of(error)
    return []


def _finish(run: FlowRun) -> RunOutcome:
    out = run.out
    garbage_collection.drop_unreachable(run, out)
    old = run.before
    collect_at = garbage_collection.collect_closures(run, old.collect_at, run.queue)
    end = old.end
    if run.terminated and not old.terminated:
        end = run.now
    start = run.now if old.start is None else old.start
    out.state = ExecutionState(
        run.exid,
        old.domain,
        old.unit,
        run.nodes,
        run.counters,
        run.traps,
        run.timers,
        run.orphans,
        start,
        end,
        None if end is None else end - start,
        run.terminated,
        collect_at,
        old.payload if out.payload is None else out.payload,
        run.cancelled,
    )
    out.leftover = list(run.queue)
    out.status = out.state.status
    return out


_CAUSES = frozenset(("cancel", "trigger"))
_GO_ON = "go on"  # a receive that needs no look at the node that has answered
_POINTS: dict[str, Callable[[FlowRun, Message], list[Message]]] = {
    "execute": enter.execute,
    "receive": receive.receive,
    _GO_ON: literal_attributes.go_on,
    "cancel": cancel.cancel,
    "task": tasks.task,
    "detask": tasks.task,
    "return": tasks.give_back,
    "schedule": timers.schedule,
    "trigger": timers.trigger,
    "trap": traps.set_trap,
    "failed": failures.failed,
    "terminated": leave.terminate,
    "add": enter.add,
    **dict.fromkeys(("ceased", "entered", "left", "signal"), _nothing),
}
