"""Code of users may raise, end or sleep as it likes: nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.behaviours import Base, Queue, Unique
from actorflow.engine import bodies
from actorflow.engine.engine import BareEngine
from actorflow.engine.kind import NewTask, Options, Outcome, Status, TaskEnded
from actorflow.engine.tasks.task import HOLD
from actorflow.runtime.actor.actor import Stop
from actorflow.runtime.errors import Dropped, Replaced, WorkerStopped
from actorflow.runtime.worker.job.deferred import Deferred
from tests.engine.kinds import PATIENCE, Script, collect, quiet, rows, state_of, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actorflow.engine.stores.protocol import ExecutionRow, Store


class Unspeakable(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


ERRORS: list[Callable[[], BaseException]] = [
    lambda: ValueError("no"),
    lambda: Dropped("mine"),
    lambda: Replaced("mine"),
    lambda: WorkerStopped("mine"),
    Stop,
    lambda: SystemExit(3),
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    Unspeakable,
    lambda: ValueError("a lone \udc80 surrogate"),
]
NAMES = [
    "ValueError", "Dropped", "Replaced", "WorkerStopped", "Stop", "SystemExit", "KeyboardInterrupt",
    "GeneratorExit", "CancelledError", "Unspeakable", "surrogate",
]  # fmt: skip


@pytest.fixture
def no_log() -> Iterator[None]:
    """Log nothing: a traceback with a lone surrogate cannot be reported by pytest-xdist."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
@pytest.mark.parametrize("make", ERRORS, ids=NAMES)
@pytest.mark.parametrize("way", ["function", "coroutine"])
def test_whatever_a_job_raises_makes_a_dead_letter(
    engine: BareEngine, make: Callable[[], BaseException], way: str
) -> None:
    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if "bad" in batch:
            raise make()
        return [*state, *batch]

    async def coroutine(batch: list[Any], state: list[Any]) -> list[Any]:
        return job(batch, state)

    worker = engine.worker("w", job if way == "function" else coroutine, state=[])
    worker.push_block(1)
    worker.push("bad")
    worker.push_ack(2)
    worker.push_block(3)
    with pytest.raises(BaseException) as told:  # noqa: PT011 - each its own
        worker.push_block("bad")
    assert type(told.value) is type(make())
    worker.push_block(4)
    assert worker.state() == [1, 2, 3, 4]
    assert [letter.message for letter in worker.dead_letters] == ["bad", "bad"]
    assert all(type(make()).__name__ in letter.error for letter in worker.dead_letters)


@pytest.mark.usefixtures("no_log")
@pytest.mark.parametrize("make", ERRORS, ids=NAMES)
@pytest.mark.parametrize("way", ["function", "coroutine"])
def test_whatever_a_tasker_raises_is_a_failed_task(
    engine: BareEngine, make: Callable[[], BaseException], way: str
) -> None:
    def step(state: Any, message: Any) -> Any:
        if isinstance(message, TaskEnded):
            assert message.error is None or message.outcome == "failed"
            return [*state, message.value if message.error is None else message.error.type]
        return Outcome(state=state, tasks=[NewTask(name, "t", name) for name in message])

    def do(task: Any) -> Any:
        if task.body == "bad":
            raise make()
        return task.body

    async def do_later(task: Any) -> Any:
        return do(task)

    script = Script(step)
    engine.register(script)
    engine.tasker("t", do if way == "function" else do_later)
    engine.send("x", ["bad", "good"], kind="script")
    script.wait(3)
    quiet(engine)
    assert state_of(engine, "x") == [type(make()).__name__, "good"]


@pytest.mark.usefixtures("no_log")
@pytest.mark.parametrize("make", ERRORS, ids=NAMES)
def test_whatever_a_key_function_raises_concerns_that_message(
    engine: BareEngine, make: Callable[[], BaseException]
) -> None:
    def key(message: Any) -> Any:
        if message == "bad":
            raise make()
        return message

    worker = engine.worker("w", collect, state=[], behaviour=lambda: Unique(key=key))
    worker.push_block(1)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - each its own
        worker.push_ack("bad")
    worker.push_block(2)
    assert worker.state() == [1, 2]
    assert [letter.message for letter in worker.dead_letters] == ["bad"]


