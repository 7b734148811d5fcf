"""The conformance check: whether a behaviour of your own keeps what every behaviour promises.

`check_behaviour(factory)` drives it through random sequences of steps and watches from outside.
What it finds it reports as the rule that is broken and the shortest steps that break it, as code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.testing.steps import Broken, Run
from behaviours.base import adapt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hypothesis.strategies import SearchStrategy

__all__ = ["check_behaviour"]


def check_behaviour(
    factory: Callable[[], Any],
    *,
    message_strategy: SearchStrategy[Any] | None = None,
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
        message_strategy: a hypothesis strategy for messages. By default they are tuples of a
            small number and a serial number.
        unpack: gives the messages in a batch. By default a list is its messages, anything else
            is one message.
        displaces: say True if it replaces, merges or drops messages without counting them in
            `tally`. Fewer things can be told apart then.
        max_examples: how many sequences of steps to try.

    Raises:
        AssertionError: names the rule that does not hold, and the shortest steps as code.
        ModuleNotFoundError: hypothesis is not installed.

    >>> from behaviours import Queue
    >>> check_behaviour(Queue, max_examples=10)

    """
    try:
        from hypothesis import HealthCheck, Phase, given, settings  # noqa: PLC0415 - optional
        from hypothesis import strategies as st  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = "check_behaviour needs hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(msg, name="hypothesis") from error

    traits = adapt(factory).traits
    adapt(factory)  # a factory that gives the same instance twice is refused here
    messages = st.integers(0, 3) if message_strategy is None else message_strategy
    kinds: list[SearchStrategy[tuple[str, Any]]] = [
        st.tuples(st.just("add"), messages),
        st.tuples(st.just("extend"), st.lists(messages, max_size=6)),
        st.tuples(st.just("take"), st.none()),
    ]
    if traits.divisible:
        kinds.append(st.tuples(st.just("take"), st.integers(1, 4)))
        kinds.append(st.tuples(st.just("peek"), st.none()))
    if traits.ordered:
        kinds.append(st.tuples(st.just("drop_oldest"), st.none()))
    if traits.timed:
        kinds.append(st.tuples(st.just("wait"), st.sampled_from([0.25, 1.0, 10.0, 1000.0])))
    if traits.trackable:
        kinds.append(st.tuples(st.just("add_ticket"), messages))

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
        run = Run(factory, unpack=unpack, displaces=displaces, serial=message_strategy is None)
        try:
            run.go(steps)
        except Broken as broken:
            raise AssertionError(run.report(broken)) from broken.__cause__

    conforms()
