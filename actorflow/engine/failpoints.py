"""Points at which tests kill the process.

`ACTORFLOW_FAILPOINT=commit.after:17` kills the process (SIGKILL) when it gets there for the 17th
time. Callers look at `FAILPOINTS` first, so that a point costs no call without that variable:

    if FAILPOINTS:
        failpoint("commit.after")
"""

from __future__ import annotations

import os
import signal

__all__ = ["FAILPOINTS", "failpoint"]

_name, _, _count = os.environ.get("ACTORFLOW_FAILPOINT", "").partition(":")
_left = int(_count or 1)

FAILPOINTS = bool(_name)
"""Whether a test has set a point."""


def failpoint(name: str) -> None:
    """Mark a place where a test may kill the process."""
    global _left  # noqa: PLW0603 - one counter for the process, as the variable says
    if name == _name:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
