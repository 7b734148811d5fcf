"""Golden data of flows: runs a recorded flow again and compares it, message by message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.loop import MAX_MESSAGES
from actorflow.flows.language.parser import parse
from actorflow.flows.service.library import Library
from actorflow.testing.flow_driver import FlowDriver, Seen
from actorflow.testing.golden.values import (
    RECORDED_FLOW_ERROR,
    FlowDifference,
    comparable,
    loosen,
    plain_tree,
    same_errors,
    short,
    subset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actorflow.flows.execution.node import Node

Json = Any

OPTIONAL_FIELDS = [
    "accept_symbol",
    "arguments",
    "attd",
    "attl",
    "bnid",
    "cause",
    "cnid",
    "disable",
    "disabled",
    "elements",
    "error",
    "flavour",
    "fm",
    "fpoint",
    "from_on",
    "from_on_error",
    "message",
    "name",
    "on_error",
    "on_receive_last",
    "original_tasker",
    "orl",
    "rewritten",
    "routed",
    "rvars",
    "schedule",
    "string",
    "tags",
    "tasker",
    "taskname",
    "tnid",
    "trap",
    "trees",
    "type",
    "vars",
]
SOUND = "sound"
LEFT_BEHIND = frozenset(("nodes", "runs", "status", "failures"))
QUIRKS = {
    "failed before getting a procedure": LEFT_BEHIND,
    "compared as text": frozenset(("order",)),
}
"""Words of a quirk text, and what they excuse; other quirks excuse everything except soundness."""


def _give_back(driver: FlowDriver, step: Json) -> None:
    changes = dict(step.get("set") or {})
    if "ret" in step:
        changes["ret"] = step["ret"]
    driver.give_back(step.get("nid"), changes=changes)


_STEPS: dict[str, Callable[[FlowDriver, Json], object]] = {
    "return": _give_back,
    "raw_return": lambda driver, step: driver.put(
        "return", nid=step["nid"], tasker=step["tasker"], payload=step["payload"]
    ),
    "cancel": lambda driver, step: driver.cancel(step.get("nid", "0")),
    "kill": lambda driver, step: driver.cancel(step.get("nid", "0"), kill=True),
    "signal": lambda driver, step: driver.signal(step["name"], step.get("payload")),
    "re_apply": lambda driver, step: driver.re_apply(
        step["nid"], parse(step["tree"]), step.get("payload")
    ),
    "add_branch": lambda driver, step: driver.add_branch(step["nid"], parse(step["tree"])),
    "add_iteration": lambda driver, step: driver.add_iteration(step["nid"], step["elements"]),
    "timers": lambda driver, step: driver.fire_timers(count=step.get("count", 1)),
}
"""The steps after the launch."""


# -- one flow --------------------------------------------------------------------------------


class GoldenFlow:
    """One golden file: runs it and returns the first difference."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ValueError if it is not JSON."""
        self.path = path
        self.data = json.loads(path.read_text(encoding="utf-8"))
        self.excused: set[str] = set()
        self.texts: dict[str, str] = {}
        quirk = self.data.get("quirk")
        if quirk:
            known = [parts for words, parts in QUIRKS.items() if words in quirk]
            self.excused.update(*(known or [frozenset((SOUND,))]))

    def check(self) -> FlowDifference | None:
        """Parse the flow, run it, and return the first difference."""
        data = self.data
        tree = plain_tree(parse(data["flow"]))
        if tree != plain_tree(data["tree"]):
            return FlowDifference("tree", data["tree"], tree)
        return next(self.differences(self.drive()), None)

    def drive(self) -> FlowDriver:
        """Launch the flow and perform its steps."""
        data = self.data
        launch = data["launch"]
        subflows = {name: parse(text) for name, text in (data.get("subflows") or {}).items()}
        driver = FlowDriver(
            parse(data["flow"]),
            payload=launch["payload"],
            variables=launch["vars"],
            domain=launch["domain"],
            unit=launch["unit"],
            taskers=data["taskers"],
            loader=Library(data.get("domain_vars") or {}, subflows),
            max_messages=(data.get("conf") or {}).get("exe_max_messages", MAX_MESSAGES),
        )
        driver.drive()
        for step in data["steps"]:
            if step["op"] == "batch":
                for one in step["steps"]:
                    self._step(driver, one)
            else:
                self._step(driver, step)
            driver.drive()
        return driver

    def _step(self, driver: FlowDriver, step: Json) -> None:
        op = step["op"]
        act = _STEPS.get(op)
        if act is None:
            raise ValueError(f"{self.path.name} has an unknown step {op!r}")
        act(driver, step)

    # -- comparing ----------------------------------------------------------------------------

    def differences(self, driver: FlowDriver) -> Iterator[FlowDifference]:
        """Yield all differences: messages first, then runs, then the end."""
        if SOUND in self.excused:
            yield from self._soundness(driver)
            return
        yield from self._messages(driver)
        if "runs" not in self.excused and "order" not in self.excused:
            yield from self._runs(driver)
        yield from self._end(driver)

    @staticmethod
    def _soundness(driver: FlowDriver) -> Iterator[FlowDifference]:
        """Yield the faults that no recording may show, even one that is not to be followed."""
        nids = [task["nid"] for task in driver.held]
        if len(set(nids)) != len(nids):
            yield FlowDifference("held tasks", "one for each node", nids)
        errors = [seen.message["error"] for seen in driver.seen if "error" in seen.message]
        if errors and not any(seen.message.get("on_error") for seen in driver.seen):
            yield FlowDifference("errors", [], errors)

    def _messages(self, driver: FlowDriver) -> Iterator[FlowDifference]:
        golden = self.data["messages"]
        self._learn_texts(driver)
        for recorded, seen in zip(golden, driver.seen, strict=False):
            expected = self._translate(recorded)
            where = f"message {expected['m']} ({expected['point']} {expected['nid']})"
            for key, left, right in self._fields(expected, seen):
                if left != right:
                    yield FlowDifference(f"{where} {key}", left, right)
                    break
        if len(golden) != len(driver.seen):
            yield FlowDifference("number of messages", len(golden), len(driver.seen))

    def _learn_texts(self, driver: FlowDriver) -> None:
        """Find out which of our error texts and classes correspond to recorded ones."""
        self.texts = {}
        for expected, seen in zip(self.data["messages"], driver.seen, strict=False):
            recorded, ours = expected.get("error"), seen.message.get("error")
            if not recorded or not ours:
                continue
            self.texts[recorded["kla"]] = ours["kla"]
            if recorded["kla"] != RECORDED_FLOW_ERROR:
                self.texts[recorded["msg"]] = ours["msg"]

    def _translate(self, value: Json) -> Json:
        """Return golden data with foreign error texts replaced by ours."""
        if not self.texts:
            return value
        if type(value) is str:
            for recorded, ours in self.texts.items():
                value = value.replace(recorded, ours)
            return value
        if type(value) is list:
            return [self._translate(one) for one in value]
        if type(value) is dict:
            return {key: self._translate(one) for key, one in value.items()}
        return value

    def _fields(self, expected: Json, seen: Seen) -> Iterator[tuple[str, Json, Json]]:
        found = seen.message
        for key in ("m", "point", "nid", "from", "sm", "er", "pr"):
            yield key, expected[key], found.get(key)
        yield "emitted", expected["emitted"], seen.emitted
        if "nodes" not in self.excused:
            yield "nodes", expected["nodes"], seen.nodes
        if "head" in expected:
            tree = found.get("tree") or [None, None, None]
            yield "head", expected["head"], tree[0]
            yield "line", expected["line"], tree[2]
        if "tree" in expected:
            yield "tree", plain_tree(expected["tree"]), plain_tree(found.get("tree"))
        if "order" not in self.excused:
            left = comparable(expected["payload"])
            yield "payload", left, loosen(left, comparable(found.get("payload")))
        for key in OPTIONAL_FIELDS:
            yield self._optional(key, expected.get(key), found.get(key))

    @staticmethod
    def _optional(key: str, expected: Json, found: Json) -> tuple[str, Json, Json]:
        if key == "error" and expected:
            return (key, *same_errors(expected, found))
        if key == "trees":
            left, right = ([plain_tree(tree) for tree in side or ()] for side in (expected, found))
            return key, left, right
        left, right = comparable(expected), comparable(found)
        if key in ("message", "trap"):
            right = subset(left, right)
        return key, left, loosen(left, right)

    def _runs(self, driver: FlowDriver) -> Iterator[FlowDifference]:
        for expected, outcome in zip(self.data["runs"], driver.outcomes, strict=False):
            where = f"run {expected['run']}"
            counters = outcome.state.counters
            if expected["counters"] != counters:
                yield FlowDifference(f"{where} counters", expected["counters"], counters)
            if expected["messages_consumed"] != len(outcome.messages):
                yield FlowDifference(
                    f"{where} messages", expected["messages_consumed"], len(outcome.messages)
                )
            nodes = {nid: describe(node) for nid, node in outcome.state.nodes.items()}
            for one in self._translate(expected["nids"]):
                if one != nodes.get(one["nid"]):
                    yield FlowDifference(f"{where} node {one['nid']}", one, nodes.get(one["nid"]))
            if expected["nodes"] != len(nodes):
                yield FlowDifference(
                    f"{where} nodes", [one["nid"] for one in expected["nids"]], list(nodes)
                )
        if len(self.data["runs"]) != len(driver.outcomes):
            yield FlowDifference("number of runs", len(self.data["runs"]), len(driver.outcomes))

    def _end(self, driver: FlowDriver) -> Iterator[FlowDifference]:
        data, state = self.data, driver.state
        termination, payload = ending(driver)
        found: dict[str, Json] = {
            "termination": termination,
            "held_tasks": [
                {key: task.get(key) for key in ("nid", "tasker", "taskname")}
                for task in driver.held
            ],
            "timers_left": len(state.timers),
            "traps_left": len(state.traps),
            "traces": driver.traces,
        }
        if "order" not in self.excused:
            found["final_payload"] = comparable(payload)
        if termination == "terminated":
            found["final_vars"] = comparable(state.nodes["0"].vars if "0" in state.nodes else {})
        if "status" not in self.excused:
            found["status"] = "terminated" if state.status == "terminated" else "active"
        if "failures" not in self.excused:
            found["failures"] = [
                {"nid": node.nid, "msg": (node.failure or {})["error"]["msg"]}
                for node in state.failures()
            ]
        for key, value in found.items():
            expected = comparable(self._translate(data[key]))
            if key == "failures":
                expected, value = [one["nid"] for one in data[key]], [one["nid"] for one in value]  # noqa: PLW2901
            if expected != value and not (expected is None and not value):
                yield FlowDifference(key, expected, value)


