"""How far ahead jobs are handed out: further, the shorter they are. Pure."""

from __future__ import annotations

__all__ = ["Pace"]

_AHEAD = 0.02  # seconds of work that are handed out ahead, so that no worker waits for the master
_LEAST, _MOST = 2, 64  # jobs for each worker
_WEIGHT = 1 / 12  # of the last job in the average: a dozen jobs or so count


class Pace:
    """Decides how many jobs are out at the same time.

    Few, when they are long: what is handed out can no longer be overtaken by a job of a higher
    priority, and is begun even if the plan could stop. Many, when they are short.

    Args:
        workers: how many there are.
        exact: hand out no more than the workers can run at once, because weights or resources are
            counted by what is out.

    >>> pace = Pace(2)
    >>> pace.places, pace.after(1.0), [pace.after(0.0001) for _ in range(100)][-1]
    (4, 4, 128)
    """

    __slots__ = ("_average", "_exact", "_workers", "places")

    def __init__(self, workers: int, *, exact: bool = False) -> None:
        self._workers = workers
        self._exact = exact
        self._average: float | None = None
        self.places = workers if exact else workers * _LEAST
        """How many jobs may be out."""

    def after(self, seconds: float) -> int:
        """Note how long a job took; return how many jobs may be out now."""
        average = self._average
        self._average = seconds if average is None else average + _WEIGHT * (seconds - average)
        if not self._exact:
            each = _MOST if self._average <= 0 else round(_AHEAD / self._average)
            self.places = self._workers * max(_LEAST, min(_MOST, each))
        return self.places
