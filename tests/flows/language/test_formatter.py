"""Trees become texts that read back as the same trees, and texts become tidy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.flows.language import formatter as layout
from actorflow.flows.language.formatter import FlowFormatError, format_flow, format_tree
from actorflow.flows.language.parser import MAX_DEPTH, FlowSyntaxError, parse
from actorflow.flows.language.tree import Tree, same
from actorflow.runtime.errors import ActorflowError
from tests.flows.flow_texts import SLASHED, WORDS, any_trees, flow_texts, noise, produced_trees
from tests.flows.language.reading import NESTS

# -- trees survive -------------------------------------------------------------------------------


def survives(tree: Tree) -> str:
    """Check that a tree is written and read back, always in the same way; return the text."""
    text = format_tree(tree)
    assert same(parse(text), tree)
    assert format_tree(parse(text)) == text
    if "/" not in text:
        assert text == layout._text(layout._entries(tree)), "it should not need the plain layout"
    return text


@given(flow_texts() | noise)
def test_every_flow_survives(text: str) -> None:
    try:
        tree = parse(text)
    except FlowSyntaxError:
        return
    survives(tree)


@given(produced_trees())
def test_trees_of_the_shapes_of_the_parser_survive(tree: Tree) -> None:
    survives(tree)


@given(any_trees())
def test_all_trees_of_words_and_literals_survive(tree: Tree) -> None:
    survives(tree)


@given(any_trees((*WORDS, *SLASHED)))
def test_symbols_that_look_like_regexes_survive(tree: Tree) -> None:
    survives(tree)


@given(st.text())
def test_all_strings_survive(text: str) -> None:
    survives(["_sqs", text, 1])
    survives(["_dqs", [["_sqs", text + "!", 1], parse('"$(a)"')[1][0]], 1])


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_nested_flows_survive(nest: object) -> None:
    assert callable(nest)
    survives(parse(nest(MAX_DEPTH)))


@pytest.mark.parametrize(
    "text",
    [
        " \\ ".join(["a b: (c)"] * 1_000),
        " \\ ".join(["+ 1"] * 1_000),
        " \\ ".join(["_arr"] * 1_000),
        " \\ ".join(["_if \\ a ;"] * 1_000),
        "1" + " / 2 * 3" * 100,
        "x " + " ".join(["(a \\ b)"] * 1_000),
        "[ " + ", ".join(["f.x"] * 1_000) + " ]",
    ],
    ids=lambda text: text[:12],
)
def test_deep_and_wide_flows_survive(text: str) -> None:
    assert max(map(len, survives(parse(text)).split("\n"))) < 2_200


# -- layout --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tidy"),
    [
        ("", ""),
        ("# c", ""),
        ("a\nb", "a\nb\n"),
        ("(a ; b)", "a\nb\n"),
        ("sequence \\ a ; b", "sequence\n  a\n  b\n"),
        ("x (a ; b)", "x (sequence \\ a ; b)\n"),
        ("a (b \\ c \\ d)", "a (b \\ c \\ d)\n"),
        ("a (b\n  c\n    d\n  e)", "a (b \\ (c \\ d) ; e)\n"),
        ("+ 1 2", "1 + 2\n"),
        ("- a", "- a\n"),
        ("-\n  4", "-\n  4\n"),
        ("1 - 2 + 3", "(1 - 2) + 3\n"),
        ("a + b - c - 1", "a + b - c - 1\n"),
        ("* 2 3", "* 2 3\n"),
        ("x, -1", "x (-1)\n"),
        ("x a: -1", "x a: -1\n"),
        ("x, +, if: 1", None),
        ("x (if), (+)", "x (if) (+)\n"),
        ("f.a['b'].c['d e'][-1][i]", "f.a.b.c['d e'][-1][i]\n"),
        ("f.a[:2]", "f.a[0:2]\n"),
        ("f.a[1,2;'x']", "f.a[1,2;'x']\n"),
        ("3[25]", "3[25]\n"),
        ("/a b/i", "r/a b/i\n"),
        ("2.0e30", "2.0e+30\n"),
        ('"a\\"b"', "'a\"b'\n"),
        ('"$(+ 1 2)"', '"$(1 + 2)"\n'),
        ("[ 1 2 ] tag: 'x'", "[ 1, 2 ] tag: 'x'\n"),
        ("a 1 if b c", "a 1 if (b c)\n"),
        ("a if b\n  c", "a if b\n  c\n"),
        ("(a if b) if c", "(a if b) if c\n"),
        ("(a  b) c", "(a  b) c\n"),
        ("case x\n  1 ;; a\n  2 ;; b\n    c", "case x\n  1 ;; a\n  2 ;; b\n    c\n"),
        ("case x\n  1\n    2\n  a", "case x\n  1\n    2\n  a\n"),
        ("define f x\n  + x 1", "define f x\n  x + 1\n"),
        ("_arr\n  1", "[ 1 ]\n"),
        ("_ref 'a'", "_ref 'a'\n"),
        ("/a\n  /b", "/a\n  /b\n"),
    ],
)
def test_layout(text: str, tidy: str | None) -> None:
    if tidy is None:
        with pytest.raises(FlowSyntaxError):
            parse(text)
        return
    assert survives(parse(text)) == tidy


def test_long_lines_are_broken() -> None:
    text = format_flow(
        "sequence\n"
        "  task 'alice' 'a task with a long name, so that all of it' due: 'the day after tomorrow'"
        " tag: 'urgent'\n"
        "  set f.x { name: 'somebody with a long name', address: { street: 'a street with a very',"
        " city: 'and a city with a long name' } }\n"
        '  sequence on_error: (def err \\ push f.l "it went wrong because $(err.msg)" ;'
        " task 'bob' 'look at it')\n"
        "    set f.sum f.the_first_of_the_summands + f.the_second_of_the_summands"
        " + f.the_third_of_the_summands\n"
    )
    assert text == (
        "sequence\n"
        "  task 'alice',\n"
        "      'a task with a long name, so that all of it',\n"
        "      due: 'the day after tomorrow',\n"
        "      tag: 'urgent'\n"
        "  set f.x {\n"
        "    name: 'somebody with a long name',\n"
        "    address: { street: 'a street with a very', city: 'and a city with a long name' }\n"
        "  }\n"
        "  sequence on_error: (def err\n"
        '      push f.l "it went wrong because $(err.msg)"\n'
        "      task 'bob' 'look at it')\n"
        "    set f.sum,\n"
        "        f.the_first_of_the_summands + f.the_second_of_the_summands"
        " + f.the_third_of_the_summands\n"
    )


@pytest.mark.parametrize(
    "tree",
    [
        ["a b", [], 1],
        ["12", [], 1],
        ["", [], 1],
        ["r/a/", [], 1],
        ["_num", "x", 1],
        ["_num", float("inf"), 1],
        ["_num", True, 1],
        ["_sqs", None, 1],
        ["a", 1, 1],
        ["_num", 10**1000, 1],
    ],
    ids=str,
)
def test_what_no_text_reads_as_is_refused(tree: Tree) -> None:
    with pytest.raises(FlowFormatError) as caught:
        format_tree(["sequence", [tree], 1])
    assert isinstance(caught.value, ActorflowError)
    assert isinstance(caught.value, ValueError)


# -- texts become tidy ---------------------------------------------------------------------------

UNTIDY = """\

