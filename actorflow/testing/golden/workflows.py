"""Golden histories of workflows: take every step again and compare the whole state after each."""

from __future__ import annotations

import copy
import json
import math
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from actorflow.testing.golden.described_workflows import LiveDecider
from actorflow.testing.golden.notation import NotationRaised, Scope, interpret, step_call
from actorflow.testing.golden.values import FlowDifference
from actorflow.workflows.agent.cursor import DecisionCursor
from actorflow.workflows.agent.wire import BRANCH_FIELDS, fields_of, read_answer
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance import state as stored
from actorflow.workflows.instance.instance import Instance
from actorflow.workflows.instance.state import BranchType, StepType
from actorflow.workflows.suspended.properties import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actorflow.workflows.instance.decision import StepCall

Json = Any

_PARTS = ("decisions", "agent_trace", "sent", "state")
"""What a step may expect."""
_STATUS_FIELDS = (
    "branch_key",
    "position",
    "status",
    "completion_index",
    "output",
    "sync",
    "type",
    "name",
    "input",
    "error",
    "released_index",
)


class _Message(msgspec.Struct, frozen=True):
    do: str = ""
    at: float = 0
    work: str | None = None
    name: str | None = None
    error: Json = None


_Methods = dict[str, list[dict[str, Json]]]


class _Action(_Message, frozen=True):
    messages: list[_Message] | None = None
    methods: _Methods | None = None


class _Workflow(msgspec.Struct, frozen=True):
    name: str = ""
    properties: dict[str, Json] = {}
    methods: _Methods = {}


class _Shape(msgspec.Struct, frozen=True):
    """The types of the values in a file. A missing field is noticed when it is read."""

    workflow: _Workflow = _Workflow()
    actions: list[_Action] = []
    steps: list[dict[str, Json]] = []


def _read(path: Path) -> Json:
    """Return the content of a file.

    Raises:
        ValueError: it is not JSON, or a part of it has another type.

    """
    data = json.loads(path.read_text(encoding="utf-8"))
    msgspec.convert(data, _Shape)
    return data


class BranchDecider(Protocol):
    """What executes the branches of a decision."""

    def deploy(self, methods: dict[str, Json]) -> None:
        """Use this code from now on."""

    def restored(self) -> None:
        """Drop the state in memory, as if the process were another one."""

    def close(self) -> None:
        """Stop everything that was started."""

    def decide(self, instance: Instance, at: float) -> tuple[m.Received, Json]:
        """Take the ongoing decision; return the answer to it, and its trace or `None`."""


class ScriptDecider:
    """Replays every branch from its start, as a script does over HTTP: it only knows the agent."""

    def __init__(self, methods: dict[str, Json]) -> None:
        self._methods = methods

    def deploy(self, methods: dict[str, Json]) -> None:
        """Use this code from now on."""
        self._methods = methods

    def restored(self) -> None:
        """Forget nothing: there is nothing."""

    def close(self) -> None:
        """Stop nothing: there is nothing."""

    def decide(self, instance: Instance, at: float) -> tuple[m.Received, Json]:
        """Take the ongoing decision; return the answer to it, and every call with its reply."""
        cursor = DecisionCursor(instance)
        trace: list[Json] = []
        while given := _over_the_wire(cursor.next_branch()):
            _note(trace, "GET branch", None, given)
            try:
                _ScriptedBranch(cursor, given, trace).run(self._methods)
            except (_Modified, NotationRaised) as error:
                kind = "modified" if isinstance(error, _Modified) else "failed"
                body = {"branch_key": given["branch"]["key"], "kind": kind}
                _note(trace, "POST error", body, {})
                return read_answer(cursor.broken(body), cursor.uuid, at), trace
        _note(trace, "GET branch", None, {})
        return read_answer(cursor.completed(), cursor.uuid, at), trace


class _Modified(Exception):
    """The agent says that the code was modified."""


