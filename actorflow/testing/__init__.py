"""The public test kit: virtual time, a lane without threads, and conformance checks.

Nothing here sleeps. `VirtualClock` moves when told, `ManualLane` runs actors when told,
`WorkflowHarness` runs a workflow whose tasks the test answers, and
`check_behaviour`, `check_kind` and `check_store` hold a behaviour, a kind of execution or a store
of your own against the contract. `actorflow.testing.simulation` runs executions on a whole cluster
in which much goes wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.testing.clock import VirtualClock
from actorflow.testing.lane import ManualLane

if TYPE_CHECKING:
    from actorflow.testing.workflows import WorkflowHarness

__all__ = [
    "ManualLane",
    "VirtualClock",
    "WorkflowHarness",
    "check_behaviour",
    "check_kind",
    "check_store",
]


def __getattr__(name: str) -> object:
    """Load the checks when asked for: they need hypothesis. And what not every test needs."""
    if name == "WorkflowHarness":
        from actorflow.testing import workflows  # noqa: PLC0415 - see above

        return workflows.WorkflowHarness
    if name == "check_behaviour":
        from actorflow.testing.behaviours import check_behaviour  # noqa: PLC0415 - see above

        return check_behaviour
    if name == "check_kind":
        from actorflow.testing.kinds import check_kind  # noqa: PLC0415 - see above

        return check_kind
    if name == "check_store":
        from actorflow.testing.stores import check_store  # noqa: PLC0415 - see above

        return check_store
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
