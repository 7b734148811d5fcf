"""Traces: reading, refusing, recording."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.lab import recording as module
from actorflow.lab.models.trace import BadTrace, Trace
from actorflow.lab.run.simulate import simulate

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, **options: Any) -> list[Any]:
    return [message for chunk in Trace(path, **options).chunks(0) for message in chunk]


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"time": 10, "key": "a", "priority": 2, "size": 5}\n\n{"time": 10.5}\n'
        '{"time": 12, "key": ["a", [1]]}\n'
    )
    assert read(path) == [("a", 2, 5, 0), (0, 0, 1, 0.5), (("a", (1,)), 0, 1, 2)]
    assert [message[3] for message in read(path, speed=2.0)] == [0, 0.25, 1]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("key,time\na,1\n\nb,3\n")
    assert read(path) == [("a", 0, 1, 0), ("b", 0, 1, 2)]


@pytest.mark.parametrize(
    ("name", "text", "line", "complaint"),
    [
        ("t.jsonl", '{"time": 1}\n{"time": 0}\n', 2, "time 0.0 is before 1.0"),
        ("t.jsonl", '{"time": 1}\n\nnonsense\n', 3, "not JSON"),
        ("t.jsonl", "[1]\n", 1, "expected an object"),
        ("t.jsonl", '{"key": 1}\n', 1, "no 'time'"),
        ("t.jsonl", '{"time": "soon"}\n', 1, "not a number"),
        ("t.jsonl", '{"time": NaN}\n', 1, "must be finite"),
        ("t.jsonl", '{"time": 1, "size": -1}\n', 1, "must be finite"),
        ("t.jsonl", '{"time": 1, "key": {"a": 1}}\n', 1, "cannot be a key"),
        ("t.jsonl", "", 1, "not one message"),
        ("t.csv", "", 1, "expected a header"),
        ("t.csv", "a,b\n1,2\n", 1, "column 'time'"),
        ("t.csv", "time,key\n1,a\n2\n", 3, "1 columns instead of 2"),
        ("t.csv", "time,key\n1,a\nx,b\n", 3, "not a number"),
    ],
)
def test_a_bad_line_is_named(
    name: str, text: str, line: int, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadTrace, match=complaint) as caught:
        read(path)
    assert caught.value.line == line
    assert f"{path}, line {line}: " in str(caught.value)


def test_a_file_that_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"time": 1}\n\xff\xfe\n')
    with pytest.raises(BadTrace, match="line 2"):
        read(path)


def test_record_is_there_but_not_imported() -> None:
    assert "record" in af.__all__
    assert af.record is module.record
    with pytest.raises(AttributeError, match="no attribute 'recrod'"):
        _ = af.recrod


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_what_is_pushed_is_recorded_and_can_be_replayed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{suffix}"
    seen: list[Any] = []

    def job(batch: list[Any], _state: None) -> None:
        seen.extend(batch)

    async def from_asyncio() -> None:
        await worker.apush_ack(("f", 1))
        await worker.apush_block(("g", 1))

    with af.spawn(job) as worker:
        worker.push(("before", 1))
        with af.record(worker, path, key=lambda m: m[0], size=lambda m: m[1]) as recorder:
            worker.push(("a", 1))
            worker.push_many([("b", 2), ("c", 2)])
            worker.push_ack(("d", 1))
            worker.push_block(("e", 1))
            asyncio.run(from_asyncio())
        worker.push(("after", 1))
    assert recorder.recorded == 7
    assert [message[0] for message in read(path)] == list("abcdefg")
    assert [message[2] for message in read(path)] == [1, 2, 2, 1, 1, 1, 1]
    assert [message[0] for message in seen] == ["before", *"abcdefg", "after"]
    assert simulate(str(path), "1ms", "queue").processed == 7


def test_recording_never_keeps_a_message_from_being_pushed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    with af.spawn(lambda batch, _: seen.extend(batch)) as worker:
        recorder = af.record(worker, tmp_path / "t.jsonl", key=lambda m: m.nothing)
        worker.push_block(1)
        recorder._writer.stop()
        worker.push_block(2)
        recorder.close()
        recorder.close()
    assert seen == [1, 2]
    assert recorder.failures == 2
    assert len(caplog.records) == 1  # the first is logged, the others are counted
    assert "AttributeError" in caplog.text
    assert [row[0] for row in read(tmp_path / "t.jsonl")] == [None]


def test_times_never_go_back_when_threads_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 5.0, 3.0, 4.0, 6.0])
    monkeypatch.setattr("actorflow.lab.recording.monotonic", lambda: next(times))
    path = tmp_path / "t.jsonl"
    with af.spawn(lambda _batch, _: None) as worker:
        recorder = module.Recorder(worker, path, (None, None, None))
        for number in range(4):
            recorder._note([number])
        monkeypatch.undo()
        recorder.close()
    assert [json.loads(line)["time"] for line in path.read_text().splitlines()] == [5, 5, 5, 6]


def test_many_threads_make_a_trace_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with af.spawn(lambda _batch, _: None) as worker, af.record(worker, path, key=lambda m: m):

        def push() -> None:
            for number in range(500):
                worker.push(number)

        threads = [threading.Thread(target=push) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read(path)) == 2_000


def test_a_trace_does_not_overwrite_and_a_worker_has_one_recorder(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").touch()
    with af.spawn(lambda _batch, _: None) as worker:
        with pytest.raises(af.BadOption, match="does not overwrite"):
            af.record(worker, tmp_path / "there.jsonl")
        with (
            af.record(worker, tmp_path / "one.jsonl"),
            pytest.raises(af.BadOption, match="recorded or shadowed already"),
        ):
            af.record(worker, tmp_path / "two.jsonl")


@pytest.mark.parametrize("wrong", [None, 7, "writer"], ids=repr)
def test_what_is_no_worker_cannot_be_recorded(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(af.BadOption, match="needs a worker"):
        af.record(wrong, tmp_path / "trace.jsonl")
    assert not (tmp_path / "trace.jsonl").exists()
