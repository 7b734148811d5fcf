"""Tags: short strings by which executions are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LONGEST", "tag_text", "tags_from", "texts_of"]

LONGEST = 1_000
"""Characters of the name or the value of a tag: it is a key of an index, not a place for data."""


def tag_text(name: str, value: Any) -> str:
    """Return the value of a tag as it is stored and searched: as a string.

    >>> tag_text("customer", "c-7"), tag_text("items", 3), tag_text("vip", True)
    ('c-7', '3', 'true')

    Raises:
        BadOption: it is not a short string, a number or a boolean, or its name is not a string.

    """
    given: Any = name
    if not isinstance(given, str):
        msg = f"the tag {given!r:.80} is named by no text: write for example {{'customer': 'c-7'}}"
        raise BadOption(msg)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        msg = (
            f"the tag {name!r:.80} is {value!r:.80}, which is {type(value).__name__}: "
            "a tag is a string, a number or a boolean, as in customer='c-7'"
        )
        raise BadOption(msg)
    text = str(value)
    if not name or max(len(name), len(text)) > LONGEST:
        msg = (
            f"the tag {name!r:.80} is {text!r:.80}: its name and value have 1 and 0 to {LONGEST:,} "
            "characters; keep data in a property"
        )
        raise BadOption(msg)
    return text


def texts_of(tags: Any) -> dict[str, str]:
    """Return tags as they are stored and searched; see `tag_text`.

    Raises:
        BadOption: they are not a dict, or one of them cannot be stored.

    """
    if not isinstance(tags, Mapping):
        msg = f"tags={tags!r:.80} is not a dict: write for example tags={{'customer': 'c-7'}}"
        raise BadOption(msg)
    return {name: tag_text(name, value) for name, value in tags.items()}


def tags_from(texts: Iterable[str]) -> dict[str, str]:
    """Return the tags that strings such as `customer=c-7` name.

    >>> tags_from(["customer=c-7", "vip=true"])
    {'customer': 'c-7', 'vip': 'true'}

    Raises:
        BadOption: one has no `=`, or names a tag again.

    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            msg = f"{text!r:.80} names no tag, or one again: write NAME=VALUE, as in customer=c-7"
            raise BadOption(msg)
        found[name] = value
    return found
