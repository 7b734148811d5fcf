"""Calls apart: they run to their end whatever signals do to the main thread."""

from __future__ import annotations

import signal
import threading
from _thread import allocate_lock
from typing import Any

import pytest

from actorflow.runtime.lanes import uninterruptible
from actorflow.runtime.lanes.uninterruptible import in_main_thread, run_in_new_thread
from tests.runtime.worker.probe import PATIENCE, until


def interrupt() -> None:
    """Send SIGINT to the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_the_main_thread_gets_the_outcome_of_another_thread() -> None:
    def fails() -> None:
        raise ValueError("as it is")

    assert not run_in_new_thread(in_main_thread)
    assert run_in_new_thread(lambda *args: sum(args), 1, 2, 3) == 6
    with pytest.raises(ValueError, match="as it is"):
        run_in_new_thread(fails)


def test_any_other_thread_calls_it_directly() -> None:
    found: list[bool] = []
    thread = threading.Thread(
        target=lambda: found.append(run_in_new_thread(threading.get_ident) == threading.get_ident())
    )
    thread.start()
    thread.join(PATIENCE)
    assert found == [True]


def test_without_a_thread_it_is_called_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    assert run_in_new_thread(in_main_thread)


def test_an_interrupted_call_goes_on_and_is_undone_when_it_has_ended() -> None:
    interrupted, undone = threading.Event(), threading.Event()
    made: list[str] = []

    def make() -> str:
        interrupt()
        assert interrupted.wait(PATIENCE)
        return "made"

    def undo(what: str) -> None:
        made.append(what)
        undone.set()

    with pytest.raises(KeyboardInterrupt):
        run_in_new_thread(make, undo=undo)
    assert not made
    interrupted.set()
    assert undone.wait(PATIENCE)
    assert made == ["made"]


def test_an_interrupt_while_the_thread_is_started_does_not_call_it_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted, calls = threading.Event(), list[bool]()
    ended = threading.Event()
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        try:  # as in `Condition.wait`: the interrupt comes between a release and an acquire
            start(thread)
            if in_main_thread():
                assert interrupted.wait(PATIENCE)
        except KeyboardInterrupt:
            raise RuntimeError("release unlocked lock") from None

    def runs() -> None:
        calls.append(in_main_thread())
        interrupt()
        assert interrupted.wait(PATIENCE)
        ended.set()

    monkeypatch.setattr(threading.Thread, "start", starts)
    with pytest.raises(KeyboardInterrupt):
        run_in_new_thread(runs)
    interrupted.set()
    assert ended.wait(PATIENCE)
    assert calls == [False]


def test_what_has_ended_when_the_interrupt_comes_is_undone_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undone, made = threading.Event(), list[str]()

    def undo(what: str) -> None:
        made.append(what)
        undone.set()

    class Interrupted(uninterruptible._Undoable):
        """Its caller is interrupted when it has ended, before it has heard of that."""

        __slots__ = ()

        def execute(self) -> None:
            done, self.done = self.done, allocate_lock()
            self.done.acquire()
            super().execute()
            self.done = done
            interrupt()

    monkeypatch.setattr(uninterruptible, "_Undoable", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_new_thread(lambda: "made", undo=undo)
    assert undone.wait(PATIENCE)
    assert made == ["made"]


def test_what_has_failed_is_logged_and_not_undone(caplog: pytest.LogCaptureFixture) -> None:
    interrupted, undone = threading.Event(), list[Any]()

    def fails() -> None:
        interrupt()
        assert interrupted.wait(PATIENCE)
        raise ValueError("nobody waits for it")

    with pytest.raises(KeyboardInterrupt):
        run_in_new_thread(fails, undo=undone.append)
    interrupted.set()
    until(lambda: "nobody waits for it" in caplog.text, "it is logged")
    assert undone == []