class _ScriptedBranch:
    """One execution of a branch by a script: each call and its reply go into the trace."""

    def __init__(self, cursor: DecisionCursor, given: Json, trace: list[Json]) -> None:
        self._cursor = cursor
        self._trace = trace
        self._branch = given["branch"]
        self._properties = copy.deepcopy(given["properties"])

    def run(self, methods: dict[str, Json]) -> None:
        """Execute the branch until it waits or ends."""
        operations = methods.get(self._branch["type"], [])
        code = interpret(operations, Scope(self._properties, self._branch))
        outputs: list[Json] | None = None
        ended: dict[str, Json] = {}
        try:
            for number in count():
                call = code.send(outputs)
                outputs = self._execute(
                    [
                        step_call(step, f"{number}.{at}", sync=call.sync)
                        for at, step in enumerate(call.steps)
                    ]
                )
                if not call.sync:
                    # Never bound, not even once complete: replays would see another value.
                    outputs = None
                elif outputs is None:
                    break
        except StopIteration as stop:
            if stop.value is not None or self._branch["type"] == BranchType.HANDLE:
                ended = {"output": stop.value}
        body = {"properties": self._properties, **ended}
        reply = self._cursor.finish_branch(**_over_the_wire(body))
        _note(self._trace, "POST branch", body, reply)

    def _execute(self, steps: list[StepCall]) -> list[Json] | None:
        body = [_call_body(step) for step in steps]
        reply = _over_the_wire(self._cursor.execute(_over_the_wire(body)))
        _note(self._trace, "POST execute", body, reply)
        if reply["status"] == "modified":
            raise _Modified
        if reply["status"] == "scheduled":
            return None
        if "properties" in reply and all(step.sync for step in steps):
            self._properties.clear()
            self._properties.update(reply["properties"])
        outputs: list[Json] = reply["outputs"]
        return outputs


def _over_the_wire(value: Json) -> Json:
    """Return what arrives at the other end."""
    return json.loads(json.dumps(value))


def _note(trace: list[Json], call: str, body: Json, reply: Json) -> None:
    trace.append(copy.deepcopy({"call": call, "body": body, "reply": reply}))


class GoldenWorkflow:
    """One golden history.

    Args:
        path: of the file.
        decider: makes what executes the branches, from the methods.

    """

    def __init__(self, path: Path, decider: Callable[[Json], BranchDecider]) -> None:
        data = _read(path)
        self._workflow = data["workflow"]
        self._actions = data["actions"]
        self._steps = data["steps"]
        if not self._actions or self._actions[0]["do"] != "start":
            msg = "the first action must be `start`"
            raise ValueError(msg)
        if len(self._actions) != len(self._steps):
            msg = f"there are {len(self._actions)} actions and {len(self._steps)} steps"
            raise ValueError(msg)
        if not any(part in step for step in self._steps for part in _PARTS):
            msg = "no step expects anything, so nothing would be compared"
            raise ValueError(msg)
        self._make = decider

    def check(self) -> FlowDifference | None:
        """Return the first difference, or `None`."""
        decider = self._make(self._workflow)
        try:
            return self._first_difference(Player(self._workflow, decider))
        finally:
            decider.close()

    def _first_difference(self, player: Player) -> FlowDifference | None:
        for number, (action, step) in enumerate(zip(self._actions, self._steps, strict=True)):
            found = player.play(action)
            for part in _PARTS:
                if part not in step or (part == "agent_trace" and part not in found):
                    continue
                where = f"step {number} ({action['do']}) {part}"
                expected, ours = step[part], found.get(part, [])
                if part in ("decisions", "agent_trace"):
                    expected, ours = _comparable(expected), _comparable(ours)
                difference = _difference(where, expected, ours)
                if difference is not None:
                    return difference
        return None


