"""A supervision tree as a picture: plain text, or a tree of rich's where that is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Tree"]

_COLOURS = {"running": "green", "up": "green", "idle": "green", "busy": "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One supervisor or child, with what is below it.

    >>> leaf = Tree(name="'db'", status="running", restarts=2, uptime=7.5)
    >>> print(Tree(name="supervisor 'app' one_for_one", status="up", branches=(leaf,)))
    supervisor 'app' one_for_one: up
    └─ 'db': running, 2 restarts, up 7.5 s
    """

    name: str
    status: str
    restarts: int = 0
    uptime: float | None = None
    depth: int | None = None
    branches: tuple[Tree, ...] = ()

    @property
    def label(self) -> str:
        """The one line for this node."""
        parts = [f"{self.name}: {self.status}"]
        if self.restarts:
            parts.append(f"{self.restarts} restart{'s' if self.restarts > 1 else ''}")
        if self.uptime is not None and self.status not in {"stopped", "restarting"}:
            parts.append(f"up {_seconds(self.uptime)}")
        if self.depth:
            parts.append(f"{self.depth} waiting")
        return ", ".join(parts)

    def __str__(self) -> str:
        return "\n".join(self._lines("", ""))

    def _lines(self, first: str, rest: str) -> Iterator[str]:
        yield first + self.label
        for at, branch in enumerate(self.branches):
            last = at == len(self.branches) - 1
            yield from branch._lines(  # noqa: SLF001 - one of us
                rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
            )

    def __rich__(self) -> Any:
        """Give a tree that rich prints in colour."""
        from rich.text import Text  # noqa: PLC0415 - an extra
        from rich.tree import Tree as RichTree  # noqa: PLC0415 - an extra

        tree = RichTree(Text(self.label, style=_COLOURS.get(self.status, "yellow")))
        for branch in self.branches:
            tree.add(branch.__rich__())
        return tree


def _seconds(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