@pytest.mark.usefixtures("no_log")
@pytest.mark.parametrize("make", ERRORS, ids=NAMES)
def test_whatever_on_cancel_raises_ends_nothing(
    engine: BareEngine, make: Callable[[], BaseException]
) -> None:
    called = threading.Event()

    def on_cancel(task: Any) -> None:
        called.set()
        raise make()

    script = Script(lambda state, message: Outcome(state=[], tasks=[NewTask("a", "t")]))
    engine.register(script)
    engine.tasker("t", lambda task: HOLD, on_cancel=on_cancel)
    engine.send("x", 1, kind="script")
    script.wait(1)
    quiet(engine)
    assert engine.cancel("x")
    assert called.wait(PATIENCE)
    worker = engine.worker("w", collect, state=[])
    worker.push_block(1)
    assert rows(engine, "tasks") == []


def test_on_cancel_may_use_the_engine(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    done = threading.Event()

    def on_cancel(task: Any) -> None:
        worker.push_ack("acknowledged")
        worker.push_block("processed")
        engine.send("other", task.id, kind="script")
        engine.start("script", "started", id="third")
        done.set()

    def step(state: Any, message: Any) -> Any:
        return Outcome(
            state=[*state, message], tasks=[NewTask("a", "t")] if message == "begin" else []
        )

    script = Script(step)
    engine.register(script)
    engine.tasker("t", lambda task: HOLD, on_cancel=on_cancel)
    engine.send("x", "begin", kind="script")
    script.wait(1)
    quiet(engine)
    assert engine.cancel("x")
    assert done.wait(PATIENCE)
    quiet(engine)
    assert worker.state() == ["acknowledged", "processed"]
    assert state_of(engine, "other") == ["a"]
    assert state_of(engine, "third") == ["started"]


# Coroutines and Deferred: the poison alone.


@pytest.mark.parametrize("way", ["function", "coroutine", "deferred"])
def test_only_the_poison_among_thirty_is_a_dead_letter(engine: BareEngine, way: str) -> None:
    entered, go = threading.Event(), threading.Event()

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if batch == ["first"]:
            entered.set()
            assert go.wait(PATIENCE)
        if "poison" in batch:
            raise ValueError("poison")
        return [*state, *batch]

    async def coroutine(batch: list[Any], state: list[Any]) -> list[Any]:
        if batch == ["first"]:
            entered.set()
            await asyncio.to_thread(go.wait, PATIENCE)
        return job(batch, state)

    def deferring(batch: list[Any], state: list[Any]) -> Any:
        made = Deferred()

        def later() -> None:
            try:
                made.resolve(None, job(batch, state))
            except ValueError as error:
                made.resolve(error)

        threading.Thread(target=later).start()
        return made

    jobs: dict[str, Any] = {"function": job, "coroutine": coroutine, "deferred": deferring}
    worker = engine.worker("w", jobs[way], state=[])
    worker.push_ack("first")
    assert entered.wait(PATIENCE)
    worker.push_many([*range(17), "poison", *range(17, 29)])
    go.set()
    worker.push_block("last", timeout=PATIENCE)
    assert worker.state() == ["first", *range(29), "last"]
    assert [letter.message for letter in worker.dead_letters] == ["poison"]


# Nobody else waits for a hook that does not return.


class Hooks:
    """Hooks of a user, of which one hangs until the test lets it go."""

    def __init__(self, hanging: str) -> None:
        self.hanging = hanging
        self.entered, self.go = threading.Event(), threading.Event()

    def pass_by(self, name: str) -> None:
        if name == self.hanging:
            self.entered.set()
            assert self.go.wait(PATIENCE)


class Slow(Base):
    """A behaviour of a user."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__()
        self._hooks = hooks

    def add(self, messages: Any, message: Any) -> Any:
        self._hooks.pass_by("behaviour.add")
        return super().add(messages, message)

    def transform(self, messages: Any) -> Any:
        self._hooks.pass_by("behaviour.transform")
        return super().transform(messages)

    def clear(self, messages: Any) -> Any:
        self._hooks.pass_by("behaviour.clear")
        return super().clear(messages)

    def empty(self, messages: Any) -> bool:
        self._hooks.pass_by("behaviour.empty")
        return bool(super().empty(messages))


class Hooked:
    """A kind with every hook that there is."""

    name = "hooked"

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def options(self, _execution: str) -> Options:
        self._hooks.pass_by("kind.options")
        return Options()

    def decode(self, data: bytes | None) -> Any:
        self._hooks.pass_by("kind.decode")
        return [] if data is None else bodies.decode(data)

    def encode(self, state: Any) -> bytes:
        self._hooks.pass_by("kind.encode")
        return bodies.encode(state)

    def run(self, _context: Any, state: Any, batch: Any) -> Outcome:
        self._hooks.pass_by("kind.run")
        outcome = Outcome(state=[*state, len(batch)])
        if not state:
            outcome.tasks = [NewTask("hooked-task", "slow", 1)]
        return outcome

    def view(self, row: ExecutionRow, _store: Store) -> Any:
        self._hooks.pass_by("kind.view")
        return row.id

    def cancel(self, _target: Any) -> Any:
        self._hooks.pass_by("kind.cancel")

    def committed(self, _change: Any) -> None:
        self._hooks.pass_by("kind.committed")


HOOKS = [
    "job", "key", "factory", "behaviour.add", "behaviour.transform", "behaviour.clear",
    "behaviour.empty", "tasker", "tasker.key", "on_cancel", "kind.options", "kind.decode",
    "kind.encode", "kind.run", "kind.view", "kind.cancel", "kind.committed",
]  # fmt: skip


@pytest.fixture
def real(tmp_path: Any) -> Iterator[BareEngine]:
    """Yield an engine in real time."""
    with BareEngine(tmp_path / "s.db", durability="off") as made:
        yield made


def _provoke(engine: BareEngine, hooks: Hooks) -> None:
    """Do everything that calls a hook; this may hang with it."""

    def job(batch: Any, state: Any) -> Any:
        hooks.pass_by("job")
        return state

    def key(message: Any) -> Any:
        hooks.pass_by("key")
        return message

    def factory() -> Any:
        if threading.current_thread() is not threading.main_thread():
            hooks.pass_by("factory")
        return Queue()

    def tasker_key(task: Any) -> Any:
        hooks.pass_by("tasker.key")
        return task.id

    def do(_task: Any) -> Any:
        hooks.pass_by("tasker")
        return HOLD

    engine.register(Hooked(hooks))
    engine.tasker(
        "slow",
        do,
        behaviour=Unique(key=tasker_key),
        on_cancel=lambda _task: hooks.pass_by("on_cancel"),
    )
    engine.worker("job", job).push(1)
    engine.worker("key", job, behaviour=lambda: Unique(key=key)).push(1)
    engine.worker("factory", job, behaviour=factory).push(1)
    engine.worker("slow", job, behaviour=lambda: Slow(hooks)).push(1)
    engine.send("hooked", 1, kind="hooked")
    if hooks.hanging == "on_cancel":
        until(engine, lambda: engine.statistics().tasks)
    if hooks.hanging in ("on_cancel", "kind.cancel"):
        engine.cancel("hooked")
    if hooks.hanging == "kind.view":
        until(engine, lambda: engine.parts.store.execution("hooked"))
        assert engine.execution("hooked").view == "hooked"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_hangs_stalls_nobody_else(real: BareEngine, hook: str) -> None:
    """It hangs until a worker that has nothing to do with it has done its work."""
    bystander = real.worker("bystander", collect, state=[])
    bystander.push_block(0)
    hooks = Hooks(hook)
    provoking = threading.Thread(target=_provoke, args=(real, hooks), daemon=True)
    provoking.start()
    try:
        assert hooks.entered.wait(PATIENCE), f"{hook} was never called"
        for number in range(1, 20):
            bystander.push_block(number, timeout=PATIENCE / 2)
            bystander.push_ack(-number, timeout=PATIENCE / 2)
        other = real.worker("other", collect, state=[])
        other.push_block(1, timeout=PATIENCE / 2)
    finally:
        hooks.go.set()
        provoking.join(PATIENCE)


@pytest.mark.soak
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_hangs_costs_others_nothing(real: BareEngine, hook: str) -> None:
    """The slowest hundredth of the pushes beside it takes 50 ms more at the most."""
    bystander = real.worker("bystander", collect, state=[])

    def measure() -> float:
        found = []
        for number in range(300):
            begin = monotonic()
            bystander.push_block(number, timeout=PATIENCE)
            found.append(monotonic() - begin)
        return sorted(found)[-3]

    before = measure()
    hooks = Hooks(hook)
    provoking = threading.Thread(target=_provoke, args=(real, hooks), daemon=True)
    provoking.start()
    try:
        assert hooks.entered.wait(PATIENCE), f"{hook} was never called"
        assert measure() < before + 0.05
    finally:
        hooks.go.set()
        provoking.join(PATIENCE)


def test_a_status_that_is_none_is_the_kinds_failure(engine: BareEngine) -> None:
    engine.register(Script(lambda state, message: Outcome(state=[], status="asleep")))  # type: ignore[arg-type]
    engine.send("x", 1, kind="script")
    assert engine.wait("x", PATIENCE).status == Status.STUCK
    assert "asleep" in next(iter(engine.dead_letters("x"))).error