class Player:
    """Plays actions on an instance."""

    def __init__(self, workflow: Json, decider: BranchDecider) -> None:
        self._workflow = workflow
        self._decider = decider
        self._instance: Instance | None = None

    @property
    def instance(self) -> Instance:
        """The instance; there is one after `start`."""
        assert self._instance is not None, "nothing was started"  # noqa: S101 - a failed check
        return self._instance

    def play(self, action: Json) -> Json:
        """Play one action; return what a step of a golden history records."""
        at = action["at"]
        found: dict[str, Json] = {}
        match action["do"]:
            case "start":
                properties = copy.deepcopy(self._workflow["properties"])
                name = self._workflow["name"]
                self._instance, sent = Instance.start(name, name, properties, at=at)
            case "deploy":
                self._decider.deploy(action["methods"])
                sent = self._pass_time(at)
            case "restore":
                self._instance = Instance(stored.decode(stored.encode(self.instance.state)))
                self._decider.restored()
                sent = self.instance.receive([m.Restore(at)], now=at)
            case "decide":
                sent = self._pass_time(at)
                sent += self._decide(at, found)
            case _:
                sent = self._pass_time(at)
                sent += self.instance.receive(_messages(action), now=at)
        # The state is stored before anything is sent: an unstorable state must fail here.
        found["sent"] = [job for each in sent if (job := _job(each)) is not None]
        found["state"] = state_of(self.instance)
        return found

    def _pass_time(self, at: float) -> list[m.Outgoing]:
        """Fire timers that are due before this moment; they do not wait for the next message."""
        due = any(
            wait.timestamp is not None and wait.timestamp < at for wait in self.instance.state.waits
        )
        return self.instance.receive([m.Tick(_just_before(at))], now=at) if due else []

    def _decide(self, at: float, found: dict[str, Json]) -> list[m.Outgoing]:
        if not self.instance.state.decision_ongoing:
            return []
        answer, trace = self._decider.decide(self.instance, at)
        if trace is not None:
            found["agent_trace"] = trace
        if isinstance(answer, m.DecisionBroken):
            status = "modified" if answer.modified else "failed"
            found["decisions"] = {"status": status, "error": answer.error}
        else:
            assert isinstance(answer, m.Completed)  # noqa: S101 - a failed check
            found["decisions"] = [_decision(decision) for decision in answer.decisions]
        return self.instance.receive([answer], now=at)


def _just_before(at: float) -> float:
    return math.nextafter(at, -math.inf)


def _messages(action: Json) -> list[m.Received]:
    if action["do"] == "batch":
        return [
            _message(message, message.get("at", action["at"])) for message in action["messages"]
        ]
    return [_message(action, action["at"])]


_MESSAGES: dict[str, Callable[[Json, float], m.Received]] = {
    "event": lambda action, at: m.EventSent(at, action["name"], action.get("input")),
    "started": lambda action, at: m.Started(at, action["work"], action.get("attempt")),
    "succeeded": lambda action, at: m.Succeeded(at, action["work"], action.get("output")),
    "failed": lambda action, at: m.StepHasFailed(at, action["work"], action["error"]),
    "timeout": lambda action, at: m.TimedOut(at, action["work"]),
    "retry": lambda action, at: m.RetryStep(at, action["work"]),
    "tick": lambda _, at: m.Tick(at),
    "pause": lambda _, at: m.Pause(at),
    "resume": lambda _, at: m.Resume(at),
    "kill": lambda _, at: m.Kill(at),
}


def _message(action: Json, at: float) -> m.Received:
    make = _MESSAGES.get(action["do"])
    if make is None:
        raise ValueError(f"unknown action {action['do']!r}")
    return make(action, at)


def state_of(instance: Instance) -> Json:
    """Return the part of a state that is compared."""
    state = instance.state
    return {
        "branches": [fields_of(branch, BRANCH_FIELDS) for branch in state.branches],
        "executions": list(state.executions),
        "ongoing_index": state.ongoing_index,
        "statuses": [fields_of(status, _STATUS_FIELDS) for status in state.statuses],
        "waits": [_in_words_of_the_seed(msgspec.to_builtins(wait)) for wait in state.waits],
        "properties": [msgspec.to_builtins(entry) for entry in state.properties],
        "buffer": [
            {**msgspec.to_builtins(action), "data": _in_words_of_the_seed(action.data)}
            for action in state.buffer
        ],
        "decision_mode": str(state.decision_mode),
        "decision_ongoing": state.decision_ongoing,
    }


def _job(sent: m.Outgoing) -> Json:
    """Return a message as golden histories show it; `None` if they do not show it."""
    match sent:
        case m.DecisionJob():
            return {
                "job": "decision",
                "ongoing_index": sent.ongoing_index,
                "ongoing_executions": sent.ongoing_executions,
            }
        case m.StepJob():
            job = {
                "job": str(sent.type),
                "work": sent.step,
                "name": sent.name,
                "input": sent.input,
                "timeout": sent.timeout,
            }
            return job | {"redelivery": True} if sent.redelivery else job
        case m.Ended() if not sent.killed:
            return {"job": "terminated", "output": sent.output}
        case _:
            return None


