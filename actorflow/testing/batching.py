"""Check that a job does the same whatever batches its messages arrive in.

A behaviour decides how messages are divided into batches and, between keys, in which order they
arrive. `check_batching(job, messages)` finds out whether a job depends on that.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from actorflow.behaviours.arguments import key_function
from actorflow.behaviours.errors import brief
from actorflow.runtime.worker.job.answers import Answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    M = TypeVar("M")
    S = TypeVar("S")

__all__ = ["check_batching"]

_EXAMPLE = "check_batching(job, messages, key=0)"


@overload
def check_batching(
    job: Callable[[list[M], S], object],
    messages: Sequence[M],
    *,
    state: S,
    key: Any = None,
    max_examples: int = 200,
) -> None: ...
@overload
def check_batching(
    job: Callable[[list[M], None], object],
    messages: Sequence[M],
    *,
    key: Any = None,
    max_examples: int = 200,
) -> None: ...
def check_batching(
    job: Callable[[list[Any], Any], object],
    messages: Sequence[Any],
    *,
    state: Any = None,
    key: Any = None,
    max_examples: int = 200,
) -> None:
    """Check that a job reaches the same state and gives the same answers for every batching.

    The job is called with one message after the other first; then some of the messages come in
    other batches and, with `key`, in other orders that keep the order within each key. That also
    covers concurrency: a behaviour such as `PerKey` lets messages of other keys overtake. Needs
    hypothesis; the batches are the same in every run.

    Args:
        job: a plain function of a batch and the state, as for `af.spawn`.
        messages: what to process; each call gets copies.
        state: the first state; each run gets a copy.
        key: a function of the message or the index of an element. Without it, the order of all
            messages is kept.
        max_examples: how many divisions to try.

    Raises:
        AssertionError: the state or an answer differs, shown with the smallest batches as code.
        ModuleNotFoundError: hypothesis is not installed.

    >>> check_batching(lambda batch, total: total + sum(batch), [1, 2, 3], state=0)

    """
    try:
        from hypothesis import HealthCheck, Phase, given, settings  # noqa: PLC0415 - optional
        from hypothesis import strategies as st  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = "check_batching needs hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(msg, name="hypothesis") from error

    given_messages = list(messages)
    if not given_messages:
        msg = "check_batching needs at least one message: without any, every job passes"
        raise ValueError(msg)
    key_of = (lambda _: None) if key is None else key_function(key, _EXAMPLE)
    keys = [key_of(message) for message in given_messages]

    def differs(batches: list[list[int]]) -> bool:
        singly = [[at] for at in sorted(at for batch in batches for at in batch)]
        return _run(job, given_messages, singly, state) != _run(job, given_messages, batches, state)

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.data())
    def same(data: Any) -> None:
        batches = _draw_batches(data.draw, keys)
        if differs(batches):
            smallest = _smallest(batches, differs)
            raise AssertionError(_report(job, given_messages, state, smallest))

    same()


def _draw_batches(draw: Callable[[Any], Any], keys: Sequence[Any]) -> list[list[int]]:
    """Choose some of the messages, an order that keeps the one within each key, and batches."""
    from hypothesis import strategies as st  # noqa: PLC0415 - optional

    chosen = draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
    places = [at for at, is_chosen in enumerate(chosen) if is_chosen]
    order: list[int] = []
    lines: dict[Any, list[int]] = {}
    for at in reversed(places):
        lines.setdefault(keys[at], []).append(at)
    while lines:
        firsts = sorted(lines, key=lambda each: lines[each][-1])
        each = firsts[draw(st.integers(0, len(firsts) - 1)) if len(firsts) > 1 else 0]
        order.append(lines[each].pop())
        if not lines[each]:
            del lines[each]
    batches: list[list[int]] = []
    for at in order:
        if not batches or draw(st.booleans()):
            batches.append([at])
        else:
            batches[-1].append(at)
    return batches


def _smallest(
    batches: list[list[int]], differs: Callable[[list[list[int]]], bool]
) -> list[list[int]]:
    """Return batches that still differ, with as few messages and as little changed as possible.

    Leave out half of the messages, then ever smaller parts, down to each one alone; then divide
    batches, and put neighbours back in order. That calls the job far less often than hypothesis
    would, and keeps the order within each key.
    """
    smaller = True
    while smaller:
        smaller = False
        for fewer in _smaller(batches):
            if differs(fewer):
                batches, smaller = fewer, True
                break
    return batches


def _smaller(batches: list[list[int]]) -> Iterator[list[list[int]]]:
    """Yield batches that are a little smaller than these, the smallest first."""
    order = [at for batch in batches for at in batch]
    part = len(order) // 2
    while part:
        for start in range(0, len(order), part):
            left_out = set(order[start : start + part])
            rest = [[at for at in batch if at not in left_out] for batch in batches]
            yield [batch for batch in rest if batch]
        part //= 2
    for which, batch in enumerate(batches):
        for cut in range(1, len(batch)):
            yield [*batches[:which], batch[:cut], batch[cut:], *batches[which + 1 :]]
    sizes = [len(batch) for batch in batches]
    for first in range(len(order) - 1):
        if order[first] > order[first + 1]:
            swapped = [*order]
            swapped[first : first + 2] = reversed(order[first : first + 2])
            places = iter(swapped)
            yield [list(islice(places, size)) for size in sizes]


def _run(
    job: Callable[[list[Any], Any], Any],
    messages: list[Any],
    batches: list[list[int]],
    state: Any,
) -> tuple[Any, dict[int, Any]]:
    """Return the last state, and the answer to each message by its place."""
    state = deepcopy(state)
    answers: dict[int, Any] = {}
    for places in batches:
        returned = job([deepcopy(messages[at]) for at in places], state)
        if isinstance(returned, Answers):
            problem = returned.problem(places, 1)
            if problem is not None:
                raise AssertionError(problem)
            answers.update(zip(places, map(_comparable, returned.answers), strict=True))
            state = returned.state
        else:
            state = returned
    return state, answers


def _comparable(answer: Any) -> Any:
    """Return an answer that equals an equal one; exceptions compare by identity."""
    if isinstance(answer, BaseException):
        return (type(answer), answer.args)
    return answer


def _report(
    job: Callable[[list[Any], Any], Any],
    messages: list[Any],
    state: Any,
    batches: list[list[int]],
) -> str:
    """Return both runs as code, with their results."""
    places = sorted(at for batch in batches for at in batch)
    name = getattr(job, "__name__", "job")
    name = name if name.isidentifier() else "job"
    lines = [f"{name} depends on how its messages are divided into batches, or on their order.", ""]
    for what, some in (("one by one", [[at] for at in places]), ("in batches", batches)):
        lines += [f"# {what}", f"state = {state!r}"]
        lines += [f"state = {name}({[messages[at] for at in each]!r}, state)" for each in some]
        end, answers = _run(job, messages, some, state)
        told = [answers[at] for at in places] if answers else []
        shown = f"# state: {brief(end)}" + (f", answers: {brief(told)}" if told else "")
        lines += [shown, ""]
    return "\n".join(lines).rstrip()
