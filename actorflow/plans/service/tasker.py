"""The tasker of plans: it makes the call of a job, in a worker process."""

from __future__ import annotations

import os
import time
import traceback
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.process.child.capture import said
from actorflow.runtime.lanes.process.child.limits import limit, unlimit
from actorflow.runtime.lanes.process.packing import unpack

if TYPE_CHECKING:
    from actorflow.engine.tasks.tasker import Task

__all__ = ["do_job"]


def do_job(task: Task) -> dict[str, Any]:
    """Make the call of a job; return its result as it travels, or what it raised, with its times.

    A job that fails is an answer like others, so that its traceback gets to the master. What it
    prints and warns of is part of the answer, and is printed by the engine as well.
    """
    body = task.body
    started = time.time()
    found: dict[str, Any] = {"started": started, "pid": os.getpid()}
    try:
        if body["memory"]:
            limit(body["memory"], 0)
        function, args = unpack(body["call"], body["buffers"])
        found["wire"] = function(*args)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        found["error"] = f"{type(error).__name__}: {error}"
        found["traceback"] = "".join(traceback.format_exception(error))
    finally:
        unlimit()
    found["ended"] = time.time()
    out, err, warned = said()
    if out or err:
        found["output"] = _last(out + err)
    if warned:
        found["warnings"] = list(warned)
    return found


_OUTPUT = 16 * 1024
"""Characters of what a job prints that are kept with the plan."""


def _last(text: str) -> str:
    """Return the end of a text that is too long to be kept."""
    left_out = len(text) - _OUTPUT
    if left_out <= 0:
        return text
    return f"... {left_out} characters were left out\n{text[-_OUTPUT:]}"
