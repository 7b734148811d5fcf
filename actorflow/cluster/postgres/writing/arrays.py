"""Columns of rows as arrays in Postgres's binary format: one parameter for many values."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from psycopg import Connection

__all__ = ["Blobs", "Booleans", "Column", "Floats", "Longs", "Texts", "register_arrays"]

_NULL = b"\xff\xff\xff\xff"
_header = Struct("!iiiii").pack
_length = Struct("!i").pack
_long = Struct("!iq").pack
_float = Struct("!id").pack
_boolean = Struct("!i?").pack


class Column:
    """Values of one column."""

    __slots__ = ("values",)

    element: ClassVar[int]
    array: ClassVar[int]
    """The types of one value and of all, by Postgres's numbers."""
    pack: ClassVar[Any]
    """Returns one value with its length."""

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


class Blobs(Column):
    """A `bytea[]`."""

    __slots__ = ()
    element, array = 17, 1001
    pack = staticmethod(lambda value: _length(len(value)) + value)


class Longs(Column):
    """A `bigint[]`."""

    __slots__ = ()
    element, array = 20, 1016
    pack = staticmethod(lambda value: _long(8, value))


class Floats(Column):
    """A `double precision[]`."""

    __slots__ = ()
    element, array = 701, 1022
    pack = staticmethod(lambda value: _float(8, value))


class Booleans(Column):
    """A `boolean[]`."""

    __slots__ = ()
    element, array = 16, 1000
    pack = staticmethod(lambda value: _boolean(1, value))


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
