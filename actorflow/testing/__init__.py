"""The public test kit: virtual time, a lane without threads, and conformance checks.

Nothing here sleeps. `VirtualClock` moves when told, `ManualLane` runs actors when told,
`WorkflowHarness` runs a workflow whose tasks the test answers, and
`check_behaviour`, `check_kind` and `check_store` hold a behaviour, a kind of execution or a store
of your own against the contract. `check_batching`
finds jobs that depend on their batches. `checked_pairs` compares what workers do with the
table of their states. `actorflow.testing.simulation` runs executions on a whole cluster
in which much goes wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from actorflow.testing.clock import VirtualClock
from actorflow.testing.lane import ManualLane

if TYPE_CHECKING:
    from actorflow.testing.batching import check_batching
    from actorflow.testing.behaviours import check_behaviour
    from actorflow.testing.deadlocks import detect_deadlocks
    from actorflow.testing.kinds import check_kind
    from actorflow.testing.pairs import checked_pairs
    from actorflow.testing.stores import check_store
    from actorflow.testing.workflows import WorkflowHarness

__all__ = [
    "ManualLane",
    "VirtualClock",
    "WorkflowHarness",
    "check_batching",
    "check_behaviour",
    "check_kind",
    "check_store",
    "checked_pairs",
    "detect_deadlocks",
]


_HOMES = {
    "WorkflowHarness": "actorflow.testing.workflows",
    "check_batching": "actorflow.testing.batching",
    "check_behaviour": "actorflow.testing.behaviours",
    "check_kind": "actorflow.testing.kinds",
    "check_store": "actorflow.testing.stores",
    "checked_pairs": "actorflow.testing.pairs",
    "detect_deadlocks": "actorflow.testing.deadlocks",
}
"""Where the names are defined that are loaded when first used: the checks need hypothesis."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOMES[name]), name)
