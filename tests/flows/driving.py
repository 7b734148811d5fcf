"""Driving a flow by hand, step by step, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.loop import run as one_run
from actorflow.flows.language.parser import parse
from actorflow.flows.procedures.registry import all_procedures
from actorflow.testing.flow_driver import FlowDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.flows.execution.node import Message
    from actorflow.flows.execution.run import RunOutcome
    from actorflow.flows.execution.state import ExecutionState

ACTS: dict[str, Callable[..., object]] = {
    "cancel": lambda driver, nid="0": driver.cancel(nid),
    "kill": lambda driver, nid="0": driver.cancel(nid, kill=True),
    "return": lambda driver, nid=None, changes=None: driver.give_back(nid, changes=changes),
    "signal": lambda driver, name, payload=None: driver.signal(name, payload),
    "timers": lambda driver, count=1: driver.fire_timers(count=count),
    "add_branch": lambda driver, nid, text: driver.add_branch(nid, parse(text)),
    "add_iteration": lambda driver, nid, *elements: driver.add_iteration(nid, list(elements)),
    "re_apply": lambda driver, nid, text, payload: driver.re_apply(nid, parse(text), payload),
}


def run(state: ExecutionState, messages: Iterable[Message], **options: Any) -> RunOutcome:
    """Do one run with all procedures."""
    return one_run(state, messages, procedures=all_procedures(), **options)


def drive(text: str, *steps: tuple[Any, ...], **options: Any) -> FlowDriver:
    """Launch a flow and do steps: each a name of ACTS and its arguments."""
    driver = FlowDriver(parse(text), **options).drive()
    for name, *arguments in steps:
        ACTS[name](driver, *arguments)
        driver.drive()
    return driver


def shown(driver: FlowDriver, *points: str) -> list[str]:
    """Return point, nid and sender of the messages of some points."""
    return [
        f"{seen.message['point']} {seen.message.get('nid')} {seen.message.get('from')}"
        for seen in driver.seen
        if seen.message["point"] in points
    ]
