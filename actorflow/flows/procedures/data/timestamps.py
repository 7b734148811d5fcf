"""Timestamps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from actorflow.flows.procedures.simple import Simple, simple

if TYPE_CHECKING:
    from actorflow.flows.values.values import Value


@simple("timestamp", "ltimestamp", unatts=False, shows=True)
def timestamp(call: Simple) -> Value:
    """Return the time of the run, in UTC or (``ltimestamp``) in local time."""
    now = call.run.now
    if call.name == "ltimestamp":
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
