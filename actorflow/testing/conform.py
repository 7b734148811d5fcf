"""Runs golden data against this implementation: ``python -m actorflow.testing.conform flows DIR``.

Prints each file that differs with the first message or step that does, ends with ``N passed, M
failed``, and exits with 1 when something failed, 2 when it could not start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from actorflow.testing import flow_golden, workflow_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS: dict[str, Callable[[Path], tuple[int, list[str]]]] = {
    "flows": flow_golden.check_directory,
    "workflows": workflow_golden.check_directory,
}
"""Each kind of golden data and its check: number passed, and a text per failure."""

USAGE = "usage: python -m actorflow.testing.conform KIND DIR"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a directory; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2:  # noqa: PLR2004
        return _refuse(f"{USAGE}, where KIND is one of: {', '.join(sorted(KINDS))}")
    kind, directory = given[0], Path(given[1])
    check = KINDS.get(kind)
    if check is None:
        return _refuse(f"unknown kind {kind!r}; there is: {', '.join(sorted(KINDS))}")
    if not directory.is_dir():
        return _refuse(f"{directory} is not a directory")
    try:
        passed, failures = check(directory)
    except FileNotFoundError as error:
        return _refuse(str(error))
    for failure in failures:
        sys.stdout.write(f"FAILED {failure}\n")
    sys.stdout.write(f"{passed} passed, {len(failures)} failed\n")
    return 1 if failures else 0


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
