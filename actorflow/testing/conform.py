"""Runs golden data against this implementation: ``python -m actorflow.testing.conform flows DIR``.

Prints each file that differs with the first message or step that does, ends with ``N passed, M
failed``, and exits with 1 when something failed, 2 when it could not start.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from actorflow.testing.golden import flows, workflows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS: dict[str, Callable[[Path], tuple[int, list[str]]]] = {
    "flows": flows.check_file,
    "workflows": workflows.check_file,
}
"""Each kind of golden data and the check of a file: number passed, and a text per failure."""

USAGE = "usage: python -m actorflow.testing.conform KIND DIR"


def check_directory(
    directory: Path, check: Callable[[Path], tuple[int, list[str]]]
) -> tuple[int, list[str]]:
    """Return how many cases of a directory pass, and what fails.

    Raises:
        FileNotFoundError: there are none.

    """
    passed, failures = 0, []
    files = sorted(directory.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"{directory} contains no golden files (*.json)")
    for path in files:
        try:
            good, bad = check(path)
        except json.JSONDecodeError as error:
            failures.append(f"{path.name}: not JSON: {error}")
        except KeyError as error:
            failures.append(f"{path.name}: the field {error} is missing")
        except Exception as error:  # noqa: BLE001 - one broken file must not hide the others
            failures.append(f"{path.name}: {type(error).__name__}: {error}")
        else:
            passed += good
            failures += bad
    return passed, failures


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
        passed, failures = check_directory(directory, check)
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