def describe(node: Node) -> Json:
    """Return a node as it is in the summary of a run."""
    out: Json = {"nid": node.nid, "parent": node.parent, "heat0": node.heat0, "heap": node.heap}
    if node.cnid is not None:
        out["cnid"] = node.cnid
    out["status"] = node.state
    if node.state == "closed" and node.flavour:
        out["status_flavour"] = node.flavour
    if node.cnodes:
        out["cnodes"] = node.cnodes
    if node.tags:
        out["tags"] = node.tags
    if node.vars is not None:
        out["vars"] = sorted(node.vars)
    if "task" in node.own:
        out["task"] = node.own["task"]
    if node.closures:
        out["closures"] = node.closures
    if node.failure is not None:
        out["failure"] = node.failure["error"]["msg"]
    return out


def ending(driver: FlowDriver) -> tuple[str, Json]:
    """Return how an execution ended (terminated, failed, active) and with which payload."""
    terminated = [seen for seen in driver.seen if seen.message["point"] == "terminated"]
    if terminated:
        return "terminated", terminated[-1].message.get("payload")
    failed = [
        seen
        for seen in driver.seen
        if seen.message["point"] == "failed" and not seen.message.get("on_error")
    ]
    if failed:
        return "failed", failed[-1].message.get("payload")
    return "active", None


