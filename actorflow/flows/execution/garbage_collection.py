"""Garbage collection: drops timers, traps and closures that nothing refers to.

A node that functions close over is kept after it ended. Most such functions are short-lived (the
block of a ``map`` in a loop), so kept nodes that nothing refers to are dropped once there are many.
The threshold doubles with the number in use, so the cost is amortised, and small executions never
pay it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.flows.execution.node import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actorflow.flows.execution.node import Message, Node
    from actorflow.flows.execution.run import FlowRun, RunOutcome

KEPT_NODES = 32
KEPT_FUNCTIONS = 256
KEPT_TRAPS = 64


def drop_unreachable(run: FlowRun, out: RunOutcome) -> None:
    """Drop the timers and traps of removed nodes, or all of them if every node has ended.

    Those of ended nodes that are kept stay, up to `KEPT_TRAPS` traps.
    """
    if not run.timers and not run.traps:
        return
    live = run.nodes
    if all(node.state == "ended" for node in live.values()):
        live = {}
    for timer_id, timer in list(run.timers.items()):
        if timer.nid not in live:
            del run.timers[timer_id]
            out.cancelled_timers.append(timer_id)
    if out.cancelled_timers:
        gone = set(out.cancelled_timers)
        out.timers = [timer for timer in out.timers if timer.id not in gone]
    run.traps = [trap for trap in run.traps if trap["nid"] in live]
    if len(run.traps) > KEPT_TRAPS:
        run.traps = [trap for trap in run.traps if live[trap["nid"]].state != "ended"]


class _Marks:
    """The closure nids and function numbers that are referred to."""

    def __init__(self) -> None:
        self.cnids: set[str] = set()
        self.funs: set[int] = set()
        self._seen: set[int] = set()

    def value(self, value: Any) -> None:
        """Mark all functions inside a value; containers that were seen before are skipped."""
        stack = [value]
        while stack:
            one = stack.pop()
            kind = type(one)
            if kind not in (dict, list) or id(one) in self._seen:
                continue
            self._seen.add(id(one))
            if kind is dict:
                stack.extend(one.values())
            elif len(one) == 3 and one[0] == "_func" and type(one[1]) is dict:  # noqa: PLR2004
                self.cnids.add(one[1].get("cnid") or ROOT)
                self.funs.add(one[1].get("fun", -1))
            else:
                stack.extend(one)

    def message(self, message: Message) -> None:
        """Mark what a message will need when it is processed."""
        self.value(message)
        self.cnids.add(message.get("cnid") or ROOT)

    def node(self, node: Node) -> None:
        """Mark what a node refers to."""
        if node.cnid:
            self.cnids.add(node.cnid)
        for part in (node.payload, node.vars, node.heat, node.atts, node.rets, node.own):
            if part:
                self.value(part)
        self.value(node.handlers)
        for waiting in node.on_receive_last or ():
            self.message(waiting)


def _reached(run: FlowRun, ended: set[str], marks: _Marks) -> set[str]:
    """Return the ended nodes that live ones refer to, directly or through other ended nodes."""
    reached: set[str] = set()
    while frontier := (marks.cnids & ended) - reached:
        reached |= frontier
        for nid in frontier:
            node = run.nodes[nid]
            marks.node(node)
            marks.cnids.add(node.parent or ROOT)
    return reached


def collect_closures(run: FlowRun, collect_at: int, queue: Iterable[Message]) -> int:
    """Drop ended nodes that nothing refers to, if there are many.

    Return the number of ended nodes at which to look again.
    """
    most = max(collect_at, KEPT_NODES)
    if len(run.nodes) <= most and not run.many_functions:
        return collect_at
    ended = {nid for nid, node in run.nodes.items() if node.state == "ended" and nid != ROOT}
    if len(ended) <= most and not run.many_functions:
        return collect_at
    marks = _Marks()
    for nid, node in run.nodes.items():
        if nid not in ended:
            marks.node(node)
    released = [trap["message"] for trap in run.traps]
    released += [timer.message for timer in run.timers.values()]
    for message in (*queue, *released):
        marks.message(message)
    reached = _reached(run, ended, marks)
    for nid in ended - reached:
        run.remove(nid)
    for nid, node in list(run.nodes.items()):
        if node.closures and len(node.closures) > KEPT_FUNCTIONS // 2:
            run.touch(nid).closures = [fun for fun in node.closures if fun in marks.funs]
    return 2 * len(reached)
