"""An engine that knows a kind of execution which asks for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engine.kinds import Script
from tests.engine.tasks.asking import asking

if TYPE_CHECKING:
    from actorflow.engine.engine import BareEngine


@pytest.fixture
def script(engine: BareEngine) -> Script:
    """Register the kind, and return it."""
    made = Script(asking)
    engine.register(made)
    return made
