"""The store's clock, as estimated by a process that asks it now and then."""

from __future__ import annotations

from time import monotonic, time

__all__ = ["StoreTime"]


class StoreTime:
    """The time of a store's clock, carried on by the monotonic clock. Thread-safe.

    An answer that says what time it is was given between the question and its arrival. So each
    answer gives bounds for the difference of the two clocks, and what is believed is only moved as
    far as they require: an answer that took long changes nothing.

    >>> clock = StoreTime()
    >>> clock.note(asked=10.0, said=1_000.0, heard=10.2)
    >>> round(clock.at(20.0), 3)
    1009.9
    >>> clock.note(asked=30.0, said=1_021.0, heard=34.0)
    >>> round(clock.at(40.0), 3)
    1029.9
    """

    def __init__(self) -> None:
        self._ahead: float | None = None

    def note(self, *, asked: float, said: float, heard: float) -> None:
        """Note an answer; `asked` and `heard` are times of `time.monotonic`."""
        least, most = said - heard, said - asked
        ahead = (least + most) / 2 if self._ahead is None else self._ahead
        self._ahead = min(max(ahead, least), most)

    def at(self, now: float) -> float:
        """Return the time at a moment of `time.monotonic`; this machine's before any answer."""
        return time() if self._ahead is None else now + self._ahead

    def now(self) -> float:
        """Return the time."""
        return self.at(monotonic())
