"""Regular expressions of flows, on an engine whose time is linear in the text.

Flow texts and payloads choose both the expression and the text. Python's `re` may then take years
for forty letters, and holds the interpreter meanwhile. RE2 cannot, in return for look-arounds and
back-references, which it does not know; and it lets other threads run. How large an expression and
a text may be together is known before anything is matched, so a run stays a function of its input.
"""

from __future__ import annotations

import functools
import importlib
import re
import time
from typing import TYPE_CHECKING, Any, Final

from actorflow.flows.errors import FlowError, LimitExceeded
from actorflow.flows.limits import LIMITS, Limits
from actorflow.flows.values.values import Value, is_regex, regex_parts, type_name
from actorflow.runtime.errors import MissingExtra, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Match", "Regex", "groups", "to_regex"]

Match = Any
"""A match of RE2, which has the methods of an `re.Match`."""

_MEMORY: Final = 2**20
"""Bytes for one compiled expression and the states that it keeps between matches."""
_CACHED: Final = 64
_SHOWN: Final = 60

_OPTIONS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_OPTION_LETTERS: Final = {"m": "s", "x": ""}
"""As in Ruby: ``m`` lets the dot match newlines, and ``^`` and ``$`` always match at each line."""
_UNKNOWN: Final = (
    "invalid perl operator",
    "invalid escape sequence: \\",
    "bad repetition operator",
)


class Regex:
    """A compiled regular expression."""

    __slots__ = ("_compiled", "_limits", "shown", "size")

    def __init__(self, source: str, letters: str, limits: Limits) -> None:
        """Compile.

        Raises FlowError when the expression is not valid, and LimitExceeded when it is too large.
        """
        self.shown = f"/{source if len(source) <= _SHOWN else source[:_SHOWN] + '...'}/{letters}"
        self._limits = limits
        if len(source) > limits.pattern_size:
            raise self._too_large(f"has {len(source):,} characters")
        options = "".join(
            sorted({_OPTION_LETTERS.get(letter, letter) for letter in letters} & {*"is"})
        )
        try:
            self._compiled = _compiled(
                f"(?m{options})" + _translated(source, verbose="x" in letters)
            )
        except _engine().error as error:
            raise FlowError(self._why(error.args[0])) from error
        self.size: int = self._compiled.programsize
        if self.size > limits.pattern_size:
            raise self._too_large(f"has {self.size:,} instructions")

    def _too_large(self, what: str) -> LimitExceeded:
        most = self._limits.pattern_size
        return LimitExceeded(f"the regular expression {self.shown} {what}, and may have {most:,}")

    def _why(self, error: bytes | str) -> str:
        text = error.decode(errors="replace") if isinstance(error, bytes) else error
        if "too large" in text or "repetition size" in text:
            text += "; repeat less often"
        elif text.startswith(_UNKNOWN):
            text += (
                "; look-arounds, back-references and possessive repetitions are not supported,"
                " because nothing limits their time"
            )
        return f"invalid regular expression {self.shown}: {text}"

    @property
    def groups(self) -> int:
        """The number of groups."""
        count: int = self._compiled.groups
        return count

    def search(self, text: str) -> Match | None:
        """Return the first match, or None. Other threads run meanwhile.

        Raises LimitExceeded when expression and text are too large together.
        """
        self._check(text)
        return self._compiled.search(text)

    def find_all(self, text: str) -> Iterator[Match]:
        """Yield all matches, from left to right.

        Raises LimitExceeded like `search`, and when the search exceeds its time limit: each
        match may look at all of the remaining text.
        """
        self._check(text)
        end = time.thread_time() + self._limits.split_seconds
        for match in self._compiled.finditer(text):
            yield match
            if time.thread_time() > end:
                raise LimitExceeded(
                    f"finding all matches of {self.shown} in a text of {len(text):,} characters"
                    f" takes longer than {self._limits.split_seconds} s"
                )

    def _check(self, text: str) -> None:
        if self.size * len(text) > self._limits.pattern_steps:
            raise LimitExceeded(
                f"matching {self.shown} ({self.size:,} instructions) with a text of {len(text):,}"
                f" characters may take more than {self._limits.pattern_steps:,} steps"
            )


@functools.cache
def _engine() -> Any:
    """Import RE2 when the first flow needs it.

    Raises:
        MissingExtra: it is not installed.

    """
    try:
        return importlib.import_module("re2")
    except ImportError as error:
        msg = f"regular expressions of flows need google-re2: {install_hint('flows')}"
        raise MissingExtra(msg) from error


def _compiled(pattern: str) -> Any:
    engine = _engine()
    options = engine.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    return engine.compile(pattern, options)


_regex = functools.lru_cache(maxsize=_CACHED)(Regex)


def to_regex(value: Value, limits: Limits = LIMITS) -> Regex:
    """Compile a regular expression value, or a plain string, to a pattern.

    >>> to_regex(["_rxs", "/A(b+)/i", 1]).search("xabby").group(1)
    'bb'

    Raises FlowError for anything else, or when the expression is not valid.
    """
    text = value[1] if is_regex(value) else value
    if type(text) is not str:
        raise FlowError(f"cannot turn {type_name(value)} into a regular expression")
    source, letters = regex_parts(text)
    return _regex(source, letters, limits)


def groups(match: Match) -> list[str | None]:
    """Return the whole match followed by its groups."""
    return [match.group(0), *match.groups()]


def _translated(source: str, *, verbose: bool) -> str:
    r"""Return an expression in RE2's syntax: without what only makes it readable.

    >>> _translated(r"(?mi-x:a)\Z", verbose=False), _translated("a [ #] b # c", verbose=True)
    ('(?si:a)\\z', 'a[ #]b')
    """
    out: list[str] = []
    at = 0
    while at < len(source):
        one = source[at]
        if one == "\\":
            out.append(_escaped(source[at : at + 2]))
            at += 2
        elif one == "[":
            end = _class_end(source, at)
            out.append(source[at:end])
            at = end
        elif source.startswith("(?#", at):
            at = source.find(")", at) + 1 or len(source)
        elif one == "(" and (found := _OPTIONS.match(source, at)):
            out.append(_options(*found.groups("")))
            at = found.end()
        elif verbose and one == "#":
            at = source.find("\n", at) + 1 or len(source)
        else:
            if not (verbose and one.isspace()):
                out.append(one)
            at += 1
    return "".join(out)


def _escaped(pair: str) -> str:
    if pair == r"\Z":
        return r"\z"
    return pair if pair.isascii() else pair[1]


def _class_end(source: str, start: int) -> int:
    r"""Return where a character class ends, such as ``[]a]``, ``[^\]]`` or ``[[:alpha:]-]``."""
    at = start + 1 + source.startswith("^", start + 1)
    at += source.startswith("]", at)
    while at < len(source) and source[at] != "]":
        if source[at] == "\\":
            at += 2
        elif source.startswith("[:", at) and ":]" in source[at:]:
            at = source.index(":]", at) + 2
        else:
            at += 1
    return at + 1


def _options(on: str, off: str, end: str) -> str:
    """Return the options in front of a part: ``(?mi-x:`` is ``(?si:``."""
    if "x" in on:
        raise FlowError("the option x holds for a whole regular expression: write it behind the /")
    on, off = ("".join(_OPTION_LETTERS.get(one, one) for one in letters) for letters in (on, off))
    letters = on + (f"-{off}" if off else "")
    return "" if end == ")" and not letters else f"(?{letters}{end}"
