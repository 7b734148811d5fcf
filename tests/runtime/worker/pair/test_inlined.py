"""The inlined transitions of the hot path do what the table says.

Two workers get the same life: one takes the short cuts of `Accumulator.run`, `begin`, `done`,
`open`, `retire`, of `Port.offer` and of helping, its twin always goes by the table. After every
step they are compared.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import actorflow as af
from actorflow.behaviours import Bounded, Chunk, Queue, Stack, Unique
from actorflow.behaviours.behaviour import Item
from actorflow.runtime.tickets import FutureTicket
from actorflow.runtime.worker.pair.offers import help_out
from actorflow.runtime.worker.pair.requests import kill, request_stop, retire
from actorflow.runtime.worker.pair.states import PairState, StopMode
from actorflow.runtime.worker.port import Port
from actorflow.runtime.worker.spec import make
from actorflow.testing import ManualLane, VirtualClock


class Racy(list[Any]):
    """The token's list, with a producer that acts right after the token was put in place."""

    def __init__(self, racers: list[str], twin: Twin) -> None:
        super().__init__()
        self.racers = racers
        self.twin = twin

    def append(self, token: Any) -> None:
        super().append(token)
        if self.twin.pair.mode is not None:
            return  # a push would be refused, and for that wait for the lock
        racer = self.racers.pop(0) if self.racers else ""
        if racer == "append":  # it has not looked at the token yet
            self.twin.pair.core.raw.append(self.twin.number())
        elif racer:  # in a thread of its own, because this one holds the lock
            act = {"push": self.twin.push, "mail": self.twin.mail}[racer]
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()


