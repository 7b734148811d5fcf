"""The conformance check of stores: whether one of your own keeps what every store promises."""

from __future__ import annotations

from actorflow.testing.stores.check import check_store

__all__ = ["check_store"]
