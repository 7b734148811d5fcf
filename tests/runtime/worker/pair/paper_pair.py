"""A pair on paper: what the shell does with the machine's steps, without messages or threads.

It knows only whether something is raw, held or ready, and plays every event that the shell of
`accumulator.py` can send, when it can. `successors` lists them all, so a search finds every
situation that there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from actorflow.runtime.worker.pair.states import (
    Facts,
    PairAction,
    PairEvent,
    PairState,
    StopMode,
    advance,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

S, E = PairState, PairEvent
FOLDING = {E.STARTED, E.PUSHED, E.DUE, E.MAIL, E.DONE}
WORKING = {S.IDLE, S.RUNNING, S.WAITING}
ON_OWN = {
    PairAction.SERVE,
    PairAction.CALL_ON_IDLE,
    PairAction.CALL_ON_STOP,
    PairAction.CALL_ON_START,
}
NONE, NOT_DUE, READY = range(3)


class Applied(NamedTuple):
    """One use of the table, for checks."""

    before: Paper
    event: PairEvent
    facts: Facts
    target: PairState
    steps: tuple[PairAction, ...]


@dataclass(frozen=True)
class Paper:
    """A pair at one moment."""

    limit: int = 1
    supervised: bool = False
    hooked: bool = False
    """There is an `on_stop`."""
    state: PairState = S.STARTING
    running: int = 1
    alone: PairAction | None = PairAction.CALL_ON_START
    """The hook, or the answer to mail, that is under way: nothing else is then."""
    raw: int = NONE
    held: int = NONE
    mail: bool = False
    token: bool = False
    timer: bool = False
    first: bool = True
    mode: StopMode | None = None
    broken: bool = False
    """The executor is about to crash with what the behaviour raised."""
    told: bool = False
    """All callbacks for the end were called."""

    def facts(self) -> Facts:
        """Return what the shell would tell the machine."""
        return Facts(
            running=self.running,
            limit=1 if self.alone else self.limit,
            held=self.held != NONE,
            ready=self.held == READY,
            mail=self.mail,
            supervised=self.supervised,
            first=self.first,
            hooked=self.hooked,
            mode=self.mode,
        )


class Desk:
    """Applies events to papers, and notes each use of the table."""

    def __init__(self) -> None:
        self.applied: list[Applied] = []

    def apply(self, paper: Paper, event: PairEvent, *, expired: bool = False) -> Paper:
        """Apply an event and all that follows from it at once. `expired`: a batch is empty."""
        paper = self._one(paper, event, expired=expired)
        while paper.state in (S.RUNNING, S.STOPPING) and not paper.alone:  # free slots
            if paper.running >= paper.limit or not (paper.running or paper.held):
                break
            before = paper
            paper = self._one(paper, E.PUSHED if paper.state is S.RUNNING else E.DUE)
            if paper.running == before.running:
                break
        return paper

    def _one(self, paper: Paper, event: PairEvent, *, expired: bool = False) -> Paper:
        again: PairEvent | None = event
        while again is not None:
            event, again = again, None
            room = paper.running < (1 if paper.alone else paper.limit)
            if event in FOLDING and paper.raw and paper.mode is None and room:
                paper = replace(paper, raw=NONE, held=max(paper.raw, paper.held))
            facts = paper.facts()
            target, steps = (found := advance(paper.state, event, facts)).state, found.steps
            self.applied.append(Applied(paper, event, facts, target, steps))
            paper = replace(paper, state=target)
            for step in steps:
                paper = self._perform(paper, step, expired=expired)
                if step is PairAction.TAKE and expired:
                    again, expired = E.DONE, False
                if step is PairAction.LOOK_AGAIN and (paper.raw or paper.mail):
                    paper, again = replace(paper, token=False), E.PUSHED
        return paper

    def _perform(  # noqa: PLR0911 - one for each kind of step
        self, paper: Paper, step: PairAction, *, expired: bool
    ) -> Paper:
        match step:
            case PairAction.TOKEN_IN | PairAction.TOKEN_OUT:
                return replace(paper, token=step is PairAction.TOKEN_IN)
            case PairAction.SET_TIMER | PairAction.CANCEL_TIMER:
                return replace(paper, timer=step is PairAction.SET_TIMER)
            case PairAction.TAKE:
                assert paper.held == READY
                running = paper.running + (not expired)
                return replace(paper, held=NONE, running=running)
            case PairAction.CLOSE:  # flush lets all go, except behind a throttle
                return replace(paper, raw=NONE, held=max(paper.raw, paper.held))
            case PairAction.CUT_OFF:
                return replace(paper, running=0, alone=None, broken=False)
            case PairAction.FAIL:
                return replace(paper, running=paper.running + 1, broken=True)
            case PairAction.TELL_ALL:
                assert not paper.told
                return replace(paper, told=True)
        if step in ON_OWN:
            return replace(paper, running=paper.running + 1, alone=step)
        return paper  # LOOK_AGAIN is the caller's, TELL_EXECUTOR changes nothing

    # Events.

    def successors(self, paper: Paper) -> Iterator[tuple[str, Paper]]:
        """Yield everything that can happen next, with its name."""
        yield from self._arrivals(paper)
        yield from self._ends(paper)
        yield from self._requests(paper)
        yield from self._late(paper)

    def _arrivals(self, paper: Paper) -> Iterator[tuple[str, Paper]]:
        for weight in (NOT_DUE, READY):
            if paper.mode is not None or paper.state is S.DEAD:
                continue  # refused
            if paper.token:
                woken = replace(paper, token=False, raw=max(paper.raw, weight))
                yield f"push {weight}", self.apply(woken, E.PUSHED)
                # A producer has appended, and has not looked at the token yet.
                yield f"append {weight}", replace(paper, raw=max(paper.raw, weight))
                if weight == READY:
                    yield "push, expires", self.apply(woken, E.PUSHED, expired=True)
            else:
                yield f"append {weight}", replace(paper, raw=max(paper.raw, weight))
        if paper.state not in (S.ALONE, S.PARKED, S.DEAD):
            posted = replace(paper, mail=True)
            if paper.token and paper.mode is None:
                yield "mail", self.apply(replace(posted, token=False), E.PUSHED)
            yield "mail, not announced yet", posted
        yield "late mail", self.apply(paper, E.MAIL)  # the state may have changed since the post

    def _ends(self, paper: Paper) -> Iterator[tuple[str, Paper]]:
        less = replace(paper, running=paper.running - 1, alone=None)
        if paper.alone is PairAction.CALL_ON_START:
            yield "started", self.apply(less, E.STARTED)
            yield "start failed", self.apply(replace(paper, running=0, alone=None), E.START_FAILED)
        elif paper.alone is PairAction.CALL_ON_STOP:
            yield "ended", self.apply(replace(paper, running=0, alone=None), E.ENDED)
        elif paper.running:
            served = replace(less, mail=False) if paper.alone is PairAction.SERVE else less
            yield "done", self.apply(served, E.DONE)
            yield "done, rest expires", self.apply(served, E.DONE, expired=True)
            if paper.raw:  # a behaviour with time may hold new messages back
                held = replace(served, raw=NONE, held=max(served.held, NOT_DUE))
                yield "done, not due", self.apply(held, E.DONE)
        has_executor = paper.state not in (S.STARTING, S.ALONE, S.PARKED, S.DEAD)
        if has_executor and (paper.running or paper.state is S.IDLE):
            # IDLE: an error of our own, after the last batch.
            crashed = replace(paper, token=paper.token or not paper.supervised)
            yield "crash", self.apply(crashed, E.CRASHED)

    def _requests(self, paper: Paper) -> Iterator[tuple[str, Paper]]:
        for mode in StopMode if paper.state is not S.DEAD else ():
            asked = replace(paper, mode=mode if mode.stronger_than(paper.mode) else paper.mode)
            if paper.mode is None:  # the shell closes before it asks the machine
                asked = replace(asked, token=True, raw=NONE, held=max(paper.raw, paper.held))
            yield f"stop {mode.value}", self.apply(asked, E.STOP)
            if asked.held:
                yield f"stop {mode.value}, flushed", self.apply(replace(asked, held=READY), E.STOP)
        if paper.supervised:
            yield "suspend", self.apply(paper, E.SUSPEND)
            yield "abandon", self.apply(paper, E.ABANDON)
        if paper.state in (S.ALONE, S.DEAD) and paper.supervised:
            # A supervisor may have been about to do this when the pair was stopped.
            revived = self.apply(replace(paper, first=False), E.REVIVED)
            yield "revive", revived
            yield "trip", self.apply(paper, E.TRIPPED)
            if revived.state is S.STARTING:
                ready = replace(revived, running=0, alone=None)
                yield "revive, no on_start", self.apply(ready, E.STARTED)
                yield "revive, behaviour raises", self._one(ready, E.BROKEN)
        if paper.state is S.PARKED:
            yield "resume", self.apply(paper, E.RESUMED)
        if paper.state is S.IDLE and paper.token and not paper.raw:
            yield "idle for so long", self.apply(paper, E.IDLE_LONG)

    def _late(self, paper: Paper) -> Iterator[tuple[str, Paper]]:
        if paper.timer:
            fired = replace(paper, timer=False, held=READY if paper.held else NONE)
            yield "timer", self.apply(fired, E.DUE)
            yield "timer, all expires", self.apply(fired, E.DUE, expired=bool(paper.held))
        if paper.state is S.WAITING:
            yield "ring", self.apply(paper, E.DUE)
        if paper.timer:  # the length of a custom behaviour may depend on the time
            yield "vanish", replace(paper, held=NONE)
        if paper.running < (1 if paper.alone else paper.limit) and not paper.broken:
            yield "behaviour raises", self._one(paper, E.BROKEN)
        yield "late timer", self.apply(paper, E.DUE)
        yield "stale run", self.apply(paper, E.PUSHED)
