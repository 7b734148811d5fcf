"""Callers that are resolved together wake up one after the other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from actorflow.engine.commit.wake_chain import ChainedTicket, WakeChain
from actorflow.engine.engine import BareEngine
from actorflow.runtime.tickets import ThreadTicket, resolve_many

if TYPE_CHECKING:
    from pathlib import Path

_LONG = 60.0


class _Caller(threading.Thread):
    """Waits for a turn, and says how that ended."""

    def __init__(self, chain: WakeChain) -> None:
        super().__init__(daemon=True)
        self.ticket = ChainedTicket(chain)
        self.ticket.prepare()
        self.in_time: bool | None = None
        self.start()

    def run(self) -> None:
        self.in_time = self.ticket.wait(_LONG)


def test_each_wakes_the_next_and_all_learn_their_outcome() -> None:
    chain = WakeChain()
    callers = [_Caller(chain) for _ in range(8)]
    refusal = ValueError("the fifth")
    told: list[Any] = [
        (each.ticket, refusal if at == 5 else None) for at, each in enumerate(callers)
    ]
    first = chain.begin(told)
    assert first == told[:1]
    resolve_many(first)
    for each in callers:
        each.join(_LONG)
    assert [each.in_time for each in callers] == [True] * 8
    assert [each.ticket.error for each in callers] == [None] * 5 + [refusal] + [None] * 2


def test_one_that_has_given_up_waiting_holds_up_nobody() -> None:
    chain = WakeChain()
    gone = ChainedTicket(chain)
    assert not gone.wait(0.0)
    callers = [_Caller(chain) for _ in range(2)]
    resolve_many(chain.begin([(gone, None), *((each.ticket, None) for each in callers)]))
    assert [each.ticket.resolved for each in callers] == [False, False]
    chain.finish()
    for each in callers:
        each.join(_LONG)
        assert each.in_time


def test_the_main_thread_is_told_at_once_and_wakes_nobody() -> None:
    chain = WakeChain()
    main = chain.ticket()
    assert type(main) is ThreadTicket
    made: list[ThreadTicket] = []
    thread = threading.Thread(target=lambda: made.extend(chain.ticket() for _ in range(2)))
    thread.start()
    thread.join()
    one, other = made
    assert chain.begin([(one, None), (main, None), (other, None)]) == [(one, None), (main, None)]


@pytest.mark.parametrize("prompt", [True, False])
def test_where_callers_come_back_late_the_next_ones_are_woken_at_once(*, prompt: bool) -> None:
    chain = WakeChain()
    told: list[Any] = [(ChainedTicket(chain), None) for _ in range(3)]
    chain.note(prompt=prompt)
    assert len(chain.begin(told)) == (1 if prompt else 3)


def test_the_acks_of_threads_that_push_together_are_all_told(tmp_path: Path) -> None:
    each, threads = 50, 8
    ready = threading.Barrier(threads)
    failures: list[Exception] = []

    def add(batch: list[int], state: int) -> int:
        return state + sum(batch)

    with BareEngine(tmp_path / "engine.db", durability="off") as engine:
        worker = engine.worker("sum", add, state=0)

        def produce() -> None:
            ready.wait(_LONG)
            try:
                for _ in range(each):
                    worker.push_ack(1, timeout=_LONG)
                    engine.send("sum", 1)
            except Exception as error:  # noqa: BLE001 - for the test
                failures.append(error)

        started = [threading.Thread(target=produce) for _ in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(_LONG)
        worker.push_block(0, timeout=_LONG)
        assert not failures
        assert worker.state() == 2 * each * threads
