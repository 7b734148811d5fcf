"""A wakeup: seen once, never lost, and no wait is longer than its timeout."""

from __future__ import annotations

import threading

from actorflow.runtime.lanes.wakeup import Wakeup
from tests.runtime.worker.probe import PATIENCE


def test_rings_before_a_wait_are_heard_as_one() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    wakeup.wake()
    assert wakeup.wait(PATIENCE)
    assert not wakeup.wait(0.0)


def test_a_thread_that_waits_without_end_is_woken() -> None:
    wakeup = Wakeup()
    woken = threading.Event()

    def wait() -> None:
        if wakeup.wait():
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    wakeup.wake()
    assert woken.wait(PATIENCE)
    thread.join(PATIENCE)


def test_a_wait_of_almost_nothing_ends() -> None:
    """A queue of the standard library would wait forever here."""
    wakeup = Wakeup()
    ended = threading.Event()

    def wait() -> None:
        for _ in range(10_000):
            wakeup.wake()
            assert wakeup.wait(PATIENCE)
            assert not wakeup.wait(1e-9)
            assert not wakeup.wait(-1.0)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(PATIENCE)


def test_a_wait_may_be_longer_than_the_system_can() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    assert wakeup.wait(1e30)
