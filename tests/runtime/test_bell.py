"""A bell: heard once, never lost, and no wait is longer than it was told to be."""

from __future__ import annotations

import threading

from actorflow.runtime.bell import Bell
from tests.runtime.worker.probe import PATIENCE


def test_rings_before_a_wait_are_heard_as_one() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(PATIENCE)
    assert not bell.wait(0.0)


def test_a_thread_that_waits_without_end_is_woken() -> None:
    bell = Bell()
    woken = threading.Event()

    def wait() -> None:
        if bell.wait():
            woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    bell.ring()
    assert woken.wait(PATIENCE)
    thread.join(PATIENCE)


def test_a_wait_of_almost_nothing_ends() -> None:
    """A queue of the standard library would wait for ever here."""
    bell = Bell()
    ended = threading.Event()

    def wait() -> None:
        for _ in range(10_000):
            bell.ring()
            assert bell.wait(PATIENCE)
            assert not bell.wait(1e-9)
            assert not bell.wait(-1.0)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(PATIENCE)


def test_a_wait_may_be_longer_than_the_system_can() -> None:
    bell = Bell()
    bell.ring()
    assert bell.wait(1e30)