class Twin:
    """A worker without threads whose job does what its script says."""

    def __init__(
        self,
        behaviour: Any,
        *,
        plain: bool,
        script: list[str],
        racers: list[str],
        concurrency: int = 1,
        supervised: bool = False,
    ) -> None:
        self.lane = ManualLane()
        self.clock = VirtualClock()
        self.script = list(script)
        self.batches: list[Any] = []
        self.answers: list[Any] = []
        self.futures: list[Any] = []
        self.deferred: list[af.Deferred] = []
        self.numbers = 0
        self.keeps_state = concurrency == 1
        self.worker = make(
            self.job,
            {"state": 0 if self.keeps_state else None, "behaviour": behaviour(),
             "executor": self.lane, "clock": self.clock, "on_failure": af.Isolate(),
             "concurrency": concurrency},
        )  # fmt: skip
        self.port = Port(self.worker)
        self.pair = self.worker.actor
        self.pair.mail = deque()  # else the first mail waits for the lock
        self.pair.idle = self.worker._idle = Racy([], self)
        self.is_plain = plain
        self.exits: list[Any] = []
        if supervised:
            self.pair.lifecycle.supervise(lambda reason: self.exits.append(type(reason)))
        if plain:
            self.pair.open()
        else:
            self.pair.is_single_fifo = self.pair.is_fifo = self.pair.is_timeless = False
            self.pair.lifecycle.launch()
        self.pair.idle.racers = list(racers)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def job(self, batch: list[int], total: int) -> Any:
        self.batches.append(list(batch))
        action = self.script.pop(0) if self.script else ""
        self.clock.advance(1.0)
        state = total + len(batch) if self.keeps_state else None
        if action == "raise":
            raise ValueError(batch[0])
        if action == "crash":  # what no policy contains
            raise SystemExit(batch[0])
        if action == "answer":
            return af.Answers(state, list(batch))
        if action == "stop":
            return af.Stop()
        if action == "defer":
            self.deferred.append(af.Deferred())
            return self.deferred[-1]
        if action:
            self.do(action)
        return state

    def push(self) -> None:
        self.worker.push(self.number())

    def mail(self) -> None:
        self.futures.append(self.worker.executor.ask("hello", block=False))

    def do(self, action: str) -> None:  # noqa: C901 - one branch for each action
        """Perform one step of the common life."""
        worker = self.worker
        if action in ("push", "many", "ask", "offer", "offer 3") and self.pair.mode is not None:
            return
        if action == "push":
            self.push()
        elif action == "many":
            worker.push_many([self.number(), self.number()])
        elif action == "ask":
            self.futures.append(worker.ask(self.number(), block=False))
        elif action == "mail" and worker.is_alive():
            self.mail()
        elif action in ("offer", "offer 3"):
            tickets = [FutureTicket() for _ in range(3 if action == "offer 3" else 1)]
            self.port.offer([(self.number(), ticket) for ticket in tickets])
            self.futures += [ticket.future for ticket in tickets]
        elif action == "resolve" and self.deferred:
            self.deferred.pop(0).resolve(None, 7 if self.keeps_state else None)
        elif action == "fail" and self.deferred:
            self.deferred.pop(0).resolve(ValueError("later"))
        elif action == "run":
            self.lane.step()
        elif action == "tick":
            self.clock.advance(1.0)
        elif action == "revive" and self.pair.state is PairState.ALONE:
            self.pair.lifecycle.revive()
        elif action in ("drain", "finish", "now"):
            request_stop(self.pair, StopMode(action))

    def look(self) -> dict[str, Any]:
        """Return all that the twins must have in common."""
        pair, core = self.pair, self.pair.core
        slots = [
            {
                "batch": batch
                and (batch.payload, batch.size, batch.reason, len(batch.tickets or ())),
                "parts": [part.payload for part in slot.parts or ()],
                "first": getattr(slot.first, "payload", slot.first),
                "span": batch and slot.span,
            }
            for slot in pair.all_slots or (pair,)
            for batch in (slot.batch,)
        ]
        timing = pair.timing
        held: Any = core.behaviour if len(core.behaviour) else ()
        return {
            "state": pair.state,
            "token": bool(pair.idle),
            "accumulated": [getattr(one, "message", one) for one in (*held, *core.raw)],
            "marks": len(core.marks) - sum(type(one) is Item for one in core.raw),
            "slots": slots,
            "free": [pair.all_slots.index(slot) for slot in pair.free_slots or ()],
            "active": pair.active,
            "books": (core.processed, core.failed, core.dead_lettered, core.in_flight),
            "batches": core.batches,
            "counts": core.counts(),
            "value": pair.value,
            "generation": pair.generation,
            "mode": pair.mode,
            "ended": type(pair.exit_reason),
            "mail": len(pair.mail),
            "since": pair.waiting_since,
            "timing": timing and (timing.sizes(), timing.reasons, timing._samples),
            "seen": self.batches,
            "answered": [future._queue.qsize() if hasattr(future, "_queue") else None
                         for future in self.futures],
            "lane": len(self.lane._ready),
            "exits": self.exits,
        }  # fmt: skip


def assert_alike(life: list[str], behaviour: Any, **options: Any) -> None:
    """Let two workers live, one by the short cuts and one by the table; compare each step."""
    short, by_table = (Twin(behaviour, plain=plain, **options) for plain in (True, False))
    assert short.look() == by_table.look()
    for action in life:
        short.do(action)
        by_table.do(action)
        assert short.look() == by_table.look(), action
    for twin in (short, by_table):
        kill(twin.pair)
    assert short.look() == by_table.look()


def chunk(size: int) -> Any:
    return lambda: Chunk(Queue(), size)


