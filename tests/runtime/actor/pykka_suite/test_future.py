"""pykka's own tests of futures, against the answers of `af.Actor`.

`pykka.Future` itself (the abstract base) and gevent's futures are not ours. An answer that comes
from an actor behaves as one that a test sets by hand, so the cases use whichever reads better.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import traceback
from typing import Any

import pykka
import pytest

import actorflow as af
from actorflow.runtime.actor.answers import AnswerFuture
from tests.runtime.actor.actors import Echo, Gate, Theirs
from tests.runtime.worker.probe import PATIENCE


def answers(*values: Any) -> list[Any]:
    """Return one future for each value, each from another actor."""
    return [Echo.start().ask(value, block=False) for value in values]


@pytest.fixture
def future() -> Any:
    return AnswerFuture()


def test_actors_answer_with_pykkas_futures() -> None:
    (answer,) = answers("x")
    assert isinstance(answer, pykka.ThreadingFuture)
    assert answer.get(timeout=PATIENCE) == answer.get() == "x"


def test_a_second_answer_is_refused(future: Any) -> None:
    future.set(0)
    with pytest.raises(queue.Full):
        future.set(0)
    with pytest.raises(queue.Full):
        future.set_exception((ValueError, ValueError(), None))
    with pytest.raises(queue.Full):
        future.set_get_hook(lambda timeout: 1)
    assert future.get(timeout=0) == 0


def test_get_all_collects_from_several_actors_of_both_kinds() -> None:
    futures = [*answers(0, 1), Theirs.start().ask(2, block=False)]
    assert pykka.get_all(futures, timeout=PATIENCE) == [0, 1, 2]
    assert pykka.get_all(futures) == [0, 1, 2]


def test_get_all_raises_timeout_if_one_is_missing() -> None:
    gate = Gate.start()
    futures = [*answers(0), gate.ask(gate.actor.hold, block=False)]
    assert gate.actor.entered.wait(PATIENCE)
    with pytest.raises(pykka.Timeout):
        pykka.get_all(futures, timeout=0)
    gate.actor.opened.set()
    assert pykka.get_all(futures, timeout=PATIENCE) == [0, "held"]


def test_get_all_raises_what_one_of_them_raised() -> None:
    with pytest.raises(ValueError, match="mine"):
        pykka.get_all(answers(0, ValueError("mine")), timeout=PATIENCE)


def test_a_future_may_hold_a_future() -> None:
    inner = AnswerFuture()
    inner.set("foo")
    (outer,) = answers(inner)
    assert outer.get(timeout=PATIENCE).get() == "foo"


def test_get_raises_with_the_whole_traceback(future: Any) -> None:
    try:
        raise NameError("foo")  # noqa: TRY301
    except NameError:
        set_with = sys.exc_info()
        future.set_exception()
    with pytest.raises(NameError) as raised:
        future.get()
    assert raised.value is set_with[1]
    frames = traceback.extract_tb(set_with[2])
    assert traceback.extract_tb(raised.value.__traceback__)[-len(frames) :] == frames


def test_the_traceback_leads_into_the_actor() -> None:
    with pytest.raises(ValueError, match="mine") as raised:
        Echo.start().ask(ValueError("mine"), timeout=PATIENCE)
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "on_receive"


def test_filter_keeps_what_matches_and_the_timeout(future: Any) -> None:
    filtered = future.filter(lambda x: x > 10)
    with pytest.raises(pykka.Timeout):
        filtered.get(timeout=0)
    future.set([1, 11, 3, 13])
    assert filtered.get(timeout=0) == [11, 13]
    with pytest.raises(TypeError):
        answers(1)[0].filter(bool).get(timeout=PATIENCE)


def test_join_combines_the_answers_of_several_actors() -> None:
    one, two, three = answers(0, 1, 2)
    assert one.join(two, three).get(timeout=PATIENCE) == [0, 1, 2]
    with pytest.raises(pykka.Timeout):
        one.join(AnswerFuture()).get(timeout=0)


def test_map_applies_a_function_to_the_answer(future: Any) -> None:
    mapped = future.map(lambda x: x + 10)
    with pytest.raises(pykka.Timeout):
        mapped.get(timeout=0)
    future.set(30)
    assert mapped.get(timeout=0) == 40
    assert answers([1, 2])[0].map(len).get(timeout=PATIENCE) == 2


def test_the_function_of_map_is_called_once(future: Any) -> None:
    calls: list[int] = []
    mapped = future.map(calls.append)
    future.set(1)
    mapped.get()
    mapped.get()
    assert calls == [1]


def test_reduce_combines_from_the_left(future: Any) -> None:
    reduced = future.reduce(lambda x, y: x + y)
    from_five = future.reduce(lambda x, y: x + y, 5)
    with pytest.raises(pykka.Timeout):
        reduced.get(timeout=0)
    future.set([1, 2, 3, 4])
    assert (reduced.get(timeout=0), from_five.get(timeout=0)) == (10, 15)
    with pytest.raises(TypeError):
        answers(1)[0].reduce(lambda x, y: x + y).get(timeout=PATIENCE)


def test_a_get_hook_makes_the_answer(future: Any) -> None:
    future.set_get_hook(lambda timeout: ("made", timeout))
    assert future.get(timeout=3) == ("made", 3)


def test_a_get_hook_on_an_actors_answer_does_not_upset_the_actor() -> None:
    gate = Gate.start()
    answer = gate.ask(gate.actor.hold, block=False)
    answer.set_get_hook(lambda timeout: "hooked")
    gate.actor.opened.set()
    assert answer.get() == "hooked"
    assert gate.ask(lambda: "alive", timeout=PATIENCE) == "alive"


def test_answers_can_be_awaited() -> None:
    async def main() -> Any:
        return await Echo.start().ask("later", block=False)

    assert asyncio.run(main()) == "later"


def test_an_exception_without_an_instance_is_made(future: Any) -> None:
    future.set_exception((ValueError, None, None))
    with pytest.raises(ValueError):  # noqa: PT011 - it has no text
        future.get()


def test_a_futures_get_is_refused_only_to_the_actor_that_is_to_answer() -> None:
    class SerialLane(Gate):
        def wait_for(self, future: Any) -> Any:
            return future.get()

    gate, relay = Gate.start(), SerialLane.start()
    answer = gate.ask(gate.actor.hold, block=False)
    relayed = relay.proxy().wait_for(answer)
    gate.actor.opened.set()
    assert relayed.get(timeout=PATIENCE) == "held"
    assert isinstance(af.WouldDeadlock("x"), af.ActorflowError)
