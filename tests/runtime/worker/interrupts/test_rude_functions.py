"""M12, M13: key functions that raise anything, or push to the worker that calls them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.behaviours import Bounded, Coalesce, Linger, Priority, Unique
from tests.runtime.worker.probe import PATIENCE, Caller, Probe
from tests.runtime.worker.statistics.law import check_law

if TYPE_CHECKING:
    from collections.abc import Callable

RUDE = (KeyboardInterrupt, SystemExit, GeneratorExit)

AROUND: dict[str, Callable[[Any], Any]] = {
    "unique": Unique,
    "priority": lambda key: Priority(lambda message: len(key(message))),
    "coalesce": lambda key: Coalesce(key, lambda old, new: new),
    "bounded": lambda key: Bounded(Unique(key), 100),
    "blocking": lambda key: Bounded(Unique(key), 100, when_full="block"),
    "linger": lambda key: Linger(Unique(key), 0.0005),
}


def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    caller = Caller(call, *arguments).wait()
    if caller.error is not None:
        raise caller.error
    return caller.result


def in_main(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("where", [in_main, in_thread])
@pytest.mark.parametrize("rude", RUDE)
@pytest.mark.parametrize("around", AROUND)
def test_m12_a_key_function_that_raises_refuses_its_message_alone(
    around: str, rude: type[BaseException], where: Callable[..., Any], *, busy: bool
) -> None:
    def key(message: Any) -> Any:
        if message == "rude":
            raise rude
        return message

    probe = Probe()
    worker = probe.spawn(behaviour=AROUND[around](key))
    if busy:
        worker.push("first")
        probe.begun()
    else:
        probe.open()
    where(worker.push, "rude")
    where(worker.push_many, ["a", "rude", "b"])
    with pytest.raises(af.Rejected):
        where(worker.push_ack, "rude")
    probe.open()
    for call in (worker.push_block, worker.ask):
        with pytest.raises(af.Rejected):
            where(call, "rude")
    where(worker.push_block, "last")
    worker.stop(timeout=PATIENCE)
    counts = check_law(worker)
    assert counts.rejected == 5
    assert counts.processed == len({"a", "b", "last"}) + busy
    assert worker.exit_reason == af.Normal()


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("where", [in_main, in_thread])
@pytest.mark.parametrize("verb", ["push", "push_ack", "push_block", "push_many", "ask"])
@pytest.mark.parametrize("around", AROUND)
def test_m12_a_key_function_that_pushes_to_its_own_worker_is_refused(
    around: str, verb: str, where: Callable[..., Any], *, busy: bool
) -> None:
    errors: list[BaseException] = []

    def key(message: Any) -> Any:
        if message == "own":
            argument: Any = ["inner"] if verb == "push_many" else "inner"
            try:
                getattr(worker, verb)(argument)
            except BaseException as error:
                errors.append(error)
                raise
        return message

    probe = Probe()
    worker = probe.spawn(behaviour=AROUND[around](key))
    if busy:
        worker.push("first")
        probe.begun()
    else:
        probe.open()
    refusal: Exception | None = None
    try:
        where(worker.push_ack, "own")
    except af.Rejected as error:
        refusal = error
    if busy and verb in ("push", "push_many") and around != "blocking":
        assert refusal is None  # a busy worker's list is only appended to, which waits for nothing
        assert not errors
    else:
        assert isinstance(refusal, af.Malformed)
        assert isinstance(refusal.__cause__, af.WouldDeadlock), refusal.__cause__
        assert {type(one) for one in errors} == {af.WouldDeadlock}
    probe.open()
    where(worker.push_block, "last")
    worker.stop(timeout=PATIENCE)
    check_law(worker)


def test_the_interrupt_of_a_key_function_stays_in_its_message_when_many_push() -> None:
    def key(message: int) -> int:
        if message % 5 == 0:
            raise KeyboardInterrupt
        return message

    worker = af.spawn(lambda batch, state: None, behaviour=Unique(key))
    callers = [Caller(worker.push_many, range(start, 3000, 4)) for start in range(4)]
    for number in range(3000, 6000):
        worker.push(number)
    for caller in callers:
        assert caller.wait().error is None
    worker.stop(timeout=PATIENCE)
    counts = check_law(worker)
    assert (counts.rejected, counts.accepted) == (1200, 4800)


# Ctrl-C in asyncio.run.

_DRAINS = """
import asyncio, os, signal, sys, threading
import actorflow as af
from actorflow.behaviours import Linger, Queue

processed = []
interrupted = threading.Event()

def job(batch, state):
    interrupted.wait()
    processed.extend(batch)

async def ajob(batch, state):
    await asyncio.to_thread(interrupted.wait)
    processed.extend(batch)

pushed = []

async def main(kind):
    chosen = ajob if kind == "coroutine" else job
    behaviour = Linger(Queue(), 60.0) if kind == "linger" else Queue()
    async with af.spawn(chosen, behaviour=behaviour) as worker:
        main.worker = worker
        for number in range(100):
            worker.push(number)
            pushed.append(number)
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        try:
            if kind == "waiting":
                await worker.apush_block("waits", timeout=None)
            await asyncio.sleep(60)
        finally:
            interrupted.set()

try:
    asyncio.run(main(sys.argv[1]))
except KeyboardInterrupt:
    pass
else:
    sys.exit("the interrupt has vanished")
counts = main.worker.statistics()
assert not main.worker.is_alive()
assert counts.held == counts.in_flight == 0, counts
assert [one for one in processed if one != "waits"] == pushed, (processed, counts)
assert counts.processed == counts.accepted == len(processed), counts
"""


@pytest.mark.parametrize("kind", ["function", "coroutine", "linger", "waiting"])
def test_m13_an_interrupt_of_asyncio_run_drains_the_worker(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DRAINS, kind],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
