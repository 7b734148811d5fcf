"""Advice: the cheapest policies that meet your goals, found by simulation.

Many policies are tried on the busiest stretch of the traffic, the better ones on a longer one
(successive halving). Variations of the best follow, and the best few are run on all of the traffic
with several seeds. Policies that meet the goals are ranked by the fewest losses, replaced messages
included unless a goal allows them, then by the least busy executor, then by simplicity. The winners
are run once more, with seeds that the search has not used: those runs are what the advice shows.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil, fsum, inf, isfinite
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.lab.models.notation import (
    BareWord,
    NamedCall,
    Term,
    TimeNumber,
    parse,
    seconds_text,
)
from actorflow.lab.models.policies import BEHAVIOURS, policy_of, resolve
from actorflow.lab.models.programs import program
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT, Given
from actorflow.lab.run.candidates import candidates, names_replacement, neighbours, wrapped
from actorflow.lab.run.goals import Goal, figure_text, parse_goals
from actorflow.lab.run.repeats import combine
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import ActorflowError, BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Message, Traffic
    from actorflow.lab.run.result import Result

__all__ = ["Advice", "Candidate", "GoalUnreachable", "advise", "picture"]

_RUNGS = ((2_000, 4, 12), (8_000, 3, 6))  # messages; one in how many stays; the least that stay
_SEEDS = 3  # of the search, and
_HELD_OUT = 5  # of the confirmation
_HELD_OUT_FROM = 1_000_000  # the first seed that the search does not use
_REFINEMENTS = 2
_BEAM = 6  # compositions that are extended in a synthesis
_DEPTH = 3
_SAME = 0.01  # shares that differ by less are the same


class OnProgress(Protocol):
    """Called with how far the search is."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Report that `done` of `total` policies have been tried on `what`."""


