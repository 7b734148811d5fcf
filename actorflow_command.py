"""The command `actorflow`, before any of its modules is imported.

It stands outside the package, because `import actorflow.cli` imports the whole library first: that
takes a moment, in which Ctrl-C has to end the program as quietly as later.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_INTERRUPTED = 130  # what shells expect of a program that Ctrl-C has ended


def main() -> None:
    """Run the command line of this process."""
    try:
        from actorflow.cli import main as run  # noqa: PLC0415 - see above

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
