"""Call an API within its limits: so many requests a second, and fewer for each customer.

`python app.py [STORE]` queues 60 requests on disk and sends them at the allowed pace. Kill it and
run it again: it goes on where it was, and the limits still hold.
"""

from __future__ import annotations

import sys
import time
from typing import TypedDict

import actorflow as af
from actorflow.behaviours import Queue, Rate

PER_SECOND, BURST = 100.0, 10
PER_CUSTOMER, CUSTOMER_BURST = 40.0, 5


class Request(TypedDict):
    """One call of the API. Plain data, because a behaviour sees messages as they are stored."""

    customer: str
    number: int


class Sent(TypedDict):
    """The requests that were sent, and their times."""

    requests: list[Request]
    times: list[float]


def customer(request: Request) -> str:
    """Return whose limit a request counts for."""
    return request["customer"]


def limits() -> Rate:
    """Return both limits, one around the other."""
    inner = Rate(Queue(), PER_CUSTOMER, burst=CUSTOMER_BURST, key=customer)
    return Rate(inner, PER_SECOND, burst=BURST)


def send(batch: list[Request], sent: Sent) -> Sent:
    """Send requests; a batch has as many as both limits allow now."""
    now = time.time()
    return {
        "requests": [*sent["requests"], *batch],
        "times": [*sent["times"], *(now for _ in batch)],
    }


def main(store: str = ":memory:") -> Sent:
    """Queue the requests, and wait until all are sent."""
    with af.Engine(store) as engine:
        api = engine.worker("api", send, state={"requests": [], "times": []}, behaviour=limits)
        for number in range(60):
            request: Request = {"customer": "abc"[number % 3], "number": number}
            engine.send("api", request, key=f"request-{number}")  # the key: each only once
        while True:
            sent: Sent = api.state()
            if len(sent["requests"]) == 60:
                return sent
            time.sleep(0.05)


if __name__ == "__main__":
    done = main(*sys.argv[1:])
    print(f"{len(done['requests'])} requests in {done['times'][-1] - done['times'][0]:.2f} s")
