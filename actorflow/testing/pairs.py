"""Check what workers do against the table of states, for tests and bug reports."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pair.states import (
    NOTHING_HELD,
    READY,
    Facts,
    PairEvent,
    PairState,
    StopMode,
    advance,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PairCheck", "checked_pairs"]

_KEPT = 1_000
_INSTALLING = threading.Lock()
_unchecked = Accumulator.enter


class PairCheck:
    """What `checked_pairs` has seen. Thread-safe."""

    def __init__(self) -> None:
        self.changes = 0
        """How many changes of state were compared with the table, roughly if threads race."""
        self.history: deque[str] = deque(maxlen=_KEPT)
        """The last 1,000 changes: `worker of job: idle -> running (pushed)`."""
        self.problems: list[str] = []
        """Changes that the table does not allow."""

    def record(self, pair: Accumulator, state: PairState, event: PairEvent, facts: Facts) -> None:
        """Compare a change with the table. Under the pair's lock, before the change."""
        if facts is READY or facts is NOTHING_HELD:
            facts = _completed(pair, event, facts)
        self.changes += 1
        change = f"{pair!r}: {pair.state.value} -> {state.value} ({event.value})"
        self.history.append(change)
        try:
            expected = advance(pair.state, event, facts).state
        except AssertionError as unexpected:
            self.problems.append(f"{change}: {unexpected}")
            return
        if expected is not state:
            self.problems.append(f"{change}: the table says {expected.value} for {facts}")

    def verify(self) -> None:
        """Raise `AssertionError` if there was a change that the table does not allow."""
        if self.problems:
            recent = "\n  ".join([*self.problems, "after:", *list(self.history)[-20:]])
            msg = f"{len(self.problems)} changes of state are not in the table:\n  {recent}"
            raise AssertionError(msg)


def _completed(pair: Accumulator, event: PairEvent, facts: Facts) -> Facts:
    """Return all facts of a change that was made without asking the table.

    The hot path has found no mail; mail that arrives meanwhile is found when it looks again.
    """
    mode = pair.mode
    return facts._replace(
        running=pair.active,
        limit=1 if pair.is_exclusive else pair.settings.concurrency,
        supervised=pair.is_supervised,
        mode=StopMode.DRAIN if mode is None and event is PairEvent.STOP else mode,
    )


_active: list[PairCheck] = []


def _enter(
    pair: Accumulator,
    state: PairState,
    event: PairEvent,
    facts: Facts = NOTHING_HELD,
) -> None:
    for check in tuple(_active):
        check.record(pair, state, event, facts)
    _unchecked(pair, state, event, facts)


@contextmanager
def checked_pairs() -> Iterator[PairCheck]:
    """Compare every change of state of every worker in this process with the table.

    The table is printed in docs/pair.md. Use it around the code that shows a bug, and attach what
    it raises, or `history`, to the report. Workers get slower, by about 5 us for each batch.

    >>> import actorflow as af
    >>> with checked_pairs() as check, af.spawn(lambda batch, state: None) as worker:
    ...     worker.push_block("a message")
    >>> check.changes > 0
    True

    Raises:
        AssertionError: at the end, if a change was not what the table says.

    """
    check = PairCheck()
    with _INSTALLING:
        _active.append(check)
        Accumulator.enter = _enter  # type: ignore[assignment, method-assign]
    try:
        yield check
    finally:
        with _INSTALLING:
            _active.remove(check)
            if not _active:
                Accumulator.enter = _unchecked  # type: ignore[method-assign]
    check.verify()