LINES: dict[str, Any] = {"queue": Queue, "stack": Stack, "ones": chunk(1), "twos": chunk(2)}
OTHERS: dict[str, Any] = {
    "unique": lambda: Unique(lambda number: number % 3),
    "bounded": lambda: Bounded(Queue(), 3, when_full="drop_oldest"),
    "chunked": lambda: Chunk(Unique(lambda number: number % 3), 1),
}
BEHAVIOURS = LINES | OTHERS


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@given(
    life=st.lists(
        st.sampled_from(
            ["push"] * 4 + ["offer"] * 3 + ["offer 3", "many", "ask", "mail"] + ["run"] * 7
            + ["resolve"] * 3 + ["fail", "tick", "drain", "finish", "now"]
        ),
        max_size=14,
    ),
    script=st.lists(
        st.sampled_from(
            ["", "push", "offer", "many", "ask", "mail", "raise", "answer", "stop", "drain",
             "finish", "now", "defer", "defer", "defer"]
        ),
        max_size=6,
    ),
    racers=st.lists(st.sampled_from(["", "append", "push", "mail"]), max_size=4),
)  # fmt: skip
@example(life=["push", "run"], script=["push"], racers=["append"])
@example(life=["push", "run", "run"], script=[], racers=["push"])
@example(life=["push", "push", "run", "run"], script=["mail"], racers=["mail", "append"])
@example(life=["many", "mail", "push", "run"], script=["raise"], racers=[])
@example(life=["offer 3", "run", "offer", "resolve"], script=["defer"], racers=["append"])
@example(life=["offer", "run", "offer", "run", "resolve", "push"], script=["defer"] * 2, racers=[])
def test_the_short_cuts_equal_the_table(
    behaviour: str, concurrency: int, life: list[str], script: list[str], racers: list[str]
) -> None:
    assert_alike(life, BEHAVIOURS[behaviour], script=script, racers=racers, concurrency=concurrency)


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@given(
    life=st.lists(
        st.sampled_from(["push", "many", "ask", "mail", "run", "run", "revive", "revive", "drain"]),
        max_size=14,
    ),
    script=st.lists(st.sampled_from(["", "push", "crash", "crash", "stop", "mail"]), max_size=6),
    racers=st.lists(st.sampled_from(["", "append", "push", "mail"]), max_size=4),
)
@example(life=["push", "run", "many", "push", "revive", "run"], script=["crash"], racers=[])
@example(life=["push", "many", "run", "revive", "push", "run"], script=["crash"], racers=["append"])
@example(life=["many", "run", "mail", "revive", "ask", "run"], script=["crash"], racers=["push"])
def test_a_restart_by_the_short_cuts_equals_one_by_the_table(
    behaviour: str, concurrency: int, life: list[str], script: list[str], racers: list[str]
) -> None:
    assert_alike(
        life,
        BEHAVIOURS[behaviour],
        script=script,
        racers=racers,
        concurrency=concurrency,
        supervised=True,
    )


@pytest.mark.parametrize("behaviour", [Queue, Stack])
@given(
    before=st.lists(st.sampled_from(["push", "many", "ask", "run", "run"]), max_size=6),
    script=st.lists(st.sampled_from(["", "push", "raise", "answer", "stop"]), max_size=4),
)
@example(before=[], script=["push"])
@example(before=[], script=["raise"])
def test_help_in_the_main_thread_equals_help_by_the_table(
    behaviour: Any, before: list[str], script: list[str]
) -> None:
    short = Twin(behaviour, plain=True, script=script, racers=[])
    by_table = Twin(behaviour, plain=False, script=script, racers=[])
    for action in before:
        short.do(action)
        by_table.do(action)
    helped = []

    def help_with(twin: Twin) -> None:
        if twin.pair.mode is None:
            helped.append(help_out(twin.pair, twin.number(), None))

    help_with(short)
    thread = threading.Thread(target=help_with, args=(by_table,))
    thread.start()
    thread.join()
    assert helped in ([], [True, True], [False, False])
    for _ in range(4):
        assert short.look() == by_table.look()
        short.do("run")
        by_table.do("run")
    for twin in (short, by_table):
        kill(twin.pair)


@pytest.mark.parametrize("before", [[], ["push"], ["push", "run"], ["mail"], ["ask", "run"]])
def test_retire_equals_a_stop_by_the_table(before: list[str]) -> None:
    short = Twin(Queue, plain=True, script=[], racers=[])
    by_table = Twin(Queue, plain=False, script=[], racers=[])
    for action in before:
        short.do(action)
        by_table.do(action)
    seen = short.look()
    retired = retire(short.pair)
    assert retired == (seen["state"] is PairState.IDLE and bool(seen["token"]))
    if not retired:
        assert short.look() == seen
    else:
        request_stop(by_table.pair, StopMode.DRAIN)
        ends = [{**twin.look(), "mode": None} for twin in (short, by_table)]
        assert ends[0] == ends[1]
        for twin in (short, by_table):
            with pytest.raises(af.WorkerStopped):
                twin.worker.push(1)
    for twin in (short, by_table):
        kill(twin.pair)
