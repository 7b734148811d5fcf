"""The conformance check: whether a behaviour of your own keeps what every behaviour promises.

`check_behaviour(factory)` drives it through random sequences of steps and observes it from
outside. It reports the rule that is broken and the shortest steps that break it, as code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import adapt
from actorflow.testing.behaviour_checker import BehaviourChecker, RuleBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from hypothesis.strategies import SearchStrategy

    from actorflow.behaviours.adapt import Base

    class Checkable(Protocol):
        """The least that a worker needs of a behaviour."""

        def add(self, message: Any, /) -> object:
            """Accept one message."""
            ...

        def take(self) -> Any:
            """Remove and return one batch."""
            ...

        def __len__(self) -> int: ...


__all__ = ["check_behaviour"]


def check_behaviour(
    factory: Callable[[], Checkable | Base],
    *,
    messages: SearchStrategy[Any] | None = None,
    unpack: Callable[[Any], Iterable[Any]] | None = None,
    displaces: bool = False,
    max_examples: int = 100,
) -> None:
    """Check that what `factory` makes is a behaviour that a worker can rely on.

    Takes a built-in behaviour, a `Base` subclass or any object with `add`, `take` and
    `__len__`. Which optional abilities are tried depends on its traits. Needs hypothesis; the
    steps are the same in every run. About 30 ms for each ten examples.

    Args:
        factory: a class or function that makes a new behaviour at each call.
        messages: a hypothesis strategy for messages. By default they are tuples of a small number
            and a serial number.
        unpack: returns the messages in a batch. By default the messages of a list are its
            elements, and anything else is one message.
        displaces: whether it replaces, merges or drops messages without counting them in
            `tally`. Fewer mistakes can be found then.
        max_examples: how many sequences of steps to try.

    Raises:
        AssertionError: a rule does not hold, shown with the shortest steps as code; or no message
            was accepted at all, so that nothing could be checked.
        ModuleNotFoundError: hypothesis is not installed.

    >>> from actorflow.behaviours import Queue
    >>> check_behaviour(Queue, max_examples=10)

    """
    try:
        from hypothesis import HealthCheck, Phase, given, settings  # noqa: PLC0415 - optional
        from hypothesis import strategies as st  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = "check_behaviour needs hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(msg, name="hypothesis") from error

    traits = adapt(factory).traits
    adapt(factory)  # a factory that returns the same instance twice is refused here
    drawn = st.integers(0, 3) if messages is None else messages
    kinds: list[SearchStrategy[tuple[str, Any]]] = [
        st.tuples(st.just("add"), drawn),
        st.tuples(st.just("extend"), st.lists(drawn, max_size=6)),
        st.tuples(st.just("take"), st.none()),
    ]
    if traits.divisible:
        kinds.append(st.tuples(st.just("take"), st.integers(1, 4)))
        kinds.append(st.tuples(st.just("peek"), st.none()))
    if traits.ordered:
        kinds.append(st.tuples(st.just("drop_oldest"), st.none()))
    if traits.timed:
        spans = st.sampled_from([0.25, 1.0, 10.0, 1000.0])
        arrivals = st.tuples(drawn, st.just(0.0) | spans)
        kinds.append(st.tuples(st.just("pass"), spans))
        kinds.append(st.tuples(st.just("arrive"), st.lists(arrivals, max_size=4)))
    if traits.trackable:
        kinds.append(st.tuples(st.just("add_ticket"), drawn))
    kinds.append(st.tuples(st.just("withdraw"), drawn))
    if traits.saves:
        kinds.append(st.tuples(st.just("save"), st.none()))
    offered = accepted = 0
    refusal = ""

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(st.lists(st.one_of(kinds), max_size=25))
    def conforms(steps: list[tuple[str, Any]]) -> None:
        nonlocal offered, accepted, refusal
        run = BehaviourChecker(factory, unpack=unpack, displaces=displaces, serial=messages is None)
        try:
            run.go(steps)
        except RuleBroken as broken:
            raise AssertionError(run.report(broken)) from broken.__cause__
        offered += run.offered
        accepted += run.accepted
        refusal = run.refusal or refusal

    conforms()
    if offered and not accepted:
        name = getattr(factory, "__name__", "the behaviour")
        msg = (
            f"{name} refused all {offered} messages drawn, so nothing was checked. The last was "
            f"{refusal}. If messages should have another shape, pass a hypothesis strategy for "
            "them, as in check_behaviour(factory, messages=st.text())"
        )
        raise AssertionError(msg)
