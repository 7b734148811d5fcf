"""The batches of a worker: recorded while somebody asks, drawn as a stream, and simulated."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.api.pages.content.bars import stream
from actorflow.api.pages.content.page_request import PageRequest
from actorflow.api.pages.content.samples import Samples
from actorflow.api.pages.content.workers import what_if, worker
from actorflow.api.verbs.batch_log import BatchLog
from actorflow.api.verbs.table import Verbs
from actorflow.api.web_app import web_app
from actorflow.behaviours import Fair, Queue
from actorflow.runtime.errors import BadOption, UnknownWorker
from actorflow.runtime.worker.latency import ObservedTiming
from tests.api.browser import Browser, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def total(rows: Sequence[int], state: int) -> int:
    return state + len(rows)


@pytest.fixture
def verbs() -> Iterator[Verbs]:
    with af.Engine(":memory:") as engine:
        yield Verbs(engine)


@pytest.fixture
def writer() -> Iterator[af.WorkerRef]:
    with af.spawn(total, state=0, name="logged writer") as writer:
        yield writer


def test_batches_are_recorded_from_the_first_question_on(
    verbs: Verbs, writer: af.WorkerRef
) -> None:
    writer.push_block(1)
    assert verbs.batches("logged writer")["batches"] == []
    writer.push_block(1)
    (found,) = verbs.batches("logged writer")["batches"]
    assert found["size"] == 1
    assert found["ago"] >= found["took"] >= 0
    with pytest.raises(UnknownWorker):
        verbs.batches("nobody")


def test_a_worker_pays_nothing_once_nobody_asks(writer: af.WorkerRef) -> None:
    log = BatchLog(writer, patience=0.01)
    writer.push_block(1)
    assert len(log.batches()) == 1
    until(lambda: not isinstance(writer.actor.timing, ObservedTiming))
    writer.push_block(1)
    assert len(log.batches()) == 1


def test_batches_at_the_same_time_are_in_rows_of_their_own() -> None:
    found = stream(
        [
            {"ago": 4.0, "took": 3.0, "size": 1},
            {"ago": 3.0, "took": 1.0, "size": 2},
            {"ago": 1.0, "took": 1.0, "size": 3},
        ]
    )
    assert [[bar["size"] for bar in lane] for lane in found["lanes"]] == [[1, 3], [2]]
    assert found["busy"] == pytest.approx(5 / 8)
    assert stream([])["lanes"] == []


def test_what_a_policy_would_do_is_simulated_with_the_job_of_the_worker(
    verbs: Verbs, writer: af.WorkerRef
) -> None:
    asked_for = PageRequest(verbs, {"name": "logged writer"}, Samples())
    assert what_if(asked_for)["found"] is None
    with pytest.raises(BadOption, match="look again when it has processed 10"):
        verbs.what_if("logged writer", policy="unique")
    asked = asked_for._replace(query={**asked_for.query, "wait": "50"})
    assert "look again" in what_if(asked)["problem"]
    for row in range(40):
        writer.push_block(row)
    found = what_if(asked)["found"]
    assert list(found["simulated"]) == ["queue", "linger(queue, 50ms)"]
    simulated = found["simulated"]
    assert simulated["queue"]["p50"] < simulated["linger(queue, 50ms)"]["p50"] < 0.1
    assert found["rate"] > 0
    assert worker(asked_for)["stream"]["lanes"]
    with pytest.raises(ValueError, match="0 to 1,000 ms"):
        what_if(asked_for._replace(query={**asked_for.query, "wait": "2000"}))
    with pytest.raises(BadOption, match="nonsense"):
        verbs.what_if("logged writer", policy="nonsense")
    for deep in ("bounded(" * 60, "(" * 500, f"{'bounded(' * 50}queue{', 1)' * 50}"):
        with pytest.raises(af.ActorflowError):
            verbs.what_if("logged writer", policy=deep)


@pytest.mark.parametrize("policy", ["antigravity:fly", "linger(this:Zen, 5ms)"])
def test_a_reader_cannot_import_a_module(verbs: Verbs, writer: af.WorkerRef, policy: str) -> None:
    for row in range(40):
        writer.push_block(row)
    verbs.batches("logged writer")
    with pytest.raises(BadOption, match="names code of yours"):
        verbs.what_if("logged writer", policy=policy)
    assert not {"antigravity", "this"} & set(sys.modules)


def test_many_look_at_one_worker_at_once(verbs: Verbs, writer: af.WorkerRef) -> None:
    verbs.batches("logged writer")
    counts: list[int] = []

    def look() -> None:
        for _ in range(50):
            writer.push_block(1)
            counts.append(len(verbs.batches("logged writer", limit=10_000)["batches"]))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(counts) == 200
    assert max(counts) <= 200


def test_the_page_of_a_worker_shows_its_largest_keys(verbs: Verbs) -> None:
    nasty = "<script>alert(1)</script>"
    with af.spawn(total, state=0, name="keyed writer", behaviour=Fair(key=0)) as keyed:
        keyed.pause()
        rows: list[Any] = [
            (nasty, 0),
            (nasty, 1),
            *((f"customer {number}", number) for number in range(20)),
        ]
        keyed.push_many(rows)
        until(lambda: verbs.key_depths("keyed writer")["counted"] == 22)
        with Browser.of(web_app(verbs.engine)) as browser:
            text = browser.get("/worker", name="keyed writer").text
        keyed.resume()
    assert "Messages by key" in text
    assert "22 of 22 messages held are counted, of 21 keys; these have the most." in text
    assert "script&gt;" in text
    assert "<script>alert" not in text
    assert "customer 8" in text
    assert "customer 9" not in text


def test_a_worker_without_keys_shows_none(verbs: Verbs, writer: af.WorkerRef) -> None:
    found = verbs.key_depths("logged writer")
    assert (found["key_count"], found["largest"], found["problem"]) == (None, [], "")
    assert writer.statistics().held == 0
    with Browser.of(web_app(verbs.engine)) as browser:
        assert "Messages by key" not in browser.get("/worker", name="logged writer").text
    with pytest.raises(UnknownWorker):
        verbs.key_depths("nobody")


def test_a_behaviour_that_cannot_count_does_not_break_the_page(verbs: Verbs) -> None:
    with af.spawn(total, state=0, name="broken", behaviour=BrokenDepths()):
        assert verbs.key_depths("broken")["problem"] == "ZeroDivisionError: <b>"
        with Browser.of(web_app(verbs.engine)) as browser:
            text = browser.get("/worker", name="broken").text
    assert "The behaviour cannot count them: ZeroDivisionError: &lt;b&gt;" in text


class BrokenDepths(Queue):
    def depths(self) -> dict[Any, int]:
        raise ZeroDivisionError("<b>")
