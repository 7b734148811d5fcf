"""Words, numbers and strings as flow text: how the leaves of a tree are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actorflow.flows.language.tokens import REGEX_TEXT, is_word, unescape_regex
from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from actorflow.flows.language.tree import Tree

_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    | {chr(code): f"\\u{code:04x}" for code in (*range(8), 0x0B, *range(0x0E, 0x20), 0x7F)}
)
_REGEX_ESCAPES: Final = str.maketrans({"\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


class FlowFormatError(ActorflowError, ValueError):
    """No flow text parses to the tree, so it cannot be formatted."""


def word(head: object) -> str:
    """Return a head as a word. Raises `FlowFormatError` if it would not parse as one."""
    if isinstance(head, str) and is_word(head):
        return head
    raise FlowFormatError(f"a node cannot have the head {head!r}: it is not a symbol")


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
    raise FlowFormatError(f"no flow text parses to {tree!r:.80}")


def _float(value: float) -> str:
    """Return a float with a dot, without which it would parse as an integer."""
    mantissa, e, exponent = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + e + exponent


def escaped(text: str) -> str:
    """Return a text with its backslashes and control characters escaped, but not its quotes."""
    return text.translate(_ESCAPES)


def regex_text(text: str) -> str | None:
    """Return a text as it is written in a regex, or None if it cannot be part of one."""
    written = text.replace("/", "\\/").translate(_REGEX_ESCAPES)
    if not REGEX_TEXT.fullmatch(written) or unescape_regex(written) != text:
        return None
    return written
