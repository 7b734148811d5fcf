"""Drives one execution of a flow, in memory and in virtual time, with scripted taskers.

The kinds of taskers are those of the golden data: hold, return, stamp, echo, boom, refuse,
stubborn, route. For tests of your own flows, too: nothing sleeps, nothing is stored, and every
message is kept as it was when it was processed.
"""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.flows.errors import UnknownTasker
from actorflow.flows.execution.codec import decode, encode
from actorflow.flows.execution.environment import Observer
from actorflow.flows.execution.loop import MAX_MESSAGES, run
from actorflow.flows.execution.node import ROOT
from actorflow.flows.execution.requests import (
    add_branches_message,
    add_elements_message,
    cancel_message,
    launch_message,
    re_apply_message,
    return_message,
    signal_message,
)
from actorflow.flows.execution.state import ExecutionState
from actorflow.flows.procedures.registry import all_procedures
from actorflow.flows.service.library import Library
from actorflow.flows.service.taskers import Directory
from actorflow.flows.values.values import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import RunOutcome
    from actorflow.flows.execution.state import FlowStatus
    from actorflow.flows.language.tree import Tree

NATO = ("alpha", "bravo", "alice", "bob")
NOW = 1_600_000_000.0
_ROUTERS = ("ganger", "tasker")


class ScriptedTaskers:
    """Taskers by name (``domain.name``) and kind; those named in `_ROUTERS` are routers."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = dict(kinds)
        self._directory = Directory()
        for name in kinds:
            self._directory = self._directory.with_tasker(name)
            domain, _, last = name.rpartition(".")
            if last in _ROUTERS:
                self._directory = self._directory.with_router(domain, _route)

    def kind(self, domain: str, name: str) -> str | None:
        """Return the kind of the tasker of that name in the deepest domain."""
        found = self._directory.resolve(domain, name)
        return None if found is None else self._kinds[found]

    def knows(self, domain: str, name: str) -> bool:
        """Return whether such a tasker is visible; where there is a router, all are."""
        return self._directory.knows(domain, name)

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Route a task; raise UnknownTasker, or the error of a broken tasker."""
        name = message["tasker"]
        try:
            routed = self._directory.offer(domain, message)
        except UnknownTasker:
            raise UnknownTasker(f'tasker "{name}" not found') from None
        if not routed and message["point"] == "task" and self.kind(domain, name) == "boom":
            raise RuntimeError(f"boom by {name}")
        return routed


def _route(task: Message) -> str | bool:
    name = task["tasker"]
    return "nato" if name in NATO else name != "nobody"


@dataclass
class Seen:
    """A processed message, the number of nodes after it, and the points it emitted."""

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
        loader: Library | None = None,
        max_messages: int = MAX_MESSAGES,
        exid: str = "EXID",
        keep: bool = True,
    ) -> None:
        """Prepare the launch; ``drive`` starts it. Without ``keep`` nothing is recorded."""
        self.state = ExecutionState(exid, domain, unit)
        self.taskers = ScriptedTaskers(taskers or {})
        self.loader = loader or Library()
        self.max_messages = max_messages
        self.keep = keep
        self.now = NOW
        self.inbox: list[Message] = [
            launch_message(exid, tree, payload=payload, variables=variables)
        ]
        self.seen: list[Seen] = []
        self.outcomes: list[RunOutcome] = []
        self.held: list[Message] = []
        self.traces: list[str] = []
        self.payload: Message | None = None
        self._rng = random.Random(0)  # noqa: S311 - no secret

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

    def status(self) -> FlowStatus:
        """Return the status of the execution."""
        return self.state.status

    def run_once(self) -> RunOutcome:
        """Do one run with the messages in the inbox."""
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
        """Keep a copy of a message."""
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
        self.inbox.append(return_message(self.state.exid, task["nid"], task["tasker"], payload))

    def cancel(self, nid: str = ROOT, *, kill: bool = False) -> None:
        """Cancel or kill a node."""
        self.inbox.append(cancel_message(self.state.exid, nid, kill=kill))

    def signal(self, name: str, payload: Message | None = None) -> None:
        """Signal the execution."""
        self.inbox.append(signal_message(self.state.exid, name, payload))

    def re_apply(self, nid: str, tree: Tree, payload: Message | None = None) -> None:
        """Cancel a node and execute a tree in its place."""
        self.inbox.append(re_apply_message(self.state.exid, nid, tree, payload))

    def add_branch(self, nid: str, tree: Tree) -> None:
        """Add a branch to a concurrence; ``nid`` is the id that the branch will have."""
        parent, _, at = nid.rpartition("_")
        self.inbox.append(add_branches_message(self.state.exid, parent, int(at), [tree]))

    def add_iteration(self, nid: str, elements: list[Any]) -> None:
        """Add elements to an iterator."""
        self.inbox.append(add_elements_message(self.state.exid, nid, elements))

    def fire_timers(self, *, count: int = 1, within: float = 60.0) -> int:
        """Advance the time to the next timers, up to ``count`` times; return how many fired."""
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
