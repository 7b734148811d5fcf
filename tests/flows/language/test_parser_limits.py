"""Deep and long texts: bounded depth, no recursion, the same work per line."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from actorflow.flows.language.outline import MAX_LINE_DEPTH
from actorflow.flows.language.parser import MAX_DEPTH, FlowSyntaxError, Parser, parse
from actorflow.flows.language.source import Source
from actorflow.flows.language.tokens import MAX_DIGITS
from actorflow.flows.language.tree import MAX_SWITCHES, same, walk
from tests.flows.flow_texts import flow_texts, noise
from tests.flows.language.reading import NESTS, error

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.flows.language.tree import Tree

# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_brackets_nest_up_to_the_limit(nest: Callable[[int], str]) -> None:
    parse(nest(MAX_DEPTH))
    assert f"deeper than {MAX_DEPTH} levels" in str(error(nest(MAX_DEPTH + 1)))


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_100_000_brackets_are_an_error_and_no_recursion(nest: Callable[[int], str]) -> None:
    assert str(MAX_DEPTH) in error(nest(100_000)).problem


def test_5_000_ever_deeper_lines_are_a_tree() -> None:
    tree = parse("\n".join(" " * depth + "a" for depth in range(5_000)))
    assert sum(1 for _ in walk(tree)) == 5_000
    assert same(tree, parse(" \\ ".join(["a"] * 5_000)))


def test_100_000_ever_deeper_lines_are_an_error() -> None:
    assert f"deeper than {MAX_LINE_DEPTH} levels" in str(error("a \\ " * 100_000 + "a"))


def test_reading_needs_no_stack_of_its_own() -> None:
    """Deep inside other code, with 60 frames left, the deepest text still reads."""

    def deep(frames: int) -> Tree:
        return deep(frames - 1) if frames else parse(NESTS["dollars"](MAX_DEPTH))

    depth = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        depth += 1
    assert deep(sys.getrecursionlimit() - depth - 60)[0] == "_dqs"


def test_long_chains() -> None:
    assert len(parse(" + ".join(["a"] * 50_000))[1]) == 50_000
    assert len(parse("a - b" + " + c - d" * 50_000)[1]) == 100_001
    parse("1" + " / 2 * 3" * (MAX_SWITCHES // 2))
    assert str(MAX_SWITCHES) in error("1" + " / 2 * 3" * MAX_SWITCHES).problem


@pytest.mark.parametrize(
    "text",
    [
        "1" * 5_000,
        "a." + "1" * 5_000,
        "a[0]." + "1" * 5_000,
        "1.5e999",
        "-1.5e999",
        "9223372036854775808",
        "-9223372036854775809",
        "a.9223372036854775808",
    ],
)
def test_numbers_without_end_are_an_error(text: str) -> None:
    assert str(MAX_DIGITS) in error(text).problem


# -- cost ----------------------------------------------------------------------------------------


def steps(text: str) -> int:
    """Return how many values were looked for."""
    parser = Parser(Source(text))
    with suppress(FlowSyntaxError):
        parser.flow()
    return parser.steps


BLOCK = """sequence # go
  push f.l 'a' if f.n == 7
  task 'alice' "stage $(name) of $(f.total||'all')" due: '2d', # soon
    tag: 'x'
  concurrence expect: 2 on_error: (def msg, err \\ push f.l err.msg)
    set f.d { a: 1, b: [ 1, 2, 3 ], c: { d: f.x[1:2] } }
    case f.n
      r/^ab(.)$/;; push f.l match.1
"""


def test_the_work_per_line_is_the_same_for_long_texts() -> None:
    assert steps(BLOCK * 300) <= 300 * steps(BLOCK)


WORST: dict[str, Callable[[int], str]] = {
    "unclosed": lambda n: "a + (" * n,
    "failing inside": lambda n: "a + (" * n + "]" + ")" * n,
    "index or array": lambda n: "a[(" * n + "x" + ") y]" * n,
    "regex or reference": lambda n: '/["$(' * n + "x" + ')"]/' * n,
    "key or attribute": lambda n: "a b: (" * n + "]" + ")" * n,
    "heads": lambda n: "(" * n + "x.y" + " 1)" * n,
}


@pytest.mark.parametrize("nest", WORST.values(), ids=WORST)
def test_nothing_is_read_again_and_again(nest: Callable[[int], str]) -> None:
    assert steps(nest(64)) <= 3 * steps(nest(32)) <= 9 * steps(nest(16))


@pytest.mark.parametrize(
    "text",
    [
        "/a\\" * 9_000,
        "/a$(b)\\" * 9_000,
        "a" + " " * 100_000 + "b" + " " * 100_000,
        "\n" * 100_000 + "a",
        "   \n" * 30_000,
        "a + # c\n" * 20_000,
        "'" + "\\\\" * 50_000,
        ",/" * 50_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_long_texts_of_one_pattern_end_soon(text: str) -> None:
    assert steps(text) <= 2 * len(text)


# -- any text ------------------------------------------------------------------------------------


def outcome(text: str) -> Tree | FlowSyntaxError:
    try:
        return parse(text)
    except FlowSyntaxError as found:
        return found


@given(noise | flow_texts())
def test_any_text_is_a_tree_or_a_syntax_error(text: str) -> None:
    found = outcome(text)
    lines = text.count("\n") + 1
    if isinstance(found, FlowSyntaxError):
        assert 1 <= found.line <= lines
        assert 1 <= found.column <= len(found.source) + 2
        assert found.at >= (found.line, found.column)
        return
    for head, content, line in walk(found):
        assert isinstance(head, str)
        assert 0 <= line <= lines
        assert isinstance(content, list | str | int | float | bool | None)


@given(flow_texts())
def test_reading_is_pure(text: str) -> None:
    first, second = outcome(text), outcome(text)
    if isinstance(first, FlowSyntaxError):
        assert str(first) == str(second)
    else:
        assert isinstance(second, list)
        assert same(first, second, lines=True)
