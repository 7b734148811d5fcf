"""Engines for tests of workflows: on both stores, in virtual time."""

from __future__ import annotations

import pytest

from actorflow.application import Engine
from tests.engine.conftest import clock, engine, reopen

__all__ = ["clock", "engine", "opens", "reopen"]


@pytest.fixture
def opens() -> type[Engine]:
    """Return the engine that knows workflows."""
    return Engine
