"""Regular expressions of flows: what they match, and that no expression takes forever."""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorflow.flows.errors import FlowError, LimitExceeded
from actorflow.flows.limits import Limits
from actorflow.flows.values import regexes
from actorflow.flows.values.regexes import groups, to_regex
from actorflow.runtime.errors import MissingExtra
from tests.flows.driving import drive

LONG = "a" * 5_000 + "!"
BOMBS = ("(a+)+$", "(a|aa)+$", "(a|a)*b", "(.*a){25}b", "(?:a?){50}a{50}b", "^(([a-z])+.)+[A-Z]")

HANDLED = """
sequence on_error: (def e \\ 'outer')
  sequence
    on_error r/(a|aa)+$/ (def e \\ 'inner')
    fail f.t
"""


def rx(source: str, letters: str = "") -> list[Any]:
    return ["_rxs", f"/{source}/{letters}", 1]


def ends(text: str, **payload: Any) -> Any:
    """Return the result of a flow, or the text of its failure."""
    driver = drive(text, payload=payload)
    for failed in driver.state.failures():
        return (failed.failure or {})["error"]
    return (driver.payload or {}).get("ret")


# -- nothing takes forever; with a backtracking engine each of these outlives the test run --------


@pytest.mark.parametrize("bomb", BOMBS)
def test_every_expression_ends(bomb: str) -> None:
    assert to_regex(rx(bomb)).search(LONG) is None


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        ("match? f.t r/(a|aa)+$/", False),
        ("match? f.t '(a|aa)+$'", False),
        ("matchr f.t r/(a|aa)+$/", []),
        ("pmatch f.t r/(a|aa)+$/", ""),
        ("length (split f.t r/(a|aa)+$/)", 1),
        ("case f.t\n  r/(a|aa)+$/ ;; 'yes'\n  else ;; 'no'", "no"),
        ("match f.t\n  r/(a|aa)+$/ ;; 'yes'\n  else ;; 'no'", "no"),
        ("match f.t\n  guard x r/(a|aa)+$/ ;; 'yes'\n  else ;; 'no'", "no"),
        ("set p '(a|aa)+$'\nmatch? f.t r/$(p)/", False),
        (HANDLED, "outer"),
        ("sequence\n  trap tag: r/(a|aa)+$/ (def m \\ 1)\n  sequence tag: f.t \\ 'done'", "done"),
        ("sequence vars: [ '-' r/(a|aa)+$/ ]\n  set \"v.$(f.t)\" 'done'\n  'done'", "done"),
    ],
)
def test_bombs_in_flows(flow: str, expected: Any) -> None:
    assert ends(flow, t=LONG) == expected


def test_other_threads_run_while_an_expression_is_matched() -> None:
    """The match is as long as the limit lets it be; the interpreter is not held meanwhile."""
    regex = to_regex(rx("(?:.?){900}c"), Limits(pattern_steps=10**10))
    text = "ab" * 20_000
    counts: list[int] = []
    ended = threading.Event()

    def count() -> None:
        number = 0
        while not ended.is_set():
            number += 1
        counts.append(number)

    thread = threading.Thread(target=count)
    thread.start()
    regex.search(text)
    ended.set()
    thread.join()
    assert counts[0] > 1_000


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    ["(?:a{1000}){1000}", "((a{1,100}){1,100}){1,100}", "a{1001}", "(" * 50_000 + ")" * 50_000],
)
def test_expressions_that_compile_to_much_are_refused(source: str) -> None:
    with pytest.raises(FlowError, match="regular expression /") as caught:
        to_regex(rx(source))
    assert len(str(caught.value)) < 300


def test_a_large_expression_names_the_limit() -> None:
    with pytest.raises(
        LimitExceeded, match=r"/\\pL\{20\}/ has .* instructions, and may have 10,000"
    ):
        to_regex(rx(r"\pL{20}"))
    with pytest.raises(LimitExceeded, match=r"has 10,001 characters, and may have 10,000"):
        to_regex(rx("a" * 10_001))


def test_an_expression_and_a_text_that_are_large_together_name_the_limit() -> None:
    regex = to_regex(rx("a+b"), Limits(pattern_steps=1_000))
    assert regex.search("a" * 20) is None
    with pytest.raises(LimitExceeded, match=r"/a\+b/ .*1,000 characters may take more than 1,000"):
        regex.search("a" * 1_000)


