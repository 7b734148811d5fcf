"""The tasker of plans: it makes the call of a job, in a worker process."""

from __future__ import annotations

import os
import time
import traceback
from typing import TYPE_CHECKING, Any

from actorflow.runtime.lanes.process.child.limits import limit, unlimit
from actorflow.runtime.lanes.process.packing import unpack

if TYPE_CHECKING:
    from actorflow.engine.tasks.tasker import Task

__all__ = ["do_job"]


def do_job(task: Task) -> dict[str, Any]:
    """Make the call of a job; return its result as it travels, or what it raised, with its times.

    A job that fails is an answer like others, so that its traceback gets to the master.
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
    return found
