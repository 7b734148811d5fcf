"""The lexemes of the flow language, as regular expressions.

Every repetition is possessive, so that matching takes time linear in the length of the match.
"""

from __future__ import annotations

import math
import re
from typing import Final

MAX_DIGITS: Final = 400
"""How many digits a number may have; Python itself gives up at about 4,300."""

LEAST_WHOLE: Final = -(2**63)
GREATEST_WHOLE: Final = 2**63 - 1
"""What a flow may write as a whole number: it, and minus it, can be stored."""

POSTFIX_WORDS: Final = ("if", "unless")

_SYMBOL_CHARACTER: Final = r"""(?:[^.:;| \t\n\r\b\f"',()\[\]{}#\\/]|/(?!/))"""
_SYMBOL: Final = rf"{_SYMBOL_CHARACTER}++"
_COMMENT: Final = r"(?:\#|//)[^\r\n]*+"
_SPACES: Final = r"[ \t]*+"
_BLANKS: Final = rf"(?:[ \t\r\n]++|{_COMMENT})*+"
_ESCAPE: Final = r"""\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4})"""
_JOIN: Final = r"\\|\|(?!\|)|;"
_LINE_END: Final = rf"{_SPACES}(?:{_COMMENT})?+[\r\n]*+"

COMMENT: Final = re.compile(_COMMENT)
SPACES: Final = re.compile(_SPACES)
BLANKS: Final = re.compile(_BLANKS)
"""Spaces, comments and newlines."""

LINE_END: Final = re.compile(_LINE_END)
"""Spaces, a comment, newlines; not the spaces of the line after them."""

COLLECTION_BLANKS: Final = re.compile(rf"(?:[ \t\r\n,]++|{_COMMENT})*+")
"""The separators of the elements of an array or object."""

SEPARATOR: Final = re.compile(rf",{_BLANKS}|{_SPACES}")
"""The separators before an attribute; after a comma it may be on the next line."""

POSTFIX: Final = re.compile(rf"({'|'.join(POSTFIX_WORDS)})(?!{_SYMBOL_CHARACTER})")

OPERATOR: Final = re.compile(
    r"(%|\*|/(?!/)|[-+]|<=|>=|<>|<|>|==?|!=|(and|or))"
    rf"(?(2)(?:[ \t]++|(?:{_COMMENT})?+[\r\n]++)|{_LINE_END})"
)
"""The operand may be at the very beginning of the next line."""

OUTDENT: Final = re.compile(
    rf"{_SPACES}(?P<first>{_JOIN}){_SPACES}(?:{_COMMENT})?+[\r\n]*+"
    rf"|{_LINE_END}{_SPACES}(?P<last>{_JOIN}){_SPACES}"
    rf"|{_LINE_END}"
)
"""The end of a line: newlines, or a join at the end of the line or at the beginning of the next."""

SYMBOL: Final = re.compile(_SYMBOL)
PATH: Final = re.compile(rf"{_SYMBOL}(?:\.{_SYMBOL})*+")
DOT_SYMBOL: Final = re.compile(rf"\.({_SYMBOL})")
NUMBER: Final = re.compile(r"[-+]?[0-9]++(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+")
DIGITS: Final = re.compile(r"[0-9]++")

SINGLE_TEXT: Final = re.compile(rf"(?:[^'\\\n\r\b\f]|{_ESCAPE})*+")
DOUBLE_TEXT: Final = re.compile(rf"""(?:[^"$\\\n\r\b\f]|\$(?!\()|{_ESCAPE})*+""")
REGEX_START: Final = re.compile(r"(?:r|re|rx|rex|regex)/(?!/)|/(?![/ \t])")
"""A bare slash before a space is a division: ``(/ 6 2) (/ 8 2)`` contains no regex."""
REGEX_TEXT: Final = re.compile(r"(?:[^/$\\\n\r]|\$(?!\()|\\[^\n\r])*+")
REGEX_OPTIONS: Final = re.compile(r"[imxouesn]*+")

_ESCAPES: Final = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))"
)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


_ESCAPED_IN_REGEX: Final = frozenset("/'\"fnrt")


def unescape(text: str) -> str:
    r"""Return the value of a text between quotes. Raises ValueError for half a surrogate pair.

    >>> unescape(r"it\'s \u00e9")
    "it's é"
    """
    return _ESCAPES.sub(_unescaped, text) if "\\" in text else text


def unescape_regex(text: str) -> str:
    r"""Return the text of a regex; only escapes of single characters are replaced.

    Raises ValueError for half a surrogate pair.

    >>> unescape_regex(r"a\/b \u00e9 \d \b")
    'a/b é \\d \\b'
    """
    return _ESCAPES.sub(_unescaped_in_regex, text) if "\\" in text else text


def _unescaped_in_regex(match: re.Match[str]) -> str:
    letter = match[4]
    return match[0] if letter and letter not in _ESCAPED_IN_REGEX else _unescaped(match)


def _unescaped(match: re.Match[str]) -> str:
    high, low, code, letter = match.groups()
    if letter is not None:
        return _ESCAPED.get(letter, letter)
    if high is not None:
        return bytes.fromhex(high + low).decode("utf-16-be")
    character = chr(int(code, 16))
    if "\ud800" <= character <= "\udfff":
        raise ValueError(match[0])
    return character


def read_number(text: str) -> int | float:
    """Return the value of a text that `NUMBER` matches; an integer unless it has a dot.

    As in flor, an integer has no exponent: ``1e3`` reads as 1. Raises ValueError when the text has
    more than `MAX_DIGITS` digits, is an integer that does not fit 64 bits, or is too large for a
    float.

    >>> read_number("1e3"), read_number("-1.5e3"), read_number("-2.5E-2")
    (1, -1500.0, -0.025)
    """
    if len(text) > MAX_DIGITS:
        raise ValueError(text)
    if "." in text:
        number = float(text)
        if math.isinf(number):
            raise ValueError(text)
        return number
    whole = int(text.lower().split("e", maxsplit=1)[0])
    if not LEAST_WHOLE <= whole <= GREATEST_WHOLE:
        raise ValueError(text)
    return whole


def constant(word: str) -> tuple[str, object] | None:
    """Return head and value of a word that is a number, a boolean or null, else None.

    >>> constant("12"), constant("null"), constant("12a")
    (('_num', 12), ('_nul', None), None)
    """
    match word:
        case "true" | "false":
            return "_boo", word == "true"
        case "null":
            return "_nul", None
    if NUMBER.fullmatch(word):
        return "_num", read_number(word)
    return None


def is_word(text: str) -> bool:
    """Return whether a text by itself is one symbol, and not a constant or a regex.

    >>> is_word("a-b?"), is_word("a.b"), is_word("12"), is_word("r/a/"), is_word("r/a/b")
    (True, False, False, False, True)
    """
    if not SYMBOL.fullmatch(text) or NUMBER.fullmatch(text) or text in ("true", "false", "null"):
        return False
    start = REGEX_START.match(text)
    if start is None:
        return True
    end = REGEX_TEXT.match(text, start.end())
    assert end is not None  # noqa: S101 - it matches the empty text too
    closed = text.startswith("/", end.end())
    return not closed or not REGEX_OPTIONS.fullmatch(text, end.end() + 1)
