"""Invalid texts: where the parser stopped, and which tokens it expected."""

from __future__ import annotations

import pickle

import pytest

from actorflow.runtime.errors import ActorflowError
from tests.flows.language.reading import error

# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a\n  b (c", 2, 5),
        ("a\n  )", 2, 3),
        ("1 + (b", 1, 5),
        ("a b:", 1, 4),
        ("a b: c: d", 1, 7),
        ("{ a }", 1, 1),
        ("x { a: 1; b: 2 }", 1, 3),
        ("[ (a ]", 1, 1),
        ("'a\nb'", 1, 1),
        ("'a\\d'", 1, 1),
        ("a || b", 1, 3),
        ("a,", 1, 2),
        ("1.", 1, 2),
        ("a\b", 1, 2),
        ("a[1", 1, 2),
        ("a\n\n\n   ]", 4, 4),
    ],
)
def test_an_error_tells_where_reading_stopped(text: str, line: int, column: int) -> None:
    found = error(text)
    assert (found.line, found.column) == (line, column)
    assert found.source == text.split("\n")[line - 1]


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("a\n  b (c", (2, 7), '")"'),
        ("[ 1, 2", (1, 7), '"]"'),
        ("{ a 1 }", (1, 5), '":"'),
        ("{ a: 1", (1, 7), '"}"'),
        ("'abc", (1, 5), "the closing '"),
        ('x "abc', (1, 7), 'the closing "'),
        ("a b: ]", (1, 6), "a value"),
        ("f.x.", (1, 5), "a name"),
        ("a[1", (1, 4), '"]"'),
        ('"$(a', (1, 5), '")"'),
    ],
)
def test_an_error_tells_what_was_expected(text: str, at: tuple[int, int], expected: str) -> None:
    found = error(text)
    assert found.at == at
    assert expected in found.expected
    assert expected in str(found)


def test_an_error_shows_file_line_and_caret() -> None:
    found = error("sequence\n\ttask 'bob' (\n", file="order.flo")
    assert found.file == "order.flo"
    assert str(found) == (
        "syntax error at line 2 column 13 of order.flo: cannot read this: "
        'expected a value or ")" at line 3 column 1\n'
        "  \ttask 'bob' (\n"
        "  \t           ^"
    )


def test_an_error_shows_the_part_of_a_long_line_around_the_caret() -> None:
    text = "a " * 5_000 + "] " + "b " * 5_000
    *_, shown, caret = str(error(text)).split("\n")
    assert len(shown) < 110
    assert shown[caret.index("^")] == "]"


def test_an_error_is_one_of_ours_and_travels() -> None:
    found = error("a (", file="x")
    assert isinstance(found, ActorflowError)
    assert isinstance(found, ValueError)
    copy = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own bytes
    assert str(copy) == str(found)
    assert (copy.line, copy.column, copy.expected) == (found.line, found.column, found.expected)


def test_half_a_surrogate_pair_is_an_error() -> None:
    assert r"\ud83d" in error(r"'a \ud83d b'").problem
