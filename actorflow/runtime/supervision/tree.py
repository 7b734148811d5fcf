"""A picture of a supervision tree: plain text, or a `rich` tree where that is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.supervision.actor import SupervisorActor
from actorflow.runtime.worker.ref import WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actorflow.runtime.supervision.children import ChildInfo

__all__ = ["Tree", "outline", "picture"]

_COLOURS = {"running": "green", "up": "green", "idle": "green", "busy": "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One supervisor or child, with everything below it.

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
            yield from branch._lines(  # noqa: SLF001 - the same class
                rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
            )

    def __rich__(self) -> Any:
        """Return a tree that rich prints in colour."""
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


def picture(supervisor: SupervisorActor) -> Tree:
    """Return a picture of a supervisor and everything below it. Thread-safe. O(n)."""
    children = reversed(supervisor.family.requests.which_children())
    return Tree(
        name=f"{supervisor!r} {supervisor.flags.strategy.value}",
        status=supervisor.family.phase.name.lower(),
        restarts=supervisor.family.requests.statistics().restarts,
        branches=tuple(_branch(info, supervisor.clock.now()) for info in children),
    )


def _branch(info: ChildInfo, now: float) -> Tree:
    ref = None if info.ref is None else info.ref.ref
    actor = None if ref is None else ref.actor
    below = picture(actor) if isinstance(actor, SupervisorActor) else None
    worker = ref if isinstance(ref, WorkerRef) else None
    alive = worker is not None and worker.is_alive()
    return Tree(
        name=brief(info.id) if below is None else f"{brief(info.id)} {below.name}",
        status=worker.status.value if worker and alive else info.state.name.lower(),
        restarts=info.restarts,
        uptime=None if info.started_at is None else now - info.started_at,
        depth=None if worker is None else len(worker),
        branches=() if below is None else below.branches,
    )


def outline(supervisor: SupervisorActor) -> dict[str, Any]:
    """Return a supervisor and everything below it as data that JSON can show. Thread-safe. O(n)."""
    family, flags, now = supervisor.family, supervisor.flags, supervisor.clock.now()
    return {
        "name": repr(supervisor),
        "strategy": flags.strategy.value,
        "max_restarts": flags.max_restarts,
        "within": flags.within,
        "recent": family.restarts.window.count(now),
        "restarts": family.restarts.count,
        "status": family.phase.name.lower(),
        "children": [_outlined(each, now) for each in reversed(family.requests.which_children())],
    }


def _outlined(info: ChildInfo, now: float) -> dict[str, Any]:
    ref = None if info.ref is None else info.ref.ref
    actor = None if ref is None else ref.actor
    worker = ref if isinstance(ref, WorkerRef) and ref.is_alive() else None
    return {
        "name": brief(info.id),
        "status": worker.status.value if worker else info.state.name.lower(),
        "restart": info.restart.value,
        "restarts": info.restarts,
        "uptime": None if info.started_at is None else now - info.started_at,
        "held": None if worker is None else len(worker),
        "last_exit": None if info.last_exit is None else info.last_exit.describe(),
        "supervisor": outline(actor) if isinstance(actor, SupervisorActor) else None,
    }
