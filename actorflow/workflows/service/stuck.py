"""Log events of stuck instances: the reason, and the commands that help.

An instance is stuck when its code has raised, or no longer repeats the recorded steps, or when it
waits for a step that failed. The log has one line for each reason, however many runs follow.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from actorflow.runtime.log import log
from actorflow.workflows.instance.state import BROKEN_MODES, StepState

if TYPE_CHECKING:
    from actorflow.engine.kind import Failure
    from actorflow.workflows.instance.instance import Instance

__all__ = ["StuckLog", "remedies"]


class StuckLog:
    """Logs each instance once for each reason. One run per instance at a time.

    Args:
        store: as the commands are to name it.

    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._logged: dict[str, str] = {}

    def note(self, instance: Instance, failure: Failure | None) -> None:
        """Log why an instance is stuck, unless that is in the log."""
        state = instance.state
        if failure is None:
            if self._logged:
                self._logged.pop(state.id, None)
            return
        reason = f"{failure.type}: {failure.message}"
        if self._logged.get(state.id) == reason:
            return
        self._logged[state.id] = reason
        log.error(
            f"stuck: {reason}. {remedies(instance, self._store)}",
            execution=state.id,
            workflow=state.workflow_name,
            stack=failure.traceback,
        )

    def forget(self, execution: str) -> None:
        """Forget an instance that has ended."""
        self._logged.pop(execution, None)


def remedies(instance: Instance, store: str) -> str:
    """Return what to do about a stuck instance, as commands.

    The first one goes on from where it is; the others go back to before the last step.
    """
    state = instance.state
    where = f"{shlex.quote(store)} {shlex.quote(state.id)}"
    back = state.statuses[-1].step if state.statuses else None
    if state.decision_mode in BROKEN_MODES:
        found = ["Fix the code", f"then run: actorflow resume {where}"]
    else:
        failed = instance.stuck_on()
        step = "" if failed is None else failed.step
        back = step or back
        if failed is not None and failed.status is StepState.SCHEDULED:
            found = ["Its sub-workflow is stuck: see the log of that"]
        else:
            found = [f"Run: actorflow retry {where} --step {step}"]
    if back is not None:
        found += [f"or actorflow rewind {where} {back}", f"or actorflow fork {where} {back}"]
    return ", ".join([*found, f"or actorflow cancel {where}"])