def test_matches_that_each_look_at_the_whole_text_end() -> None:
    regex = to_regex(rx("a.*x|a"), Limits(split_seconds=0.01))
    with pytest.raises(
        LimitExceeded, match=r"/a\.\*x\|a/ in a text of 50,000 .* longer than 0.01 s"
    ):
        list(regex.find_all("a" * 50_000))


def test_a_limit_is_an_error_that_a_flow_can_catch() -> None:
    flow = "sequence on_error: (def m e \\ e.kla)\n  match? 'a' f.p"
    assert ends(flow, p="a" * 10_001) == "LimitExceeded"


# -- unsupported syntax --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", ["a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?>a)", "a++"]
)
def test_what_nothing_limits_is_not_supported_and_says_so(source: str) -> None:
    with pytest.raises(
        FlowError, match="not supported, because nothing limits their time"
    ) as caught:
        to_regex(rx(source))
    assert source in str(caught.value)


@pytest.mark.parametrize("source", ["(", "*", "[a", "a{2,1}", r"\q", "(?x:a)"])
def test_invalid_expressions_are_flow_errors(source: str) -> None:
    with pytest.raises(FlowError):
        to_regex(rx(source))


def test_an_invalid_criterion_fails_where_it_is_given() -> None:
    for flow in ("trap tag: r/(/ (def m \\ 1)", "on_error r/(/ (def m \\ 1)"):
        assert "invalid regular expression /(/" in ends(f"sequence\n  {flow}\n  'on'")["msg"]


# -- what they match -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "letters", "text", "expected"),
    [
        ("b+", "", "abbc", ["bb"]),
        ("(b)(x)?", "", "abc", ["b", "b", None]),
        ("B", "i", "abc", ["b"]),
        ("É", "i", "été", ["é"]),
        ("t(.)$", "", "été", ["té", "é"]),
        ("^b$", "", "a\nb\nc", ["b"]),
        ("a.b", "", "a\nb", None),
        ("a.b", "m", "a\nb", ["a\nb"]),
        ("a b # c", "x", "ab", ["ab"]),
        (r"a\ [ #]b # (", "x", "a #b", ["a #b"]),
        ("a\n  b #( \n c", "x", "abc", ["abc"]),
        (r"a\Z", "", "ba", ["a"]),
        (r"a\z", "", "ba", ["a"]),
        (r"\Aa", "", "b\na", None),
        ("(?-mix:a)b", "", "ab", ["ab"]),
        ("(?mi-x:A.)b", "", "a\nb", ["a\nb"]),
        ("(?i)A", "", "a", ["a"]),
        ("(?#why)a", "", "a", ["a"]),
        ("(?<n>a)", "", "a", ["a", "a"]),
        ("(?P<n>a)", "", "a", ["a", "a"]),
        ("[]a]+", "", "]a", ["]a"]),
        (r"[^\]\\]+", "", "]b", ["b"]),
        ("[[:alpha:]#]+", "x", "1a#", ["a#"]),
        ("[(?#]", "", "#", ["#"]),
        (r"\é", "", "é", ["é"]),
        (r"\d+\s\w+", "", "12 ab", ["12 ab"]),
        ("", "", "a", [""]),
    ],
)
def test_what_matches(source: str, letters: str, text: str, expected: list[str] | None) -> None:
    match = to_regex(rx(source, letters)).search(text)
    assert (None if match is None else groups(match)) == expected


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "^", "$", "é", r"\.", "(?:ab)"]),
    lambda inner: (
        st.builds("({})".format, inner)
        | st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?"]))
        | st.builds("{}{}".format, inner, inner)
        | st.builds("{}|{}".format, inner, inner)
    ),
    max_leaves=4,
)


@given(SIMPLE, st.text("abcé.\n", max_size=8))
def test_the_match_is_that_of_python(source: str, text: str) -> None:
    """Groups inside repetitions that match nothing may differ; where the match is may not."""
    expected = re.compile(source, re.MULTILINE).search(text)
    found = to_regex(rx(source)).search(text)
    assert (found and found.span()) == (expected and expected.span())


def test_without_re2_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    regexes._engine.cache_clear()
    try:
        with pytest.raises(MissingExtra, match=r"need google-re2: pip install .*\[flows\]"):
            regexes._engine()
    finally:
        regexes._engine.cache_clear()
