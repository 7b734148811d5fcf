"""An order in the notation of golden histories, and what tests of the agent share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.workflows.agent.worker import Agency, Refused, Worker

if TYPE_CHECKING:
    import actorflow as af

ORDER = {
    "handle": [
        {
            "op": "execute",
            "works": [
                {"task": "charge", "input": {"order": {"prop": "order"}}},
                {"task": "reserve", "input": 3},
            ],
            "as": "got",
        },
        {"op": "execute", "works": [{"wait": {"event": "paid", "duration": 60}}], "as": "paid"},
        {"op": "return", "value": [{"var": "got"}, {"var": "paid"}, {"prop": "seen"}]},
    ],
    "onEvent": [
        {"op": "set", "prop": "seen", "value": {"add": [{"prop": "seen"}, 1]}},
        {"op": "return", "value": {"prop": "seen"}},
    ],
}


def start(engine: af.Engine, agency: Agency, **properties: Any) -> tuple[Any, Worker]:
    order = engine.workflows.remote("Order", lang="test", tasks=["charge", "reserve"])
    handle = engine.start(order(order=7, seen=0, **properties), id="o-7")
    return handle, Worker(agency, {"Order": ORDER})


def waits(handle: Any) -> bool:
    """Return whether an order has come to its wait."""
    return bool(handle.query().state.waits)


def ended(handle: Any) -> bool:
    return bool(handle.status != "active")


def statuses(handle: Any) -> list[str]:
    return [each.name for each in handle.query().state.statuses]


def refused(code: int, call: Any, *given: Any, **named: Any) -> Any:
    with pytest.raises(Refused) as found:
        call(*given, **named)
    assert found.value.status == code, found.value
    assert set(found.value.body) == {"error", "message"}
    return found.value.body
