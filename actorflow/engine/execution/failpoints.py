"""Points at which tests kill the process. Without `ACTORFLOW_FAILPOINT` they cost one call.

`ACTORFLOW_FAILPOINT=commit.after:17` kills the process (SIGKILL) the 17th time it gets there.
"""

from __future__ import annotations

import os
import signal

__all__ = ["failpoint"]

_name, _, _count = os.environ.get("ACTORFLOW_FAILPOINT", "").partition(":")
_left = int(_count or 1)


def failpoint(name: str) -> None:
    """Mark a place where a test may kill the process."""
    global _left  # noqa: PLW0603 - one counter for the process, as the variable says
    if name == _name:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
