"""Flows as a kind of execution on the engine: the pure run, and what its outcome is there.

Between two runs an execution is its bytes; it is decoded when messages arrive. Answers of taskers
arrive as the engine's own messages and are turned into those of the flow here.
"""

from __future__ import annotations

import random
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorflow.engine.kind import NewTask, Outcome, Outgoing, SetTimer
from actorflow.engine.kind import Status as EngineStatus
from actorflow.flows.execution.codec import decode, encode, tree_from
from actorflow.flows.execution.environment import NoLoader
from actorflow.flows.execution.loop import MAX_MESSAGES, process
from actorflow.flows.execution.messages import traps
from actorflow.flows.execution.names import visible_variables
from actorflow.flows.execution.run import Run
from actorflow.flows.execution.state import Execution, Status
from actorflow.flows.procedures.registry import all_procedures
from actorflow.flows.service.exids import parts_of
from actorflow.flows.service.history import Recorder
from actorflow.flows.service.taskers import Directory, task_body
from actorflow.runtime.log import log
from behaviours import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.engine.stores.protocol import Store
    from actorflow.flows.execution.environment import Loader
    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.outcome import RunOutcome as FlowOutcome

__all__ = ["KIND", "FlowKind", "FlowState", "task_id"]

KIND = "flow"
_ANSWERS = frozenset(("return", "failed"))
_WIDE = frozenset(("domain", "subdomain"))


def task_id(exid: str, nid: str, m: int) -> str:
    """Return the id of a task: the same after a crash, another one when the node is re-applied."""
    return f"{exid}/{nid}#{m}"


def _task_place(task: str, exid: str) -> tuple[str, int]:
    nid, _, m = task[len(exid) + 1 :].rpartition("#")
    return nid, int(m)


class FlowState:
    """An execution between two runs: bytes, and the decoded form only while it is busy."""

    __slots__ = ("data", "live")

    def __init__(self, data: bytes | None, live: Execution | None = None) -> None:
        self.data = data
        self.live = live

    def execution(self, exid: str) -> Execution:
        """Return the decoded form; a new execution if there is none yet."""
        if self.live is not None:
            return self.live
        if self.data is None:
            return Execution(exid, *parts_of(exid))
        return decode(self.data)


