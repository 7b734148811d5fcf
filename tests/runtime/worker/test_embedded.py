"""`Workers`: the accumulation without actors, driven by its owner."""

from __future__ import annotations

from typing import Any

import pytest

import actorflow as af
from actorflow.behaviours import Adaptive, Base, Bounded, Chunk, Priority, Queue, Stack, Unique
from actorflow.runtime.worker.embedded import Call, Done
from actorflow.testing import VirtualClock
from tests.runtime.worker.probe import FakeTicket


def keep(batch: Any, state: list[Any]) -> list[Any]:
    return [*state, batch]


def run_all(workers: af.Workers) -> None:
    while calls := workers.pending():
        for call in calls:
            workers.handle_message(call.run())


@pytest.mark.parametrize(
    ("behaviour", "messages", "expected"),
    [
        (Queue, (1, 2, 3), [[1], [2, 3]]),
        (Stack, (1, 2, 3), [[1], [3, 2]]),
        (Unique, (("a", 1), ("b", 1), ("b", 2)), [[("a", 1)], [("b", 2)]]),
        (
            Priority,
            ((1, "a"), (1, "b"), (2, "c"), (1, "d"), (3, "e")),
            [[(1, "a")], [(3, "e"), (2, "c"), (1, "b"), (1, "d")]],
        ),
        (lambda: Chunk(Queue(), 2), (1, 2, 3, 4, 5), [[1], [2, 3], [4, 5]]),
    ],
)
def test_batches_are_those_of_a_worker(behaviour: Any, messages: Any, expected: Any) -> None:
    workers = af.Workers([af.Worker("w", keep, state=[], behaviour=behaviour)])
    for message in messages:
        workers = workers.push("w", message)
    run_all(workers)
    assert workers.state("w") == expected


def test_calls_are_given_once_and_results_taken_once() -> None:
    workers = af.Workers([af.Worker("a", keep, state=[]), af.Worker("b", keep, state=[])])
    assert workers.pending() == []
    workers.push("a", 1)
    workers.push("b", 2)
    first, second = workers.pending()
    assert workers.pending() == []
    assert (first.worker_id, first.batch, first.size) == ("a", [1], 1)
    assert "'a'" in repr(first)
    assert workers.busy("a")
    done = first.run()
    assert workers.handle_message(done) is workers
    assert not workers.busy("a")
    with pytest.raises(af.ActorflowError, match="once"):
        workers.handle_message(done)
    with pytest.raises(af.UnknownWorker):
        workers.handle_message(Done("c", 1))
    workers.handle_message(second.done("other state"))
    assert workers.state("b") == "other state"


def test_a_result_before_its_call_was_given_is_refused() -> None:
    workers = af.Workers([af.Worker("a", keep, state=[])])
    workers.push("a", 1)
    with pytest.raises(af.ActorflowError, match="answers no call"):
        workers.handle_message(Done("a", 1))


def test_a_job_that_raises_is_told_and_the_worker_goes_on() -> None:
    error = ValueError("broken")

    def job(batch: Any, state: Any) -> Any:
        if batch == ["bad"]:
            raise error
        return [*state, batch]

    workers = af.Workers([af.Worker("w", job, state=[])])
    bad, good = FakeTicket(), FakeTicket()
    workers.push("w", "bad", bad)
    workers.push("w", "good", good)
    (call,) = workers.pending()
    with pytest.raises(af.WorkerCrashed) as raised:
        workers.handle_message(call.run())
    assert raised.value.__cause__ is error
    assert bad.answer is error
    run_all(workers)
    assert good.answer is None
    assert workers.state("w") == [["good"]]


def test_tickets_are_answered_when_their_own_message_was_processed() -> None:
    class OneByOne(Base):
        def transform(self, messages: Any) -> Any:
            return messages[0]

        def clear(self, messages: Any) -> Any:
            return messages[1:]

    workers = af.Workers([af.Worker("w", keep, state=[], behaviour=OneByOne)])
    tickets = [FakeTicket() for _ in range(3)]
    for number, ticket in enumerate(tickets):
        workers.push("w", f"message {number}", ticket)
    answered = []
    while calls := workers.pending():
        for call in calls:
            workers.handle_message(call.run())
            answered.append([len(ticket.answers) for ticket in tickets])
    assert answered == [[1, 0, 0], [1, 0, 1], [1, 1, 1]]


