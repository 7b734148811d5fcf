"""Digests of values: equal for equal values in all processes, different for different ones."""

from __future__ import annotations

import collections
import copy
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import pickle
import subprocess
import sys
import types
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.plans.cache.fingerprint.values import Unstable
from actorflow.plans.cache.fingerprint.walk import Walk
from actorflow.plans.cache_protocol import Input

ROOT = Path(__file__).parents[3]


def digest(value: Any) -> str:
    return Walk().values.digest(value)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=12,
)


def told_apart(value: Any) -> Any:
    """Return a value that is equal only if the digests must be: with types, with the order."""
    if isinstance(value, list | tuple):
        return (type(value).__name__, [told_apart(each) for each in value])
    if isinstance(value, dict):
        return ("dict", [(told_apart(key), told_apart(each)) for key, each in value.items()])
    if isinstance(value, set | frozenset):
        return (type(value).__name__, {repr(told_apart(each)) for each in value})
    return (type(value).__name__, repr(value))


@given(values, values)
def test_digests_are_equal_exactly_for_equal_values(first: Any, second: Any) -> None:
    assert (digest(first) == digest(second)) == (told_apart(first) == told_apart(second))


@given(values)
def test_a_copy_has_the_same_digest(value: Any) -> None:
    assert digest(copy.deepcopy(value)) == digest(value)
    assert digest(pickle.loads(pickle.dumps(value))) == digest(value)  # noqa: S301 - our own


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: int) -> None:
        self.a = a


Named = collections.namedtuple("Named", ["a", "b"])  # noqa: PYI024 - the untyped form, too

PAIRS: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    ("a", b"a"),
    ([1, 2], (1, 2)),
    ([[1], 2], [[1, 2]]),
    ({1: 2, 3: 4}, {3: 4, 1: 2}),
    (Input("load"), Input("fit")),
    (Colour.RED, Colour.BLUE),
    (Point(1, 2), Point(2, 1)),
    (Slotted(1), Slotted(2)),
    (Named(1, 2), Named(2, 1)),
    (Named(1, 2), (1, 2)),
    (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 2, tzinfo=dt.UTC)),
    (dt.timedelta(1), dt.timedelta(2)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    (pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b")),
    (uuid.UUID(int=1), uuid.UUID(int=2)),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aab"), collections.Counter("abb")),
    (collections.deque([1, 2]), collections.deque([2, 1])),
    (collections.defaultdict(int, a=1), collections.defaultdict(list, a=1)),
    (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    (slice(1, 2), slice(1, 3)),
    (range(3), range(4)),
    (np.arange(6), np.arange(6).reshape(2, 3)),
    (np.arange(6), np.arange(6.0)),
    (np.arange(6), np.arange(1, 7)),
    (np.float64(1), 1.0),
    (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    (int | str, int | None),
    (list[int], list[str]),
    (len, sum),
    ([].append, [1].append),
    (Point(1, 2).__eq__, Point(2, 2).__eq__),
    (bytearray(b"a"), bytearray(b"b")),
]


@pytest.mark.parametrize(
    ("first", "second"), PAIRS, ids=lambda value: repr(value).partition(" at 0x")[0]
)
def test_values_of_all_kinds_are_told_apart(first: Any, second: Any) -> None:
    assert digest(first) == digest(first)
    assert digest(first) != digest(second)


@given(st.integers(1, 4), st.integers(0, 3))
def test_arrays_count_by_content_not_by_layout(rows: int, more: int) -> None:
    array = np.arange(rows * (more + 1)).reshape(rows, more + 1)
    assert digest(np.array(array)) == digest(array)
    assert digest(np.array(array) + 1) != digest(array)


def test_shared_and_copied_parts_are_the_same() -> None:
    part = [1, 2]
    assert digest([part, part]) == digest([[1, 2], [1, 2]])
    deep: list[Any] = []
    for _ in range(60):  # 2 ** 60 parts if sharing were not noticed
        deep = [deep, deep]
    assert digest(deep) == digest(deep)


def test_a_loop_ends() -> None:
    def loop() -> list[Any]:
        made: list[Any] = [1]
        made.append(made)
        return made

    assert digest(loop()) == digest(loop())
    assert digest(loop()) != digest([1, [1]])


def test_too_deep_a_value_is_unstable() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Unstable, match="a list is nested too deeply"):
        digest(deep)
    while deep:  # a hundred thousand lists, taken apart without recursion
        deep = deep[0]


class Stubborn:
    def __reduce__(self) -> str:
        raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((i for i in range(3)), "generator"),
        (Stubborn(), r"a Stubborn cannot be hashed \(on purpose\)"),
        ([memoryview(b"a")], "memoryview"),
    ],
)
def test_what_has_no_stable_digest_is_named(value: Any, text: str) -> None:
    with pytest.raises(Unstable, match=text):
        digest(value)


PRINT = """\
import sys
sys.path.insert(0, {root!r})
from actorflow.plans.cache.fingerprint.walk import Walk
value = {{"a": {{"x", "y", "z", b"a", 1}}, "b": frozenset("abcdef"), "c": [1.5, None]}}
print(Walk().values.digest(value))
"""


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_digest_is_the_same_in_another_process(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT.format(root=str(ROOT))],
        env={"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    value = {"a": {"x", "y", "z", b"a", 1}, "b": frozenset("abcdef"), "c": [1.5, None]}
    assert done.stdout.strip() == digest(value)
