"""The thread of a member does what its answers lead to, without waiting for the next renewal."""

from __future__ import annotations

import threading
from time import time

from actorflow.cluster.membership import Membership
from actorflow.cluster.ring import CheckIn, RingOptions, Roll, View, check_in

PATIENCE = 30.0
LEASE = 6_000.0  # nobody renews within the test, or looks by itself
PARTITIONS = 8


class Carrier:
    """A register in memory."""

    def __init__(self) -> None:
        self._roll = Roll.of(PARTITIONS)
        self._lock = threading.Lock()
        self.looked = threading.Condition()

    def check_in(self, request: CheckIn) -> View:
        with self._lock:
            return check_in(self._roll, request, time())

    def hint(self, member: str) -> None:
        raise AssertionError(member)

    def look(self) -> None:
        with self.looked:
            self.looked.notify_all()


def test_c8_what_an_answer_shows_to_be_free_is_taken_at_once() -> None:
    carrier = Carrier()
    carrier.check_in(CheckIn("a", LEASE, take=tuple(range(PARTITIONS))))
    member = Membership("b", carrier, RingOptions(lease=LEASE, sweep=LEASE))
    member.join()
    try:
        assert not member.owned()
        carrier.check_in(CheckIn("a", LEASE, leave=True))
        member.hurry()
        with carrier.looked:
            taken = carrier.looked.wait_for(lambda: len(member.owned()) == PARTITIONS, PATIENCE)
        assert taken, "the member has seen that they are free, and waits for its next renewal"
    finally:
        member.stop()
