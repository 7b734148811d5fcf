"""Flow texts are read as trees: words, strings, collections, operators, lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actorflow.flows.language.parser import parse
from actorflow.flows.language.tree import walk

if TYPE_CHECKING:
    from actorflow.flows.language.tree import Tree


def brief(tree: Tree) -> Any:
    """Return a tree without lines: a word as a string, a literal as a tuple, others as lists."""
    head, content = tree[0], tree[1]
    if not isinstance(content, list):
        return (content,)
    return [head, *map(brief, content)] if content else head


def att(*parts: Any) -> list[Any]:
    return ["_att", *parts]


def ref(*elements: Any) -> list[Any]:
    return ["_ref", *((element,) for element in elements)]


def check(text: str, expected: Any) -> None:
    assert brief(parse(text)) == expected


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+5", (5,)),
        ("-0", (0,)),
        ("007", (7,)),
        ("1.0", (1.0,)),
        ("-1.5e3", (-1500.0,)),
        ("1.5e-3", (0.0015,)),
        ("1e3", (1,)),
        ("1e-3", (1,)),
        ("1E3", (1,)),
        ("-2.5E-2", (-0.025,)),
        ("-2.5E+2", (-250.0,)),
        ("0e99", (0,)),
        ("9223372036854775807", (2**63 - 1,)),
        ("-9223372036854775808", (-(2**63),)),
        ("null", (None,)),
        ("nullify", "nullify"),
        ("truest", "truest"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1e", "1e"),
        ("1e+", "1e+"),
        ("e3", "e3"),
        ("1+2", "1+2"),
        ("a-b", "a-b"),
        ("a/b?", "a/b?"),
        ("été", "été"),
        ("_", "_"),
        ("'a'", ("a",)),
    ],
)
def test_the_longest_reading_of_a_word_wins_and_the_later_of_equals(
    text: str, expected: Any
) -> None:
    check(text, expected)
    assert type(parse(text)[1]) is type(expected[0] if isinstance(expected, tuple) else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true.a", ref("true", "a")),
        ("1.5.x", ref(1, 5, "x")),
        ("1.5[0]", ref(1, 5, 0)),
        ("a[0]", ref("a", 0)),
        ("a['b c'].d", ref("a", "b c", "d")),
        ("a[-1]", ref("a", -1)),
        ("a.-1", ref("a", "-1")),
        ("a[b]", ["_ref", ("a",), "b"]),
        ("a[b + 1]", ["_ref", ("a",), ["+", "b", (1,)]]),
        ("a[(f x)]", ["_ref", ("a",), ["f", att("x")]]),
        ("a[0][1].b", ref("a", 0, 1, "b")),
        ("v.+", ref("v", "+")),
        ("-.5", ref("-", 5)),
        ("a[b[c[0]]]", ["_ref", ("a",), ["_ref", ("b",), ref("c", 0)]]),
        ("f.a[1 ]", ref("f", "a", 1)),
        ("f.a[ 1 ]", ["_head", ("f.a",), ref("f", "a"), ["__head", att(["_arr", (1,)])]]),
    ],
)
def test_references(text: str, expected: Any) -> None:
    check(text, expected)


def bounds(**given: Any) -> list[Any]:
    return ["_obj", *(part for name, bound in given.items() for part in ((name,), bound))]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("1,2", bounds(start=(1,), count=(2,))),
        ("1, 2", bounds(start=(1,), count=(2,))),
        ("i,n + 1", bounds(start="i", count=["+", "n", (1,)])),
        (":", bounds(start=(0,), end=(-1,), step=(1,))),
        ("::", bounds(start=(0,), end=(-1,), step=(1,))),
        ("1:", bounds(start=(1,), end=(-1,), step=(1,))),
        ("1::2", bounds(start=(1,), end=(-1,), step=(2,))),
        ("a:b:c", bounds(start="a", end="b", step="c")),
        ("1 : 2", bounds(start=(1,), end=(2,), step=(1,))),
        ("1;2", ["_arr", (1,), (2,)]),
        ("1:2;-1", ["_arr", bounds(start=(1,), end=(2,), step=(1,)), (-1,)]),
        ("1,2;k", ["_arr", bounds(start=(1,), count=(2,)), "k"]),
        ("1 2", bounds(start=(1,), count=(2,))),
        ("1,\n2", bounds(start=(1,), count=(2,))),
        ("1 :3 :\n4 ", bounds(start=(1,), end=(3,), step=(4,))),
        ("1; # c\n2", ["_arr", (1,), (2,)]),
    ],
)
def test_slices(index: str, expected: Any) -> None:
    check(f"l[{index}]", ["_ref", ("l",), expected])


@pytest.mark.parametrize("text", ["a[]", "a[ 1 2 ]", "a[1, 2, 3]"])
def test_what_is_no_index_is_an_array_attribute(text: str) -> None:
    assert brief(parse(text))[1][1][0] == "_arr"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"'\"\'\\\/\b\f\n\r\t'", "\"'\\/\b\f\n\r\t"),
        (r"'\u00e9\u0041'", "éA"),
        (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        ("'a\tb'", "a\tb"),
        ("'$(a)'", "$(a)"),
        ('"$"', "$"),
        ('"a$"', "a$"),
        (r'"\u0024(a)"', "$(a)"),
        ("'# // \\\\ ; |'", "# // \\ ; |"),
    ],
)
def test_strings(text: str, expected: str) -> None:
    check(text, (expected,))


def dollar(*alternatives: Any) -> list[Any]:
    return ["_dol", *(["_dmute", *nodes] for nodes in alternatives)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"$(a)"', [dollar(["a"])]),
        ('"$( a )"', [dollar(["a"])]),
        ('"$(a)$(b)"', [dollar(["a"]), dollar(["b"])]),
        ('"$$(a)$"', [("$",), dollar(["a"]), ("$",)]),
        ('"$(a||b)"', [dollar(["a"], ["b"])]),
        ('"$( a | b || c ; d )"', [dollar(["a", "b"], ["c", "d"])]),
        ('"$(a b: 1 if c)"', [dollar([["_if", "c", ["a", att("b", (1,))]]])]),
        ('"$((a \\ b))"', [dollar([["a", "b"]])]),
        ('"$(")")"', [dollar([(")",)])]),
        ('"$(\n  a\n    | b _\n  || c\n)."', [dollar(["a", ["b", att("_")]], ["c"]), (".",)]),
        ('"$(a b \\ c\n  d)"', [dollar([["a", att("b")], "c", "d"])]),
        ('"$( # c\n a # d\n)"', [dollar(["a"])]),
        ('"$()"', [["_dol", "_dmute"]]),
        ('"$(a||)"', [["_dol", ["_dmute", "a"], "_dmute"]]),
        ('"x $(f.a[0]) y"', [("x ",), dollar([ref("f", "a", 0)]), (" y",)]),
    ],
)
def test_strings_with_nodes_in_them(text: str, parts: list[Any]) -> None:
    check(text, ["_dqs", *parts])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/", ["_rxs", ("a",)]),
        ("r/a/", ["_rxs", ("a",)]),
        ("regex/a b/", ["_rxs", ("a b",)]),
        ("/a/imx", ["_rxs", att("rxopts", ["_dqs", ("i",), ("m",), ("x",)]), ("a",)]),
        ("/a/$(b)m", ["_rxs", att("rxopts", ["_dqs", dollar(["b"]), ("m",)]), ("a",)]),
        ("/a/$(b)", ["_rxs", att("rxopts", ["_dqs", dollar(["b"])]), ("a",)]),
        (r"/a\/b\d/", ["_rxs", (r"a/b\d",)]),
        (r"/\u00e9\t\b\\/", ["_rxs", ("é\t\\b\\\\",)]),
        ("/^(a|b)$/", ["_rxs", ("^(a|b)$",)]),
        ("/a$(b)c/i", ["_rxs", att("rxopts", ("i",)), ("a",), dollar(["b"]), ("c",)]),
        ("r/ a/", ["_rxs", (" a",)]),
        ("/a/b", "/a/b"),
        ("/a", "/a"),
        ("rub/a/", "rub/a/"),
        ("r//", "r"),
        ("x r/a/", ["x", att(["_rxs", ("a",)])]),
        ("x (/a/)", ["x", att(["_rxs", ("a",)])]),
        ("/a/ /b/", ["/", ["_rxs", ("a",)], "b/"]),
        ("[ /a/, /b/ ]", ["_arr", ["_rxs", ("a",)], ["_rxs", ("b",)]]),
    ],
)
def test_regexes(text: str, expected: Any) -> None:
    check(text, expected)


def test_two_divisions_on_a_line_are_no_regex() -> None:
    check("[ (/ 6 2) (/ 8 2) ]", ["_arr", *(["/", att((n,)), att((2,))] for n in (6, 8))])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1'a'b]", ["_arr", (1,), ("a",), "b"]),
        ("[ 1 -2 ]", ["_arr", ["-", (1,), (2,)]]),
        ("[ 1, -2 ]", ["_arr", (1,), (-2,)]),
        ("[ # c\n\n 1 // d\n , 2\n]", ["_arr", (1,), (2,)]),
        ("[ (a b) c ]", ["_arr", ["a", att("b")], "c"]),
        ("{ a:\n  1,\n  # c\n  b : 2 }", ["_obj", "a", (1,), "b", (2,)]),
        ("{,a: 1,,}", ["_obj", "a", (1,)]),
        ('{ "k$(i)": 1 }', ["_obj", ["_dqs", ("k",), dollar(["i"])], (1,)]),
        ("{ a: 1 or b }", ["_obj", "a", ["or", (1,), "b"]]),
        ("{ a: (b \\ c) }", ["_obj", "a", ["b", "c"]]),
    ],
)
def test_collections(text: str, expected: Any) -> None:
    check(text, expected)


@pytest.mark.parametrize("text", ["[]", "[ ]", "[,]", "[ # c\n]", "{}", "{ , }"])
def test_empty_collections_hold_an_attribute(text: str) -> None:
    assert brief(parse(text))[1:] == [att("_")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("()", "sequence"),
        ("( )", "sequence"),
        ("(a)", "a"),
        ("(a )", "a"),
        ("(\n  a\n)", "a"),
        ("((1))", (1,)),
        ("(a ; b)", ["sequence", "a", "b"]),
        ("(a | b | c)", ["sequence", "a", "b", "c"]),
        ("(a \\ b ; c)", ["a", "b", "c"]),
        ("(a b\n  c\n    d\n  e)", ["a", att("b"), ["c", "d"], "e"]),
        ("(\n  # c\n  a\n    b\n)", ["a", "b"]),
        ("(a if b)", ["_if", "b", "a"]),
    ],
)
def test_parentheses(text: str, expected: Any) -> None:
    check(text, expected)


# -- operators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 - 2 + 3", ["+", ["-", (1,), (2,)], (3,)]),
        ("1 - 2 - 3", ["-", (1,), (2,), (3,)]),
        ("1 - 2 + 3 - 4", ["+", ["-", (1,), (2,)], (3,), (-4,)]),
        ("1 + 2 - 3", ["+", (1,), (2,), (-3,)]),
        ("1 + 2 - -3", ["+", (1,), (2,), (3,)]),
        ("a + b - c", ["+", "a", "b", ["-", "c"]]),
        ("a + b - c * 2", ["+", "a", "b", ["-", ["*", "c", (2,)]]]),
        ("8 / 4 * 2", ["*", ["/", (8,), (4,)], (2,)]),
        ("2 * 3 / 4", ["/", ["*", (2,), (3,)], (4,)]),
        ("a <> b", ["<>", "a", "b"]),
        ("a <>b", ["<>", "a", "b"]),
        ("a == b != c", ["!=", ["==", "a", "b"], "c"]),
        ("a < b <= c", ["<=", ["<", "a", "b"], "c"]),
        ("a >= b", [">=", "a", "b"]),
        ("a = b", ["=", "a", "b"]),
        ("a or b or c", ["or", "a", "b", "c"]),
        ("a or b and c", ["or", "a", ["and", "b", "c"]]),
        ("a % 2 == 0", ["==", ["%", "a", (2,)], (0,)]),
        ("1 + 2 % 3 * 4", ["+", (1,), ["*", ["%", (2,), (3,)], (4,)]]),
        ("(1 + 2) + 3", ["+", ["+", (1,), (2,)], (3,)]),
        ("a +b", ["+", "a", "b"]),
        ("(a)+(b)", ["+", "a", "b"]),
        ("'a'+'b'", ["+", ("a",), ("b",)]),
        ("'a'or 'b'", ["or", ("a",), ("b",)]),
        ("a + # c\n\nb", ["+", "a", "b"]),
        ("a or\nb", ["or", "a", "b"]),
        ("a or # c\nb", ["sequence", ["a", att("or")], "b"]),
        ("a +\n  b", ["a", att("+"), "b"]),
        ("f.a[0] - 1", ["-", ref("f", "a", 0), (1,)]),
    ],
)
def test_operators(text: str, expected: Any) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a +", ["a", att("+")]),
        ("a and", ["a", att("and")]),
        ("a or: b", ["a", att("or", "b")]),
        ("a and(b)", ["a", att("and"), att("b")]),
        ("a order", ["a", att("order")]),
        ("a ! b", ["a", att("!"), att("b")]),
        ("a // b", "a"),
    ],
)
def test_an_operator_without_operands_is_a_word(text: str, expected: Any) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+ 1 2", ["+", (1,), (2,)]),
        ("+ a tag: 'x' b", ["+", att("tag", ("x",)), "a", "b"]),
        ("+", "+"),
        ("- a", ["-", "a"]),
        ("- 4", (-4,)),
        ("- (-4)", (4,)),
        ("- -4", ["-", "-", (4,)]),
        ("- 4 3", ["-", (4,), (3,)]),
        ("- 4 tag: 'x'", ["-", att("tag", ("x",)), (4,)]),
        ("-\n  4", ["-", (4,)]),
        ("- 4\n  3", ["-", (4,), (3,)]),
        ("- a + b", ["+", ["-", "a"], "b"]),
        ("- a - b", ["-", ["-", "a"], "b"]),
        ("- 1 + 2", ["+", (-1,), (2,)]),
        ("- (a + b)", ["-", ["+", "a", "b"]]),
        ("- a * b", ["-", ["*", "a", "b"]]),
        ("* 2 3", ["*", att((2,)), att((3,))]),
        ("(- 5)", (-5,)),
    ],
)
def test_operators_as_heads(text: str, expected: Any) -> None:
    check(text, expected)


# -- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b , c", ["a", att("b"), att("c")]),
        ("a,b", ["a", att("b")]),
        ("a 'b''c'", ["a", att(("b",)), att(("c",))]),
        ("a(b)", ["a", att("b")]),
        ("a b : c", ["a", att("b", "c")]),
        ("a b:c", ["a", att("b", "c")]),
        ("a b: # d\n  // e\n  c", ["a", att("b", "c")]),
        ("a f.x: 1 + 2", ["a", att(ref("f", "x"), ["+", (1,), (2,)])]),
        ("a b, # c\n\n  d", ["a", att("b"), att("d")]),
        ("a b,\n  # one\n  # two\n  c: 1", ["a", att("b"), att("c", (1,))]),
        ("a [ 1 ] { b: 2 }", ["a", att(["_arr", (1,)]), att(["_obj", "b", (2,)])]),
    ],
)
def test_attributes(text: str, expected: Any) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b unless c", ["_unless", "c", ["a", att("b")]]),
        ("a, if b", ["_if", "b", "a"]),
        ("a if(b)", ["_if", "b", "a"]),
        ("a if - 4", ["_if", (-4,), "a"]),
        ("a if not b", ["_if", ["not", att("b")], "a"]),
        ("a if b unless c", ["_unless", "c", "a"]),
        ("a if b\n  c", ["_if", "b", ["a", "c"]]),
        ("'x' if b", ["_if", "b", ("x",)]),
        ("1 + 2 if b", ["_if", "b", ["+", (1,), (2,)]]),
        ("a iffy", ["a", att("iffy")]),
        ("a if-not", ["a", att("if-not")]),
        ("a if", ["a", att("if")]),
        ("a if b if", ["_if", ["b", att("if")], "a"]),
        ("a if b x: 1 if c", ["_if", "c", ["a", att("if"), att("b"), att("x", (1,))]]),
        ("a (if)", ["a", att("if")]),
        ("unless a b", ["unless", att("a"), att("b")]),
    ],
)
def test_conditions_behind(text: str, expected: Any) -> None:
    check(text, expected)


def test_a_condition_may_be_a_call_through_an_expression() -> None:
    call = ["_head", ("f.x",), ref("f", "x"), ["__head", att("c")]]
    check("a if f.x c", ["_if", call, "a"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b c", ["_head", ("a.b",), ref("a", "b"), ["__head", att("c")]]),
        ("'a'  b", ["_head", ("'a'",), ("a",), ["__head", att("b")]]),
        ("1 + 2   b: 3", ["_head", ("1 + 2",), ["+", (1,), (2,)], ["__head", att("b", (3,))]]),
        ("(a\n  b) c", ["_head", ("(a\n  b)",), ["a", "b"], ["__head", att("c")]]),
        ("[ 1 ]\n  a", ["_head", ("[ 1 ]",), ["_arr", (1,)], ["__head", "a"]]),
        ("[ 1 ] a b: c", ["_arr", att("a"), att("b", "c"), (1,)]),
        ("([ 1 ] a) b", ["_arr", att("a"), att("b"), (1,)]),
        ("[] a", ["_arr", att("_"), att("a")]),
        ("{ a: 1 } only", ["_obj", att("only"), "a", (1,)]),
        ("(a) b", ["a", att("b")]),
        ("() b", ["sequence", att("b")]),
        ("(a b)", ["a", att("b")]),
    ],
)
def test_heads_that_are_expressions(text: str, expected: Any) -> None:
    check(text, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n  b\nc", ["sequence", ["a", "b"], "c"]),
        ("a\n    b\n  c\n      d\n e", ["a", "b", ["c", "d"], "e"]),
        ("  a\n b", ["sequence", "a", "b"]),
        ("  a\n   b\n c", ["sequence", ["a", "b"], "c"]),
        ("a \\ b\n  c", ["a", "b", "c"]),
        ("a \\ b ; c \\ d", ["a", "b", ["c", "d"]]),
        ("a\\b", ["a", "b"]),
        ("a \\\n\n        b", ["a", "b"]),
        ("a\n# c\n\\ b", ["a", "b"]),
        ("a\n  \n  \\ b", ["a", "b"]),
        ("a # c\n | b", ["sequence", "a", "b"]),
        ("a ; # c\n\n    b", ["sequence", "a", "b"]),
        ("a ;\\ b", ["sequence", "a", "b"]),
        ("; a ;", "a"),
        ("\\ a", "a"),
        ("a\r\n  b\r\n", ["a", "b"]),
        ("a\n   # deep\n  b", ["a", "b"]),
        ("\n \t \n", "sequence"),
    ],
)
def test_nesting_of_lines(text: str, expected: Any) -> None:
    check(text, expected)


def test_lines_are_counted_at_each_token() -> None:
    tree = parse("\na b,\n  c:\n    [ 1,\n    2 ]\n  d \\ (\n e)\n")
    assert [(below[0], below[2]) for below in walk(tree)] == [
        *(("a", 2), ("_att", 2), ("b", 2), ("_att", 3), ("c", 3)),
        *(("_arr", 4), ("_num", 4), ("_num", 5), ("d", 6), ("e", 6)),
    ]


def test_several_roots_have_line_0_also_in_parentheses() -> None:
    assert parse("a\nb")[2] == 0
    assert parse("x (a ; b)")[1] == [
        ["_att", [["sequence", [["a", [], 1], ["b", [], 1]], 0]], 0],
    ]


def test_the_file_is_named_on_the_root_only() -> None:
    assert parse("a b", file="x.flo") == ["a", [["_att", [["b", [], 1]], 1]], 1, "x.flo"]
    assert parse("", file="x.flo") == ["sequence", [], 0, "x.flo"]
