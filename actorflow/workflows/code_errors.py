"""Errors of a workflow's code: as plain data, and as differences from its recorded steps."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from msgspec import Struct

from actorflow.runtime.errors import kind_and_text, text_of
from actorflow.workflows.errors import WorkflowModified

__all__ = ["HERE", "Difference", "described"]

HERE = str(Path(__file__).parent)


class Difference(Struct, frozen=True):
    """The first step at which code differs from a recorded instance; `str()` explains it."""

    workflow: str
    branch: int
    """Which branch of the instance: 0 is `handle`."""
    kind: str
    """`"modified"`: the code asks for another step, or computes another value; `"failed"`: it
    raises; `"impure"`: a call in its source gives something else in each replay."""
    message: str
    position: str | None = None
    """The position of the step in its branch."""
    recorded: str | None = None
    """The recorded step."""
    found: str | None = None
    """The step of the present code."""
    stacktrace: str = ""
    """The traceback of code that raised, without our own frames."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.stacktrace}".rstrip()

    @classmethod
    def impure(cls, workflow: str, message: str) -> Difference:
        """Return the difference that a call in the source will make."""
        return cls(workflow, 0, "impure", message)

    @classmethod
    def of(cls, workflow: str, error: BaseException, described: dict[str, Any]) -> Difference:
        """Return the difference for an error that a replay has raised."""
        key, kind, text = described["branch_key"], described["kind"], described["message"]
        if isinstance(error, WorkflowModified):
            return cls(workflow, key, kind, text, error.position, error.recorded, error.found)
        said = f"{workflow} raised {described['name']}: {text}"
        return cls(workflow, key, kind, said, stacktrace=described["stacktrace"])


def described(key: int, error: BaseException) -> dict[str, Any]:
    """Return an error as plain data: where, what, and the user's part of the traceback."""
    modified = isinstance(error, WorkflowModified)
    return {
        "branch_key": key,
        "kind": "modified" if modified else "failed",
        "name": type(error).__name__,
        "message": "; ".join([text_of(error), *map(_named, _inner(error))]),
        "stacktrace": "".join(_stack(error)),
    }


_CHAINED = 8
"""Errors behind an error that are shown."""


def _inner(error: BaseException) -> list[BaseException]:
    """Return the first errors in a group, such as a task group raises: its own text hides them."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting and len(found) < _CHAINED:
        each = waiting.pop(0)
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        elif each is not error:
            found.append(each)
    return found


def _named(error: BaseException) -> str:
    return kind_and_text(error)


def _stack(error: BaseException) -> list[str]:
    """Return the user's part of the traceback, and of those of the errors behind it."""
    lines = _calls(error)
    for each in _inner(error):
        lines += [f"of which {_named(each)}\n", *_calls(each)]
    seen = [error]
    while len(seen) < _CHAINED:
        last = seen[-1]
        cause = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if cause is None or any(cause is each for each in seen):
            break
        lines += [f"after {_named(cause)}\n", *_calls(cause)]
        seen.append(cause)
    return lines


def _calls(error: BaseException) -> list[str]:
    calls = traceback.extract_tb(error.__traceback__)
    return traceback.format_list([call for call in calls if not call.filename.startswith(HERE)])
