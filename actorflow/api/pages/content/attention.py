"""The two pages to begin with: what needs attention, and how everything is going."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.api.pages.content.samples import chart, rate
from actorflow.api.pages.content.text import duration, moment, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actorflow.api.pages.content.page_request import PageRequest
    from actorflow.api.pages.content.samples import Samples, WorkerSample

__all__ = ["attention", "overview"]

_FEW = 5
_ROWS = 200
_LATE = 5.0  # seconds after which a timer of a live engine is overdue
_WHILE = 3.0  # seconds for which a worker must have grown
_DEEP = 100  # messages of a growing worker that are worth a word
_HINTS = (
    ("raises=True", "retry its step once the cause is gone, or rewind the workflow"),
    ("Timeout", "retry it, or give it more time"),
)


class Link(NamedTuple):
    """Where something can be seen."""

    path: str
    query: dict[str, str]
    text: str


class Concern(NamedTuple):
    """Something that needs attention, and what to do about it."""

    title: str
    text: str
    advice: str
    links: list[Link]
    post: str = ""
    """The action that a button does, if one helps."""
    fields: Sequence[tuple[str, Any]] = ()
    button: str = ""


def attention(request: PageRequest) -> dict[str, Any]:
    """Return what needs attention, the most urgent first."""
    verbs, sample = request.verbs, request.samples.take(request.verbs)
    health, errors = verbs.health(), verbs.errors()
    concerns = [
        *_asleep(health, verbs.executions(status="active", limit=1)["executions"]),
        *_alone(verbs.cluster()),
        *_stuck(errors["stuck"]),
        *_letters(errors["dead"]),
        *_overdue(verbs.timers(limit=_ROWS), alive=health["live"]),
        *_workers(request, sample),
        *_trees(sample.trees),
        *_tasks(verbs.tasks(limit=_ROWS)["tasks"]),
    ]
    return {"health": health, "concerns": concerns}


def _asleep(health: Mapping[str, Any], active: Sequence[Any]) -> Iterator[Concern]:
    if not health["live"] and active:
        yield Concern(
            "No engine runs on this store",
            "Executions wait, and so do messages to them.",
            "Start your program, or actorflow serve.",
            [Link("executions", {"status": "active"}, "active executions")],
        )


def _alone(cluster: Mapping[str, Any]) -> Iterator[Concern]:
    if cluster["shared"] and cluster["unowned"]:
        yield Concern(
            f"{len(cluster['unowned'])} partitions have no worker",
            "Their executions wait.",
            "Start a worker: actorflow cluster worker.",
            [Link("cluster", {}, "the cluster")],
        )


def _stuck(causes: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    for cause in causes:
        advice = "correct the cause, then resume or retry"
        for word, hint in _HINTS:
            if word in cause["example"]:
                advice = hint
        links = [Link("execution", {"id": each}, each) for each in cause["ids"][:_FEW]]
        query = {"status": "stuck"}
        yield Concern(
            f"{_several(cause['count'], 'stuck execution')}: {cause['cause']}",
            f"Since {_at(cause['first'])}, last {_at(cause['last'])}.",
            f"Next: {advice}.",
            [*links, Link("executions", query, "all stuck executions")],
        )


def _letters(causes: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    for cause in causes:
        yield Concern(
            f"{_several(cause['count'], 'dead letter')}: {cause['cause']}",
            f"Since {_at(cause['first'])}, last {_at(cause['last'])}.",
            "Next: correct the cause, then retry them.",
            [Link("dead", {}, "dead letters")],
            "retry",
            [("letter", each) for each in cause["ids"]],
            f"Retry {_several(len(cause['ids']), 'message')}",
        )


def _overdue(timers: Mapping[str, Any], *, alive: bool) -> Iterator[Concern]:
    late = [each for each in timers["timers"] if each["due"] < timers["now"] - _LATE]
    if late:
        waits = duration(timers["now"] - late[0]["due"])
        yield Concern(
            f"{_several(len(late), 'overdue timer')}",
            f"The first should have fired {waits} ago.",
            "Next: look whether the engine is overloaded, or the clock was set."
            if alive
            else "Next: start an engine on this store.",
            [
                Link("execution", {"id": each["execution"]}, each["execution"])
                for each in late[:_FEW]
            ],
        )


def _workers(request: PageRequest, sample: WorkerSample) -> Iterator[Concern]:
    older = request.samples.window(sample)
    old = older[0] if older else None
    for name, now in sample.workers.items():
        links = [Link("worker", {"name": name}, name)]
        then = None if old is None else old.workers.get(name)
        span = 0.0 if old is None else sample.at - old.at
        depths = [each.workers.get(name, now)["held"] for each in older] + [now["held"]]
        grows = depths == sorted(depths) and depths[0] < depths[-1]  # a burst goes down again
        if span >= _WHILE and grows and now["held"] > _DEEP:
            taken, done = (rate(now, then, each, span) for each in ("accepted", "processed"))
            yield Concern(
                f"{name} is growing: {number(now['held'])} messages wait",
                f"It accepts {number(taken)}/s and processes {number(done)}/s.",
                "Next: larger batches, more concurrency, or a bound (actorflow lab compares them).",
                links,
            )
        if now["state"] == "parked":
            yield Concern(
                f"{name} is parked",
                f"Its executor crashed {_several(now['restarts'] + 1, 'time')}; "
                f"{_several(now['held'], 'message')} wait.",
                "Next: correct the cause, then resume it.",
                links,
                "resume-worker",
                [("worker", name)],
                "Resume",
            )
        if now["dead_letters"]:
            yield Concern(
                f"{name} has {_several(now['dead_letters'], 'dead letter')}",
                "Their jobs have failed, and nobody tries them again.",
                "Next: correct the cause, then retry or delete them.",
                links,
            )


def _trees(trees: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    for tree in trees:
        close = tree["max_restarts"] and tree["recent"] >= tree["max_restarts"]
        if close:
            yield Concern(
                f"{tree['name']} is about to give up",
                f"{tree['recent']} restarts within {duration(tree['within'])}, of at most "
                f"{tree['max_restarts']}.",
                "Next: look which child crashes, and why.",
                [Link("tree", {}, "supervision trees")],
            )
        below = [each["supervisor"] for each in tree["children"] if each["supervisor"]]
        yield from _trees(below)


def _tasks(tasks: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    waiting: dict[str, int] = {}
    for each in tasks:
        if each["expects"] is not None or each["worker"] is not None:
            continue
        waiting[each["tasker"]] = waiting.get(each["tasker"], 0) + 1
    for tasker, count in waiting.items():
        yield Concern(
            f"{_several(count, 'open task')} for {tasker}",
            "No function of this engine says what they return.",
            "Next: answer them, or register the tasker.",
            [Link("tasks", {}, "open tasks")],
        )


def overview(request: PageRequest) -> dict[str, Any]:
    """Return rates, depths and charts."""
    verbs, sample = request.verbs, request.samples.take(request.verbs)
    old = request.samples.before(sample)
    before = None if old is None else old.stats
    span = 0.0 if old is None else sample.at - old.at
    held, done = _total(sample, "held"), 0.0
    if old is not None:
        done = max(0.0, (_total(sample, "processed") - _total(old, "processed")) / span)
    stats, errors = sample.stats, verbs.errors()
    figures = {
        "commits": f"{number(rate(stats, before, 'commits', span))}/s",
        "messages to executions": f"{number(rate(stats, before, 'messages', span))}/s",
        "tasks done": f"{number(rate(stats, before, 'tasks_done', span))}/s",
        "messages to workers": f"{number(done)}/s",
        "executions in memory": number(stats["live"]),
        "open tasks": number(stats["tasks"]),
        "messages held by workers": number(held),
        "time to drain them": duration(held / done) if done else "",
        "stuck executions": _sum(errors["stuck"]),
        "dead letters": _sum(errors["dead"]),
    }
    charts = _charts(request.samples)
    return {
        "health": verbs.health(),
        "figures": figures,
        "statistics": stats,
        "charts": charts,
        "stuck": errors["stuck"][:_FEW],
        "dead": errors["dead"][:_FEW],
        "more": errors["more"],
    }


def _charts(samples: Samples) -> list[dict[str, Any]]:
    """Return the data of the charts."""
    rates = {
        "commits": samples.rates(lambda each: float(each.stats["commits"])),
        "tasks done": samples.rates(lambda each: float(each.stats["tasks_done"])),
        "worker messages": samples.rates(lambda each: _total(each, "processed")),
    }
    depths = {
        "open tasks": samples.series(lambda each: float(each.stats["tasks"])),
        "held by workers": samples.series(lambda each: _total(each, "held")),
    }
    return [chart("throughput", "Per second", rates), chart("depth", "Waiting", depths)]


def _total(sample: WorkerSample, name: str) -> float:
    return float(sum(each[name] for each in sample.workers.values()))


def _sum(causes: Sequence[Mapping[str, Any]]) -> str:
    return number(sum(each["count"] for each in causes))


def _several(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> _several(1, "dead letter"), _several(2000, "message")
    ('1 dead letter', '2,000 messages')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _at(seconds: float) -> str:
    return f"{moment(seconds)} UTC"
