"""Book a trip at three companies, or undo what was booked. It survives `kill -9` at any moment.

`python app.py trip.db` books two trips, of which the second fails. Kill it and run it again: each
request counts once, and no booking is left that nobody wants.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import actorflow as af


class SoldOut(Exception):
    """There is no room left; another attempt is no use."""


class Company:
    """Stands in for the service of a company: a file with all requests that it has accepted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def requests(self) -> list[dict[str, str]]:
        """Return the accepted requests."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        return [json.loads(line) for line in lines]

    def accept(self, key: str, action: str, what: str) -> str:
        """Accept a request; one with a known key is the same request again."""
        if all(each["key"] != key for each in self.requests()):
            line = json.dumps({"key": key, "action": action, "what": what}) + "\n"
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        return what

    def booked(self) -> Counter[str]:
        """Return how many bookings there are of each thing."""
        count: Counter[str] = Counter()
        for each in self.requests():
            count[each["what"]] += 1 if each["action"] == "book" else -1
        return +count


company = Company(Path(os.environ.get("BOOKINGS", "bookings.jsonl")))


@af.task(retries=10, backoff=0.1, give_up_on=(SoldOut,), concurrency=1)
def book(what: str) -> str:
    """Book something; the id of the task is the idempotency key."""
    if what == "flight to the moon":
        raise SoldOut(what)
    return company.accept(af.current_task().id, "book", what)


@af.task(retries=100, backoff=af.Backoff(initial=0.1, maximum=600.0), concurrency=1)
def cancel(what: str) -> str:
    """Cancel a booking."""
    return company.accept(af.current_task().id, "cancel", what)


class Trip(af.Workflow[str]):
    """Books everything, or nothing."""

    def __init__(self, place: str) -> None:
        self.place = place

    def handle(self) -> str:
        """Return the outcome. The trip may also be cancelled from outside at any time."""
        booked: list[str] = []
        try:
            for what in ("hotel in", "car in", "flight to"):
                booking = self.execute(book(f"{what} {self.place}"), raises=True)
                booked.append(booking)
        except (af.StepFailed, af.Cancelled) as reason:
            for each in reversed(booked):
                self.execute(cancel(each))
            if isinstance(reason, af.Cancelled):
                raise
            return f"no trip to {self.place}"
        return f"booked {', '.join(booked)}"


def main(store: str = ":memory:") -> list[str]:
    """Book two trips; return what became of them."""
    with af.Engine(store) as engine:
        trips = [engine.start(Trip(place), id=place) for place in ("Rome", "the moon")]
        return [trip.result(timeout=30) for trip in trips]


if __name__ == "__main__":
    print(*main(*sys.argv[1:]), sep="\n")
    print("booked now:", ", ".join(sorted(company.booked())))
