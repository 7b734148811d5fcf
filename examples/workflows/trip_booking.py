"""Undo earlier steps, in reverse order, when a later one fails: a saga.

Temporal and Restate call it *saga*, Zenaton *book a trip*.
"""

import sys

import actorflow as af


class SoldOut(Exception):
    """There is nothing left to book; another attempt is no use."""


@af.task(retries=3, give_up_on=(SoldOut,))
def book(what: str, trip: str) -> str:
    """Book a part of the trip. Its id is the same in each attempt, so nothing is booked twice."""
    if what == "flight":
        raise SoldOut(f"no {what} left")
    return f"{what} {trip}"


@af.task(retries=10)
def cancel(booking: str) -> str:
    """Cancel a booking."""
    return f"{booking} cancelled"


class Trip(af.Workflow[str]):
    """Books a hotel, a car and a flight, or nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def handle(self) -> str:
        """Return what became of the trip."""
        booked: list[str] = []
        try:
            for what in ("hotel", "car", "flight"):
                booking = self.execute(book(what, self.name), raises=True)
                booked.append(booking)
        except af.StepFailed as failed:
            undone = [self.execute(cancel(each)) for each in reversed(booked)]
            return f"{failed.error['message']}: {', '.join(undone)}"
        return f"booked {', '.join(booked)}"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        print(engine.start(Trip("to Rome"), id="rome").result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
