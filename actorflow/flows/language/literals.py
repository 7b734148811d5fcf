"""Words, numbers and strings as text: the leaves of a tree, so that they read back as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actorflow.flows.language.lexemes import REGEX_TEXT, is_word, unescape_regex
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from actorflow.flows.language.tree import Tree

_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    | {chr(code): f"\\u{code:04x}" for code in (*range(8), 0x0B, *range(0x0E, 0x20), 0x7F)}
)
_REGEX_ESCAPES: Final = str.maketrans({"\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


class FlowFormatError(ActorflowError, ValueError):
    """The tree is none that a flow text can be read into, so no text can be written for it."""


def word(head: object) -> str:
    """Return a head as a word. Raises `FlowFormatError` when it would not read back as one."""
    if isinstance(head, str) and is_word(head):
        return head
    raise FlowFormatError(f"a node cannot have the head {head!r}: it does not read as one symbol")


def literal(tree: Tree) -> str:
    """Return the text of a number, a boolean, null, or a plain string."""
    match tree[0], tree[1]:
        case "_num", int(value) if not isinstance(value, bool):
            return str(value)
        case "_num", float(value):
            return _float(value)
        case "_boo", bool(value):
            return "true" if value else "false"
        case "_nul", None:
            return "null"
        case "_sqs", str(value):
            return "'" + escaped(value).replace("'", "\\'") + "'"
    raise FlowFormatError(f"no flow text reads as {tree!r:.80}")


def _float(value: float) -> str:
    """Return a float with a dot in it, without which it would read as an integer."""
    mantissa, e, exponent = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + e + exponent


def escaped(text: str) -> str:
    """Return a text with its backslashes and control characters escaped, but not its quotes."""
    return text.translate(_ESCAPES)


def regex_text(text: str) -> str | None:
    """Return how a text stands in a regex; None when it cannot."""
    written = text.replace("/", "\\/").translate(_REGEX_ESCAPES)
    if not REGEX_TEXT.fullmatch(written) or unescape_regex(written) != text:
        return None
    return written
