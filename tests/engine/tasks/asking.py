"""A kind of execution that asks for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.kind import NewTask, Outcome, TaskEnded

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine


def asking(state: Any, message: Any) -> Any:
    """Hand out the tasks of a dict, cancel those of a list, keep answers."""
    if isinstance(message, dict) and "ask" in message:
        urgent = message.get("urgent", {})
        tasks = [
            NewTask(name, message["of"], name, priority=urgent.get(name, 0))
            for name in message["ask"]
        ]
        return Outcome(state=state, tasks=tasks)
    if isinstance(message, list):
        return Outcome(state=state, cancelled_tasks=message)
    if isinstance(message, TaskEnded):
        return [*state, message.value if message.ok else error_of(message)]
    return [*state, message]


def error_of(ended: TaskEnded) -> Any:
    assert ended.error is not None
    return {"kind": ended.error.type, "message": ended.error.message, "outcome": ended.outcome}


def ask(engine: BareEngine, *names: str, of: str = "t") -> None:
    engine.send("x", {"ask": list(names), "of": of}, kind="script")
