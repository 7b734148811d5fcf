"""Time: ``sleep``, ``schedule``, ``cron``, ``every`` and ``timestamp``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from actorflow.flows.errors import FlowError
from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.events.signals import Watcher
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.procedures.simple import Macro, Simple, make_def, simple
from actorflow.flows.values.text import shown
from actorflow.flows.values.values import Value, is_function, truthy

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message
    from actorflow.flows.language.tree import Tree


@procedure("sleep")
class Sleep(Procedure):
    """Reply after a while."""

    __slots__ = ()
    keeps_atts = True

    def receive_last(self) -> list[Message]:
        """Schedule the reply."""
        given = self.att("for")
        if given is None:
            given = next(iter(self.node.unkeyed_atts()), None)
        if not truthy(given):
            raise FlowError("missing a sleep time duration")
        message = self.reply()[0]
        return [
            self.wrap(
                "schedule", self.node.nid, type="in", string=given, message=message, payload={}
            )
        ]


@procedure("schedule")
class ScheduleProcedure(Watcher):
    """Run a function later: ``in:``, ``at:``, ``cron:`` or ``every:``."""

    __slots__ = ()

    def pre_execute(self) -> None:
        """Remember whether this is a rewritten ``every``."""
        if self.message.get("rewritten"):
            self.node.own["every"] = True

    def receive_last(self) -> list[Message]:
        """Schedule the function and let the parent continue."""
        if self.function() is None:
            raise FlowError("missing a function to call when the scheduler triggers")
        kind, given = self._when()
        if not truthy(given):
            raise FlowError("missing a schedule")
        schedule = self.wrap(
            "schedule", self.node.nid, string=given, message=self.application(), payload={}
        )
        if kind is not None:
            schedule["type"] = kind
        if self.node.own.get("every"):
            schedule["repeats"] = True
        self.node.own["set"] = True
        return [schedule, *self.flank()]

    def _when(self) -> tuple[str | None, Value]:
        """Return the kind of the schedule, if given, and its text."""
        for key, value in self.node.atts or ():
            if key in ("cron", "at", "in", "every"):
                return key, value
        return None, next(
            (value for value in self.node.unkeyed_atts() if not is_function(value)), None
        )


@procedure("cron", "every")
class Repeat(Macro):
    """``cron '...'`` and ``every '...'`` with a block."""

    __slots__ = ()

    def rewritten(self) -> Tree:
        """Return a schedule."""
        atts, body = self.split()
        line = self.tree[2]
        place = next((place for place, att in enumerate(atts) if len(att[1]) == 1), None)
        if place is None:
            raise FlowError(f"schedule not found in {shown(self.tree)}")
        if self.tree[0] == "cron":
            given = atts.pop(place)[1][0]
            atts.insert(0, ["_att", [["cron", [], line], given], line])
        return ["schedule", [*atts, make_def(body, line, "msg")], line]


@simple("timestamp", "ltimestamp", unatts=False, shows=True)
def timestamp(call: Simple) -> Value:
    """Return the time of the run, in UTC or (``ltimestamp``) in local time."""
    now = call.run.now
    if call.name == "ltimestamp":
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