def test_refusals_are_raised_to_who_waits_and_noted_for_who_does_not() -> None:
    workers = af.Workers([af.Worker("w", keep, state=[], behaviour=Bounded(Unique, 1))])
    workers.push("w", ("a", 1))
    workers.push("w", ("b", 1))
    workers.push("w", ("c", 1))
    workers.push("w", 5)
    ticket = FakeTicket()
    with pytest.raises(af.Full):
        workers.push("w", ("d", 1), ticket)
    assert ticket.answers == []
    assert [(i, list(m), type(e)) for i, m, e in workers.rejections] == [
        ("w", [("c", 1)], af.Full),
        ("w", [5], af.Malformed),
    ]
    assert workers.depth("w") == 1
    assert workers.tally("w").rejected == 3


def test_displaced_messages_tell_who_waits() -> None:
    workers = af.Workers([af.Worker("w", keep, state=[], behaviour=Unique)])
    workers.push("w", ("first", 0))
    old, new = FakeTicket(), FakeTicket()
    workers.push("w", ("a", 1), old)
    workers.push("w", ("a", 2), new)
    assert isinstance(old.answer, af.Replaced)
    run_all(workers)
    assert new.answer is None


def test_throttle_in_virtual_time() -> None:
    clock = VirtualClock()
    workers = af.Workers([af.Worker("w", keep, state=[], throttle=2.0)], clock=clock.now)
    workers.push("w", "a")
    clock.advance(0.5)
    run_all(workers)
    workers.push("w", "b")
    assert workers.pending() == []
    assert workers.due() == 2.0
    clock.advance(1.5)
    assert workers.due() == 2.0
    run_all(workers)
    assert workers.state("w") == [["a"], ["b"]]
    assert workers.due() is None


def test_calls_can_be_run_elsewhere() -> None:
    workers = af.Workers([af.Worker("w", keep, state=["before"])])
    workers.push("w", 1)
    (call,) = workers.pending()
    assert call.state == ["before"]
    workers.push("w", 2)
    assert workers.depth("w") == 1
    workers.handle_message(call.done("after"))
    (second,) = workers.pending()
    assert (second.batch, second.state) == ([2], "after")
    with pytest.raises(af.WorkerCrashed):
        workers.handle_message(second.failed(OSError("lost")))
    assert workers.state("w") == "after"


async def coroutine(batch: Any, state: Any) -> None: ...


class Subclass(af.Executor):
    def handle(self, batch: Any) -> None: ...


@pytest.mark.parametrize("job", [coroutine, Subclass])
def test_only_plain_functions_can_be_embedded(job: Any) -> None:
    with pytest.raises(af.BadJob, match="plain functions"):
        af.Workers([af.Worker("w", job)])


def test_ids_must_differ_and_be_known() -> None:
    with pytest.raises(af.BadOption, match="'w'"):
        af.Workers([af.Worker("w", keep), af.Worker("w", keep)])
    workers = af.Workers([af.Worker("writer", keep)])
    for call in (workers.state, workers.busy, workers.depth, workers.tally):
        with pytest.raises(af.UnknownWorker, match="writer"):
            call("writter")
    with pytest.raises(af.UnknownWorker, match="writer"):
        workers.push("writter", 1)


def test_a_call_catches_exceptions_but_not_ctrl_c() -> None:
    def job(batch: Any, state: Any) -> Any:
        raise batch[0]

    workers = af.Workers([af.Worker("w", job)])
    workers.push("w", KeyboardInterrupt())
    (call,) = workers.pending()
    assert isinstance(call, Call)
    with pytest.raises(KeyboardInterrupt):
        call.run()


def test_an_adaptive_behaviour_learns_from_embedded_calls() -> None:
    now = 0.0
    worker = af.Worker("slow", lambda batch, state: state, behaviour=Adaptive(Queue(), target=1.0))
    workers = af.Workers([worker], clock=lambda: now)
    workers.push("slow", "a")
    patience = now = workers.due() or 0.0
    assert 0.5 < patience <= 1.0
    (call,) = workers.pending()
    now += 0.4  # so long the job takes
    workers.handle_message(call.run())
    workers.push("slow", "b")
    assert (workers.due() or 0.0) - now < patience - 0.3  # so the next one waits less


@pytest.mark.parametrize("wrong", [None, 7, "x", ["x"]], ids=repr)
def test_what_is_no_list_of_workers_is_refused(wrong: Any) -> None:
    with pytest.raises(af.BadOption, match="takes a list of Worker"):
        af.Workers(wrong)
