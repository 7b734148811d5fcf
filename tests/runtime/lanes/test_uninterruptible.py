"""The helper: functions run to their end whatever signals do to the main thread."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.runtime.lanes import uninterruptible as helper_module
from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, Uninterruptible, in_main_thread
from tests.runtime.lanes.test_interrupts import interrupted_at, places
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def helper() -> Iterator[Uninterruptible]:
    """Return a helper of its own, whose thread ends with the test."""
    made = Uninterruptible()
    yield made
    made._inbox.put(None)


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call `function` in another thread and return what it returns."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(PATIENCE)
    return found[0]


def test_only_the_main_thread_is_the_main_thread() -> None:
    assert in_main_thread()
    assert not elsewhere(in_main_thread)
    assert not UNINTERRUPTIBLE.run(in_main_thread)


def test_the_main_thread_gets_the_result_of_another_thread(helper: Uninterruptible) -> None:
    def work(*args: int) -> tuple[str, int]:
        return threading.current_thread().name, sum(args)

    assert helper.run(work, 1, 2, 3) == ("actorflow-helper", 6)
    assert helper.run(lambda: None) is None


def test_all_calls_run_in_one_thread(helper: Uninterruptible) -> None:
    assert len({helper.run(threading.get_ident) for _ in range(50)}) == 1


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt("again")])
def test_what_the_function_raises_is_raised_to_the_caller(
    helper: Uninterruptible, error: BaseException
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        helper.run(fails)
    assert caught.value is error
    assert helper.run(lambda: "goes on") == "goes on"


def test_other_threads_call_directly(helper: Uninterruptible) -> None:
    def work() -> bool:
        return bool(helper.run(threading.get_ident) == threading.get_ident())

    assert elsewhere(work)
    assert helper._vacant  # no thread was needed


def test_the_helper_calls_itself_directly(helper: Uninterruptible) -> None:
    assert helper.run(lambda: helper.run(threading.get_ident) == threading.get_ident())


def test_posts_run_in_their_order_and_before_a_later_call(helper: Uninterruptible) -> None:
    seen: list[int] = []
    for number in range(100):
        helper.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    assert helper.run(lambda: list(seen)) == list(range(100))


def test_a_post_from_another_thread_runs_in_the_helper(helper: Uninterruptible) -> None:
    names: list[str] = []
    elsewhere(lambda: helper.post(lambda: names.append(threading.current_thread().name)))
    helper.run(lambda: None)
    assert names == ["actorflow-helper"]


def test_a_post_that_raises_is_logged_and_the_next_one_runs(
    helper: Uninterruptible, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise SystemExit(3)

    helper.post(fails)
    assert helper.run(lambda: 1) == 1
    assert "uninterruptible function raised" in caplog.text


def test_nothing_is_kept_of_what_has_run(helper: Uninterruptible) -> None:
    class Large:
        pass

    def fails(large: Large) -> None:
        raise ValueError("no")

    large = Large()
    kept = weakref.ref(large)
    helper.run(lambda _: None, large)
    with pytest.raises(ValueError, match="no"):
        helper.run(fails, large)
    helper.post(lambda large=large: None)  # type: ignore[misc]
    helper.run(lambda: None)
    helper.run(lambda: None)  # the thread has let go of the one before
    del large
    gc.collect()
    assert kept() is None


def test_m14_without_a_thread_functions_are_called_directly(
    helper: Uninterruptible, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    seen: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(helper_module, "start_new_thread", refuse)
        assert helper.run(threading.get_ident) == threading.get_ident()
        helper.post(lambda: seen.append(threading.get_ident()))
        assert seen == [threading.get_ident()]
    assert helper.run(threading.get_ident) != threading.get_ident()


def test_two_threads_that_were_started_make_one_helper(helper: Uninterruptible) -> None:
    """An interrupt right after a start makes the next call start another thread."""
    assert helper._start()
    assert helper._start()
    assert len({helper.run(threading.get_ident) for _ in range(20)}) == 1


def test_m13_an_interrupt_of_the_caller_does_not_interrupt_the_function(
    helper: Uninterruptible,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    steps: list[str] = []

    def work() -> None:
        steps.append("begun")
        begun.set()
        assert go_on.wait(PATIENCE)
        steps.append("ended")

    def interrupt() -> None:
        begun.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        helper.run(work)
    assert steps == ["begun"]
    go_on.set()
    assert helper.run(lambda: list(steps)) == ["begun", "ended"]


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("how", ["run", "post"])
def test_m13_a_function_runs_wholly_or_not_at_all_wherever_the_interrupt_strikes(
    how: str,
    started: bool,  # noqa: FBT001
) -> None:
    def once(place: int) -> bool:
        helper, left, right = Uninterruptible(), list[int](), list[int]()
        if started:
            helper.run(lambda: None)

        def work() -> None:
            left.append(1)
            right.append(1)

        reached = interrupted_at(place, lambda: getattr(helper, how)(work))
        assert helper.run(lambda: (left, right)) in (([], []), ([1], [1]))
        helper._inbox.put(None)
        return reached

    assert places(once) > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_m24_a_forked_child_has_a_helper_of_its_own() -> None:
    script = textwrap.dedent(
        """
        import os, threading, warnings
        from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE, in_main_thread

        warnings.simplefilter("ignore")
        gate = threading.Event()
        UNINTERRUPTIBLE.run(lambda: None)
        UNINTERRUPTIBLE.post(gate.wait)  # busy in the parent

        def fork_and_check():
            child = os.fork()
            if child == 0:
                ok = in_main_thread() and not UNINTERRUPTIBLE.run(in_main_thread)
                os._exit(0 if ok else 1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        assert fork_and_check() == 0
        found = []
        thread = threading.Thread(target=lambda: found.append(fork_and_check()))
        thread.start()
        thread.join()
        assert found == [0], found
        gate.set()
        assert UNINTERRUPTIBLE.run(fork_and_check) == 0
        """
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_at_interpreter_exit_functions_are_called_directly() -> None:
    script = textwrap.dedent(
        """
        from actorflow.runtime.lanes.uninterruptible import UNINTERRUPTIBLE

        class Last:
            def __del__(self, run=UNINTERRUPTIBLE.run, print=print):
                print("deleted", run(len, "abc"), flush=True)

        UNINTERRUPTIBLE.run(len, "")
        keep = Last()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "deleted 3\n"