class FlowKind:
    """Runs flows. One for each engine; its methods run in whatever thread the engine has."""

    name = KIND

    def __init__(
        self,
        *,
        now: Callable[[], float],
        directory: Directory | None = None,
        loader: Loader | None = None,
        exists: Callable[[str], bool] = lambda _exid: True,
        max_messages: int = MAX_MESSAGES,
        history: bool = True,
    ) -> None:
        """Take what a run needs besides messages.

        Args:
            now: seconds since the epoch.
            directory: who can be given tasks.
            loader: where variables of domains and subflows come from.
            exists: tells whether there is an execution of an id; what is sent to others is lost.
            max_messages: that one run processes, at most.
            history: whether every message is kept.

        """
        self._now = now
        self._procedures = all_procedures()
        self.directory = directory or Directory()
        self._loader = loader or NoLoader()
        self._exists = exists
        self._max_messages = max_messages
        self.keeps_history = history
        self._random = random.Random()  # noqa: S311 - for flows that roll dice
        self._wide: dict[str, Execution] = {}  # those whose traps watch other executions

    def options(self, _execution: str) -> dict[str, Any]:
        """Give the options of the live worker: messages in the order in which they came."""
        return {"behaviour": Queue}

    def decode(self, data: bytes | None) -> FlowState:
        """Take stored bytes; they are decoded when they are needed."""
        return FlowState(data)

    def encode(self, state: FlowState) -> bytes:
        """Give the bytes of a state. O(1): the run made them."""
        if state.data is None:
            msg = "an execution that never ran has no bytes"
            raise ValueError(msg)
        return state.data

    # -- running ------------------------------------------------------------------------------

    def run(
        self, execution: str, state: FlowState, batch: list[Any], keep_going: Callable[[], bool]
    ) -> Outcome:
        """Process messages until nothing is left, or the budget is used up."""
        before = state.execution(execution)
        messages = [message for body in batch for message in self._messages(before, body)]
        run = Run(
            before,
            procedures=self._procedures,
            now=self._now(),
            loader=self._loader,
            taskers=self.directory,
            rng=self._random,
        )
        recorder = Recorder(run) if self.keeps_history else None
        started = perf_counter()
        out = process(
            run,
            messages,
            self._max_messages,
            keep_going,
            recorder,
        )
        if recorder is not None:
            recorder.fields = {
                "at": run.now,
                "took": perf_counter() - started,
                "size_before": len(state.data or b""),
            }
        return self._outcome(before, out, recorder)

    def _outcome(self, before: Execution, out: FlowOutcome, recorder: Recorder | None) -> Outcome:
        after = out.state
        data = encode(after)
        outcome = Outcome(
            state=FlowState(data, after if out.leftover else None),
            status=_status(out),
            timers=[
                SetTimer(timer.id, timer.at, timer.trigger(after.exid)) for timer in out.timers
            ],
            cancelled_timers=out.cancelled_timers,
            # What is left over is sent anew, and so taken together with what came meanwhile: a
            # cancel has to reach a loop that never ends by itself.
            messages=[Outgoing(after.exid, one) for one in out.leftover],
        )
        for one in out.signals:
            if self._reaches(one):
                outcome.messages.append(Outgoing(one["exid"], one))
        self._tasks(before, out, outcome)
        if after.traps or self._wide:
            self._watch(after, out, outcome)
        for echo in out.echoes:
            log.info("echo", execution=after.exid, **echo)
        for refusal in out.refused:
            log.info("message refused", execution=after.exid, error=str(refusal.error))
        if recorder is not None:
            refused = [str(refusal.error) for refusal in out.refused]
            outcome.history.append(
                recorder.entry(
                    counters=after.counters,
                    nodes=len(after.nodes),
                    size=len(data),
                    traps=len(after.traps),
                    traces=out.traces,
                    refused=refused,
                )
            )
        return outcome

    def _reaches(self, message: Message) -> bool:
        if self._exists(message["exid"]):
            return True
        log.warning("signal for nobody", execution=message["exid"], name=message.get("name"))
        return False

    # -- tasks --------------------------------------------------------------------------------

    def _messages(self, state: Execution, body: dict[str, Any]) -> Iterable[Message]:
        """Return the message that a stored body stands for; answers of taskers are translated."""
        if "point" in body:
            if type(body.get("tree")) is bytes:  # a launch: trees are shared between executions
                return ({**body, "tree": tree_from(body["tree"])},)
            return (body,)
        nid, m = _task_place(body["task"], state.exid)
        node = state.nodes.get(nid)
        handed = None if node is None else node.own.get("handed")
        if node is None or handed is None or handed[0] != m:
            log.info("answer refused: nobody waits for it", task=body["task"])
            return ()
        message: Message = {"exid": state.exid, "nid": nid, "tasker": handed[1]}
        if body["ok"]:
            return ({**message, "point": "return", "payload": body["value"]},)
        error = {"kla": body["error"]["kind"], "msg": body["error"]["message"]}
        payload = _payload_at_task(node)
        return (
            {
                **message,
                "point": "failed",
                "from": nid,
                "payload": payload,
                "fpoint": "task",
                "fm": m,
                "error": error,
            },
        )

    def _tasks(self, before: Execution, out: FlowOutcome, outcome: Outcome) -> None:
        """Hand out what is new; take back what was cancelled, or whose node is gone."""
        after, directory = out.state, self.directory
        given_back: dict[str, Message] = {}
        for message in out.tasks:
            nid = message["nid"]
            node = after.nodes.get(nid)
            found = directory.resolve(after.domain, message["tasker"])
            if node is None or found is None:
                continue  # ended in this very run
            handed = node.own.get("handed")
            if handed is None:
                if message["point"] == "detask":
                    given_back[nid] = message  # failed before anybody had it
                continue
            if message["point"] == "detask":
                if directory.is_cancellable(found) and not node.own.get("answered"):
                    given_back[nid] = message
            elif handed[0] == message["m"] and node.state is None:
                wants = directory.wants_variables(found)
                variables = visible_variables(after.nodes, node) if wants else None
                body = task_body(message, variables)
                outcome.tasks.append(NewTask(task_id(after.exid, nid, handed[0]), found, body))
            elif handed[0] == message["m"]:
                given_back.setdefault(nid, message)  # cancelled before anybody had it
        for nid, message in given_back.items():
            outcome.messages.append(Outgoing(after.exid, _given_back(after.nodes[nid], message)))
        self._forget_tasks(before, out, outcome, given_back)

    def _forget_tasks(
        self, before: Execution, out: FlowOutcome, outcome: Outcome, given_back: dict[str, Message]
    ) -> None:
        """Have the engine forget the tasks that nobody waits for any more."""
        after = out.state
        answered: set[str] | None = None
        for nid, node in before.nodes.items():
            handed = node.own.get("handed")
            if handed is None or node.own.get("answered"):
                continue
            if answered is None:
                answered = {one["nid"] for one in out.messages if one["point"] in _ANSWERS}
            if nid in answered:
                continue
            now = after.nodes.get(nid)
            if (
                now is None
                or now.own.get("handed") != handed
                or now.state == "ended"
                or (nid in given_back)
            ):
                outcome.cancelled_tasks.append(task_id(after.exid, nid, handed[0]))

    # -- traps that watch other executions ------------------------------------------------------

    def _watch(self, after: Execution, out: FlowOutcome, outcome: Outcome) -> None:
        wide = [trap for trap in after.traps if trap.get("range") in _WIDE]
        if wide:
            self._wide[after.exid] = Execution(after.exid, after.domain, traps=wide)
        elif self._wide:
            self._wide.pop(after.exid, None)
        for owner in list(self._wide.values()):
            if owner.exid == after.exid:
                continue
            for message in out.messages:
                outcome.messages.extend(
                    Outgoing(owner.exid, trigger)
                    for trigger in traps.triggers_from_elsewhere(owner, message, after.domain)
                )

    def find_wide_traps(self, store: Store) -> None:
        """Look through a store for traps that watch other executions. O(active executions)."""
        for row in store.rows("executions"):
            if row.kind != KIND or not row.state or b"range" not in row.state:
                continue
            if row.status in {EngineStatus.DONE, EngineStatus.CANCELLED}:
                continue
            state = decode(row.state)
            wide = [trap for trap in state.traps if trap.get("range") in _WIDE]
            if wide:
                self._wide.setdefault(row.id, Execution(row.id, state.domain, traps=wide))


def _status(out: FlowOutcome) -> EngineStatus:
    if out.status is Status.ACTIVE:
        return EngineStatus.ACTIVE
    if out.status is Status.FAILED:
        return EngineStatus.FAILED
    return EngineStatus.CANCELLED if out.state.cancelled else EngineStatus.DONE


def _payload_at_task(node: Node) -> dict[str, Any]:
    """Return the payload that a task was handed out with."""
    ret = node.payload.get("ret")
    if node.atts:
        key, value = node.atts[-1]
        ret = value if key is None else None
    return {**node.payload, "ret": ret}


def _given_back(node: Node, message: Message) -> Message:
    """Return the answer to a task that its tasker does not have to give any more."""
    answer: Message = {
        "point": "return",
        "exid": message["exid"],
        "nid": node.nid,
        "tasker": (node.own.get("handed") or [None, message["tasker"]])[1],
        "payload": message["payload"],
    }
    if message.get("cause"):
        answer["cause"] = message["cause"]
    return answer
