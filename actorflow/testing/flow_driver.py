"""Drives one flow execution by hand, in memory and in virtual time, with scripted taskers.

The kinds of tasker are those of the golden data: hold, return, stamp, echo, boom, refuse, stubborn,
route. Useful for tests of flows, too: nothing sleeps, nothing is stored, every message is kept as
it was when it was processed.
"""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import UnknownTasker
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.environment import Observer
from actorflow.flows.execution.loop import MAX_MESSAGES, run
from actorflow.flows.execution.state import Execution, launch_message
from actorflow.flows.procedures.registry import all_procedures
from actorflow.flows.values.values import MISSING, to_text

if TYPE_CHECKING:
    from actorflow.flows.execution.outcome import Outcome
    from actorflow.flows.execution.state import Status

Message = dict[str, Any]
NATO = ("alpha", "bravo", "alice", "bob")
NOW = 1_600_000_000.0
_ROUTERS = ("ganger", "tasker")


def domains(domain: str) -> list[str]:
    """Return a domain and those above it, deepest first; the last is the empty one.

    >>> domains("a.b")
    ['a.b', 'a', '']
    """
    parts = domain.split(".") if domain else []
    return [".".join(parts[:size]) for size in range(len(parts), -1, -1)]


def qualified(domain: str, name: str) -> str:
    """Return a name as it is written for a domain."""
    return f"{domain}.{name}" if domain else name


