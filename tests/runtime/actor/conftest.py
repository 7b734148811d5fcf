"""Each test of actors sees only its own in pykka's registry, and stops what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pykka
import pytest

from actorflow.runtime.registry import ACTORS
from actorflow.testing import ManualLane
from tests.runtime.worker.probe import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show a test only its own actors, and stop what it leaves."""
    with monkeypatch.context() as patch:
        patch.setattr(ACTORS, "_members", {})
        yield
        for member in ACTORS.members():
            if isinstance(getattr(member, "lane", None), ManualLane):  # nobody runs it any more
                member.kill()
        pykka.ActorRegistry.stop_all(timeout=PATIENCE)