def _decision(decision: m.Decision) -> Json:
    match decision:
        case m.ScheduleStep():
            shown = {
                "type": f"schedule_{decision.type}",
                "branch_key": decision.branch_key,
                "index": decision.index,
                "position": decision.position,
                "sync": decision.sync,
                "task_name": decision.name,
                "task_input": decision.input,
                "task_timeout": decision.timeout,
            }
            if decision.type is StepType.WAIT:
                shown["event_name"] = decision.event
                shown["task_timeout"] = _limit(decision)
            return shown
        case m.UpdateProperties():
            return {
                "type": "update_properties",
                "key": decision.key,
                "values": decision.values,
            }
        case m.SetOutput():
            return {
                "type": "set_output",
                "branch_key": decision.branch_key,
                "output": decision.output,
            }
        case _:
            return msgspec.to_builtins(decision)


def _in_words_of_the_seed(data: Json) -> Json:
    """Return plain data in which a step is called a work."""
    return {"work" if name == "step" else name: value for name, value in data.items()}


def _limit(wait: StepCall | m.ScheduleStep) -> Json:
    if wait.duration is not None:
        return {"duration": wait.duration}
    return None if wait.timestamp is None else {"timestamp": wait.timestamp}


def _call_body(step: StepCall) -> Json:
    body = {
        "name": step.name,
        "input": step.input,
        "position": step.position,
        "sync": step.sync,
        "timeout": step.timeout,
        "type": str(step.type),
    }
    if step.type is StepType.WAIT:
        body["event"] = step.event
        body["timeout"] = _limit(step)
    return body


def _comparable(value: Json) -> Json:
    """Return decisions or a trace without what golden histories leave open."""
    if type(value) is list:
        return [_comparable(each) for each in value]
    if type(value) is not dict:
        return value
    if value.get("type") == "schedule_wait":
        # The index at which the code came to the wait has another origin in other implementations;
        # its consequences (`released_index`, the end of the wait) are compared.
        value = {name: part for name, part in value.items() if name != "reached"}
    # What an error says is for people.
    if value.get("kind") in ("failed", "modified"):
        return {"kind": value["kind"]}
    if value.get("status") == "failed" and "error" in value:
        return {"status": "failed"}
    return {name: _comparable(part) for name, part in value.items()}


def _difference(where: str, expected: Json, found: Json) -> FlowDifference | None:
    """Return the innermost first difference."""
    if type(expected) is dict and type(found) is dict:
        for name in sorted({*expected, *found}):
            if name not in expected or name not in found:
                return FlowDifference(
                    f"{where} {name}", expected.get(name, "(absent)"), found.get(name, "(absent)")
                )
            difference = _difference(f"{where} {name}", expected[name], found[name])
            if difference is not None:
                return difference
        return None
    if type(expected) is list and type(found) is list and len(expected) == len(found):
        for at, (one, other) in enumerate(zip(expected, found, strict=True)):
            difference = _difference(f"{where}[{at}]", one, other)
            if difference is not None:
                return difference
        return None
    equal = expected == found and (type(expected) is bool) == (type(found) is bool)
    return None if equal else FlowDifference(where, expected, found)


DECIDERS: dict[str, Callable[[Json], BranchDecider]] = {
    "scripted": lambda workflow: ScriptDecider(workflow["methods"]),
    "live": LiveDecider,
    "replayed": lambda workflow: LiveDecider(workflow, forget=True),
}
"""Whatever executes the branches, the history is the same."""


def property_names(described: Json) -> set[str]:
    """Return the names of all properties that a description uses."""
    if type(described) is list:
        return {name for part in described for name in property_names(part)}
    if type(described) is not dict:
        return set()
    found = {described["prop"]} if type(described.get("prop")) is str else set()
    if type(described.get("properties")) is dict:
        found |= set(described["properties"])
    return found | property_names(list(described.values()))


def check_history(path: Path) -> str | None:
    """Return the first difference of a history, with each way to execute its branches."""
    names = property_names(_read(path)["workflow"])
    for name, make in DECIDERS.items():
        if name != "scripted" and not RESERVED.isdisjoint(names):
            # Other languages may have a property with the name of a method of our workflows.
            continue
        difference = GoldenWorkflow(path, make).check()
        if difference is not None:
            return f"{name}: {difference}"
    return None


def check_file(path: Path) -> tuple[int, list[str]]:
    """Return how much of a golden file passes, and what fails."""
    difference = check_history(path)
    return (1, []) if difference is None else (0, [f"{path.name}: {difference}"])
