"""Safeguards taken away one at a time, to show that the storms and duels notice."""

from __future__ import annotations

import inspect
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.runtime.worker.pair import requests, transitions
from actorflow.runtime.worker.pair.accumulator import Accumulator
from actorflow.runtime.worker.pair.offers import Offers

if TYPE_CHECKING:
    import pytest


class NoLock:
    """A lock that everybody may pass."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as a lock has it
        return True

    def release(self) -> None:
        return

    def _is_owned(self) -> bool:
        return False

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        return


@dataclass(frozen=True)
class Mutation:
    """Lines of the pair that are replaced: by function, the old and the new lines."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    storm: tuple[tuple[str, Any], ...] | None = (("lulls", True),)
    """The weather in which storms notice, if they do."""
    duel: tuple[str, ...] | None = ("busy", "run", "push")
    """The duel that notices, if one does."""

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Replace the lines for as long as the patch lasts."""
        for method in {method for method, _, _ in self.changes}:
            owner: Any = next(one for one in _OWNERS if hasattr(one, method))
            module: Any = owner if inspect.ismodule(owner) else inspect.getmodule(owner)
            original = getattr(owner, method)
            source = textwrap.dedent(inspect.getsource(original))
            for old, new in [change[1:] for change in self.changes if change[0] == method]:
                assert old in source, f"{self.name}: {method} has no line {old!r}"
                source = source.replace(old, new)
            scope: dict[str, Any] = {}
            # With the file's name, so that yields and pauses find their places in it.
            code = compile(source, module.__file__, "exec")
            exec(code, {**vars(module), "NoLock": NoLock}, scope)  # noqa: S102 - our own code
            # Functions are known by their names wherever they were imported.
            rooms = [room for name, room in sys.modules.items() if name.startswith(_PAIR)]
            for one in [owner, *rooms]:
                if vars(one).get(method) is original:
                    patch.setattr(one, method, scope[method])

    def __str__(self) -> str:
        return self.name


_PAIR = "actorflow.runtime.worker.pair."
_OWNERS = (Accumulator, Offers, transitions, requests)
_CLAIM = "self.settings.lane.claim(self.idle)"

MUTATIONS = (
    Mutation(
        "everybody passes the lock",
        (("__init__", "RLock()", "NoLock()"),),
        duel=None,
    ),
    Mutation(
        "no second look after a batch",
        (("done", "if not (raw or self.mail):", "if True:"),),
    ),
    Mutation(
        "no second look in the general path",
        (("recheck_inbox", "if pair.core.raw or pair.mail:", "if False:"),),
        storm=None,  # in lulls over "chunk" it takes them up to some dozens of seeds
        duel=("idling", "help", "push"),
    ),
    Mutation(
        "the token is taken but not handed over",
        (("wake", _CLAIM, "self.idle.pop()"),),
        duel=("idle", "push", "look"),
    ),
    Mutation(
        "the token is handed over twice",
        (("wake", _CLAIM, f"{_CLAIM} and self.settings.lane.submit(self)"),),
        storm=None,
        duel=("idle", "push", "look"),
    ),
    Mutation(
        "the token is handed over twice, and active slots are not counted",
        (
            ("wake", _CLAIM, f"{_CLAIM} and self.settings.lane.submit(self)"),
            ("_facts", "running=pair.active", "running=0"),
            ("_facts", "if pair.active < limit:", "if True:"),
        ),
        storm=(("behaviour", "chunk"),),
        duel=None,
    ),
    Mutation(
        "nobody catches up with an executor that was woken",
        (("start_pending", "not pair.idle and not pair.active", "False"),),
        storm=None,
        duel=("busy", "finish", "look"),
    ),
    Mutation(
        "an executor that was cut off goes on",
        (("done", "generation != self.generation", "False"),),
        storm=(("stop", "now"),),
        duel=None,
    ),
    Mutation(
        "the last one in line gets the room",
        (
            ("admit", "blocked[0]", "blocked[-1]"),
            ("admit", "blocked.popleft()", "blocked.pop()"),
        ),
        storm=(("behaviour", "block"),),
        duel=None,
    ),
)
