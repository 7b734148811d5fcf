"""Frames, segments and packed values: values survive the round trip, however the bytes are cut."""

from __future__ import annotations

import itertools
import os
import pickle
import socket
import sys
import types
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.runtime.errors import BadJob
from actorflow.runtime.processes import memory, packed, wire
from actorflow.runtime.processes.memory import SharedPage, read_segment, write_segment
from actorflow.runtime.processes.packed import LARGE, Packed, pack, pack_value, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number


@pytest.fixture
def ends() -> Iterator[tuple[wire.Channel, wire.Channel]]:
    one, other = map(wire.Channel, socket.socketpair())
    yield one, other
    one.close()
    other.close()


def sizes() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 100, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), sizes(), st.lists(sizes(), max_size=3)), max_size=6
    ),
    st.booleans(),
)
def test_frames_arrive_as_they_were_sent(
    given_: list[tuple[int, int, list[int]]],
    refused: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    """With shared memory and, where the system refuses it, without."""
    before = open_files()
    one, other = map(wire.Channel, socket.socketpair())
    one.socket.setblocking(False)  # noqa: FBT003
    other.socket.setblocking(False)  # noqa: FBT003
    frames = []
    with pytest.MonkeyPatch.context() as patch:
        if refused:
            patch.setattr(wire, "write_segment", refuse)
        for number, (sequence, data, buffers) in enumerate(given_):
            content = bytes([number % 256]) * data
            parts = [pickle.PickleBuffer(bytes([each % 256]) * each) for each in buffers]
            frames.append(wire.encode(wire.CALL, sequence, Packed(content, parts), number=number))
    one.post(frames)
    found: list[wire.WireFrame] = []
    done = False
    while not done or len(found) < len(given_):
        done = one.flush()
        try:
            found += other.receive()
        except BlockingIOError:
            continue
    assert [
        (frame.kind, frame.sequence, frame.number, bytes(frame.data), [*map(bytes, frame.buffers)])
        for frame in found
    ] == [
        (
            wire.CALL,
            sequence,
            number,
            bytes([number % 256]) * data,
            [bytes([each % 256]) * each for each in buffers],
        )
        for number, (sequence, data, buffers) in enumerate(given_)
    ]
    del found
    one.close()
    other.close()
    assert open_files() == before


def refuse(_parts: Any) -> int:
    raise OSError(24, "Too many open files")


@given(
    st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5),
    st.lists(st.integers(1, 200), min_size=1),
)
def test_frames_that_are_cut_anywhere_are_put_together(
    bodies: list[bytes], cuts: list[int]
) -> None:
    whole = b"".join(wire.encode(wire.OK, n, Packed(body))[0] for n, body in enumerate(bodies))
    one, other = socket.socketpair()
    channel = wire.Channel(other)
    found = []
    for cut in itertools.cycle(cuts):
        one.sendall(whole[:cut])
        whole = whole[cut:]
        found += channel.receive()
        if not whole:
            break
    assert [(frame.sequence, frame.data) for frame in found] == list(enumerate(bodies))
    one.close()
    channel.close()


def test_a_closed_end_is_told(ends: tuple[wire.Channel, wire.Channel]) -> None:
    one, other = ends
    one.send(*wire.encode(wire.LEAVE))
    one.socket.close()
    assert [frame.kind for frame in other.receive()] == [wire.LEAVE]
    with pytest.raises(EOFError):
        other.receive()


def test_files_of_frames_that_nobody_reads_are_closed() -> None:
    before = open_files()
    one, other = map(wire.Channel, socket.socketpair())
    one.post([wire.encode(wire.OK, 1, Packed(b"x" * LARGE))])
    one.close()
    one, third = map(wire.Channel, socket.socketpair())
    one.send(*wire.encode(wire.OK, 1, Packed(b"x" * LARGE)))
    for each in (one, other, third):
        each.close()
    assert open_files() == before


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_segments_keep_their_parts(parts: list[bytes]) -> None:
    found = read_segment(write_segment(parts), [len(part) for part in parts])
    assert [bytes(each) for each in found] == parts


def test_beyond_a_limit_segments_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MAPPED_MOST", memory._Mapping.count)
    before = open_files()
    (found,) = read_segment(write_segment([b"abc" * 1000]), [3000])
    assert bytes(found) == b"abc" * 1000
    assert open_files() == before


def test_a_segment_is_released_with_what_refers_to_it() -> None:
    count = memory._Mapping.count
    array = np.arange(LARGE, dtype=np.int64)
    packed = pack_value(array)
    found = unpack(packed.data, read_segment(write_segment([*packed.buffers]), [array.nbytes]))
    assert np.array_equal(found, array)
    assert memory._Mapping.count == count + 1
    del found
    assert memory._Mapping.count == count


def test_small_buffers_stay_in_the_bytes() -> None:
    small, large = np.zeros(10), np.zeros(LARGE)
    assert not pack_value(small).buffers
    packed = pack_value([small, large])
    assert len(packed.buffers) == 1
    assert packed.size > large.nbytes


def test_pages_are_seen_by_both() -> None:
    page = SharedPage()
    other = SharedPage(os.dup(page.file))
    assert other.begun == 0
    assert page.begin(3)
    assert other.begun == 3
    other.skip(4)
    assert not page.begin(4)
    assert other.begun == 3
    assert page.begin(4)
    other.skip(5)
    other.forget(5)
    assert page.begin(5)
    os.close(page.take())
    os.close(other.take())


def test_without_cloudpickle_lambdas_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(BadJob, match=r"lambdas and closures need cloudpickle"):
        pack(lambda: None)
    function, args = unpack(pack(len, ("abc",)).data)
    assert function(*args) == 3


def test_a_main_module_without_a_file_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    main.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert not packed.main_is_importable()
    main.__file__ = "<stdin>"
    assert not packed.main_is_importable()
    main.__file__ = "program.py"
    assert packed.main_is_importable()


def test_a_class_that_msgspec_has_read_goes_by_value() -> None:
    @dataclass
    class Point:
        x: int

    class Colour(Enum):
        RED = "red"

    assert msgspec.convert({"x": 1}, Point) == Point(1)
    assert msgspec.convert("red", Colour) is Colour.RED

    def made() -> tuple[Point, Colour]:
        return Point(2), Colour.RED

    packed = pack_value(made)
    point, colour = unpack(packed.data, packed.buffers)()
    assert (point.x, colour.name) == (2, "RED")
    assert msgspec.convert({"x": 3}, type(point)).x == 3
