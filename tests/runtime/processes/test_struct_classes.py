"""Classes of msgspec structs that are sent to other processes by value."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec
import pytest

from actorflow.runtime.errors import BadJob
from actorflow.runtime.processes.packed import pack, pack_value, unpack

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

SESSION = """
import msgspec
import actorflow as af

class Point(msgspec.Struct):
    x: int
    above: "Point | None" = None

    def top(self):
        return Point(self.x + 1, above=self)

def climb(point):
    assert msgspec.json.decode(msgspec.json.encode(point.top()), type=Point).above == point
    return point.top()

plan = af.Plan()
first = plan.job(climb, Point(1))
second = plan.job(lambda top: (top, isinstance(top, Point)), first)
top, same = plan.run(workers=1)[second]
print(same, top == Point(2, Point(1)), "top")
"""


def sent(value: Any) -> Any:
    """Return what another process gets of a value."""
    code = (
        "import sys; from actorflow.runtime.processes.packed import pack_value, unpack\n"
        "function, *args = unpack(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(pack_value(function(*args)).data)"
    )
    data = pack_value(value).data
    done = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=False
    )
    assert not done.returncode, done.stderr.decode()
    return unpack(done.stdout)


def test_a_struct_of_a_function_works_elsewhere_and_comes_back_as_the_same_class() -> None:
    class Point(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="point"):
        old_x: int
        names: list[str] = []
        FAR: ClassVar[int] = 7

        def __post_init__(self) -> None:
            if self.old_x < 0:
                msg = "negative"
                raise ValueError(msg)

        @property
        def top(self) -> Point:
            return Point(old_x=self.old_x + self.FAR, names=[*self.names, "top"])

    class Named(Point, frozen=True, kw_only=True):
        name: str = "n"

    def climb(point: Point) -> tuple[Point, str, Any, Named]:
        try:
            Point(old_x=-1)
        except ValueError as error:
            told = str(error)
        written = msgspec.to_builtins(point)
        assert msgspec.convert(written, Point) == point
        with pytest.raises(AttributeError):
            point.old_x = 3  # type: ignore[misc]
        return point.top, told, written, Named(old_x=2)

    top, told, written, named = sent((climb, Point(old_x=1)))
    assert top == Point(old_x=8, names=["top"])
    assert told == "negative"
    assert written == {"type": "point", "oldX": 1, "names": []}
    assert type(named) is Named
    assert named.name == "n"


def test_a_struct_that_holds_its_own_kind_is_decoded_elsewhere() -> None:
    class Box(msgspec.Struct, Generic[T]):
        inner: T
        more: tuple[int, ...] = ()

    def decode() -> Any:
        return msgspec.convert({"inner": "a", "more": [1, 2]}, Box[str])

    assert sent((decode,)) == Box("a", (1, 2))


def test_a_struct_whose_annotations_mean_nothing_here_is_refused_by_name() -> None:
    class Lost(msgspec.Struct):
        x: Nowhere  # type: ignore[name-defined] # noqa: F821 - the point

    with pytest.raises(
        BadJob, match=r"struct .*Lost cannot be sent.*Nowhere.*define it at the top"
    ):
        pack(lambda: Lost)


def test_a_plan_in_a_session_without_a_file_passes_structs_of_the_session(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-"], input=SESSION, capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert done.stdout.splitlines()[-1] == "True True top"
