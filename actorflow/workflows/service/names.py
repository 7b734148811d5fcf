"""The names of the parts of an instance: its kind, its tasks and children, its timers."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from actorflow.engine.ids import MAX_LENGTH

if TYPE_CHECKING:
    from actorflow.workflows.instance import messages as m

__all__ = [
    "DISPATCHED",
    "START_TIMER",
    "StepId",
    "decision_id",
    "decision_of",
    "decision_tasker",
    "is_decision",
    "kind_name",
    "read_step_id",
    "step_id",
    "timer_id",
]

DISPATCHED = "dispatched"
"""The kind of executions that a dispatched task is done by: it outlives who dispatched it."""

START_TIMER = "start"
"""The timer by which an instance begins at a moment."""


def kind_name(workflow: str) -> str:
    """Return the kind that instances of a workflow are executions of."""
    return f"workflow:{workflow}"


class StepId(NamedTuple):
    """What the id of a task or child says."""

    step: str
    attempt: int
    run: int


def step_id(execution: str, step: str, attempt: int = 1, run: int = 0) -> str:
    """Return the id of a task or child: the same each time that it is begun, to deduplicate by.

    The beginning of one that would be too long is replaced by a hash of it.

    >>> step_id("o-1", "0/2.0"), step_id("o-1", "0/2.0", 2), step_id("o-1", "0/2.0", 2, run=3)
    ('o-1/0/2.0', 'o-1/0/2.0#2', 'o-1/0/2.0@3#2')
    >>> len(step_id("o" * 990, "0/2.0", 10_000, run=1_000))
    566
    """
    end = f"/{step}"
    if run:
        end = f"{end}@{run}"
    if attempt != 1:
        end = f"{end}#{attempt}"
    if len(execution) + len(end) > MAX_LENGTH:
        digest = blake2b(execution.encode(), digest_size=24).hexdigest()
        execution = f"{execution[: MAX_LENGTH // 2]}~{digest}"
    return execution + end


def read_step_id(id_: str) -> StepId:
    """Return what an id that `step_id` has made stands for.

    >>> read_step_id("o#1/0/2.0@3#2")
    StepId(step='0/2.0', attempt=2, run=3)
    """
    _, branch, position = id_.rsplit("/", 2)
    position, _, attempt = position.partition("#")
    position, _, run = position.partition("@")
    return StepId(f"{branch}/{position}", int(attempt or 1), int(run or 0))


def decision_tasker(workflow: str) -> str:
    """Return the tasker that has the decisions of a workflow taken elsewhere."""
    return f"decision:{workflow}"


def decision_id(uuid: str) -> str:
    """Return the id of the task by which a decision is taken elsewhere.

    No step has such an id, because their positions are numbers.

    >>> decision_id("o-1/7"), decision_of("o-1/decision/7")
    ('o-1/decision/7', 'o-1/7')
    """
    execution, _, number = uuid.rpartition("/")
    return f"{execution}/decision/{number}"


def decision_of(id_: str) -> str:
    """Return the uuid of the decision that a task stands for."""
    execution, _, number = id_.rpartition("/decision/")
    return f"{execution}/{number}"


def is_decision(id_: str) -> bool:
    """Return whether a task is a decision that is taken elsewhere.

    >>> is_decision("o-1/decision/7"), is_decision("o-1/0/2.0#2")
    (True, False)
    """
    execution, decision, number = id_.rpartition("/decision/")
    return bool(execution and decision) and number.isdecimal()


def timer_id(timer: m.SetStepTimer | m.ClearTimer) -> str:
    """Return the id of a timer."""
    return f"{'timeout' if timer.timeout else 'wait'}:{timer.step}"
