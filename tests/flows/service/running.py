"""Runs flows on an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.flows.engines import PATIENCE

if TYPE_CHECKING:
    import actorflow as af


def run(engine: af.Engine, flow: str, **options: Any) -> Any:
    return engine.wait(engine.launch(flow, **options), PATIENCE).view
