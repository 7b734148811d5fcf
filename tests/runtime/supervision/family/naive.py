"""OTP's supervisor in its most naive form: recursive, blocking, without threads or messages.

It is written from the rules (S10-S47 of the specification), not from the product: starting and
stopping are plain calls, a restart is a loop, time is a number. What happens is written to `log`:
"+a2" the second incarnation of "a" has started, "-a2" it has stopped, "!a" its start has failed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any


class StartError(Exception):
    """A child did not start."""


@dataclass
class Spec:
    """A child, and, if `flags` are given, a supervisor with children of its own."""

    id: str
    restart: str = "permanent"
    brutal: bool = False
    significant: bool = False
    worker: bool = False
    flags: dict[str, Any] | None = None
    children: list[Spec] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    """A child in a supervisor: `up` while it runs."""

    spec: Spec
    parent: Node | None
    up: bool = False
    name: str = ""
    kids: list[Node] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    restarts: int = 0

    @property
    def is_supervisor(self) -> bool:
        return self.spec.flags is not None

    @property
    def flags(self) -> dict[str, Any]:
        assert self.spec.flags is not None
        return self.spec.flags

    @property
    def is_dynamic(self) -> bool:
        return bool(self.flags["strategy"] == "dynamic")


class World:
    """All that the naive supervisors share: the log, the time, and which starts will fail."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now = 0.0
        self.outcomes: defaultdict[str, deque[str]] = defaultdict(deque)
        self.births: defaultdict[str, int] = defaultdict(int)

    # Starting and stopping one node.

    def start(self, node: Node) -> None:
        """Start it, or raise `StartError`; a leaf may choose not to run."""
        name = node.spec.id
        if node.is_supervisor:
            node.kids, node.times, node.restarts = [], [], 0
            for spec in node.spec.children:
                kid = Node(spec, node)
                try:
                    self.start(kid)
                except StartError:
                    for other in reversed(node.kids):
                        self.stop(other)
                    raise
                if kid.up or spec.restart != "temporary":
                    node.kids.append(kid)
            node.up = True
            return
        outcome = self.outcomes[name].popleft() if self.outcomes[name] else "ok"
        if outcome == "fail":
            self.log.append(f"!{name}")
            raise StartError(name)
        if outcome == "ok":
            self.births[name] += 1
            node.name = f"{name}{self.births[name]}"
            node.up = True
            self.log.append(f"+{node.name}")

    def stop(self, node: Node) -> None:
        """Stop it as its specification says, if it runs."""
        if not node.up:
            return
        if node.spec.brutal:
            self.kill(node)
            return
        node.up = False
        if node.is_supervisor:
            self.stop_kids(node)
        else:
            self.log.append(f"-{node.name}")

    def stop_kids(self, node: Node) -> None:
        """Stop all children: in reverse, or all at once."""
        for kid in list(node.kids) if node.is_dynamic else reversed(node.kids):
            self.stop(kid)

    def kill(self, node: Node) -> None:
        """Kill it, and all below."""
        node.up = False
        for kid in node.kids:
            self.kill(kid)

    # What happens to a node by itself.

    def ended(self, node: Node, *, clean: bool) -> None:
        """React to the end of a node: S14-S26, S42-S45."""
        node.up = False
        parent = node.parent
        if parent is None:
            return
        kind = node.spec.restart
        if kind == "permanent" or (kind == "transient" and not clean):
            self.restart(parent, node)
            return
        if kind == "temporary" or parent.is_dynamic:
            parent.kids.remove(node)
        if node.spec.significant:
            mode = parent.flags["auto_shutdown"]
            others = any(kid.up and kid.spec.significant for kid in parent.kids)
            if mode == "any_significant" or (mode == "all_significant" and not others):
                self.give_up(parent)

    def restart(self, parent: Node, culprit: Node) -> None:
        """Try again and again, until it works or the limit is reached."""
        flags = parent.flags
        while True:
            recent = [time for time in parent.times if self.now - time <= flags["within"]]
            if len(recent) >= flags["max_restarts"]:
                self.give_up(parent)
                return
            parent.times = [*recent, self.now]
            parent.restarts += 1
            failed = self.attempt(parent, culprit)
            if failed is None:
                return
            culprit = failed

    def attempt(self, parent: Node, culprit: Node) -> Node | None:
        """Restart the culprit and its group; return the child that did not start."""
        strategy = parent.flags["strategy"]
        affected = [culprit]
        if strategy == "one_for_all":
            affected = list(parent.kids)
        elif strategy == "rest_for_one":
            affected = parent.kids[parent.kids.index(culprit) :]
        for kid in reversed(affected):
            if kid is not culprit:
                self.stop(kid)
                if kid.spec.restart == "temporary":
                    parent.kids.remove(kid)
        for kid in affected:
            if kid not in parent.kids:
                continue
            try:
                self.start(kid)
            except StartError:
                return kid
            if not kid.up and (parent.is_dynamic or kid.spec.restart == "temporary"):
                parent.kids.remove(kid)
        return None

    def give_up(self, node: Node) -> None:
        """End a supervisor: its children first, then its own supervisor is notified."""
        self.stop_kids(node)
        self.ended(node, clean=True)

    # Requests: True if granted.

    def terminate(self, parent: Node, node: Node) -> None:
        self.stop(node)
        if node.spec.restart == "temporary" or parent.is_dynamic:
            parent.kids.remove(node)

    def revive(self, node: Node) -> bool:
        if node.up:
            return False
        try:
            self.start(node)
        except StartError:
            return False
        return True

    def delete(self, parent: Node, node: Node) -> bool:
        if not node.up:
            parent.kids.remove(node)
            return True
        return False

    def add(self, parent: Node, spec: Spec) -> bool:
        node = Node(spec, parent)
        try:
            self.start(node)
        except StartError:
            return False
        if node.up or not (parent.is_dynamic or spec.restart == "temporary"):
            parent.kids.append(node)
        return True


def below(node: Node) -> list[Node]:
    """Return all nodes below, whether they run or not."""
    return [each for kid in node.kids for each in (kid, *below(kid))]