# what it is
#   in two lines


define review doc   # the reviewer
      task 'bob' "review $(doc)"
// now
sequence
  # first
  push f.l 1, # behind a comma
    2 # at the end

  push f.l [ 1, # inside
     # alone inside
     2 ]
# done
"""

TIDY = """\
# what it is
#   in two lines

define review doc  # the reviewer
  task 'bob' "review $(doc)"
// now
sequence
  # first
  # at the end
  push f.l 1 2  # behind a comma

  # alone inside
  push f.l [ 1, 2 ]  # inside
# done
"""


def test_comments_and_blank_lines_are_kept() -> None:
    assert format_flow(UNTIDY) == TIDY
    assert format_flow(TIDY) == TIDY


def test_comments_in_a_head_stay_in_it() -> None:
    text = "(a # one\n  b) c  # two\n"
    assert format_flow(text) == text


def test_a_comment_that_would_close_a_regex_moves_up() -> None:
    assert format_flow("/abc b,\n  c # see /x") == "# see /x\n/abc b c\n"


def test_only_comments() -> None:
    assert format_flow(" # a\n\n\n  // b") == "# a\n\n// b\n"


def test_a_text_that_is_no_flow_is_refused() -> None:
    with pytest.raises(FlowSyntaxError) as caught:
        format_flow("a (", file="x.flo")
    assert caught.value.file == "x.flo"


@given(flow_texts() | noise)
def test_tidy_texts_stay_as_they_are(text: str) -> None:
    try:
        tree = parse(text)
    except FlowSyntaxError:
        return
    tidy = format_flow(text)
    assert same(parse(tidy), tree)
    assert format_flow(tidy) == tidy
