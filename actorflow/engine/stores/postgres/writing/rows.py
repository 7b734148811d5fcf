"""Statements that take rows, as columns or, of a single row, as cells.

With columns, one text does for any number of rows. To the server, a row of cells costs a third less
than columns that hold one value each, and most commits of an engine that is not busy write one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from actorflow.engine.stores.postgres.arrays import (
    Blobs,
    Booleans,
    Floats,
    Longs,
    Texts,
    column_list,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.stores.postgres.arrays import Column

    Filled: TypeAlias = tuple[str, list[Any]]
    Fill: TypeAlias = Callable[..., Filled]
    """`fill(statement, rows, *more)` returns a text with its parameters."""

__all__ = ["Statement", "with_cells", "with_columns"]


_ROWS = re.compile(r"\{(rows|ordered): ([a-z0-9, \n]+)\}")
_COLUMNS: dict[str, type[Column]] = {
    "text": Texts, "bigint": Longs, "bytea": Blobs, "float8": Floats, "boolean": Booleans,
}  # fmt: skip


class Statement:
    """A statement whose rows come first among its parameters.

    Args:
        text: says where they are, and the types of their columns: `{rows: text, bigint}`, or
            `{ordered: text, bigint}` if their place is another column.
        single: another text for a single row.

    """

    __slots__ = ("columns", "many", "single")

    def __init__(self, text: str, *, single: str = "") -> None:
        found = _ROWS.search(text)
        if found is None:
            msg = f"no {{rows: ...}} in {text!r}"
            raise ValueError(msg)
        before, after = text[: found.start()], text[found.end() :]
        ordered = found[1] == "ordered"
        self.columns = [_COLUMNS[name.strip()] for name in found[2].split(",")]
        places = ", ".join(["%s"] * len(self.columns))
        many = f"unnest({places}) WITH ORDINALITY" if ordered else f"unnest({places})"
        self.many = f"{before}{many}{after}"
        """The text for any number of rows."""
        row = f"(VALUES ({places}, 1))" if ordered else f"(VALUES ({places}))"
        self.single = single or f"{before}{row}{after}"
        """The text for a single row."""


def with_columns(statement: Statement, rows: Sequence[Sequence[Any]], *more: Any) -> Filled:
    """Return a statement with its rows as columns, and what else it takes."""
    return statement.many, [*column_list(rows, *statement.columns), *more]


def with_cells(statement: Statement, rows: Sequence[Sequence[Any]], *more: Any) -> Filled:
    """Like `with_columns`, with a single row as cells: pairs of type and value, for a `Pipe`."""
    if len(rows) != 1:
        return with_columns(statement, rows, *more)
    cells = [
        (column.element, None if value is None else column.cell(value))
        for column, value in zip(statement.columns, rows[0], strict=True)
    ]
    return statement.single, [*cells, *more]
