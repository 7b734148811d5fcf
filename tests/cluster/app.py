"""What workers of the tests of the commands register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import actorflow as af


def setup(engine: af.Engine) -> None:
    """Register a tasker."""

    def add(task: Any) -> dict[str, int]:
        return {"n": task.payload["n"] + 1}

    engine.tasker("alice", add)
