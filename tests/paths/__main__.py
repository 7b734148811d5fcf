"""Print what paths cost: `python -m tests.paths`, or that of some: `python -m tests.paths flow`."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.paths import tracer

tracer.install()  # before the package starts its first thread

from tests.paths.journeys import JOURNEYS  # noqa: E402 - see above


def main(names: list[str], server: str | None, *, verbose: bool) -> None:
    """Print a line for each path, and with `verbose` how often each function is called."""
    logging.disable()  # crashes are part of a path
    for name in names or list(JOURNEYS):
        journey = JOURNEYS[name]
        if journey.needs_server and server is None:
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            journey.prepare(Path(folder), server or "") as path,
        ):
            cost = tracer.trace(path, journey.warm)
            print(f"{name}: {cost}", flush=True)  # noqa: T201 - a command
            if verbose:
                _print_modules(tracer.record(path).calls)


def _print_modules(calls: list[tuple[str, str]]) -> None:
    for (module, function), count in sorted(Counter(calls).items()):
        print(f"{count:5} {module.removeprefix(f'{tracer.ROOT}/')} {function}")  # noqa: T201 - a command


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if not each.startswith("-") and "://" not in each]
    address = next((each for each in sys.argv[1:] if "://" in each), None)
    main(given, address, verbose="-v" in sys.argv)
