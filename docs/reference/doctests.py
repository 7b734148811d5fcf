"""Extension of griffe: show the doctests of docstrings as code on the API page."""

from __future__ import annotations

from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts each paragraph that starts with ``>>>`` into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with its doctests in fenced blocks."""
    paragraphs = text.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        stripped = paragraph.lstrip(" ")
        if stripped.startswith(">>>"):
            indent = " " * (len(paragraph) - len(stripped))
            paragraphs[index] = f"{indent}```python\n{paragraph}\n{indent}```"
    return "\n\n".join(paragraphs)
