"""Where the code of a workflow does something else than what is recorded."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from actorflow.workflows.errors import WorkflowModified

__all__ = ["Difference"]


class Difference(Struct, frozen=True):
    """The first thing that code does otherwise than a recorded instance. Its text says all."""

    workflow: str
    branch: int
    """Which branch of the instance: 0 is `handle`."""
    kind: str
    """`"modified"`: it asks for something else; `"failed"`: it raises."""
    message: str
    position: str | None = None
    """Of the work, within the branch."""
    recorded: str | None = None
    """What the code did then."""
    found: str | None = None
    """What it does now."""
    stacktrace: str = ""
    """Of code that raises: the user's part."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.stacktrace}".rstrip()

    @classmethod
    def of(cls, workflow: str, error: BaseException, described: dict[str, Any]) -> Difference:
        """Return the difference that an error in a replay stands for."""
        key, kind, text = described["branch_key"], described["kind"], described["message"]
        if isinstance(error, WorkflowModified):
            return cls(workflow, key, kind, text, error.position, error.recorded, error.found)
        said = f"{workflow} raised {described['name']}: {text}"
        return cls(workflow, key, kind, said, stacktrace=described["stacktrace"])
