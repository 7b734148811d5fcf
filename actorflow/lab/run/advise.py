"""Advice: the cheapest policies that meet your goals, found by simulation.

Many policies are tried on the busiest stretch of the traffic, the better ones on a longer one,
the best few on all of it (successive halving). Among those that meet the goals the one that loses
least is best, then the one that keeps the executor least busy, then the simpler one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from math import fsum, inf, isfinite
from typing import TYPE_CHECKING, Any, Protocol

from actorflow.lab.models.code import program
from actorflow.lab.models.notation import seconds_text
from actorflow.lab.models.policies import policy_of
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.sources import parse_traffic
from actorflow.lab.models.traffic import AT, Given
from actorflow.lab.run.candidates import candidates
from actorflow.lab.run.goals import Goal, figure_text, parse_goals
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import ActorflowError, BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Message, Traffic
    from actorflow.lab.run.result import Result

__all__ = ["Advice", "Candidate", "GoalUnreachable", "advise"]

_RUNGS = ((4_000, 3, 12), (16_000, 3, 6))  # messages; one in how many stays; the least that stay
_SAME = 0.01  # shares that differ by less are the same


class Progress(Protocol):
    """Called with how far the search is."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """`done` of `total` policies have been tried on `what`."""


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
        lost = round(result.lost / max(result.arrived, 1) / _SAME)
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
        if plain is not None and self.policy != "queue":
            compared = Candidate("queue", plain, self.goals)
            text += f". A plain queue: {compared.figures()}, busy {plain.busy:.0%}"
        return text

    def code(self) -> str:
        """Return a program to paste that uses the policy, imports included."""
        return program(self.policy)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        values = [(goal, goal.value(self.result)) for goal in self.goals]
        return {
            "policy": self.policy,
            "goals": {str(goal): value if isfinite(value) else None for goal, value in values},
            "code": self.code(),
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
    progress: Progress | None = None,
) -> Advice:
    """Find the cheapest policies that meet the goals.

    Args:
        traffic: the arrivals, as a model or as text.
        service: how long the job takes, as a model or as text.
        goals: as text (`"p99 < 50ms, no loss"`), or parsed.
        seed: of the traffic; the same seed gives the same advice.
        best: how many to return.
        policies: which to try; by default those of `candidates`.
        progress: called with how far the search is. Ctrl-C ends it with what is known by then.

    Raises:
        GoalUnreachable: no policy meets the goals; the message names what is reachable.
        BadOption: there is no goal, or no message in the traffic.

    """
    source = parse_traffic(traffic) if isinstance(traffic, str) else traffic
    model = parse_service(service) if isinstance(service, str) else service
    wanted = parse_goals(goals) if isinstance(goals, str) else tuple(goals)
    if not wanted or best < 1:
        msg = "advise needs a goal, as in 'p99 < 50ms, no loss', and best >= 1"
        raise BadOption(msg)
    search = _Search(source, model, wanted, seed, progress)
    return search.run(list(policies), best)


class _Search:
    def __init__(
        self,
        traffic: Traffic,
        service: Service,
        goals: tuple[Goal, ...],
        seed: int,
        progress: Progress | None,
    ) -> None:
        self._traffic = traffic
        self._service = service
        self._goals = goals
        self._seed = seed
        self._progress = progress
        self._known: list[Candidate] = []
        self._plain: Result | None = None

    def run(self, given: list[str], best: int) -> Advice:
        windows, total = _busiest([size for size, _, _ in _RUNGS], self._traffic.chunks(self._seed))
        if not total:
            msg = "there is no message in this traffic; make it longer, or raise its rate"
            raise BadOption(msg)
        texts = given or candidates(self._goals, windows[-1])
        tried = len(texts)
        complete = True
        try:
            for (size, keep, least), window in zip(_RUNGS, windows, strict=True):
                if total > size:
                    ranked = self._try(texts, Given(window), f"{size:,} messages")
                    texts = _survivors(ranked, max(len(ranked) // keep, least, 2 * best))
            if "queue" not in texts and not given:
                texts = [*texts, "queue"]
            ranked = self._try(texts, self._traffic, "all messages")
        except KeyboardInterrupt:
            if not self._known:
                raise
            complete = False
            ranked = sorted(self._known, key=Candidate.rank)
        meeting = [each for each in ranked if not each.misses]
        if not meeting:
            raise GoalUnreachable(self._goals, ranked[0], tried)
        return Advice(self._goals, meeting[:best], self._plain, tried, complete)

    def _try(self, texts: list[str], traffic: Traffic, what: str) -> list[Candidate]:
        """Try policies; return them with the best first."""
        self._known, self._plain = [], None
        for done, text in enumerate(texts):
            if self._progress is not None:
                self._progress(done, len(texts), what)
            result = simulate(traffic, self._service, policy_of(text), seed=self._seed)
            self._known.append(Candidate(text, result, self._goals))
            if text == "queue":
                self._plain = result
        if self._progress is not None:
            self._progress(len(texts), len(texts), what)
        return sorted(self._known, key=Candidate.rank)


def _survivors(ranked: list[Candidate], keep: int) -> list[str]:
    """Return the first `keep`, and the first of each leaf: a short run may mislead."""
    chosen = {each.policy: None for each in ranked[:keep]}
    leaves = {_leaf(each.policy) for each in ranked[:keep]}
    for each in ranked[keep:]:
        if _leaf(each.policy) not in leaves:
            leaves.add(_leaf(each.policy))
            chosen[each.policy] = None
    return list(chosen)


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
