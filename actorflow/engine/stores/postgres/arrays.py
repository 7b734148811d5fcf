"""Columns of rows in Postgres's binary format: arrays, one parameter for many values, and cells."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from psycopg import Connection

__all__ = [
    "Blobs", "Booleans", "Column", "Floats", "Longs", "Texts", "column_list", "register_arrays",
]  # fmt: skip

_NULL = b"\xff\xff\xff\xff"
_header = Struct("!iiiii").pack
_length = Struct("!i").pack
_long = Struct("!iq").pack
_float = Struct("!id").pack
_boolean = Struct("!i?").pack
_long_cell = Struct("!q").pack
_float_cell = Struct("!d").pack


class Column:
    """Values of one column."""

    __slots__ = ("values",)

    element: ClassVar[int]
    array: ClassVar[int]
    """The types of one value and of all, by Postgres's numbers."""
    pack: ClassVar[Any]
    """Returns one value with its length."""
    cell: ClassVar[Any]
    """Returns one value without."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values: Sequence[Any] = values if isinstance(values, (list, tuple)) else list(values)

    def dump(self) -> bytes:
        """Return the array as Postgres reads it. O(size)."""
        values, pack = self.values, type(self).pack
        if not values:
            return _header(0, 0, self.element, 0, 1)[:12]
        parts = [_header(1, 1, self.element, len(values), 1)]
        parts += [_NULL if value is None else pack(value) for value in values]
        return b"".join(parts)


def _pack_text(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data


class Texts(Column):
    """A `text[]`."""

    __slots__ = ()
    element, array = 25, 1009
    pack = staticmethod(_pack_text)
    cell = staticmethod(str.encode)


class Blobs(Column):
    """A `bytea[]`."""

    __slots__ = ()
    element, array = 17, 1001
    pack = staticmethod(lambda value: _length(len(value)) + value)
    cell = staticmethod(bytes)


class Longs(Column):
    """A `bigint[]`."""

    __slots__ = ()
    element, array = 20, 1016
    pack = staticmethod(lambda value: _long(8, value))
    cell = staticmethod(_long_cell)


class Floats(Column):
    """A `double precision[]`."""

    __slots__ = ()
    element, array = 701, 1022
    pack = staticmethod(lambda value: _float(8, value))
    cell = staticmethod(_float_cell)


class Booleans(Column):
    """A `boolean[]`."""

    __slots__ = ()
    element, array = 16, 1000
    pack = staticmethod(lambda value: _boolean(1, value))
    cell = staticmethod(lambda value: b"\1" if value else b"\0")


def column_list(
    rows: Sequence[Sequence[Any]], *columns: Callable[[Iterable[Any]], Any]
) -> list[Any]:
    """Return rows as columns, each made by its class."""
    return [make(values) for make, values in zip(columns, zip(*rows, strict=True), strict=True)]


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Column) -> bytes:
        return obj.dump()


class _TextsDumper(_ColumnDumper):
    oid = Texts.array


class _BlobsDumper(_ColumnDumper):
    oid = Blobs.array


class _LongsDumper(_ColumnDumper):
    oid = Longs.array


class _FloatsDumper(_ColumnDumper):
    oid = Floats.array


class _BooleansDumper(_ColumnDumper):
    oid = Booleans.array


_DUMPERS: dict[type[Column], type[_ColumnDumper]] = {
    Texts: _TextsDumper,
    Blobs: _BlobsDumper,
    Longs: _LongsDumper,
    Floats: _FloatsDumper,
    Booleans: _BooleansDumper,
}


def register_arrays(connection: Connection[Any]) -> None:
    """Make a connection accept columns as parameters."""
    for column, dumper in _DUMPERS.items():
        connection.adapters.register_dumper(column, dumper)
