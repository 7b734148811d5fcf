"""The shelter: functions run to their end whatever signals do to the main thread."""

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

from actorflow.runtime.lanes import shelter as shelter_module
from actorflow.runtime.lanes.shelter import SHELTER, Shelter, in_main_thread
from tests.runtime.lanes.test_interrupts import interrupted_at, places
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def shelter() -> Iterator[Shelter]:
    """Return a shelter of its own, whose thread ends with the test."""
    made = Shelter()
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
    assert not SHELTER.run(in_main_thread)


def test_the_main_thread_gets_the_result_of_another_thread(shelter: Shelter) -> None:
    def work(*args: int) -> tuple[str, int]:
        return threading.current_thread().name, sum(args)

    assert shelter.run(work, 1, 2, 3) == ("actorflow-shelter", 6)
    assert shelter.run(lambda: None) is None


def test_all_calls_run_in_one_thread(shelter: Shelter) -> None:
    assert len({shelter.run(threading.get_ident) for _ in range(50)}) == 1


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt("again")])
def test_what_the_function_raises_is_raised_to_the_caller(
    shelter: Shelter, error: BaseException
) -> None:
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        shelter.run(fails)
    assert caught.value is error
    assert shelter.run(lambda: "goes on") == "goes on"


def test_other_threads_call_directly(shelter: Shelter) -> None:
    def work() -> bool:
        return bool(shelter.run(threading.get_ident) == threading.get_ident())

    assert elsewhere(work)
    assert shelter._vacant  # no thread was needed


def test_the_shelter_calls_itself_directly(shelter: Shelter) -> None:
    assert shelter.run(lambda: shelter.run(threading.get_ident) == threading.get_ident())


def test_posts_run_in_their_order_and_before_a_later_call(shelter: Shelter) -> None:
    seen: list[int] = []
    for number in range(100):
        shelter.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    assert shelter.run(lambda: list(seen)) == list(range(100))


def test_a_post_from_another_thread_runs_in_the_shelter(shelter: Shelter) -> None:
    names: list[str] = []
    elsewhere(lambda: shelter.post(lambda: names.append(threading.current_thread().name)))
    shelter.run(lambda: None)
    assert names == ["actorflow-shelter"]


def test_a_post_that_raises_is_logged_and_the_next_one_runs(
    shelter: Shelter, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise SystemExit(3)

    shelter.post(fails)
    assert shelter.run(lambda: 1) == 1
    assert "sheltered function raised" in caplog.text


def test_nothing_is_kept_of_what_has_run(shelter: Shelter) -> None:
    class Large:
        pass

    def fails(large: Large) -> None:
        raise ValueError("no")

    large = Large()
    kept = weakref.ref(large)
    shelter.run(lambda _: None, large)
    with pytest.raises(ValueError, match="no"):
        shelter.run(fails, large)
    shelter.post(lambda large=large: None)  # type: ignore[misc]
    shelter.run(lambda: None)
    shelter.run(lambda: None)  # the thread has let go of the one before
    del large
    gc.collect()
    assert kept() is None


def test_m14_without_a_thread_functions_are_called_directly(
    shelter: Shelter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    seen: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(shelter_module, "start_new_thread", refuse)
        assert shelter.run(threading.get_ident) == threading.get_ident()
        shelter.post(lambda: seen.append(threading.get_ident()))
        assert seen == [threading.get_ident()]
    assert shelter.run(threading.get_ident) != threading.get_ident()


def test_two_threads_that_were_started_make_one_shelter(shelter: Shelter) -> None:
    """An interrupt right after a start makes the next call start another thread."""
    assert shelter._start()
    assert shelter._start()
    assert len({shelter.run(threading.get_ident) for _ in range(20)}) == 1


def test_m13_an_interrupt_of_the_caller_does_not_interrupt_the_function(shelter: Shelter) -> None:
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
        shelter.run(work)
    assert steps == ["begun"]
    go_on.set()
    assert shelter.run(lambda: list(steps)) == ["begun", "ended"]


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("how", ["run", "post"])
def test_m13_a_function_runs_wholly_or_not_at_all_wherever_the_interrupt_strikes(
    how: str,
    started: bool,  # noqa: FBT001
) -> None:
    def once(place: int) -> bool:
        shelter, left, right = Shelter(), list[int](), list[int]()
        if started:
            shelter.run(lambda: None)

        def work() -> None:
            left.append(1)
            right.append(1)

        reached = interrupted_at(place, lambda: getattr(shelter, how)(work))
        assert shelter.run(lambda: (left, right)) in (([], []), ([1], [1]))
        shelter._inbox.put(None)
        return reached

    assert places(once) > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no os.fork")
def test_m24_a_forked_child_has_a_shelter_of_its_own() -> None:
    script = textwrap.dedent(
        """
        import os, threading, warnings
        from actorflow.runtime.lanes.shelter import SHELTER, in_main_thread

        warnings.simplefilter("ignore")
        gate = threading.Event()
        SHELTER.run(lambda: None)
        SHELTER.post(gate.wait)  # busy in the parent

        def fork_and_check():
            child = os.fork()
            if child == 0:
                ok = in_main_thread() and not SHELTER.run(in_main_thread)
                os._exit(0 if ok else 1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        assert fork_and_check() == 0
        found = []
        thread = threading.Thread(target=lambda: found.append(fork_and_check()))
        thread.start()
        thread.join()
        assert found == [0], found
        gate.set()
        assert SHELTER.run(fork_and_check) == 0
        """
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_at_interpreter_exit_functions_are_called_directly() -> None:
    script = textwrap.dedent(
        """
        from actorflow.runtime.lanes.shelter import SHELTER

        class Last:
            def __del__(self, run=SHELTER.run, print=print):
                print("deleted", run(len, "abc"), flush=True)

        SHELTER.run(len, "")
        keep = Last()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "deleted 3\n"
