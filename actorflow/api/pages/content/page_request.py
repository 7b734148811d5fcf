"""The request for a page of the dashboard: what the page is built from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actorflow.api.client import Client
    from actorflow.api.pages.content.samples import Samples
    from actorflow.api.verbs import table

    Verbs: TypeAlias = Client | table.Verbs

__all__ = ["PageRequest", "whole"]


class PageRequest(NamedTuple):
    """One request for a page."""

    verbs: Verbs
    query: Mapping[str, str]
    samples: Samples
    reports: Path | None = None
    """The folder with reports of the lab."""

    def place(self) -> int | None:
        """Return where the last page of a list ended, where rows have numbers."""
        after = self.query.get("after")
        return whole(after) if after else None


def whole(text: str) -> int:
    """Return a whole number that somebody has sent.

    Raises:
        ValueError: the text is not a whole number.

    """
    try:
        return int(text)
    except ValueError:
        msg = f"{text!r:.80} is not a whole number: follow the links and buttons of the pages"
        raise ValueError(msg) from None
