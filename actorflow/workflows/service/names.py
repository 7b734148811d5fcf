"""The names of what belongs to an instance: its kind, its tasks and children, its timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorflow.workflows.instance import messages as m

__all__ = [
    "DISPATCHED",
    "decision_id",
    "decision_of",
    "decision_tasker",
    "is_decision",
    "kind_name",
    "timer_id",
    "work_and_attempt",
    "work_id",
]

DISPATCHED = "dispatched"
"""The kind of executions that a dispatched task is done by: it outlives who dispatched it."""


def kind_name(workflow: str) -> str:
    """Return the kind that instances of a workflow are executions of."""
    return f"workflow:{workflow}"


def work_id(execution: str, work: str, attempt: int = 1) -> str:
    """Return the id of a task or child: the same each time that it is begun, to deduplicate by.

    >>> work_id("o-1", "0/2.0"), work_id("o-1", "0/2.0", 2)
    ('o-1/0/2.0', 'o-1/0/2.0#2')
    """
    return f"{execution}/{work}" if attempt == 1 else f"{execution}/{work}#{attempt}"


def work_and_attempt(execution: str, id_: str) -> tuple[str, int]:
    """Return the work that an id stands for, and which attempt at it.

    >>> work_and_attempt("o#1", "o#1/0/2.0#2"), work_and_attempt("o-1", "o-1/0/2.0")
    (('0/2.0', 2), ('0/2.0', 1))
    """
    work, _, attempt = id_.removeprefix(f"{execution}/").partition("#")
    return work, int(attempt or 1)


def decision_tasker(workflow: str) -> str:
    """Return the tasker that has the decisions of a workflow taken elsewhere."""
    return f"decision:{workflow}"


def decision_id(uuid: str) -> str:
    """Return the id of the task by which a decision is taken elsewhere.

    No work has such an id, because their positions are numbers.

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


def timer_id(timer: m.SetTimer | m.ClearTimer) -> str:
    """Return the id of a timer."""
    return f"{'timeout' if timer.timeout else 'wait'}:{timer.work}"