@dataclass
class ScriptedTaskers:
    """Taskers by name (``domain.name``) and kind."""

    kinds: dict[str, str]

    def kind(self, domain: str, name: str) -> str | None:
        """Return the kind of the tasker that the deepest domain knows by that name."""
        for one in domains(domain):
            kind = self.kinds.get(qualified(one, name))
            if kind is not None:
                return kind
        return None

    def knows(self, domain: str, name: str) -> bool:
        """Tell whether such a tasker is visible; where somebody routes, anybody is."""
        return any(self.kind(domain, one) is not None for one in (name, *_ROUTERS))

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Route a task, refuse one for nobody, or raise what a broken tasker raises."""
        name = message["tasker"]
        if "routed" not in message and any(self.kind(domain, one) for one in _ROUTERS):
            routed = {key: value for key, value in message.items() if key not in ("m", "pr", "er")}
            routed["routed"] = name != "nobody"
            if name in NATO:
                routed.update(tasker="nato", original_tasker=name)
            return [routed]
        kind = self.kind(domain, name)
        if kind is None:
            raise UnknownTasker(f'tasker "{name}" not found')
        if kind == "boom" and message["point"] == "task":
            raise RuntimeError(f"boom by {name}")
        return []


@dataclass
class ScriptedLoader:
    """Domain variables and subflows by qualified name."""

    variables: dict[str, Any] = field(default_factory=dict)
    subflows: dict[str, Any] = field(default_factory=dict)

    def variable(self, domain: str, name: str) -> Any:
        """Return the variable that the deepest domain has."""
        for one in domains(domain):
            value = self.variables.get(qualified(one, name), MISSING)
            if value is not MISSING:
                return value
        return MISSING

    def subflow(self, domain: str, name: str) -> Any:
        """Return the subflow that the deepest domain has."""
        for one in domains(domain):
            tree = self.subflows.get(qualified(one, name))
            if tree is not None:
                return tree
        return None


@dataclass
class Seen:
    """A message as it was when processed, the number of nodes then, and what it emitted."""

    message: Message
    nodes: int
    emitted: list[str]


class FlowDriver(Observer):
    """One execution, its inbox, its taskers and its virtual clock."""

    def __init__(
        self,
        tree: Any,
        *,
        payload: Message | None = None,
        variables: Message | None = None,
        domain: str = "",
        unit: str = "",
        taskers: dict[str, str] | None = None,
        loader: ScriptedLoader | None = None,
        max_messages: int = MAX_MESSAGES,
        exid: str = "EXID",
        keep: bool = True,
    ) -> None:
        """Prepare the launch; ``drive`` starts it. Without ``keep`` nothing is recorded."""
        self.state = Execution(exid, domain, unit)
        self.taskers = ScriptedTaskers(taskers or {})
        self.loader = loader or ScriptedLoader()
        self.max_messages = max_messages
        self.keep = keep
        self.now = NOW
        self.inbox: list[Message] = [
            launch_message(exid, tree, payload=payload, variables=variables)
        ]
        self.seen: list[Seen] = []
        self.outcomes: list[Outcome] = []
        self.held: list[Message] = []
        self.traces: list[str] = []
        self.payload: Message | None = None
        self._rng = random.Random(0)

    # -- running ------------------------------------------------------------------------------

    def drive(self, limit: int = 10_000) -> FlowDriver:
        """Run until nothing is left to do; returns itself.

        Raises RuntimeError after ``limit`` runs.
        """
        for _ in range(limit):
            if not self.inbox:
                return self
            self.run_once()
        raise RuntimeError(f"the flow was still busy after {limit} runs")

    def status(self) -> Status:
        """Return where the execution stands."""
        return self.state.status

    def run_once(self) -> Outcome:
        """Do one run with what is in the inbox."""
        inbox, self.inbox = self.inbox, []
        outcome = run(
            self.state,
            inbox,
            procedures=all_procedures(),
            now=self.now,
            max_messages=self.max_messages,
            loader=self.loader,
            taskers=self.taskers,
            rng=self._rng,
            observer=self if self.keep else None,
        )
        self.state = decode(encode(outcome.state))
        if self.keep:
            self.outcomes.append(outcome)
        self.traces += [trace["text"] for trace in outcome.traces]
        if outcome.payload is not None:
            self.payload = outcome.payload
        for task in outcome.tasks:
            self._hand_out(task)
        self.inbox += json.loads(json.dumps(outcome.leftover))
        return outcome

    def observe(self, message: Message, emitted: list[Message], nodes: int) -> None:
        """Keep a message as it is now."""
        self.seen.append(Seen(copy.deepcopy(message), nodes, [one["point"] for one in emitted]))

    # -- taskers ------------------------------------------------------------------------------

    def _hand_out(self, task: Message) -> None:
        name = task["tasker"]
        kind = self.taskers.kind(self.state.domain, name)
        payload = dict(task["payload"])
        if task["point"] == "detask":
            if kind != "stubborn":
                self.held = [one for one in self.held if one["nid"] != task["nid"]]
                self._answer(task, payload)
            return
        if kind in ("hold", "stubborn"):
            self.held.append(task)
        elif kind == "refuse":
            error = {"kla": "RuntimeError", "msg": f"refused by {name}"}
            keys = ("exid", "nid", "from", "sm", "er", "tasker")
            kept: Message = {key: task[key] for key in keys if key in task}
            kept.update(point="failed", payload=payload, fpoint="task", fm=task["m"], error=error)
            self.inbox.append(kept)
        elif kind == "stamp":
            stamp = f"{name}/{to_text(task.get('taskname'))}"
            payload["stamps"] = [*payload.get("stamps", []), stamp]
            payload["ret"] = f"done by {name}"
            self._answer(task, payload)
        elif kind == "echo":
            payload["ret"] = {
                key: task.get(key) for key in ("tasker", "taskname", "attl", "attd", "tags")
            }
            self._answer(task, payload)
        else:
            self._answer(task, payload)

    def _answer(self, task: Message, payload: Message) -> None:
        message = {key: task[key] for key in ("exid", "nid", "tasker", "cause") if task.get(key)}
        self.inbox.append({**message, "point": "return", "payload": payload})

    # -- steps --------------------------------------------------------------------------------

    def put(self, point: str, **fields: Any) -> None:
        """Put a message from outside into the inbox."""
        self.inbox.append({"point": point, "exid": self.state.exid, **fields})

    def give_back(self, nid: str | None = None, *, changes: Message | None = None) -> None:
        """Return a held task (the first one, or the one at ``nid``) with its payload changed."""
        task = next((one for one in self.held if nid is None or one["nid"] == nid), None)
        if task is None:
            raise LookupError(f"no task is held at node {nid or '(any)'}")
        self.held.remove(task)
        payload = {**task["payload"], **(changes or {})}
        self.put("return", nid=task["nid"], tasker=task["tasker"], payload=payload)

    def cancel(self, nid: str = "0", *, kill: bool = False) -> None:
        """Cancel or kill a node."""
        self.put("cancel", nid=nid, **({"flavour": "kill"} if kill else {}))

    def signal(self, name: str, payload: Message | None = None) -> None:
        """Signal the execution."""
        self.put("signal", name=name, payload=payload or {})

    def re_apply(self, nid: str, tree: Any, payload: Message | None = None) -> None:
        """Cancel a node and execute a tree in its place."""
        execute: Message = {
            "point": "execute",
            "exid": self.state.exid,
            "nid": nid,
            "from": "parent",
            "tree": tree,
        }
        fields: Message = {} if payload is None else {"payload": payload}
        self.put("cancel", nid=nid, on_receive_last=[{**execute, **fields}], **fields)

    def add_branch(self, nid: str, tree: Any) -> None:
        """Give a concurrence one more branch, at ``nid``."""
        self.put("add", nid=nid.rpartition("_")[0], tnid=nid, trees=[tree])

    def add_iteration(self, nid: str, elements: list[Any]) -> None:
        """Give an iterator more elements."""
        self.put("add", nid=nid, elements=elements)

    def fire_timers(self, *, count: int = 1, within: float = 60.0) -> int:
        """Let time pass until timers are due.

        Return how many fired, at most ``count`` rounds of them.
        """
        horizon, fired = self.now + within, 0
        for _ in range(count):
            timers = sorted(self.state.timers.values(), key=lambda timer: timer.at)
            if not timers or timers[0].at > horizon:
                break
            self.now = max(self.now, float(math.ceil(timers[0].at)))
            for timer in timers:
                if timer.at <= self.now:
                    self.inbox.append(timer.trigger(self.state.exid))
                    fired += 1
            self.drive()
        return fired