class GoalUnreachable(ActorflowError, ValueError):
    """No policy meets the goals; `best` comes closest, and meets the goals in `closest`."""

    def __init__(self, goals: Sequence[Goal], best: Candidate, tried: int) -> None:
        reached = [goal for goal in goals if isfinite(goal.value(best.result))]
        self.closest = ", ".join(str(goal.reached(best.result)) for goal in reached)
        self.best = best
        asked = ", ".join(map(str, goals))
        super().__init__(
            f"none of {tried} policies meets '{asked}' with this traffic and service\n"
            f"the closest is {best.policy}: {best.figures()}\n"
            + (f"reachable: --goal '{self.closest}'" if self.closest else "nothing is reachable")
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, and what it does with the traffic."""

    policy: str
    result: Result
    goals: tuple[Goal, ...] = field(repr=False)
    held: int = 0
    """In how many of `held_out` runs with seeds that the search did not use the goals were met."""
    held_out: int = 0

    @property
    def misses(self) -> tuple[Goal, ...]:
        """The goals that it does not meet."""
        return tuple(goal for goal in self.goals if not goal.is_met(self.result))

    def figures(self) -> str:
        """Return the figures that the goals are about; missed ones are marked."""
        return ", ".join(
            f"{goal.name} {figure_text(goal.figure, goal.value(self.result))}"
            f"{'' if goal.is_met(self.result) else f' (not {goal})'}"
            for goal in self.goals
        )

    def rank(self) -> tuple[float, ...]:
        """Return what orders candidates: goals, then loss, executor time, and simplicity."""
        missed = fsum(min(goal.miss(self.result), 1e6) for goal in self.goals)
        simple = len(self.policy) / 1000 + self.policy.count("(") + (_leaf(self.policy) != "queue")
        result = self.result
        gone = result.lost + (0 if names_replacement(self.goals) else result.replaced)
        lost = ceil(gone / max(result.arrived, 1) / _SAME)
        return (missed, lost, round(result.busy / _SAME), simple, result.latency["p99"])

    def why(self, plain: Result | None = None) -> str:
        """Explain what it achieves, what it costs, and how a plain queue compares."""
        result = self.result
        text = (
            f"{'misses' if self.misses else 'meets'} {self.figures()}; busy {result.busy:.0%}, "
            f"median {seconds_text(result.latency['p50'])}, "
            f"{result.batch_mean:,.3g} messages per call"
        )
        melted = (result.replaced + result.merged) / max(result.arrived, 1)
        if melted:
            how = "merged into" if result.merged else "replaced by"
            text += f"; {melted:.0%} of the messages are {how} another of their key"
        if result.lost:
            text += f"; {result.lost / max(result.arrived, 1):.2%} are lost"
        if self.held_out:
            text += f"; held with {self.held} of {self.held_out} seeds that the search did not use"
        if plain is not None and self.policy != "queue":
            compared = Candidate("queue", plain, self.goals)
            text += f". A plain queue: {compared.figures()}, busy {plain.busy:.0%}"
        return text

    def code(self) -> str:
        """Return a program to paste that uses the policy, imports included."""
        return program(self.policy)

    def picture(self) -> str:
        """Return the way of a message through the policy, from the outermost behaviour inward."""
        return picture(self.policy)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        values = [(goal, goal.value(self.result)) for goal in self.goals]
        return {
            "policy": self.policy,
            "goals": {str(goal): value if isfinite(value) else None for goal, value in values},
            "code": self.code(),
            "held": self.held,
            "held_out": self.held_out,
            "result": self.result.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """The best policies, best first; all meet the goals."""

    goals: tuple[Goal, ...]
    best: list[Candidate]
    plain: Result | None
    """What a plain queue does."""
    tried: int
    complete: bool = True
    """False if the search was interrupted: then shorter runs had to do."""

    def code(self) -> str:
        """Return a program to paste that uses the best policy, imports included."""
        return self.best[0].code()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "goals": [str(goal) for goal in self.goals],
            "tried": self.tried,
            "complete": self.complete,
            "best": [candidate.as_dict() for candidate in self.best],
            "queue": None if self.plain is None else self.plain.as_dict(),
        }


def advise(
    traffic: Traffic | str,
    service: Service | str,
    goals: str | Sequence[Goal],
    *,
    seed: int = 0,
    best: int = 3,
    policies: Iterable[str] = (),
    synthesise: bool = False,
    concurrency: int = 1,
    progress: OnProgress | None = None,
) -> Advice:
    """Find the cheapest policies that meet the goals.

    Args:
        traffic: the arrivals, as a model or as text.
        service: how long the job takes, as a model or as text.
        goals: as text (`"p99 < 50ms, no loss"`), or parsed.
        seed: of the traffic; the same seed gives the same advice.
        best: how many to return.
        policies: which to try; by default those of `candidates`.
        synthesise: whether to search for compositions: behaviours are put around the best ones, up
            to three deep.
        concurrency: how many batches may run at once.
        progress: called with the state of the search. Ctrl-C ends it with the results so far.

    Raises:
        GoalUnreachable: no policy meets the goals; the message names the nearest reachable goals.
        BadOption: there is no goal, or no message in the traffic.

    """
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    model = parse_service(service) if isinstance(service, str) else service
    wanted = parse_goals(goals) if isinstance(goals, str) else tuple(goals)
    if not wanted or best < 1:
        msg = "advise needs a goal, as in 'p99 < 50ms, no loss', and best >= 1"
        raise BadOption(msg)
    search = _Search(source, model, wanted, seed=seed, concurrency=concurrency, progress=progress)
    return search.run(list(policies), best, synthesise=synthesise)


class _Search:
    def __init__(
        self,
        traffic: Traffic,
        service: Service,
        goals: tuple[Goal, ...],
        *,
        seed: int,
        concurrency: int,
        progress: OnProgress | None,
    ) -> None:
        self._traffic = traffic
        self._service = service
        self._goals = goals
        self._seed = seed
        self._concurrency = concurrency
        self._progress = progress
        self._known: list[Candidate] = []
        self._plain: Result | None = None
        self._tried: set[str] = set()

    def run(self, given: list[str], best: int, *, synthesise: bool) -> Advice:
        windows, total = _busiest([size for size, _, _ in _RUNGS], self._traffic.chunks(self._seed))
        if not total:
            msg = "there is no message in this traffic; make it longer, or raise its rate"
            raise BadOption(msg)
        short, long = (Given(window) for window in windows)
        texts = given or candidates(self._goals, windows[-1])
        complete = True
        try:
            if synthesise:
                texts = self._synthesise(texts, short, windows[-1])
            for (size, keep, least), window in zip(_RUNGS, (short, long), strict=True):
                if total > size:
                    ranked = self._try(texts, window, f"{size:,} messages")
                    texts = _survivors(ranked, max(len(ranked) // keep, least, 2 * best))
            if not given:
                texts = self._refine(texts, long if total > _RUNGS[-1][0] else self._traffic, best)
                if "queue" not in texts:
                    texts = [*texts, "queue"]
            ranked = self._try(texts, self._traffic, "all messages", seeds=_SEEDS)
            ranked = self._confirm(ranked, best)
        except KeyboardInterrupt:
            if not self._known:
                raise
            complete = False
            ranked = sorted(self._known, key=Candidate.rank)
        meeting = [each for each in ranked if not each.misses]
        if not meeting:
            raise GoalUnreachable(self._goals, ranked[0], len(self._tried))
        return Advice(self._goals, meeting[:best], self._plain, len(self._tried), complete)

    def _synthesise(self, texts: list[str], window: Traffic, sample: list[Message]) -> list[str]:
        """Put behaviours around the best policies, again and again; return the best of all."""
        rate = len(sample) / max(sample[-1][AT] - sample[0][AT], 1e-3)
        pool = {each.policy: each for each in self._try(texts, window, "a synthesis")}
        for depth in range(1, _DEPTH + 1):
            beam = sorted(pool.values(), key=Candidate.rank)[:_BEAM]
            more = [
                text
                for each in beam
                for text in wrapped(each.policy, self._goals, rate)
                if text not in pool
            ]
            for each in self._try(more, window, f"a synthesis, depth {depth}"):
                pool[each.policy] = each
        return [each.policy for each in sorted(pool.values(), key=Candidate.rank)[: 8 * _BEAM]]

    def _refine(self, texts: list[str], traffic: Traffic, best: int) -> list[str]:
        """Try variations of the best; return the policies that are worth a longer run."""
        found = dict.fromkeys(texts[: best + 3])
        for _ in range(_REFINEMENTS):
            around = [
                each
                for text in list(found)[: min(best, 2)]
                for each in neighbours(text)
                if each not in found
            ]
            if not around:
                break
            ranked = self._try([*found, *around], traffic, "variations")
            found = dict.fromkeys(each.policy for each in ranked[: best + 3])
        return list(found)

    def _confirm(self, ranked: list[Candidate], best: int) -> list[Candidate]:
        """Run the winners with other seeds, and rank them by that."""
        chosen: dict[str, Candidate] = {}
        for each in ranked:  # keep the best of policies that differ only in their numbers
            if not each.misses:
                chosen.setdefault(_shape(each.policy), each)
        chosen = {each.policy: each for each in list(chosen.values())[: best + 1]}
        chosen = chosen or {each.policy: each for each in ranked[:best]}
        confirmed = []
        for done, each in enumerate(chosen.values()):
            self._tell(done, len(chosen), "other seeds")
            runs = self._runs(each.policy, self._traffic, _HELD_OUT_FROM + self._seed, _HELD_OUT)
            met = sum(all(goal.is_met(run) for goal in self._goals) for run in runs)
            result = combine(runs) if len(runs) > 1 else runs[0]
            held = (met, len(runs)) if len(runs) > 1 else (0, 0)
            confirmed.append(Candidate(each.policy, result, self._goals, *held))
        self._tell(len(chosen), len(chosen), "other seeds")
        return sorted(confirmed, key=Candidate.rank)

    def _try(
        self, texts: list[str], traffic: Traffic, what: str, seeds: int = 1
    ) -> list[Candidate]:
        """Try policies; return them with the best first."""
        self._known, self._plain = [], None
        for done, text in enumerate(texts):
            self._tell(done, len(texts), what)
            self._tried.add(text)
            runs = self._runs(text, traffic, self._seed, seeds)
            result = combine(runs) if len(runs) > 1 else runs[0]
            self._known.append(Candidate(text, result, self._goals))
            if text == "queue":
                self._plain = result
        self._tell(len(texts), len(texts), what)
        return sorted(self._known, key=Candidate.rank)

    def _runs(self, text: str, traffic: Traffic, seed: int, count: int) -> list[Result]:
        """Run with several seeds; once, if the traffic and the service are the same for each."""
        policy, runs = policy_of(text), []
        for number in range(count):
            found = simulate(
                traffic, self._service, policy, seed=seed + number, concurrency=self._concurrency
            )
            runs.append(found)
            if number == 1 and replace(found, seed=runs[0].seed) == runs[0]:
                return runs[:1]
        return runs

    def _tell(self, done: int, total: int, what: str) -> None:
        if self._progress is not None:
            self._progress(done, total, what)


def picture(text: str) -> str:
    """Return the way of a message through a policy.

    >>> print(picture("bounded(linger(queue, 5ms), 100, reject)"))
    push --> bounded 100 reject --> linger 5ms --> queue --> batch --> job
    """
    parts = []
    term = parse(text)
    while isinstance(term, NamedCall):
        _, bound = resolve(text, term)
        inner = [value for name, value in bound.items() if name in BEHAVIOURS]
        rest = [
            value.name if isinstance(value, BareWord) else _shown(value)
            for name, value in bound.items()
            if name not in BEHAVIOURS
        ]
        parts.append(" ".join([term.name, *rest]))
        term = inner[0] if inner else BareWord("")
    if isinstance(term, BareWord) and term.name:
        parts.append(term.name)
    return " --> ".join(["push", *parts, "batch", "job"])


def _shown(value: Term) -> str:
    return seconds_text(value) if isinstance(value, TimeNumber) else f"{value}"


def _survivors(ranked: list[Candidate], keep: int) -> list[str]:
    """Return the first `keep`, and the first of each leaf: a short run may mislead."""
    chosen = {each.policy: None for each in ranked[:keep]}
    leaves = {_leaf(each.policy) for each in ranked[:keep]}
    for each in ranked[keep:]:
        if _leaf(each.policy) not in leaves:
            leaves.add(_leaf(each.policy))
            chosen[each.policy] = None
    return list(chosen)


def _shape(text: str) -> str:
    """Return a policy without its numbers."""
    return re.sub(r"[ (]\d[\w.%]*", "", text)


def _leaf(text: str) -> str:
    """Return the innermost behaviour of a policy."""
    return text.rpartition("(")[2].partition(",")[0].rstrip(")").strip()


def _busiest(
    sizes: Sequence[int], chunks: Iterator[list[Message]]
) -> tuple[list[list[Message]], int]:
    """Find, for each size, the run of that many messages that came fastest. O(n)."""
    largest = max(sizes)
    recent: deque[Message] = deque(maxlen=largest)
    found: list[tuple[float, list[Message]]] = [(inf, []) for _ in sizes]
    total = 0
    for chunk in chunks:
        for start in range(0, len(chunk), 1_000):
            some = chunk[start : start + 1_000]
            recent.extend(some)
            total += len(some)
            for place, size in enumerate(sizes):
                if len(recent) >= size:
                    span = recent[-1][AT] - recent[-size][AT]
                    if span < found[place][0]:
                        window = list(islice(recent, len(recent) - size, None))
                        found[place] = (span, window)
    windows = [window or list(recent) for _, window in found]
    return [_from_zero(window) for window in windows], total


def _from_zero(window: list[Message]) -> list[Message]:
    """Shift a window so that its first message arrives at 0."""
    return [(key, priority, size, at - window[0][AT]) for key, priority, size, at in window]
