"""How tests run here: none hangs forever, no thread outlives its test, hypothesis by profile."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.servers import nats, postgres

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

__all__ = ["nats", "postgres"]

ROOT = Path(__file__).parent.parent

# --- hypothesis ----------------------------------------------------------------------------------

settings.register_profile(
    "local",
    max_examples=50,
    deadline=None,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples"),
    # How fast the machine is must not decide whether a test passes.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("local"), print_blob=True)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=5_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "local")
)

# --- interrupts ----------------------------------------------------------------------------------

# A shell without job control starts background jobs with SIGINT ignored. Child processes inherit
# that, so the programs that tests start would also ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# --- the watchdog --------------------------------------------------------------------------------

AGAIN_AFTER = 5.0
"""Seconds, at most, until a test that swallowed `TestHungError` gets it again."""

PYTEST = f"{os.sep}_pytest{os.sep}"


class TestHungError(BaseException):
    """A test ran longer than its timeout; the message holds the stacks of all threads.

    Not an `Exception`, and not pytest's `Failed`: hypothesis takes both as a finding and runs the
    hanging example again to shrink it; the code under test may well catch the former.
    """

    __test__ = False


class TimeoutSettings(Protocol):
    """What pytest-timeout tells about one test."""

    timeout: float
    method: str


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: TimeoutSettings) -> bool | None:
    """Start the timer of one test; in place of pytest-timeout's own.

    Its own prints the stacks to the terminal, which a worker process of xdist does not have, and
    raises only once. None leaves the job to it: where SIGALRM is missing, and off the main thread.
    """
    if (
        settings.method != "signal"
        or not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        return None

    def on_alarm(_signum: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if makes_report(frame):
            return  # raised there, it would end the whole run
        message = f"{item.nodeid} did not end within {settings.timeout:g} s"
        raise TestHungError(f"{message}\n\n{stacks(threading.enumerate(), here=frame)}")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, min(settings.timeout, AGAIN_AFTER))
    return True


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    """Stop the timer: the test is over, or has failed and is being shown in a debugger."""
    stop_timer()


def pytest_enter_pdb() -> None:
    """Stop the timer: somebody is looking."""
    stop_timer()


def makes_report(frame: FrameType | None) -> bool:
    """Return whether pytest is describing a failure; on a busy machine that takes seconds."""
    while frame is not None:
        if frame.f_code.co_name == "pytest_runtest_makereport":
            return True
        frame = frame.f_back
    return False


def stop_timer() -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def stacks(threads: Iterable[threading.Thread], *, here: FrameType | None = None) -> str:
    """Return the stacks of threads, below pytest's own frames; the caller's as seen from `here`."""
    frames = sys._current_frames()
    if here is not None:
        frames[threading.get_ident()] = here
    parts = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame else []
        ours = max((n for n, entry in enumerate(stack, 1) if PYTEST in entry.filename), default=0)
        kind = "daemon" if thread.daemon else "non-daemon"
        parts.append(f"--- {thread.name} ({kind})\n{''.join(traceback.format_list(stack[ours:]))}")
    return "\n".join(parts)


# --- threads that outlive their test -------------------------------------------------------------

PATIENCE = 2.0
"""Seconds that the threads of a test together get to end once the test is over."""

EXIT_STATUS = pytest.StashKey[int]()
left_behind: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def no_thread_left_behind() -> Iterator[None]:
    """Fail a test that leaves a non-daemon thread running.

    Daemon threads may stay: those of the runtime (named `actorflow...`) serve the whole process.
    """
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + PATIENCE
    started = [t for t in threading.enumerate() if t not in before and not t.daemon]
    for thread in started:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread for thread in started if thread.is_alive()]
    if left:
        left_behind.extend(left)
        names = ", ".join(thread.name for thread in left)
        pytest.fail(f"threads left running: {names}\n\n{stacks(left)}", pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[EXIT_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process when threads that were reported as left behind would keep it from ending."""
    if any(thread.is_alive() for thread in left_behind):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash.get(EXIT_STATUS, 1))
