"""A value that cannot be stored is refused at the call, and harms nothing sent with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.bodies import MAX_BYTES, MAX_DEPTH, decode, encode
from actorflow.engine.errors import NotStorable
from actorflow.engine.kind import (
    NewChild,
    NewTask,
    NewWatch,
    Outcome,
    Outgoing,
    SetTimer,
)
from tests.engine.kinds import Script, collect, quiet, rows, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.engine import BareEngine

BAD_IDS: list[Any] = [7, None, b"x", "", "x" * 2_001, "a\x00b", "line\nline", "\udc80"]


@pytest.mark.parametrize("bad", BAD_IDS, ids=[repr(each)[:20] for each in BAD_IDS])
def test_an_id_that_cannot_be_stored_is_refused_at_the_call(engine: BareEngine, bad: Any) -> None:
    engine.register(Script())
    worker = engine.worker("w", collect, state=[])
    key: Any = b"7" if bad is None else bad  # None: there is no key
    calls: list[Callable[[], Any]] = [
        lambda: engine.worker(bad, collect),
        lambda: engine.tasker(bad, len),
        lambda: engine.every(bad, "* * * * *", worker, 1),
        lambda: engine.send(bad, 1, kind="script"),
        lambda: engine.send("x", 1, kind="script", key=key),
        lambda: engine.execution(bad),
        lambda: engine.cancel(bad),
        lambda: engine.wait(bad, timeout=0.0),
        lambda: engine.return_task(bad, 1),
        lambda: engine.fail_task(bad, ValueError("no")),
        lambda: worker.push_ack(1, key=key),
        lambda: engine.register(Script(name=bad)),
    ]
    if bad is not None:  # None leaves it to the engine
        calls += [lambda: engine.start("script", 1, id=bad)]
    for number, call in enumerate(calls):
        with pytest.raises((TypeError, ValueError)) as told:
            call()
        assert "id of" in str(told.value), (number, told.value)
    worker.push_block(1)
    assert worker.state() == [1]
    assert engine.parts.store.execution("x") is None


OUTCOMES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "timer": lambda bad: {"timers": [SetTimer(bad, 5e9)]},
    "task": lambda bad: {"tasks": [NewTask(bad, "t")]},
    "tasker": lambda bad: {"tasks": [NewTask("a", bad)]},
    "message": lambda bad: {"messages": [Outgoing(bad, 1)]},
    "kind": lambda bad: {"messages": [Outgoing("y", 1, bad)]},
    "child": lambda bad: {"children": [NewChild(bad, "script")]},
    "kind of child": lambda bad: {"children": [NewChild("y", bad)]},
    "watch": lambda bad: {"watches": [NewWatch(bad, 1)]},
    "cancelled timer": lambda bad: {"cancelled_timers": [bad]},
    "cancelled task": lambda bad: {"cancelled_tasks": [bad]},
    "cancelled child": lambda bad: {"cancelled_children": [bad]},
    "cancelled watch": lambda bad: {"cancelled_watches": [bad]},
}


@pytest.mark.parametrize("what", OUTCOMES)
@pytest.mark.parametrize("bad", [7, "\udc80", ""], ids=["number", "surrogate", "empty"])
def test_an_id_of_a_kind_that_cannot_be_stored_fails_its_run(
    reopen: Callable[..., BareEngine], what: str, bad: Any
) -> None:
    def step(state: Any, message: Any) -> Any:
        if message == "bad":
            return Outcome(state=state, **OUTCOMES[what](bad))
        return [*state, message]

    engine = reopen()
    engine.register(Script(step))
    for message in (1, "bad", 2):
        engine.send("x", message, kind="script")
    worker = engine.worker("w", collect, state=[])
    worker.push_block(1)
    quiet(engine)
    assert state_of(engine, "x") == [1, 2]
    assert [letter.message for letter in engine.dead_letters("x")] == ["bad"]
    engine = reopen()  # with the check of the file
    engine.register(Script(step))
    engine.send("x", 3)
    quiet(engine)
    assert state_of(engine, "x") == [1, 2, 3]
    assert [rows(engine, each) for each in ("timers", "tasks", "watches")] == [[], [], []]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Lazy(list[int]):
    """A subclass of list, which would come back as another type."""


BAD_BODIES: dict[str, tuple[Callable[[], Any], str]] = {
    "985 levels": (lambda: {"a": nested(985)}, rf'\["a"\].*{MAX_DEPTH} levels'),
    "5,000 levels": (lambda: {"a": nested(5_000)}, rf'\["a"\].*{MAX_DEPTH} levels'),
    "a gigabyte": (lambda: {"a": "x" * (1 << 30)}, f'at most {MAX_BYTES:,} .*\\["a"\\]'),
    "65 megabytes": (lambda: {"a": "x" * (MAX_BYTES + 1)}, f'at most {MAX_BYTES:,} .*\\["a"\\]'),
    "set": (lambda: {"rows": [1, {2}]}, r'a set at \["rows"\]\[1\]'),
    "object": (lambda: [1, {"x": object()}], r'an object at \[1\]\["x"\]'),
    "list of one's own": (lambda: {"a": Lazy([1])}, r'a Lazy at \["a"\]'),
    "large number": (lambda: {"a": 1 << 70}, r'\["a"\]'),
    "surrogate": (lambda: {"a": "\udc80"}, r'\["a"\]'),
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_a_body_that_cannot_be_stored_names_the_path_at_the_call(
    engine: BareEngine, what: str
) -> None:
    make, match = BAD_BODIES[what]
    body = make()
    engine.register(Script())
    worker = engine.worker("w", collect, state=[])
    calls: list[Callable[[], Any]] = [
        lambda: worker.push(body),
        lambda: worker.push_many([1, body]),
        lambda: worker.push_ack(body),
        lambda: worker.push_block(body),
        lambda: engine.send("x", body, kind="script"),
        lambda: engine.start("script", body),
        lambda: engine.every("e", "* * * * *", worker, body),
        lambda: engine.worker("other", collect, state=body),
    ]
    for call in calls:
        with pytest.raises(NotStorable, match=match.replace('"', "['\"]")):
            call()
    worker.push_block("after")
    assert worker.state() == ["after"]
    assert len(engine.dead_letters()) == 0


@pytest.mark.parametrize("what", [each for each in BAD_BODIES if each != "a gigabyte"])
def test_a_state_that_cannot_be_stored_does_not_harm_the_messages_beside(
    engine: BareEngine, what: str
) -> None:
    make, _ = BAD_BODIES[what]

    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        return [*state, *(make() if each == "bad" else each for each in batch)]

    worker = engine.worker("w", job, state=[])
    beside = engine.worker("beside", collect, state=[])
    worker.push_many([1, "bad", 2])
    beside.push_many([1, 2, 3])
    worker.push_block(3, timeout=20.0)
    beside.push_block(4)
    assert worker.state() == [1, 2, 3]
    assert beside.state() == [1, 2, 3, 4]
    assert [letter.message for letter in worker.dead_letters] == ["bad"]


def test_two_hundred_levels_are_stored(engine: BareEngine) -> None:
    worker = engine.worker("w", collect, state=[])
    deepest = nested(MAX_DEPTH - 10)
    worker.push_block(deepest)
    assert worker.state() == [deepest]


NUMBERS: dict[str, dict[str, Any]] = {
    "timer at nan": {"timers": [SetTimer("t", float("nan"))]},
    "timer at infinity": {"timers": [SetTimer("t", float("inf"))]},
    "timer at text": {"timers": [SetTimer("t", "soon")]},  # type: ignore[arg-type]
    "task due nan": {"tasks": [NewTask("a", "t", due=float("nan"))]},
    "task timeout 0": {"tasks": [NewTask("a", "t", timeout=0.0)]},
    "task timeout text": {"tasks": [NewTask("a", "t", timeout="1")]},  # type: ignore[arg-type]
    "task retries -1": {"tasks": [NewTask("a", "t", retries=-1)]},
    "task retries 1.5": {"tasks": [NewTask("a", "t", retries=1.5)]},  # type: ignore[arg-type]
    "task priority text": {"tasks": [NewTask("a", "t", priority="high")]},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", NUMBERS)
def test_a_number_of_a_kind_that_makes_no_sense_fails_its_run(
    engine: BareEngine, what: str
) -> None:
    def step(state: Any, message: Any) -> Any:
        return Outcome(state=state, **NUMBERS[what]) if message == "bad" else [*state, message]

    engine.register(Script(step))
    engine.tasker("t", lambda task: task.body)
    for message in (1, "bad", 2):
        engine.send("x", message, kind="script")
    quiet(engine)
    assert state_of(engine, "x") == [1, 2]
    (letter,) = engine.dead_letters("x")
    assert letter.message == "bad"
    assert what.split()[1] in letter.error
    assert rows(engine, "timers") == rows(engine, "tasks") == []


@pytest.mark.parametrize(
    "value",
    [
        {"a": {1}},
        {"a": object()},
        {("a",): 1},
        {str(number): number for number in range(40)} | {"last": {1}},
        {"a": "x" * 20_000, "b": {1}},
    ],
    ids=["set", "object", "key", "many parts", "long part"],
)
def test_a_small_dict_is_checked_as_any_other(value: Any) -> None:
    """Dicts of a few plain parts are not walked through; all others are."""
    with pytest.raises(NotStorable, match="cannot be stored"):
        encode(value)


@pytest.mark.parametrize(
    "value", [{}, {1: "a"}, {"a": None, "b": b"x", "c": 1.5, "d": True}, {"a": {"b": [1]}}]
)
def test_a_small_dict_comes_back(value: Any) -> None:
    assert decode(encode(value)) == value
