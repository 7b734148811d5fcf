"""The lease of a job: how long a worker of another language may be silent about it."""

from __future__ import annotations

from typing import Any

from actorflow.runtime.errors import BadOption
from behaviours.arguments import seconds

__all__ = ["LEASE", "check_lease"]

LEASE = 60.0
"""Seconds that a worker has for its next request about a job, unless told otherwise."""


def check_lease(given: Any) -> float:
    """Return the seconds of a lease.

    Raises:
        BadOption: it is not a number above 0.

    """
    return seconds(given, "lease", "lease=600.0", zero=False, error=BadOption)
