"""One run of an execution: messages in, a new state and messages out.

Pure with respect to the outside: no thread, no file, no clock, no randomness of its own. The state
that is given is not changed; a run whose commit is lost can be thrown away and done again on a
newer state.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import (
    FlowError,
    LimitExceeded,
    MessageRefused,
    UnknownProcedure,
    error_dict,
)
from actorflow.flows.execution import garbage, literal_attributes
from actorflow.flows.execution.environment import Loader, NoLoader, NoTaskers, Observer, Taskers
from actorflow.flows.execution.messages import (
    cancel,
    enter,
    failures,
    intake,
    leave,
    tasks,
    timers,
    traps,
)
from actorflow.flows.execution.node import ROOT, Message, Node, Payload, child_id, without_suffix
from actorflow.flows.execution.outcome import Outcome, Refusal
from actorflow.flows.execution.state import Execution, Status
from actorflow.flows.limits import LIMITS, Limits
from actorflow.flows.values.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from random import Random

    from actorflow.flows.execution.procedure import Procedure
    from actorflow.flows.language.tree import Tree
    from actorflow.flows.values.values import Value

MAX_MESSAGES = 77
_ASIDE = frozenset(("flank", "part"))
"""Answers that let the parent go on while the node stays."""


def run(
    state: Execution,
    messages: Iterable[Message],
    *,
    procedures: Mapping[str, type[Procedure]],
    now: float,
    max_messages: int = MAX_MESSAGES,
    keep_going: Callable[[], bool] | None = None,
    loader: Loader | None = None,
    taskers: Taskers | None = None,
    rng: Random | None = None,
    observer: Observer | None = None,
    limits: Limits = LIMITS,
) -> Outcome:
    """Process ``messages``, and what they lead to, in one FIFO.

    Return the new state and all that goes out.

    Stops when nothing is left, after ``max_messages``, or when ``keep_going()`` (asked before each
    message but the first) says no; what is then left over is in the outcome. ``procedures`` finds
    them by name; ``observer`` is told of each message after it was processed. Never raises for what
    the flow does: that becomes a ``failed`` message; nor for a message that makes no sense: that is
    refused.
    """
    one = Run(
        state,
        procedures=procedures,
        now=now,
        loader=loader or NoLoader(),
        taskers=taskers or NoTaskers(),
        rng=rng,
        limits=limits,
    )
    return one.go(messages, max_messages, keep_going, observer)


class Run:
    """The machinery of one run. Procedures use its public methods; nobody else needs it."""

    def __init__(
        self,
        state: Execution,
        *,
        procedures: Mapping[str, type[Procedure]],
        now: float,
        loader: Loader,
        taskers: Taskers,
        rng: Random | None,
        limits: Limits = LIMITS,
    ) -> None:
        """Take a state; it is forked node by node as nodes are touched."""
        self.procedures = procedures
        self.exid = state.exid
        self.domain = state.domain
        self.now = now
        self.loader = loader
        self.taskers = taskers
        self.rng = rng
        self.limits = limits
        self.sizes = Sizes(limits)
        self.is_full = state.stored > limits.state
        self.most_nodes = 0 if self.is_full else limits.nodes
        self.nodes: dict[str, Node] = dict(state.nodes)
        self.counters = dict(state.counters)
        self.traps = list(state.traps)
        self.timers = dict(state.timers)
        self.orphans = list(state.orphans)
        self.trees: dict[str, Tree] = {}
        self.fresh_functions: dict[int, Value] = {}
        self.applied: dict[str, Value] = {}
        self.many_functions = False
        self.queue: deque[Message] = deque()
        self.mine: set[str] = set()
        self._state = state
        self.terminated = state.terminated
        self.cancelled = state.cancelled
        self.out = Outcome(state, Status.ACTIVE)

    # -- the loop -----------------------------------------------------------------------------

    def go(
        self,
        messages: Iterable[Message],
        max_messages: int,
        keep_going: Callable[[], bool] | None,
        observer: Observer | None,
    ) -> Outcome:
        """Run the loop and close the books."""
        queue = self.queue
        queue.extend(self._taken(messages))
        incoming = len(queue)
        counters = self.counters
        runs = counters["runs"] = max(counters.get("runs", 0), 0) + 1
        history = self.out.messages
        exid = self.exid
        processed = 0
        while queue and processed < max_messages:
            if processed and keep_going is not None and not keep_going():
                break
            message = queue.popleft()
            if queue:
                if message["point"] == "terminated":
                    queue.append(message)
                    message = queue.popleft()
            if incoming:
                incoming -= 1
                if "er" not in message and (why := intake.fault(self, message)) is not None:
                    self.refuse(message, why)
                    continue
            if (
                message["point"] == "execute"
                and not queue
                and (passed := self._process_plain(message, max_messages - processed, observer))
            ):
                processed += passed
                continue
            processed += 1
            emitted = self.process(message, runs)
            history.append(message)
            for one in emitted:
                one["er"] = message.get("er") if "fm" in one else runs
                if one["exid"] == exid:
                    queue.append(one)
                else:
                    self.out.signals.append(one)
            if observer is not None:
                observer.observe(message, emitted, len(self.nodes))
        if processed:
            counters["omsgs"] = counters.get("omsgs", 0) + len(self.out.signals)
        return self._finish()

    def _taken(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield copies of the messages; refuse what is none, or of a point that there is not."""
        for message in messages:
            if type(message) is not dict:
                self.refuse({"point": None, "given": message}, "it is not an object")
            elif (why := intake.bad_point(message)) is not None:
                self.refuse(message, why)
            else:
                yield message.copy()

    def _process_plain(self, message: Message, room: int, observer: Observer | None) -> int:
        """Process plain attributes, if that is what is executed; return how many messages."""
        if room < literal_attributes.LEAST or not literal_attributes.is_plain(message.get("tree")):
            return 0
        passed = literal_attributes.evaluate(self, message, room)
        if not passed:
            return 0
        if observer is not None:
            observer.observe_plain(passed, len(self.nodes) - 1)
        self.queue.append(passed.pop())
        self.out.messages += passed
        return len(passed)

    def process(self, message: Message, runs: int) -> list[Message]:
        """Give a message its number, do what it says, and return what comes of it."""
        counters = self.counters
        message["m"] = counters["msgs"] = counters.get("msgs", 0) + 1
        message["pr"] = runs
        point = message["point"]
        try:
            if point == "execute":
                enter.create_node(self, message)
            elif point == "trigger" or point == "cancel":  # noqa: PLR1714 - faster than a tuple
                cancel.add_cause(self, message)
            triggered = traps.matching(self, message) if self.traps else None
            handler = _POINTS.get(point)
            out = handler(self, message) if handler is not None else []
            return triggered + out if triggered else out
        except Exception as error:  # noqa: BLE001 - whatever a procedure does wrong is the flow's failure
            return self._failure(message, error)

    def _finish(self) -> Outcome:
        out = self.out
        garbage.drop_what_is_gone(self, out)
        old = self._state
        collect_at = garbage.collect_closures(self, old.collect_at, self.queue)
        end = old.end
        if self.terminated and not old.terminated:
            end = self.now
        start = self.now if old.start is None else old.start
        out.state = Execution(
            self.exid,
            old.domain,
            old.unit,
            self.nodes,
            self.counters,
            self.traps,
            self.timers,
            self.orphans,
            start,
            end,
            None if end is None else end - start,
            self.terminated,
            collect_at,
            old.payload if out.payload is None else out.payload,
            self.cancelled,
        )
        out.leftover = list(self.queue)
        out.status = out.state.status
        return out

    # -- nodes --------------------------------------------------------------------------------

    def find(self, nid: str) -> Node | None:
        """Return a node that may be changed, or None when it is gone."""
        node = self.nodes.get(nid)
        if node is None or nid in self.mine:
            return node
        node = self.nodes[nid] = node.fork()
        self.mine.add(nid)
        return node

    def touch(self, nid: str) -> Node:
        """Return a node that may be changed. Raises FlowError when it is gone."""
        node = self.find(nid)
        if node is None:
            raise FlowError(f"node {nid} is gone")
        return node

    def tree_of(self, node: Node) -> Tree:
        """Return the tree of a node, which may be kept in one of its ancestors."""
        below: list[str] = []
        tree = self.trees.get(node.nid) or node.tree
        while tree is None:
            below.append(node.nid)
            parent = self.nodes.get(node.parent or "")
            if parent is None:
                raise FlowError(f"node {node.nid} has lost its tree")
            node = parent
            tree = self.trees.get(node.nid) or node.tree
        for nid in reversed(below):
            tree = tree[1][child_id(nid)]
            self.trees[nid] = tree
        return tree

    def next_sub(self) -> int:
        """Return a new number for a pass through a subtree."""
        number = self.counters["subs"] = self.counters.get("subs", 0) + 1
        return number

    def next_fun(self) -> int:
        """Return a new number for a function."""
        number = self.counters.get("funs", 0)
        self.counters["funs"] = number + 1
        return number

    def check_room(self, more: int) -> None:
        """Raise LimitExceeded when there is no room for more nodes, those on their way included."""
        if self.is_full:
            raise LimitExceeded(
                f"the execution is stored in {self._state.stored:,} bytes, and may have"
                f" {self.limits.state:,}: it starts no new nodes"
            )
        nodes = len(self.nodes) + len(self.queue) + more
        if nodes > self.limits.nodes:
            raise LimitExceeded(
                f"the execution would have {nodes:,} nodes at once, and may have"
                f" {self.limits.nodes:,}"
            )

    def remove(self, nid: str) -> None:
        """Forget a node."""
        self.nodes.pop(nid, None)
        self.trees.pop(nid, None)

    def close(
        self, node: Node, message: Message, *, flavour: str | None = None, handled: bool = False
    ) -> None:
        """Mark a node as closed by ``message``.

        It hears its children out and starts nothing new.
        """
        status: dict[str, Any] = {"status": "closed", "point": message["point"], "m": message["m"]}
        flavour = flavour or message.get("flavour")
        if flavour:
            status["flavour"] = flavour
        if message.get("from"):
            status["from"] = message["from"]
        if handled:
            status["handled"] = True
        if node.status and node.status[-1].get("m") == message["m"] and node.state != "ended":
            node.status.pop()
        node.status.append(status)

    def reopen(self, node: Node) -> None:
        """Take back the last closing."""
        node.status.clear()

    def describe(self) -> dict[str, Any]:
        """Return what ``exe.`` paths can read."""
        return {
            "exid": self.exid,
            "domain": self.domain,
            "unit": self._state.unit,
            "counters": dict(self.counters),
            "start": self._state.start,
        }

    # -- execute ------------------------------------------------------------------------------

    def execute(self, message: Message) -> list[Message]:
        """Enter a node."""
        node = self.nodes[message["nid"]]
        procedure = self.procedures[node.heap or ""](self, node, message, message["tree"])
        out = procedure.execute()
        message["payload"] = procedure.payload
        return out

    # -- receive ------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[Message]:
        """Leave the node that answers, and let the one it answers to go on."""
        came_from, nid = message.get("from"), message.get("nid")
        out: list[Message] = []
        if came_from is not None and not message.get("virtual"):
            child = self.nodes.get(came_from)
            if child is None or (child.status and child.state == "ended"):
                return self._receive_stale(message, came_from, nid)
            if message.get("flavour") not in _ASIDE:
                out = leave.leave(self, child, message)
        if nid is None:
            if message.get("flavour") == "flank":
                return out
            return [*out, self._end_message(message, came_from)]
        node = self.find(nid)
        if node is None:
            if message.get("tasker"):
                self.refuse(message, f"the task at node {nid} was given back already, or cancelled")
            return out
        if node.status and node.state == "ended":
            if came_from in node.cnodes:
                node.cnodes.remove(came_from)
            return out
        procedure = self.procedure_for(node, message)
        emitted = procedure.receive_message()
        message["payload"] = procedure.payload
        return out + emitted if out else emitted

    def _receive_stale(self, message: Message, came_from: str, nid: str | None) -> list[Message]:
        """Take the answer of a node that is gone or has ended: it changes nothing."""
        if nid is None and came_from != ROOT:
            return [self._end_message(message, came_from)]
        if nid is None or nid in self.nodes:
            self.refuse(message, f"node {came_from} is not a live child of node {nid}")
        return []

    def procedure_for(self, node: Node, message: Message) -> Procedure:
        """Return the procedure in charge of a node.

        Raises UnknownProcedure when it has none (any more).
        """
        cls = self.procedures.get(node.heap or "")
        if cls is None:
            raise UnknownProcedure(f'no procedure "{node.heap or node.heat0}" for node {node.nid}')
        return cls(self, node, message, self.tree_of(node))

    def refuse(self, message: Message, why: str) -> None:
        """Note that a message has no effect, and why."""
        self.out.refused.append(
            Refusal(message, MessageRefused(f"{message.get('point')} refused: {why}"))
        )

    def _end_message(self, message: Message, came_from: str | None) -> Message:
        point = "terminated" if came_from == ROOT else "ceased"
        return self.follow(message, point, None, came_from)

    def follow(
        self, message: Message, point: str, nid: str | None, came_from: str | None
    ) -> Message:
        """Return a message that follows from ``message``, with its payload and its causes."""
        emitted: Message = {
            "point": point,
            "exid": self.exid,
            "nid": nid,
            "from": came_from,
            "sm": message["m"],
        }
        emitted["payload"] = message.get("payload")
        if message.get("cause"):
            emitted["cause"] = message["cause"]
        return emitted

    # -- functions ----------------------------------------------------------------------------

    def apply(
        self,
        procedure: Procedure,
        function: Value,
        arguments: list[list[Any]],
        *,
        payload: Payload | None = None,
        sub: int | None = None,
        line: int | None = None,
        **fields: Any,
    ) -> Message:
        """Return the message that executes a function's body on behalf of a procedure's node."""
        if type(function) is not list or function[0] != "_func":
            raise FlowError(f"cannot apply {function!r}: it is not a function")
        data = function[1]
        tree = data["tree"]
        if tree[0] == "define" and tree[1][0][0] == "_att":
            tree = [tree[0], [["_name", *tree[1][0][1:]], *tree[1][1:]], *tree[2:]]
            if id(function) in self.fresh_functions:
                data["tree"] = tree
        number = self.next_sub() if sub is None else sub
        emitted = procedure.wrap("execute", f"{without_suffix(data['nid'])}-{number}")
        emitted["tree"] = ["_apply", tree[1], procedure.tree[2] if line is None else line]
        emitted["cnid"] = data["cnid"]
        emitted["arguments"] = arguments
        self.applied[emitted["nid"]] = function
        if payload is not None:
            emitted["payload"] = payload
        emitted.update(fields)
        return emitted

    # -- ends ---------------------------------------------------------------------------------

    def _failure(self, message: Message, error: BaseException) -> list[Message]:
        """Turn an error into a failed message; an error about a failure only is noted, once."""
        if message["point"] != "failed":
            return [self.failed_message(message, error)]
        message["unhandled"] = str(error)
        return []

    def failed_message(self, message: Message, error: BaseException) -> Message:
        """Return the failed message that stands for everything ``message`` would have emitted."""
        emitted: Message = {"exid": self.exid}
        for key in ("from", "nid", "sm", "payload", "tree", "tasker"):
            if message.get(key) is not None:
                emitted[key] = message[key]
        node = self.nodes.get(message.get("nid") or "")
        line = None
        if node is not None:
            tree = self.trees.get(node.nid) or node.tree
            line = tree[2] if tree is not None else None
        described = error_dict(error, procedure=None if node is None else node.heat0, line=line)
        emitted.update(point="failed", fpoint=message["point"], fm=message["m"], error=described)
        return emitted

    def trace(self, nid: str, text: str) -> None:
        """Keep a trace for the commit."""
        self.out.traces.append({"nid": nid, "text": text})


_POINTS: dict[str, Callable[[Run, Message], list[Message]]] = {
    "execute": Run.execute,
    "receive": Run.receive,
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
}