# -- a file ----------------------------------------------------------------------------------


def check_parse_cases(path: Path) -> tuple[int, list[str]]:
    """Return how many parse cases pass, and the failures."""
    passed, failures = 0, []
    for number, case in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        name = f"{path.name}[{number}] {case['flow']!r}"
        try:
            tree = plain_tree(parse(case["flow"]))
        except Exception as error:  # noqa: BLE001 - any error is an answer here
            if "error" in case:
                passed += 1
            else:
                failures.append(f"{name}: {type(error).__name__}: {error}")
            continue
        if "error" in case and "line" not in case["error"]:
            passed += 1
        elif "error" in case:
            failures.append(
                f"{name}: expected a syntax error at line {case['error']['line']}, found a tree"
            )
        elif tree != plain_tree(case["tree"]) and not (" <> " in case["flow"] and "<>" in tree):
            failures.append(f"{name}: expected {short(case['tree'])}, found {short(tree)}")
        else:
            passed += 1
    return passed, failures


def check_file(path: Path) -> tuple[int, list[str]]:
    """Return how much of a golden file passes, and what fails."""
    if path.name == "parse_cases.json":
        return check_parse_cases(path)
    difference = GoldenFlow(path).check()
    return (1, []) if difference is None else (0, [f"{path.name}: {difference}"])
