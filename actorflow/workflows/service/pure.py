"""Pure tasks, which are done within the decision that asks for them.

Such a task costs no commit of its own, and no other thread. It may have been called although its
decision was never stored, so only a function qualifies whose calls nobody can observe.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from actorflow.engine import bodies
from actorflow.engine.tasks.task import HELD
from actorflow.runtime.lanes.serial_lane import SlowCallDetector
from actorflow.workflows.instance import messages as m
from actorflow.workflows.instance.state import StepState, StepType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.workflows.instance.state import StepStatus
    from actorflow.workflows.task import Task

__all__ = ["PureTasks"]

_SLOW = 0.001  # seconds from which on a task is left to its tasker, if it took so long twice


class PureTasks:
    """Does the pure tasks of one engine. Thread-safe.

    Args:
        tasks: all tasks, by name.
        is_paused: returns whether a task is to wait.

    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        is_paused: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self._tasks = tasks
        self._is_paused = is_paused
        self._paces: dict[str, SlowCallDetector] = {}

    def done(self, job: m.StepJob, status: StepStatus, now: float) -> m.Succeeded | None:
        """Do a task; return its result, or `None` if its tasker has to do it.

        If it raises, its tasker does it again: failures, retries and logs are those of all tasks.
        """
        task = self._tasks.get(job.name)
        if (
            task is None
            or not task.options.pure
            or job.type is not StepType.TASK
            or job.attempt != 1
            or job.redelivery
            or status.dispatched
            or status.status is not StepState.SCHEDULED
        ):
            return None
        pace = self._paces.setdefault(job.name, SlowCallDetector(_SLOW))
        if pace.slow or self._is_paused(job.name):
            return None
        begin = perf_counter()
        result = _call(task, job.input)
        pace.note(begin)
        return None if result is UNSET else m.Succeeded(now, job.step, result, job.attempt)


def _call(task: Task[..., Any], given: Any) -> Any:
    try:
        # As if both were stored in between: the function may change its arguments.
        args, kwargs = task.arguments(bodies.decode(bodies.encode(given)))
        result = task.function(*args, **kwargs)
        return UNSET if result is HELD else bodies.decode(bodies.encode(task.write(result)))
    except Exception:  # noqa: BLE001 - it happens again in the tasker, and counts there
        return UNSET
